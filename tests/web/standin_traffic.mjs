/* The stand-in's gateway and statistics: fixed windows from the first request on, counted exactly. */
import { lint } from "./standin_rules.mjs";

const none = () => ({ allowed: 0, denied: 0, delayed: 0 });
const names = Object.keys(none());
const shadowOf = (rule) => `${rule}\n`; /* no name has a line break */
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
            const id = JSON.stringify([document.name, `user:${user}`]);
            if (document.shadow) {
                const would = this.take(`shadow${id}`, this.limits(document, document.shadow));
                this.count(shadowOf(document.name), would ? "allowed" : "denied");
            }
            if (!document.enforced) continue;
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
                if (rule ? rule === name : !name.endsWith("\n")) names.forEach((one) => (sum[one] += counts[one]));
            }
        }
        return sum;
    }

    rates(rule) {
        const now = Math.floor(Date.now() / 1000);
        const over = (n) => Object.fromEntries(Object.entries(this.between(rule, now - n, now)).map(([name, value]) => [name, value / n]));
        return { "1s": over(1), "10s": over(10), "60s": over(60) };
    }

    stats() {
        const rules = [...this.rules.documents.values()].flatMap((one) => [one.enforced && [one.name, false], one.shadow && [one.name, true]]).filter(Boolean);
        return {
            at: Date.now() / 1000, version: "0", rates: this.rates(""), check_seconds: { p50: 2e-7, p99: 1e-6 }, history: true, hot: true,
            rules: rules.map(([name, shadow]) => {
                const id = shadow ? shadowOf(name) : name;
                return { name, shadow, algorithm: "fixed_window", totals: this.tallies.get(id) ?? none(), rates: this.rates(id) };
            }),
            segment: { path: "/dev/shm/weir", bytes: 64 << 20, slots: 4 << 20, fill: 0.12, created: this.counters.size, evicted_live: 0, lost: false },
            store: { state: "up", agent: true, since_s: 1200, lag_s: 0.02, last_error: null, exchanges: 40, failures: 0 },
            host: { name: "standin", load: [0.3, 0.25, 0.2], processors: 2 },
            reloads: { ok: this.rules.revisions.length, failed: 0, looks: 10, rules: rules.length },
        };
    }

    history({ rule, seconds = 300, step = 1 }) {
        const now = Math.floor(Date.now() / 1000);
        const answer = { known: true, until: now - 1, step: Number(step), allowed: [], denied: [], delayed: [], shadow_denied: [] };
        for (let at = now - Number(seconds); at + Number(step) <= now; at += Number(step)) {
            const sum = none();
            let shadow = 0;
            for (const name of rule ? [rule] : this.rules.documents.keys()) {
                const counts = this.between(name, at, at + Number(step));
                names.forEach((one) => (sum[one] += counts[one]));
                shadow += this.between(shadowOf(name), at, at + Number(step)).denied;
            }
            names.forEach((name) => answer[name].push(sum[name] / Number(step)));
            answer.shadow_denied.push(shadow / Number(step));
        }
        return answer;
    }

    hot({ rule, by, near, n = 20 }) {
        const all = [...this.counters].filter(([id]) => id.startsWith("[") && JSON.parse(id)[0] === rule)
            .map(([id, one]) => ({ ...one, key: JSON.parse(id)[1], hidden: false, cut: false }));
        const tenths = Array(11).fill(0);
        for (const one of all) tenths[Math.min(9, Math.floor((10 * one.used) / one.limit))] += 1;
        const answer = { rule, known: true, uses: { keys: all.length, tenths } };
        const shown = ({ key, hidden, cut }) => ({ key, hidden, cut });
        if (near) return { ...answer, keys: all.filter((one) => one.used >= 0.8 * one.limit).slice(0, n).map((one) => ({ ...shown(one), used: one.used / one.limit })) };
        return { ...answer, keys: all.map((one) => ({ ...shown(one), count: by === "denied" ? one.denied : one.used, error: 0 }))
            .filter((one) => one.count).sort((a, b) => b.count - a.count).slice(0, n) };
    }

    key(document, key) {
        const id = JSON.stringify([document.name, key]);
        const { limit } = this.limits(document, document.enforced);
        const one = this.counters.get(id) ?? { used: 0, until: 0 };
        const blocked = this.blocked.get(id) - Date.now();
        const left = Math.max(0, one.until - Date.now() / 1000);
        return {
            rule: document.name, key, reason: blocked > 0 ? "blocked" : "limit", limit, remaining: limit - one.used, reset_s: left,
            retry_after_s: blocked > 0 ? blocked / 1000 : one.used < limit ? 0 : left,
        };
    }
}
