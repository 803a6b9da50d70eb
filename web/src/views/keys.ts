/* Keys: who uses most, who is limited, who is about to be; one of them looked at and acted upon. */
import { Failure, ask, get, may, query, segment } from "../api";
import { announce, field, h, replace, select, table } from "../dom";
import { confirm } from "../dialog";
import { count, duration, share, when } from "../format";
import type { HotKey, KeyState, NearKeys, Page, RuleRow, UsageBar } from "../types";
import { type Shown, type Where, heading, keyLink, name, problem, ruleLink, visible } from "../view";

const times: [string, string][] = [["5m", "5 minutes"], ["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"]];

function address(rule: string, key: string): string {
    return `/v1/keys/${segment(rule)}/${segment(key)}`;
}

async function block(rule: string, key: string): Promise<boolean> {
    const span = select(times, "1h");
    return confirm({
        title: "Block this key", danger: true, confirm: "Block", reason: true,
        body: [h("p", {}, "Every request of ", name(key), " under ", name(rule), " is denied until then."), field("For", span)],
        act: async (reason) => {
            await ask(`${address(rule, key)}/block${query({ reason })}`, { method: "PUT", json: { for: span.value } });
        },
    });
}

function sure(title: string, text: string, button: string, rule: string, key: string, path: string): Promise<boolean> {
    return confirm({
        title, confirm: button, reason: true, danger: true, body: [h("p", {}, name(key), " under ", name(rule), `: ${text}`)],
        act: async (reason) => {
            await ask(`${address(rule, key)}${path}${query({ reason })}`, { method: "DELETE" });
        },
    });
}

function actions(state: KeyState, again: () => void): HTMLElement | null {
    if (!may("operator")) return h("p", { class: "muted" }, "Blocking and resetting need the operator's role.");
    const { rule, key } = state;
    const button = (label: string, said: string, ask: () => Promise<boolean>, danger = false) => h("button", {
        type: "button", class: danger ? "danger" : null,
        onclick: () => void ask().then((done) => {
            if (!done) return;
            announce(`${visible(key)}: ${said}`);
            again();
        }),
    }, label);
    return h("div", { class: "buttons" },
        state.blocked_until ? button("Unblock…", "unblocked", () => sure("Unblock this key", "it is limited as all others again.", "Unblock", rule, key, "/block"))
            : button("Block…", "blocked", () => block(rule, key), true),
        button("Reset…", "reset", () => sure("Reset this key", "what it has consumed is forgotten.", "Reset", rule, key, "")));
}

function stateCard(state: KeyState, again: () => void): HTMLElement {
    return h("section", { class: "card", "aria-label": "Key" },
        h("h2", {}, name(state.key), " under ", ruleLink(state.rule)),
        h("p", { role: "status" }, state.blocked_until ? `Blocked until ${when(state.blocked_until)}` : "Not blocked"),
        state.counters.length === 0 ? h("p", { class: "muted" }, "It has consumed nothing that still counts.") :
            table("Counters of the key", ["Counter", "Used", "Limit", "Left", "Whole again in"], state.counters.map((one) => [
                name(one.name), count(one.used), one.limit === null ? "unlimited" : count(one.limit), count(one.remaining),
                duration(one.reset_after)]), [1, 2, 3]),
        actions(state, again));
}

function hotTable(caption: string, items: HotKey[]): HTMLElement {
    if (items.length === 0) return h("p", { class: "muted" }, "None.");
    return table(caption, ["Key", "Rule", "Cost", "At most too high by"], items.map((one) => [
        keyLink(one.rule, one.key), ruleLink(one.rule), count(one.count), count(one.error)]), [2, 3]);
}

function bars(histogram: UsageBar[]): HTMLElement {
    const most = Math.max(1, ...histogram.map((bar) => bar.keys));
    return table("How much of their limit keys use", ["Part of the limit", "Keys", "As a bar"], histogram.map((bar) => {
        const fill = h("span", { class: "bar" });
        fill.style.width = `${(100 * bar.keys) / most}%`;
        return [bar.to === null ? `over ${share(bar.from)}` : `${share(bar.from)} to ${share(bar.to)}`, count(bar.keys),
            h("span", { class: "bar-box", "aria-hidden": "true" }, fill)];
    }), [1]);
}

/* Names as they are typed, from the server: there may be thousands. */
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

export function keys(where: Where): Shown {
    const rule = ruleInput(where.query.get("rule") ?? "");
    const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-filter": true, value: where.query.get("key") ?? "" });
    const card = h("div");
    const lists = h("div", { class: "cards" });
    let closed = false;

    async function look(): Promise<void> {
        const wanted = rule.control.value.trim();
        if (!wanted || !key.value) return;
        try {
            replace(card, stateCard(await get<KeyState>(address(wanted, key.value)), () => void look()));
        } catch (error) {
            const unknown = error instanceof Failure && error.status === 404;
            replace(card, unknown ? h("p", { class: "error", role: "alert" }, "There is no such rule in force.") : problem(error));
        }
    }
    const section = (title: string, ...content: HTMLElement[]) => h("section", { class: "card" }, h("h2", {}, title), content);
    async function load(): Promise<void> {
        const wanted = where.query.get("rule") ?? "";
        const hot = (by: string) => get<Page<HotKey>>(`/v1/stats/hot${query({ rule: wanted, by, n: 20 })}`);
        try {
            const [admitted, denied, near] = await Promise.all([hot("admitted"), hot("denied"),
                get<NearKeys>(`/v1/stats/hot${query({ rule: wanted, near: 1, n: 20 })}`)]);
            if (closed) return;
            replace(lists, section("Heaviest", hotTable("Heaviest keys by admitted cost", admitted.items)),
                section("Most limited", hotTable("Keys by denied cost", denied.items)),
                section("Near their limit", near.items.length === 0 ? h("p", { class: "muted" }, "None.") :
                    table("Keys near their limit", ["Key", "Rule", "Used", "Limit", "Share"], near.items.map((one) => [
                        keyLink(one.rule, one.key), ruleLink(one.rule), count(one.used), count(one.limit), share(one.used / one.limit)]), [2, 3, 4])),
                section("Use of limits", near.histogram?.length ? bars(near.histogram) : h("p", { class: "muted" }, "No figures yet.")));
        } catch (error) {
            replace(lists, problem(error));
        }
    }
    const timer = window.setInterval(() => {
        const reading = lists.contains(document.activeElement); /* what has the focus is not taken away */
        if (!document.hidden && !reading) void load();
    }, 5000);
    const form = h("form", { class: "toolbar", "aria-label": "Look up a key", onsubmit: (event: Event) => {
        event.preventDefault();
        const next = `#/keys${query({ rule: rule.control.value.trim(), key: key.value })}`;
        if (location.hash === next) void look();
        else location.hash = next;
    } }, rule, field("Key", key, "As in the rule's template, for example user:42"), h("button", { class: "primary" }, "Look up"));
    void load();
    void look();
    return { title: "Keys", element: h("div", {}, heading("Keys"), form, card, lists), close: () => {
        closed = true;
        clearInterval(timer);
    } };
}
