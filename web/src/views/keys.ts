/* Keys: the heaviest, the most limited and those near their limit; looking one up, blocking and resetting it. */
import { Failure, request, get, may, query, segment, session } from "../api";
import { announce, field, h, replace, select, table } from "../dom";
import { confirm } from "../dialog";
import { type Rule, merge } from "../figures";
import { count, duration, share } from "../format";
import { CoverageNote, chosenHost, hostChoice } from "../hosts";
import type { Block, HotKey, HotKeys, KeyState, NearKey, Page, Reach, RuleRow, Stats } from "../types";
import { type OpenView, type Route, heading, keyLink, name, problem, ruleLink, visible } from "../view";

const times: [string, string][] = [["5m", "5 minutes"], ["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"]];

function address(rule: string, key: string): string {
    return `/v1/keys/${segment(rule)}/${segment(key)}`;
}

interface Changed {
    hosts: Reach;
    why: string | null;
}

/* Where a change holds. */
function reach(changed: Changed): string {
    const why = changed.why ? `: ${changed.why}` : "";
    if (changed.hosts === "all") return "on all hosts";
    return changed.hosts === "this" ? `on this host only${why}` : `on this host, and on the others when the store has it${why}`;
}

/* Where it will hold, before it is done. */
function scope(hosts: Reach): string {
    return hosts === "this" ? "on this host (no store is shared with others)" : "on all hosts";
}

/* Changes a key once that is confirmed; null: it was not. */
async function change(state: KeyState, path: string, options: { title: string; text: string; confirm: string; span?: HTMLSelectElement }): Promise<Changed | null> {
    let changed: Changed | null = null;
    await confirm({
        title: options.title, danger: true, confirm: options.confirm, reason: true,
        body: [h("p", {}, name(state.key), " under ", name(state.rule_base), `, ${scope(state.hosts)}: ${options.text}`),
            ...(options.span ? [field("For", options.span)] : [])],
        act: async (reason) => {
            const target = `${address(state.rule_base, state.key)}${path}`;
            const reply = options.span
                ? request<Changed>(target, { method: "PUT", json: { for: options.span.value, ...(reason ? { reason } : {}) } })
                : request<Changed>(`${target}${query({ reason })}`, { method: "DELETE" });
            changed = (await reply).body;
        },
    });
    return changed;
}

function actions(state: KeyState, again: () => void): HTMLElement {
    const { key } = state;
    const button = (label: string, result: string, act: () => Promise<Changed | null>, danger = false) => h("button", {
        type: "button", class: danger ? "danger" : null,
        onclick: () => void act().then((changed) => {
            if (!changed) return;
            const asSaid = changed.hosts === "all" || (changed.hosts === "this" && state.hosts === "this");
            announce(`${visible(key)}: ${result} ${reach(changed)}`, asSaid ? "good" : "bad");
            again();
        }),
    }, label);
    return h("div", { class: "buttons" },
        state.reason === "blocked"
            ? button("Unblock…", "unblocked", () => change(state, "/block", { title: "Unblock this key", text: "its limit applies again.", confirm: "Unblock" }))
            : button("Block…", "blocked", () => change(state, "/block", {
                title: "Block this key", text: "every request is denied until then.", confirm: "Block", span: select(times, "1h") }), true),
        button("Reset…", "reset", () => change(state, "", { title: "Reset this key", text: "its counter starts anew.", confirm: "Reset" })));
}

function blockText(state: KeyState): string {
    if (state.reason !== "blocked") return "Not blocked";
    const { block } = state;
    const by = block ? ` on all hosts${block.by ? ` by ${visible(block.by)}` : ""}${block.reason ? `: ${visible(block.reason)}` : ""}` : " on this host";
    return `Blocked for another ${duration(state.retry_after_s)}${by}`;
}

function blockTable(blocks: Block[]): HTMLElement {
    if (blocks.length === 0) return h("p", { class: "muted" }, "None.");
    return table("Keys that are blocked on all hosts", ["Key", "Rule", "For", "By", "Reason"], blocks.map((one) => [
        keyLink(one.rule, one.key), ruleLink(one.rule), duration(one.left_s), visible(one.by), visible(one.reason)]));
}

function stateCard(state: KeyState, again: () => void): HTMLElement {
    const { limit, remaining } = state;
    const counted = limit !== null && remaining !== null;
    return h("section", { class: "card", "aria-label": "Key" },
        h("h2", {}, name(state.key), " under ", ruleLink(state.rule)),
        h("p", { role: "status" }, blockText(state)),
        counted ? table("Counter of the key", ["Used", "Limit", "Remaining", "Resets in", "Retry after"], [[
            count(limit - remaining), count(limit), count(remaining), duration(state.reset_s), state.retry_after_s === 0 ? "now" : duration(state.retry_after_s)]], [0, 1, 2])
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
    return table(caption, ["Key", "Rule", "Cost", "Max. error"], items.map(({ rule, one }) => [
        keyName(rule, one), ruleLink(rule), count(one.count), count(one.error)]), [2, 3]);
}

function nearTable(items: Of<NearKey>[]): HTMLElement {
    if (items.length === 0) return h("p", { class: "muted" }, "None.");
    return table("Keys near their limit", ["Key", "Rule", "Used"], items.map(({ rule, one }) => [
        keyName(rule, one), ruleLink(rule), share(one.used)]), [2]);
}

function bars(tenths: number[]): HTMLElement {
    const most = Math.max(1, ...tenths);
    return table("Limit utilization of keys", ["Used", "Keys", "Distribution"], tenths.map((keys, i) => {
        const fill = keys > 0 ? h("span", { class: "bar" }) : null;
        if (fill) fill.style.width = `${(100 * keys) / most}%`;
        return [i === tenths.length - 1 ? `${share(i / 10)} and more` : `${share(i / 10)} to ${share((i + 1) / 10)}`, count(keys),
            h("span", { class: "bar-box", "aria-hidden": "true" }, fill)];
    }), [1]);
}

const shownRules = 5;
const shownKeys = 20;

/* The wanted rule, or else those with the most traffic. */
async function rulesToShow(wanted: string): Promise<string[]> {
    if (wanted) return [wanted];
    const { rules } = merge(await get<Stats>(`/v1/stats${query(chosenHost())}`));
    const traffic = (rule: Rule) => rule.totals.allowed + rule.totals.denied + rule.totals.delayed;
    return rules.filter(traffic).sort((a, b) => traffic(b) - traffic(a)).slice(0, shownRules).map((rule) => rule.name);
}

/* Merges the lists of these rules. One request after the other: each is a query to all hosts. */
async function gather<T>(rules: string[], how: Record<string, string | number>, size: (one: T) => number) {
    const lists: HotKeys<T>[] = [];
    for (const rule of rules) lists.push(await get<HotKeys<T>>(`/v1/stats/hot${query({ rule, n: shownKeys, ...how, ...chosenHost() })}`));
    const items = lists.flatMap((list, i) => list.keys.map((one): Of<T> => ({ rule: rules[i]!, one })));
    const tenths: number[] = [];
    for (const list of lists) list.uses.tenths.forEach((keys, i) => (tenths[i] = (tenths[i] ?? 0) + keys));
    return { items: items.sort((a, b) => size(b.one) - size(a.one)).slice(0, shownKeys), tenths, known: lists.every((list) => list.known), coverage: lists[0]?.coverage };
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
    const card = h("div", { class: "stack" });
    const lists = h("div", { class: "cards lists" });
    const note = new CoverageNote();
    let closed = false;
    let loading = false;

    async function lookUp(): Promise<void> {
        const wanted = rule.control.value.trim();
        if (!key.value || !may("operator")) return;
        try {
            const states = wanted ? [await get<KeyState>(address(wanted, key.value))]
                : (await get<{ items: KeyState[] }>(`/v1/keys${query({ about: key.value })}`)).items;
            replace(card, states.length ? states.map((state) => stateCard(state, () => void lookUp()))
                : h("p", { class: "muted", role: "status" }, "No active rule counts such a key."));
        } catch (error) {
            const unknown = error instanceof Failure && error.status === 404;
            replace(card, unknown ? h("p", { class: "error", role: "alert" }, "There is no such active rule.") : problem(error));
        }
    }
    const section = (title: string, ...content: HTMLElement[]) => h("section", { class: "card" }, h("h2", {}, title), content);
    async function load(): Promise<void> {
        loading = true;
        try {
            const rules = await rulesToShow(route.query.get("rule") ?? "");
            const [admitted, denied, near] = await Promise.all([
                gather<HotKey>(rules, { by: "admitted" }, (one) => one.count), gather<HotKey>(rules, { by: "denied" }, (one) => one.count),
                gather<NearKey>(rules, { near: 1 }, (one) => one.used)]);
            const blocks = may("operator") ? (await get<{ items: Block[] }>("/v1/blocks")).items : null;
            if (closed) return;
            note.show(near.coverage);
            replace(lists, blocks ? Object.assign(section("Blocked on all hosts", blockTable(blocks)), { className: "card whole" }) : null, near.known ? null : h("p", { class: "muted" }, "The keys of some rules are not sampled."),
                section("Top keys by admitted cost", hotTable("Heaviest keys by admitted cost", admitted.items)),
                section("Top keys by denied cost", hotTable("Keys by denied cost", denied.items)), section("Near their limit", nearTable(near.items)),
                section("Limit utilization", near.tenths.some((keys) => keys > 0) ? bars(near.tenths) : h("p", { class: "muted" }, "No data yet.")));
        } catch (error) {
            replace(lists, problem(error));
        } finally {
            loading = false;
        }
    }
    const timer = window.setInterval(() => {
        const reading = lists.contains(document.activeElement); /* the list with the focus is not replaced */
        if (!document.hidden && !reading && !loading) void load();
    }, 5000);
    const form = h("form", { class: "toolbar", "aria-label": "Look up a key", onsubmit: (event: Event) => {
        event.preventDefault();
        const next = `#/keys${query({ rule: rule.control.value.trim(), key: key.value })}`;
        if (location.hash === next) void lookUp();
        else location.hash = next;
    } }, rule, field("Key", key, "As the rule's template makes it: user:42. Without a rule: under all rules that count it"), h("button", { class: "primary" }, "Look up"));
    void load();
    void lookUp();
    const rights = h("p", { class: "muted" }, "Looking a key up, blocking and resetting it need the operator's role.",
        session?.key_texts ? "" : " Keys are shown by their hashes (admin.key_texts in weir.yaml).");
    return { title: "Keys", element: h("div", {}, heading("Keys", hostChoice()), may("operator") ? form : rights, card, note.element, lists), close: () => {
        closed = true;
        clearInterval(timer);
    } };
}
