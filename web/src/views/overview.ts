import { Chart, type Series } from "../charts";
import { announce, field, h, replace, select, setText } from "../dom";
import { count, fact, factLabel, rate } from "../format";
import { CoverageNote, HostTable, hostChoice } from "../hosts";
import { LatencyPanel } from "../latency";
import { type Choice, Meter, type Sample, follow } from "../live";
import type { Rule } from "../figures";
import type { Facts, Load, Stats } from "../types";
import { type OpenView, heading, ruleLink } from "../view";

const perPage = 12;
const keepOrderMs = 15000; /* time for which charts keep their places */
const shownSeries: Series[] = ["allowed", "denied", "delayed", "shed"];

class Tiles {
    readonly element: HTMLElement;
    private readonly cells = new Map<Series, [HTMLElement, HTMLElement]>();

    constructor() {
        const names: [Series, string][] = [
            ["allowed", "Allowed"], ["denied", "Denied"], ["shed", "Shed"], ["delayed", "Delayed"], ["shadow_denied", "Shadow would deny"]];
        this.element = h("dl", { class: "tiles" }, names.map(([key, label]) => {
            const now = h("span", { class: "big" }, "–");
            const total = h("span", { class: "small" }, "–");
            this.cells.set(key, [now, total]);
            return h("div", { class: `tile series-${key}` }, h("dt", {}, label), h("dd", {}, now, total));
        }));
    }

    show(all: Rule): void {
        for (const [key, [now, total]] of this.cells) {
            setText(now, rate(all.rates["10s"]?.[key] ?? all.rates["1s"]?.[key]));
            setText(total, `${count(all.totals[key])} in total`);
        }
    }
}

type Health = "good" | "odd" | "bad";

function judgeLoad(facts: Facts): [Health, string] {
    if (facts.known === false) return ["odd", "not known"];
    if (facts.shed) return ["bad", "requests are shed"];
    return Number(facts.adaptive_limits_percent) < 100 ? ["odd", "limits shrink"] : Number(facts.level) > 90 ? ["odd", "high"] : ["good", "normal"];
}

/* The load as one list: the level, its signals, and the measures taken. */
function loadFacts(load: Load | null | undefined): Facts | null {
    if (!load) return null;
    const shed = Object.entries(load.shed).filter(([, share]) => share > 0).map(([name, share]) => `${name} ${Math.round(share)} %`);
    return { known: load.known ? undefined : false, level: load.level, ...load.signals, in_flight: undefined, in_flight_level: load.signals.in_flight,
        requests_in_flight: load.in_flight, adaptive_limits_percent: load.throttle, shed: shed.length > 0 ? shed.join(", ") : undefined };
}

function judge(part: string, facts: Facts): [Health, string] {
    const state = typeof facts.state === "string" ? facts.state : "";
    if (part === "segment") {
        const fill = Number(facts.fill ?? 0);
        if (facts.lost) return ["bad", "lost"];
        return fill >= 0.95 ? ["bad", "full"] : fill >= 0.8 ? ["odd", "filling up"] : ["good", "has room"];
    }
    if (part === "load") return judgeLoad(facts);
    if (part === "reloads") return facts.failed ? ["odd", "some failed"] : ["good", "active"];
    if (!state) return ["good", "running"];
    return [/^(up|ok|good|running|connected)$/.test(state) ? "good" : /^(down|failed|dead)$/.test(state) ? "bad" : "odd", state];
}

const parts: [keyof Stats & ("segment" | "store" | "host" | "reloads" | "load"), string, string][] = [
    ["host", "Host", ""], ["load", "Load", "not measured: load in weir.yaml"], ["segment", "Segment", ""],
    ["store", "Store", "none: limits apply to this host alone"], ["reloads", "Rule reloads", ""]];

/* Labels of the server's values that their names do not explain. */
const factLabels: Record<string, string> = {
    "host.load": "Load average", "host.processors": "CPUs", "host.version": "weir version",
    "load.in_flight_level": "In-flight signal", "load.requests_in_flight": "Requests in flight",
    "segment.bytes": "Size", "segment.slots": "Counter slots", "segment.fill": "Slots in use", "segment.created": "Counters created",
    "segment.evicted_live": "Evicted before expiry", "segment.evicted_denied": "Evicted while denied", "segment.slab_full": "Log memory full",
    "segment.soft": "Passed by soft limit", "segment.errors": "Failed checks", "segment.lost": "Truncated",
    "store.units_leased": "Leased units, granted", "store.units_spent": "Leased units, spent", "store.units_returned": "Leased units, returned",
    "store.units_expired": "Leased units, expired", "store.lease_waits": "Waits for leased units",
    "store.since_s": "In this state for", "store.lag_s": "Sync lag", "store.keys": "Keys to sync", "store.keys_max": "Keys to sync, capacity",
    "reloads.ok": "Successful", "reloads.rules": "Active rules", "reloads.polls": "Checks for changes",
};

/* Cards of host, load, segment, store and reloads: all values of the server, and their state in a word. */
class HealthCards {
    readonly element = h("div", { class: "columns" });
    private last = "";
    private states = new Map<string, string>();

    show(stats: Stats): void {
        const host = { ...stats.host, version: stats.version };
        const shown = { ...stats, host, load: loadFacts(stats.load) };
        const shape = JSON.stringify(parts.map(([part]) => shown[part]));
        if (shape === this.last) return;
        this.last = shape;
        replace(this.element, parts.map(([part, label, without]) => this.card(part, label, without, shown[part])));
    }

    private card(part: string, label: string, without: string, facts: Facts | null | undefined): HTMLElement {
        if (!facts) return h("section", { class: "card" }, h("h3", {}, label), h("p", { class: "muted" }, without));
        const [health, word] = judge(part, facts);
        const before = this.states.get(part);
        if (before !== undefined && before !== word) announce(`${label}: ${word}`, health === "bad" ? "bad" : "good");
        this.states.set(part, word);
        return h("section", { class: "card" }, h("h3", {}, label, " ", h("span", { class: `health ${health}` }, word)),
            h("dl", { class: "facts" }, Object.entries(facts).filter(([key, value]) => key !== "state" && value !== undefined).map(([key, value]) =>
                h("div", {}, h("dt", {}, factLabels[`${part}.${key}`] ?? factLabel(key)), h("dd", {}, fact(key, value))))));
    }
}

/* One chart per shown rule, kept while the rule stays on the page. */
class RuleCharts {
    readonly element = h("div", { class: "charts" });
    private readonly shown = new Map<string, { chart: Chart; meter: Meter; box: HTMLElement }>();

    constructor(private readonly seconds: () => number) {}

    show(rules: Rule[], stats: Stats): void {
        const names = new Set(rules.map((rule) => rule.name));
        for (const [name, one] of this.shown) {
            if (names.has(name)) continue;
            one.chart.close();
            one.box.remove();
            this.shown.delete(name);
        }
        rules.forEach((rule, i) => {
            const one = this.shown.get(rule.name) ?? this.add(rule.name);
            if (this.element.children[i] !== one.box) this.element.insertBefore(one.box, this.element.children[i] ?? null);
            const next = one.meter.next(stats, rule.totals);
            if (next) one.chart.push(next.at, next.counts);
        });
    }

    setSpan(seconds: number): void {
        for (const one of this.shown.values()) one.chart.setSpan(seconds);
    }

    close(): void {
        for (const one of this.shown.values()) one.chart.close();
    }

    private add(name: string) {
        const chart = new Chart(name, name, shownSeries, this.seconds());
        chart.element.querySelector("h3 bdi")?.replaceWith(ruleLink(name));
        const one = { chart, meter: new Meter(), box: chart.element };
        this.shown.set(name, one);
        void chart.load();
        return one;
    }
}

const sorts: [Choice["sort"], string][] = [["traffic", "Traffic"], ["denied", "Denied"], ["shed", "Shed"], ["delayed", "Delayed"],
    ["shadow_denied", "Shadow would deny"], ["name", "Name"]];
const spans: [string, string][] = [["300", "5 minutes"], ["900", "15 minutes"], ["3600", "1 hour"]];

export function overview(): OpenView {
    const choice: Choice = { q: "", sort: "traffic", limit: perPage, offset: 0 };
    let seconds = 300;
    const tiles = new Tiles();
    const all = new Chart("All rules, per second", "", [...shownSeries, "shadow_denied"], seconds);
    all.element.classList.add("wide");
    const meter = new Meter();
    const health = new HealthCards();
    const latency = new LatencyPanel();
    const hosts = new HostTable();
    const note = new CoverageNote();
    const charts = new RuleCharts(() => seconds);
    const lost = h("p", { class: "error", role: "alert", hidden: true });
    const found = h("p", { class: "muted", id: "overview-found" });

    const span = select(spans, "300");
    span.addEventListener("change", () => {
        seconds = Number(span.value);
        all.setSpan(seconds);
        charts.setSpan(seconds);
    });
    const sort = select(sorts, choice.sort);
    const filter = h("input", { type: "search", "data-filter": true, autocomplete: "off" });
    const later = h("button", { type: "button" }, "Next");
    const earlier = h("button", { type: "button" }, "Previous");
    let sorted = 0;
    /* Charts are reordered at most every 15 s, and not while the pointer or the focus is on them. */
    const pager = h("nav", { class: "pager", "aria-label": "Pages of charts" }, earlier, later);
    const keepOrder = (rules: Rule[]) => {
        if (choice.names && (Date.now() - sorted < keepOrderMs || charts.element.matches(":hover, :focus-within"))) return;
        if (choice.names) {
            choice.names = undefined; /* chosen by the next sample */
            return;
        }
        choice.names = rules.map((rule) => rule.name);
        sorted = Date.now();
    };
    const showFrom = (offset: number) => {
        choice.names = undefined;
        choice.offset = Math.max(0, offset);
        stop();
        stop = follow(() => choice, live);
    };
    sort.addEventListener("change", () => {
        choice.sort = sort.value as Choice["sort"];
        showFrom(0);
    });
    filter.addEventListener("input", () => {
        choice.q = filter.value.trim();
        showFrom(0);
    });
    later.addEventListener("click", () => showFrom(choice.offset + perPage));
    earlier.addEventListener("click", () => showFrom(choice.offset - perPage));

    function live(sample: Sample | null, error: string): void {
        lost.hidden = sample !== null;
        if (!sample) {
            setText(lost, `Not live: ${error}. Retrying.`);
            return;
        }
        const { stats, all: sum, rules, matching } = sample;
        note.show(stats.coverage);
        tiles.show(sum);
        health.show(stats);
        latency.show(stats);
        const next = meter.next(stats, sum.totals);
        if (next) all.push(next.at, next.counts);
        charts.show(rules, stats);
        keepOrder(rules);
        setText(found, matching === 0 ? "No active rule matches." :
            `${Math.min(choice.offset + 1, matching)} to ${Math.min(choice.offset + perPage, matching)} of ${count(matching)} rules`);
        earlier.disabled = choice.offset === 0;
        later.disabled = choice.offset + perPage >= matching;
        pager.hidden = earlier.disabled && later.disabled;
    }
    let stop = follow(() => choice, live);
    void all.load();

    const element = h("div", {}, heading("Overview", hostChoice(), field("Time range", span)), lost, note.element,
        h("section", { "aria-label": "Traffic" }, h("h2", { class: "visually-hidden" }, "Traffic"), tiles.element, all.element),
        h("section", { "aria-label": "Health" }, h("h2", {}, "Health"), health.element, latency.element, hosts.element),
        h("section", { "aria-label": "Rules" }, h("h2", {}, "Rules"),
            h("div", { class: "toolbar" }, field("Filter rules", filter), field("Sort by", sort), found), charts.element,
            pager));
    return { title: "Overview", element, close: () => {
        stop();
        all.close();
        charts.close();
        hosts.close();
    } };
}
