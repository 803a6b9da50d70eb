/* One poll a second for whoever is looking; none while nobody can see the page. */
import { Failure, get, query } from "./api";
import { millis } from "./format";
import type { Counts, RuleStats, Stats } from "./types";

export interface Choice {
    q: string;
    sort: "traffic" | "denied" | "delayed" | "shadow_denied" | "name";
    limit: number;
    offset: number;
}

export interface Sample {
    stats: Stats;
    rules: RuleStats[]; /* those of the choice */
    matching: number; /* how many there are of them */
}

type Told = (sample: Sample | null, error: string) => void;

const every = 1000;
const slowest = 15000;

function weight(rule: RuleStats, sort: Choice["sort"]): number {
    const now = rule.rates["60s"] ?? rule.totals;
    if (sort === "traffic") return now.allowed + now.denied + now.delayed;
    return sort === "name" ? 0 : now[sort];
}

/* The server may have chosen already; then this changes nothing. */
export function choose(stats: Stats, choice: Choice): Sample {
    const total = stats.rules_total ?? stats.rules.length;
    if (stats.rules.length <= choice.limit && total > stats.rules.length) {
        return { stats, rules: stats.rules, matching: total };
    }
    const wanted = choice.q.toLowerCase();
    const rules = stats.rules.filter((rule) => rule.name.toLowerCase().includes(wanted));
    rules.sort((a, b) => weight(b, choice.sort) - weight(a, choice.sort) || a.name.localeCompare(b.name));
    const page = rules.length > choice.limit ? rules.slice(choice.offset, choice.offset + choice.limit) : rules;
    return { stats, rules: page, matching: rules.length };
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
            const stats = await get<Stats>(`/v1/stats${query({ ...chosen })}`, control.signal);
            if (stopped) return;
            wait = every;
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
    window.addEventListener("weir:session", seen);
    void poll();
    return () => {
        stopped = true;
        control.abort();
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", seen);
        window.removeEventListener("weir:session", seen);
    };
}

/* Rates from what two samples counted: what the chart shows has then neither gaps nor doubles. */
export class Meter {
    private at = NaN;
    private last: Counts | null = null;

    next(stats: Stats, totals: Counts): { at: number; counts: Counts } | null {
        const at = millis(stats.at) / 1000;
        const before = this.last;
        const elapsed = at - this.at;
        if (elapsed <= 0) return null;
        this.last = totals;
        this.at = at;
        if (!before || !Number.isFinite(elapsed)) return null;
        const per = (name: keyof Counts) => Math.max(0, totals[name] - before[name]) / elapsed;
        return {
            at,
            counts: {
                allowed: per("allowed"), denied: per("denied"), delayed: per("delayed"),
                shadow_denied: per("shadow_denied"),
            },
        };
    }
}
