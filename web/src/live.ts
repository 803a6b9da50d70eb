/* Polls the statistics once a second; not while the page is hidden. */
import { Failure, get, query } from "./api";
import { type Rule, type Tally, merge } from "./figures";
import { millis } from "./format";
import { chosenHost } from "./hosts";
import type { Stats } from "./types";

export interface Choice {
    q: string;
    sort: "traffic" | "denied" | "shed" | "delayed" | "shadow_denied" | "name";
    limit: number;
    offset: number;
    names?: string[]; /* only these, in this order */
}

export interface Sample {
    stats: Stats;
    all: Rule;
    rules: Rule[]; /* the chosen ones */
    matching: number; /* number of rules that match */
}

type OnSample = (sample: Sample | null, error: string) => void;

const pollMs = 1000;
const slowestMs = 15000;
const manyRules = 200; /* with more rules it polls less often: each reply has all of them */

function weight(rule: Rule, sort: Choice["sort"]): number {
    const now = rule.rates["60s"] ?? rule.totals;
    if (sort === "traffic") return now.allowed + now.denied + now.shed + now.delayed + now.shadow_all;
    return sort === "name" ? 0 : now[sort];
}

function choose(stats: Stats, choice: Choice): Sample {
    const { rules, all } = merge(stats);
    const by = new Map(rules.map((rule) => [rule.name, rule]));
    const wanted = choice.q.toLowerCase();
    const found = rules.filter((rule) => rule.name.toLowerCase().includes(wanted));
    if (choice.names) {
        const kept = choice.names.flatMap((name) => by.get(name) ?? []);
        return { stats, all, rules: kept, matching: found.length };
    }
    found.sort((a, b) => weight(b, choice.sort) - weight(a, choice.sort) || a.name.localeCompare(b.name));
    return { stats, all, rules: found.slice(choice.offset, choice.offset + choice.limit), matching: found.length };
}

/* Calls `onSample` with each sample until the returned function is called. */
export function follow(choice: () => Choice, onSample: OnSample): () => void {
    let timer = 0;
    let wait = pollMs;
    let stopped = false;
    const control = new AbortController();
    const schedule = (after: number) => {
        clearTimeout(timer);
        if (!stopped && !document.hidden) timer = window.setTimeout(poll, after);
    };
    async function poll(): Promise<void> {
        const chosen = choice();
        try {
            const stats = await get<Stats>(`/v1/stats${query(chosenHost())}`, control.signal);
            if (stopped) return;
            wait = pollMs * Math.min(5, Math.max(1, stats.rules.length / manyRules));
            onSample(choose(stats, chosen), "");
        } catch (error) {
            if (stopped) return;
            wait = Math.min(wait * 2, slowestMs);
            onSample(null, error instanceof Failure ? error.message : String(error));
        }
        schedule(wait);
    }
    const onVisible = () => schedule(0);
    document.addEventListener("visibilitychange", onVisible);
    void poll();
    return () => {
        stopped = true;
        control.abort();
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", onVisible);
    };
}

/* Rates from the totals of two samples, so that the chart has neither gaps nor overlaps. */
export class Meter {
    private at = NaN;
    private last: Tally | null = null;
    private hosts = ""; /* a host more or less is no traffic */

    next(stats: Stats, totals: Tally): { at: number; counts: Tally } | null {
        const at = millis(stats.at) / 1000;
        const hosts = JSON.stringify(stats.coverage?.hosts);
        const before = hosts === this.hosts ? this.last : null;
        this.hosts = hosts;
        const elapsed = at - this.at;
        if (elapsed <= 0) return null;
        this.last = totals;
        this.at = at;
        if (!before || !Number.isFinite(elapsed)) return null;
        const per = (name: keyof Tally) => Math.max(0, totals[name] - before[name]) / elapsed;
        return {
            at,
            counts: {
                allowed: per("allowed"), denied: per("denied"), delayed: per("delayed"), shed: per("shed"),
                shadow_denied: per("shadow_denied"), shadow_all: per("shadow_all"),
            },
        };
    }
}
