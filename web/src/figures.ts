/* Merges the statistics of a rule and of its shadow, which the server lists separately. */
import type { Counts, RuleStats, Span, Stats } from "./types";

export interface Tally extends Counts {
    shed: number;
    shadow_denied: number;
    shadow_all: number; /* requests that the shadow evaluated */
}

export interface Rule {
    name: string;
    totals: Tally;
    rates: Record<Span, Tally | null>;
}

export const spans: Span[] = ["1s", "10s", "60s"];

function nothing(): Tally {
    return { allowed: 0, denied: 0, delayed: 0, shed: 0, shadow_denied: 0, shadow_all: 0 };
}

function add(to: Tally, counts: Counts, shadow: boolean): void {
    if (shadow) {
        to.shadow_denied += counts.denied;
        to.shadow_all += counts.allowed + counts.denied + counts.delayed;
    } else {
        to.allowed += counts.allowed;
        to.denied += counts.denied;
        to.delayed += counts.delayed;
        to.shed += counts.shed ?? 0;
    }
}

function put(rule: Rule, figures: RuleStats): void {
    add(rule.totals, figures.totals, figures.shadow);
    for (const span of spans) {
        const counts = figures.rates[span];
        if (counts) add((rule.rates[span] ??= nothing()), counts, figures.shadow);
    }
}

function fresh(name: string): Rule {
    return { name, totals: nothing(), rates: { "1s": null, "10s": null, "60s": null } };
}

/* Each rule by its name, and their sum. */
export function merge(stats: Stats): { rules: Rule[]; all: Rule } {
    const rules = new Map<string, Rule>();
    const all = fresh("");
    for (const figures of stats.rules) {
        let rule = rules.get(figures.name);
        if (!rule) rules.set(figures.name, (rule = fresh(figures.name)));
        put(rule, figures);
        put(all, figures);
    }
    return { rules: [...rules.values()], all };
}
