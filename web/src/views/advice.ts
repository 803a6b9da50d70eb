import { get, may, query } from "../api";
import { h, replace, table } from "../dom";
import { count, duration, fact, factLabel } from "../format";
import type { Advice, AdviceReply } from "../types";
import { type OpenView, type Route, badge, heading, name, problem, ruleLink } from "../view";
import { keep } from "./unsaved";

/* Labels of the server's figures that their names do not explain. */
const figureLabels: Record<string, string> = {
    minutes: "Minutes of history", days: "Days of history", passed: "Allowed requests", denied: "Denied requests", denied_percent: "Share denied",
    denied_keys: "Keys denied", keys: "Keys, estimated", steady_percent: "Denied to keys over the limit", demand_90: "Demand a window, p90",
    burst_percent: "Denied to keys below the limit", wanted_of_got: "Demand to granted cost", first_tenth_percent: "Allowed in a window's first tenth",
    denied_late_percent: "Denied in its second half", most_percent: "Highest use of the limit",
};

function card(advice: Advice): HTMLElement {
    const tryIt = () => {
        keep(`advice ${advice.rule}`, advice.document!, "");
        location.hash = `#/rules/${encodeURIComponent(advice.rule)}?proposal=1`;
    };
    return h("section", { class: "card" },
        h("h2", {}, ruleLink(advice.rule), " ", badge(advice.kind.replaceAll("_", " "))), h("p", {}, name(advice.message)),
        advice.figures ? h("dl", { class: "facts" }, Object.entries(advice.figures).map(([key, value]) =>
            h("div", {}, h("dt", {}, figureLabels[key] ?? factLabel(key)), h("dd", {}, fact(key, value))))) : null,
        advice.document ? h("details", {}, h("summary", {}, "The changed rule"), h("pre", { class: "scroll", tabindex: "0" }, advice.document)) : null,
        advice.document && may("editor") ? h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: tryIt },
            "Open in the editor, to try in shadow")) : null);
}

const kinds: [string, string][] = [
    ["Too strict", "many keys steadily ask for more than the limit"], ["Bursts", "keys below the limit on average are denied in bursts"],
    ["Edge bursts", "requests cluster at the start of fixed windows"], ["Too loose", "no key has come near the limit in 7 days"]];

/* What is looked at, how much of it there is, and when there can be more advice. */
function evidence({ advice, basis, needs }: AdviceReply): HTMLElement | null {
    const enough = !basis || !needs || (basis.rules > 0 && basis.seconds >= needs.seconds && basis.requests >= needs.requests);
    const quiet = advice.length > 0 ? null : h("p", {}, enough ? "Nothing to advise: the statistics suggest no change of the rules." :
        "Nothing to advise yet: there is too little data.");
    if (!basis || !needs) return quiet;
    const looked = h("ul", { class: "points" }, kinds.map(([kind, sign]) => h("li", {}, h("strong", {}, kind), `: ${sign}`)));
    const rows = [
        ["Enforced rules", count(basis.rules), "1"], ["Recent history", duration(basis.seconds), duration(needs.seconds)],
        ["Requests of the busiest rule", basis.busiest ? [count(basis.requests), " (", ruleLink(basis.busiest), ")"] : "0", count(needs.requests)],
        ["Denials of that rule", count(basis.denied), count(needs.denied)],
        ["Hourly history, for “too loose”", basis.hours > 0 ? duration(basis.hours * 3600) : "none", duration(needs.hours * 3600)],
        ["Key sampling", basis.keys ? "on" : "off: hot_keys in weir.yaml", "on"]];
    return h("section", { class: "card", "aria-label": "Evidence" }, quiet, h("h2", {}, "What is looked at"), looked,
        h("h2", {}, "Data so far"), table("Data so far", ["Data", "Available", "Needed"], rows), h("p", { role: "status" }, next({ advice, basis, needs })));
}

/* When there can be more to say. */
function next({ basis, needs }: AdviceReply): string {
    if (!basis || !needs) return "";
    if (basis.rules === 0) return "There will be advice about rules once some are enforced.";
    if (!basis.keys) return "Keys are not sampled (hot_keys in weir.yaml): only edge bursts can be found.";
    const hours = needs.hours - basis.hours;
    const loose = hours > 0 ? ` Limits that are too loose are reported after a week of history, in ${duration(hours * 3600)}.` : "";
    if (basis.seconds < needs.seconds) return `Advice about denials is possible in ${duration(needs.seconds - basis.seconds)}.${loose}`;
    if (basis.requests < needs.requests) {
        const wait = basis.requests > 0 ? `, in about ${duration(((needs.requests - basis.requests) * basis.seconds) / basis.requests)} at its present rate` : "";
        return `Advice about denials is possible once a rule has ${count(needs.requests)} requests within an hour${wait}.${loose}`;
    }
    return `There is enough data about denials: advice appears here when a rule needs it.${loose}`;
}

export function advice(route: Route): OpenView {
    const list = h("div", { class: "stack" });
    get<AdviceReply>(`/v1/advice${query({ rule: route.query.get("rule") })}`).then((page) =>
        replace(list, page.advice.map(card), evidence(page)), (error) => replace(list, problem(error)));
    return { title: "Advice", element: h("div", {}, heading("Advice"), list) };
}
