/* One poll a second for whoever is looking; none while nobody can see the page. */
import { Failure, get } from "./api";
import { type Rule, type Tally, merge } from "./figures";
import { millis } from "./format";
import type { Stats } from "./types";

export interface Choice {
    q: string;
    sort: "traffic" | "denied" | "shed" | "delayed" | "shadow_denied" | "name";
    limit: number;
    offset: number;
    names?: string[]; /* just these, in this order */
}

export interface Sample {
    stats: Stats;
    all: Rule;
    rules: Rule[]; /* those of the choice */
    matching: number; /* how many there are to choose from */
}

type Told = (sample: Sample | null, error: string) => void;

const every = 1000;
const slowest = 15000;
const manyRules = 200; /* from here on it is asked less often: the answer has all of them */

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

/* Calls `told` with every sample until the function it returns is called. */
export function follow(choice: () => Choice, told: Told): () => void {
    let timer = 0;
    let wait = every;
    let stopped = false;
    const control = new AbortController();
    const again = (after: number) => {
        clearTimeout(timer);
        if (!stopped && !document.hidden) timer = window.setTimeout(poll, after);
    };
    async function poll(): Promise<void> {
        const chosen = choice();
        try {
            const stats = await get<Stats>("/v1/stats", control.signal);
            if (stopped) return;
            wait = every * Math.min(5, Math.max(1, stats.rules.length / manyRules));
            told(choose(stats, chosen), "");
        } catch (error) {
            if (stopped) return;
            wait = Math.min(wait * 2, slowest);
            told(null, error instanceof Failure ? error.message : String(error));
        }
        again(wait);
    }
    const seen = () => again(0);
    document.addEventListener("visibilitychange", seen);
    void poll();
    return () => {
        stopped = true;
        control.abort();
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", seen);
    };
}

/* Rates from what two samples counted: what the chart shows has then neither gaps nor doubles. */
export class Meter {
    private at = NaN;
    private last: Tally | null = null;

    next(stats: Stats, totals: Tally): { at: number; counts: Tally } | null {
        const at = millis(stats.at) / 1000;
        const before = this.last;
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
