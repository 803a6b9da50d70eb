/* Keys: the heaviest, the most limited and those near their limit; looking one up, blocking and resetting it. */
import { Failure, request, get, may, query, segment, session } from "../api";
import { announce, field, h, replace, select, table } from "../dom";
import { confirm } from "../dialog";
import { type Rule, merge } from "../figures";
import { count, duration, share } from "../format";
import type { HotKey, HotKeys, KeyState, NearKey, Page, RuleRow, Stats } from "../types";
import { type OpenView, type Route, heading, keyLink, name, problem, ruleLink, visible } from "../view";

const times: [string, string][] = [["5m", "5 minutes"], ["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"]];

function address(rule: string, key: string): string {
    return `/v1/keys/${segment(rule)}/${segment(key)}`;
}

async function block(rule: string, key: string): Promise<boolean> {
    const span = select(times, "1h");
    return confirm({
        title: "Block this key", danger: true, confirm: "Block",
        body: [h("p", {}, "Every request of ", name(key), " under ", name(rule), " is denied until then."), field("For", span)],
        act: async () => {
            await request(`${address(rule, key)}/block`, { method: "PUT", json: { for: span.value } });
        },
    });
}

function confirmDelete(title: string, text: string, button: string, rule: string, key: string, path: string): Promise<boolean> {
    return confirm({
        title, confirm: button, danger: true, body: [h("p", {}, name(key), " under ", name(rule), `: ${text}`)],
        act: async () => {
            await request(`${address(rule, key)}${path}`, { method: "DELETE" });
        },
    });
}

function actions(state: KeyState, again: () => void): HTMLElement {
    const { rule, key } = state;
    const button = (label: string, result: string, act: () => Promise<boolean>, danger = false) => h("button", {
        type: "button", class: danger ? "danger" : null,
        onclick: () => void act().then((done) => {
            if (!done) return;
            announce(`${visible(key)}: ${result}`);
            again();
        }),
    }, label);
    return h("div", { class: "buttons" },
        state.reason === "blocked" ? button("Unblock…", "unblocked", () => confirmDelete("Unblock this key", "its limit applies again.", "Unblock", rule, key, "/block"))
            : button("Block…", "blocked", () => block(rule, key), true),
        button("Reset…", "reset", () => confirmDelete("Reset this key", "its counter starts anew.", "Reset", rule, key, "")));
}

function stateCard(state: KeyState, again: () => void): HTMLElement {
    const { limit, remaining } = state;
    const counted = limit !== null && remaining !== null;
    return h("section", { class: "card", "aria-label": "Key" },
        h("h2", {}, name(state.key), " under ", ruleLink(state.rule)),
        h("p", { role: "status" }, state.reason === "blocked" ? `Blocked for another ${duration(state.retry_after_s)}` : "Not blocked"),
        counted ? table("Counter of the key", ["Used", "Limit", "Left", "Fully available in", "Next one in"], [[
            count(limit - remaining), count(limit), count(remaining), duration(state.reset_s), duration(state.retry_after_s)]], [0, 1, 2])
            : h("p", { class: "muted" }, "It has no counter."),
        actions(state, again));
}

interface Of<T> {
    rule: string;
    one: T;
}

/* Keys of which only the hash or the beginning is known cannot be looked up. */
function keyName(rule: string, one: HotKey | NearKey): HTMLElement {
    if (one.hidden || one.cut || !may("operator")) return h("span", {}, name(one.key), one.cut ? "…" : "");
    return keyLink(rule, one.key);
}

function hotTable(caption: string, items: Of<HotKey>[]): HTMLElement {
    if (items.length === 0) return h("p", { class: "muted" }, "None.");
    return table(caption, ["Key", "Rule", "Cost", "Error, at most"], items.map(({ rule, one }) => [
        keyName(rule, one), ruleLink(rule), count(one.count), count(one.error)]), [2, 3]);
}

function nearTable(items: Of<NearKey>[]): HTMLElement {
    if (items.length === 0) return h("p", { class: "muted" }, "None.");
    return table("Keys near their limit", ["Key", "Rule", "Uses"], items.map(({ rule, one }) => [
        keyName(rule, one), ruleLink(rule), share(one.used)]), [2]);
}

function bars(tenths: number[]): HTMLElement {
    const most = Math.max(1, ...tenths);
    return table("How much of their limit keys use", ["Part of the limit", "Keys", "As a bar"], tenths.map((keys, i) => {
        const fill = h("span", { class: "bar" });
        fill.style.width = `${(100 * keys) / most}%`;
        return [i === tenths.length - 1 ? `over ${share(i / 10)}` : `${share(i / 10)} to ${share((i + 1) / 10)}`, count(keys),
            h("span", { class: "bar-box", "aria-hidden": "true" }, fill)];
    }), [1]);
}

const shownRules = 5;
const shownKeys = 20;

/* The wanted rule, or else those with the most traffic. */
async function rulesToShow(wanted: string): Promise<string[]> {
    if (wanted) return [wanted];
    const { rules } = merge(await get<Stats>("/v1/stats"));
    const traffic = (rule: Rule) => rule.totals.allowed + rule.totals.denied + rule.totals.delayed;
    return rules.filter(traffic).sort((a, b) => traffic(b) - traffic(a)).slice(0, shownRules).map((rule) => rule.name);
}

/* Merges the lists of these rules. */
async function gather<T>(rules: string[], how: Record<string, string | number>, size: (one: T) => number) {
    const lists = await Promise.all(rules.map((rule) => get<HotKeys<T>>(`/v1/stats/hot${query({ rule, n: shownKeys, ...how })}`)));
    const items = lists.flatMap((list, i) => list.keys.map((one): Of<T> => ({ rule: rules[i]!, one })));
    const tenths: number[] = [];
    for (const list of lists) list.uses.tenths.forEach((keys, i) => (tenths[i] = (tenths[i] ?? 0) + keys));
    return { items: items.sort((a, b) => size(b.one) - size(a.one)).slice(0, shownKeys), tenths, known: lists.every((list) => list.known) };
}

/* Suggests names from the server while they are typed: there may be thousands. */
function ruleInput(value: string): HTMLElement & { control: HTMLInputElement } {
    const names = h("datalist", { id: "rule-names" });
    const control = h("input", { type: "text", list: "rule-names", autocomplete: "off", value, spellcheck: "false" });
    let timer = 0;
    const offer = () => void get<Page<RuleRow>>(`/v1/rules${query({ q: control.value.trim(), limit: 20 })}`).then((page) =>
        replace(names, page.items.map((row) => h("option", { value: row.name }))), () => undefined);
    control.addEventListener("input", () => {
        clearTimeout(timer);
        timer = window.setTimeout(offer, 200);
    });
    control.addEventListener("focus", offer, { once: true });
    const box = field("Rule", control);
    box.append(names);
    return Object.assign(box, { control });
}

export function keys(route: Route): OpenView {
    const rule = ruleInput(route.query.get("rule") ?? "");
    const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-filter": true, value: route.query.get("key") ?? "" });
    const card = h("div");
    const lists = h("div", { class: "cards" });
    let closed = false;

    async function lookUp(): Promise<void> {
        const wanted = rule.control.value.trim();
        if (!wanted || !key.value || !may("operator")) return;
        try {
            replace(card, stateCard(await get<KeyState>(address(wanted, key.value)), () => void lookUp()));
        } catch (error) {
            const unknown = error instanceof Failure && error.status === 404;
            replace(card, unknown ? h("p", { class: "error", role: "alert" }, "There is no such active rule.") : problem(error));
        }
    }
    const section = (title: string, ...content: HTMLElement[]) => h("section", { class: "card" }, h("h2", {}, title), content);
    async function load(): Promise<void> {
        try {
            const rules = await rulesToShow(route.query.get("rule") ?? "");
            const [admitted, denied, near] = await Promise.all([
                gather<HotKey>(rules, { by: "admitted" }, (one) => one.count), gather<HotKey>(rules, { by: "denied" }, (one) => one.count),
                gather<NearKey>(rules, { near: 1 }, (one) => one.used)]);
            if (closed) return;
            replace(lists, near.known ? null : h("p", { class: "muted" }, "The keys of some rules are not sampled on this host."),
                section("Heaviest", hotTable("Heaviest keys by admitted cost", admitted.items)),
                section("Most limited", hotTable("Keys by denied cost", denied.items)), section("Near their limit", nearTable(near.items)),
                section("Use of limits", near.tenths.some((keys) => keys > 0) ? bars(near.tenths) : h("p", { class: "muted" }, "No data yet.")));
        } catch (error) {
            replace(lists, problem(error));
        }
    }
    const timer = window.setInterval(() => {
        const reading = lists.contains(document.activeElement); /* the list with the focus is not replaced */
        if (!document.hidden && !reading) void load();
    }, 5000);
    const form = h("form", { class: "toolbar", "aria-label": "Look up a key", onsubmit: (event: Event) => {
        event.preventDefault();
        const next = `#/keys${query({ rule: rule.control.value.trim(), key: key.value })}`;
        if (location.hash === next) void lookUp();
        else location.hash = next;
    } }, rule, field("Key", key, "As in the rule's template, for example user:42"), h("button", { class: "primary" }, "Look up"));
    void load();
    void lookUp();
    const rights = h("p", { class: "muted" }, "Looking a key up, blocking and resetting it need the operator's role.",
        session?.key_texts ? "" : " Keys are shown by their hashes (admin.key_texts in weir.yaml).");
    return { title: "Keys", element: h("div", {}, heading("Keys"), may("operator") ? form : rights, card, lists), close: () => {
        closed = true;
        clearInterval(timer);
    } };
}
