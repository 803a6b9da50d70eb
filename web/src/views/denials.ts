/* Why requests were denied: the recent denials of a client, a key, a request or a rule. */
import { get, may, query } from "../api";
import { field, h, replace, select, table } from "../dom";
import { count, duration, when } from "../format";
import { CoverageNote, chosenHost, hostChoice } from "../hosts";
import type { Denial, Denials } from "../types";
import { type OpenView, type Route, badge, heading, keyLink, moment, name, problem, ruleLink } from "../view";

const pollMs = 5000;
const shownMost = 100;
const spans: [string, string][] = [["600", "10 minutes"], ["3600", "1 hour"], ["86400", "1 day"], ["", "All records"]];

/* The reason as a sentence, as weir why has it. */
function reasonText(one: Denial): string {
    switch (one.reason) {
        case "blocked": return "an operator had blocked the key";
        case "block_list": return "it is on a block list";
        case "ban": return "the rule's limit is 0";
        case "missing_key": return `the request lacked the ${one.missing ?? "attribute of the key"}`;
        case "store_failure": return "its counter could not be read";
        case "shed": return "more important requests came first";
        case "never_fits": return `it cost ${count(one.cost)}, and the rule never admits more than ${count(one.capacity)} at once`;
        case "concurrency": return `${count(one.used)} requests were in flight, and the limit is ${count(one.capacity)}`;
        default: return `${count(one.used)} of ${count(one.capacity)} were used${one.window ? `; the limit is ${count(one.limit)} in ${duration(one.window)}` : ""}`;
    }
}

function keyName(one: Denial): HTMLElement {
    if (one.rule && one.key && !one.hidden && !one.cut) return keyLink(one.rule, one.key);
    return h("span", {}, name(one.key || one.client || "–"), one.cut ? "…" : "");
}

function ruleName(one: Denial): HTMLElement {
    return h("span", {}, one.rule ? ruleLink(one.rule) : "block list of all rules", one.shadow ? [" ", badge("shadow")] : "");
}

/* The first request of the entry, and the other rules that matched it. */
function details(one: Denial): HTMLElement {
    const facts: [string, string | null][] = [["path", one.path], ["client", one.client], ["request", one.request_id], ["tier", one.tier]];
    const known = facts.filter(([, value]) => value !== null);
    return h("div", { class: "sentence" }, known.map(([label, value]) => h("div", {}, `${label} `, name(value!))),
        one.others.map((other) => h("div", {}, name(other.rule), other.shadow ? " (shadow)" : "", other.passed ? " allowed it" : " denied it",
            other.limit > 0 ? `: ${count(other.remaining)} of ${count(other.limit)} left` : "")));
}

function passes(one: Denial): string {
    if (one.passes === null) return "unknown";
    if (one.passes) return "now";
    return one.retry_after === null ? "not by waiting" : `in ${duration(Math.max(one.retry_after, 1))}`;
}

function list(found: Denials): HTMLElement {
    if (found.denials.length === 0)
        return h("p", { class: "muted" }, found.oldest ? `None; the records begin at ${when(found.oldest)}.` : "Nothing was denied since the records began.");
    const more = found.more + Math.max(found.denials.length - shownMost, 0);
    const several = found.coverage.hosts.length + found.coverage.missing.length > 1 || chosenHost().host !== "";
    return h("div", {}, table("Denials, the newest first",
        ["Last seen", "Count", ...(several ? ["Host"] : []), "Rule", "Key", "Reason", "First request", "Next allowed"],
        found.denials.slice(0, shownMost).map((one) => [moment(one.last), count(one.count),
            ...(several ? [name(one.host)] : []), ruleName(one), keyName(one),
            h("div", { class: "sentence" }, badge(one.reason.replaceAll("_", " ")), " ", name(reasonText(one))), details(one), passes(one)]), [1]),
    more > 0 ? h("p", { class: "muted" }, `${count(more)} more: choose a client, a key or a shorter time.`) : null);
}

export function denials(route: Route): OpenView {
    const about = h("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-filter": true, value: route.query.get("about") ?? "" });
    const since = select(spans, route.query.get("seconds") ?? "3600");
    const box = h("div", { class: "list" });
    const note = new CoverageNote();
    let closed = false;
    let timer = 0;

    async function load(): Promise<void> {
        try {
            const found = await get<Denials>(`/v1/denials${query({ about: route.query.get("about"), seconds: since.value, ...chosenHost() })}`);
            if (closed) return;
            note.show(found.coverage);
            replace(box, list(found));
        } catch (error) {
            clearInterval(timer);
            replace(box, problem(error));
        }
    }
    const go = (event?: Event) => {
        event?.preventDefault();
        const next = `#/denials${query({ about: about.value.trim(), seconds: since.value })}`;
        if (location.hash === next) void load();
        else location.hash = next;
    };
    since.addEventListener("change", () => go());
    const form = h("form", { class: "toolbar", "aria-label": "Find denials", onsubmit: go },
        field("Search", about, "A client address, a key or a part of it, a request ID, or a rule"), field("Since", since),
        h("button", { class: "primary" }, "Find"));
    const element = h("div", {}, heading("Denials", may("operator") ? hostChoice() : ""));
    if (!may("operator")) {
        element.append(h("p", { class: "muted" }, "Denials have the keys and addresses of clients: they need the operator's role."));
    } else {
        element.append(form, note.element, box);
        timer = window.setInterval(() => {
            if (!document.hidden && !box.contains(document.activeElement)) void load(); /* the list with the focus is not replaced */
        }, pollMs);
        void load();
    }
    return { title: "Denials", element, close: () => {
        closed = true;
        clearInterval(timer);
    } };
}
