import { get, may, query } from "../api";
import { h, replace } from "../dom";
import { fact, factLabel } from "../format";
import type { Advice } from "../types";
import { type OpenView, type Route, badge, heading, name, problem, ruleLink } from "../view";
import { keep } from "./unsaved";

function card(advice: Advice): HTMLElement {
    const tryIt = () => {
        keep(`advice ${advice.rule}`, advice.document!, "");
        location.hash = `#/rules/${encodeURIComponent(advice.rule)}?proposal=1`;
    };
    return h("section", { class: "card" },
        h("h2", {}, ruleLink(advice.rule), " ", badge(advice.kind.replaceAll("_", " "))), h("p", {}, name(advice.message)),
        advice.figures ? h("dl", { class: "facts" }, Object.entries(advice.figures).map(([key, value]) =>
            h("div", {}, h("dt", {}, factLabel(key)), h("dd", {}, fact(key, value))))) : null,
        advice.document ? h("details", {}, h("summary", {}, "The changed rule"), h("pre", { class: "scroll", tabindex: "0" }, advice.document)) : null,
        advice.document && may("editor") ? h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: tryIt },
            "Open in the editor, to try in shadow")) : null);
}

export function advice(route: Route): OpenView {
    const list = h("div", { class: "stack" });
    get<{ advice: Advice[] }>(`/v1/advice${query({ rule: route.query.get("rule") })}`).then((page) =>
        replace(list, page.advice.length ? page.advice.map(card) :
            h("p", { class: "muted" }, "Nothing to advise: the statistics suggest no change of the rules.")),
    (error) => replace(list, problem(error)));
    return { title: "Advice", element: h("div", {}, heading("Advice"), list) };
}
