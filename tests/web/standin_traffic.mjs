/* The stand-in's gateway and statistics: fixed windows from the first request on, counted exactly. */
import { lint } from "./standin_rules.mjs";

const none = () => ({ allowed: 0, denied: 0, delayed: 0, shadow_denied: 0 });
const names = Object.keys(none());
const windowOf = (text) => {
    const [, n, unit] = /^([\d.]+)(ms|s|m|h|d)?/.exec(text) ?? [0, 60, "s"];
    return n * { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 }[unit ?? "s"];
};

export class Traffic {
    tallies = new Map();
    counters = new Map();
    blocked = new Map();
    seconds = new Map(); /* second -> rule -> counts */

    constructor(rules) {
        this.rules = rules;
    }

    limits(document, version) {
        const { seen } = lint(this.rules.text(document, version));
        return { limit: Number(seen.limit), window: windowOf(seen.window), path: /path:\s*([^\s}]+)/.exec(seen.match ?? "")?.[1] };
    }

    take(id, { limit, window }) {
        const now = Date.now() / 1000;
        let counter = this.counters.get(id);
        if (!counter || counter.until <= now) this.counters.set(id, (counter = { used: 0, until: now + window, limit, denied: 0 }));
        counter.limit = limit;
        if (counter.used < limit) return ++counter.used > 0;
        counter.denied += 1;
        return false;
    }

    request(path, user) {
        let allowed = true;
        for (const document of this.rules.documents.values()) {
            const version = document.enforced ?? document.shadow;
            if (!version || this.limits(document, version).path !== path) continue;
            const key = `user:${user}`;
            const id = JSON.stringify([document.name, key]);
            if (document.shadow && !this.take(`shadow${id}`, this.limits(document, document.shadow))) this.count(document.name, "shadow_denied");
            if (!document.enforced) {
                this.count(document.name, "allowed");
                continue;
            }
            const passes = !(this.blocked.get(id) > Date.now()) && this.take(id, this.limits(document, document.enforced));
            this.count(document.name, passes ? "allowed" : "denied");
            allowed &&= passes;
        }
        return allowed;
    }

    count(rule, what) {
        const second = Math.floor(Date.now() / 1000);
        if (!this.tallies.has(rule)) this.tallies.set(rule, none());
        if (!this.seconds.has(second)) this.seconds.set(second, new Map());
        const at = this.seconds.get(second);
        if (!at.has(rule)) at.set(rule, none());
        this.tallies.get(rule)[what] += 1;
        at.get(rule)[what] += 1;
    }

    between(rule, from, to) {
        const sum = none();
        for (let second = from; second < to; second++) {
            for (const [name, counts] of this.seconds.get(second) ?? []) {
                if (!rule || rule === name) names.forEach((one) => (sum[one] += counts[one]));
            }
        }
        return sum;
    }

    rates(rule) {
        const now = Math.floor(Date.now() / 1000);
        const over = (n) => Object.fromEntries(Object.entries(this.between(rule, now - n, now)).map(([name, value]) => [name, value / n]));
        return { "1s": over(1), "10s": over(10), "60s": over(60) };
    }

    stats({ q = "", limit = 1000, offset = 0 }) {
        const totals = none();
        for (const counts of this.tallies.values()) names.forEach((one) => (totals[one] += counts[one]));
        const all = [...this.tallies.keys()].filter((name) => name.includes(q)).sort();
        return {
            at: new Date().toISOString(), totals, rates: this.rates(""), rules_total: all.length,
            rules: all.slice(Number(offset), Number(offset) + Number(limit)).map((name) => ({ name, totals: this.tallies.get(name), rates: this.rates(name) })),
            segment: { path: "/dev/shm/weir", size_bytes: 64 << 20, load: 0.12, keys: this.counters.size, evicted_live: 0 },
            store: { state: "up", address: "redis://127.0.0.1:6379", latency_ms: 0.4, failures: 0 },
            host: { name: "standin", version: "0", uptime_seconds: Math.round(process.uptime()), workers: 2 },
            reloads: { revision: this.rules.revisions.length, at: new Date().toISOString(), count: this.rules.revisions.length, failed: 0, last_error: null },
        };
    }

    history({ rule = "", seconds = 300, step = 1 }) {
        const now = Math.floor(Date.now() / 1000);
        const start = now - Number(seconds);
        const series = Object.fromEntries(names.map((name) => [name, []]));
        for (let at = start; at < now; at += Number(step)) {
            const sum = this.between(rule, at, at + Number(step));
            names.forEach((name) => series[name].push(sum[name] / Number(step)));
        }
        return { step: Number(step), start: new Date(start * 1000).toISOString(), series };
    }

    hot({ rule, by, near, n = 20 }) {
        const all = [...this.counters].filter(([id]) => id.startsWith("[")).map(([id, one]) => ({ ...one, rule: JSON.parse(id)[0], key: JSON.parse(id)[1] }))
            .filter((one) => !rule || one.rule === rule);
        if (near) {
            const histogram = [0, 0.25, 0.5, 0.75].map((from) => ({
                from, to: from + 0.25, keys: all.filter((one) => one.used / one.limit > from && one.used / one.limit <= from + 0.25).length }));
            return { items: all.filter((one) => one.used >= 0.8 * one.limit).slice(0, n).map(({ rule, key, used, limit }) => ({ rule, key, used, limit })), histogram };
        }
        return { items: all.map((one) => ({ rule: one.rule, key: one.key, count: by === "denied" ? one.denied : one.used, error: 0 }))
            .filter((one) => one.count).sort((a, b) => b.count - a.count).slice(0, n) };
    }

    key(rule, key) {
        const id = JSON.stringify([rule, key]);
        const one = this.counters.get(id);
        const until = this.blocked.get(id);
        return {
            rule, key, blocked_until: until > Date.now() ? new Date(until).toISOString() : null,
            counters: one ? [{ name: rule, limit: one.limit, used: one.used, remaining: one.limit - one.used, reset_after: Math.max(0, one.until - Date.now() / 1000) }] : [],
        };
    }
}
