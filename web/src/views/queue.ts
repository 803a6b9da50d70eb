/* Deferred requests: waiting, delivered, dead. */
import { Failure, request, get, may, query, segment } from "../api";
import { confirm } from "../dialog";
import { announce, field, h, replace, select, table } from "../dom";
import { bytes, count, duration } from "../format";
import type { Deferred, Page, QueueStats } from "../types";
import { Pager, type OpenView, type Route, badge, heading, keyLink, moment, name, problem, ruleLink, visible } from "../view";

const pollMs = 2000;
const perPage = 50;
const states: [string, string][] = [["dead", "Dead"], ["waiting", "Waiting"], ["under_way", "Under way"], ["delivered", "Delivered"],
    ["cancelled", "Cancelled"], ["", "All"]];

function statsTable(figures: QueueStats): HTMLElement {
    if (figures.rules.length === 0) return h("p", { class: "muted" }, "The queue is empty.");
    const row = (of: Omit<QueueStats, "rules">) => [count(of.waiting), count(of.under_way), count(of.dead), bytes(of.bytes), duration(of.oldest_s)];
    const rows = figures.rules.map((one) => [ruleLink(one.rule), ...row(one)]);
    if (rows.length > 1) rows.push([h("span", {}, "All"), ...row(figures)]);
    return table("Deferred requests by rule", ["Rule", "Waiting", "Under way", "Dead", "Size", "Oldest"], rows, [1, 2, 3, 4, 5]);
}

/* A host without a queue is not an error. */
function queueProblem(error: unknown): HTMLElement {
    return error instanceof Failure && error.status === 501 ?
        h("p", { class: "muted" }, "No requests are deferred here: weir.yaml has no queue.") : problem(error);
}

export function queue(route: Route): OpenView {
    const figures = h("div");
    const list = h("div", { class: "list" });
    const state = select(states, route.query.get("state") ?? "dead");
    const rule = h("input", { type: "text", autocomplete: "off", "data-filter": true, value: route.query.get("rule") ?? "" });
    const pager = new Pager("Pages of deferred requests", () => void load());
    let timer = 0;

    async function change(one: Deferred, what: "requeue" | "cancel"): Promise<void> {
        const requeue = what === "requeue";
        const done = await confirm({
            title: requeue ? "Requeue this request" : "Cancel this request", danger: !requeue, confirm: requeue ? "Requeue" : "Cancel the request",
            body: [h("p", {}, h("code", {}, `${visible(one.method)} ${visible(one.path)}`), " of ", name(one.key ?? one.key_hex ?? ""), requeue ?
                " is delivered when its rule admits it, with new attempts." : " will not be delivered. Its client sees that only when it queries the ticket.")],
            act: async () => {
                await request(`/v1/queue/${segment(one.ticket)}/${what}`, { method: "POST", json: {} });
            },
        });
        if (!done) return;
        announce(requeue ? "Requeued" : "Cancelled");
        await Promise.all([load(), loadStats()]);
    }
    function buttons(one: Deferred): HTMLElement | null {
        const act = (label: string, what: "requeue" | "cancel") => h("button", { type: "button",
            "aria-label": `${label} ${visible(one.method)} ${visible(one.path)}, ${one.ticket.slice(0, 8)}`, onclick: () => void change(one, what) }, `${label}…`);
        if (!may("operator") || (one.state !== "dead" && one.state !== "waiting")) return null;
        return h("span", { class: "nowrap" }, one.state === "dead" ? act("Requeue", "requeue") : null, " ", act("Cancel", "cancel"));
    }
    async function load(): Promise<void> {
        try {
            const page = await get<Page<Deferred>>(`/v1/queue${query({ state: state.value, rule: rule.value.trim(), limit: perPage, after: pager.after })}`);
            pager.loaded(page.next);
            replace(list, page.items.length === 0 ? h("p", { class: "muted" }, "None.") : table("Deferred requests",
                ["Ticket", "State", "Rule", "Key", "Request", "Accepted", "Attempts", "Why", ""], page.items.map((one) => [
                    h("code", {}, one.ticket.slice(0, 8)), badge(one.state.replace("_", " ")), ruleLink(one.rule),
                    one.key === undefined ? name(one.key_hex ?? "") : keyLink(one.rule, one.key), name(`${one.method} ${one.path}`),
                    moment(one.accepted), count(one.attempts), name(one.why ?? ""), buttons(one)]), [6]));
        } catch (error) {
            replace(list, queueProblem(error));
        }
    }
    async function loadStats(): Promise<void> {
        try {
            replace(figures, statsTable(await get<QueueStats>("/v1/queue/stats")));
        } catch (error) {
            replace(figures, queueProblem(error));
            if (error instanceof Failure && error.status === 501) clearInterval(timer);
        }
    }
    const restart = () => {
        pager.restart();
        void load();
    };
    state.addEventListener("change", restart);
    rule.addEventListener("change", restart);
    timer = window.setInterval(() => {
        if (!document.hidden) void loadStats();
    }, pollMs);
    void loadStats();
    void load();
    return { title: "Queue", close: () => clearInterval(timer), element: h("div", {}, heading("Deferred requests"),
        h("section", { class: "card" }, h("h2", {}, "By rule"), figures),
        h("section", { class: "card" }, h("h2", {}, "Requests"), h("div", { class: "toolbar" }, field("State", state), field("Rule", rule)), list, pager.element)) };
}
