import { get, may, query } from "../api";
import { field, h, replace, select, table } from "../dom";
import { when } from "../format";
import type { RulePage } from "../types";
import { Pager, type OpenView, type Route, badge, heading, name, place, problem, readOnly, ruleLink, visible } from "../view";

const perPage = 50;
const stages: [string, string][] = [["", "All"], ["draft", "Draft"], ["shadow", "Shadow"], ["enforced", "Enforced"]];
const kinds: [string, string][] = [["", "All"], ["rule", "Rules"], ["domain", "Domains"], ["settings", "Settings"]];

function version(number: number | null): string {
    return number === null || number === undefined ? "–" : `v${number}`;
}

export function rules(route: Route): OpenView {
    const filter = h("input", { type: "search", "data-filter": true, autocomplete: "off", value: route.query.get("q") ?? "" });
    const stage = select(stages, route.query.get("stage") ?? "");
    const kind = select(kinds, route.query.get("kind") ?? "");
    const list = h("div", { class: "list", "aria-busy": "true" });
    const found = h("p", { class: "muted", role: "status" });
    const errors = h("div", { role: "status" });
    let pending = new AbortController();
    let timer = 0, again = 0;
    const readOnlyNote = readOnly();
    const pager = new Pager("Pages of rules", () => void load());

    async function load(): Promise<void> {
        pending.abort();
        const control = new AbortController();
        pending = control;
        list.setAttribute("aria-busy", "true");
        try {
            const page = await get<RulePage>(`/v1/rules${query({
                limit: perPage, after: pager.after, q: filter.value.trim(), stage: stage.value, kind: kind.value,
            })}`, control.signal);
            pager.loaded(page.next);
            found.textContent = page.items.length === 0 ? "No rule matches." :
                `${page.items.length}${page.next ? " shown, more follow" : " shown"}`;
            const wrong = page.files?.errors ?? [];
            replace(errors, wrong.length === 0 ? null : [h("p", { class: "error" }, "The files have errors; these are the rules before:"),
                h("ul", { class: "errors" }, ...wrong.map((one) => h("li", {},
                    visible(`${one.file}${one.line ? `:${one.line}:${one.column ?? 1}` : ""}: ${one.message}`))))]);
            replace(list, page.items.length === 0 ? null : table("Rules",
                ["Name", "Stage", "Version", "Enforced", "Shadow", "Summary", page.files ? "Changed, place" : "Changed"],
                page.items.map((row) => [ruleLink(row.name), badge(row.stage), version(row.version),
                    version(row.enforced_version), version(row.shadow_version), h("div", { class: "sentence" }, name(row.summary ?? row.kind)),
                    h("span", { class: "nowrap" }, when(row.at), row.file ? [" ", place(row)] : [" by ", name(row.author)])])));
        } catch (error) {
            if (control.signal.aborted) return;
            replace(list, problem(error));
        }
        list.setAttribute("aria-busy", "false");
        /* Files change without this page. Not by an interval, which would abort replies that take longer. */
        clearTimeout(again);
        if (readOnlyNote) again = window.setTimeout(() => void load(), 2000);
    }
    function restart(): void {
        pager.restart();
        const now = query({ q: filter.value.trim(), stage: stage.value, kind: kind.value });
        history.replaceState(null, "", `#/rules${now}`);
        void load();
    }
    filter.addEventListener("input", () => {
        clearTimeout(timer);
        timer = window.setTimeout(restart, 150);
    });
    stage.addEventListener("change", restart);
    kind.addEventListener("change", restart);
    void load();

    const element = h("div", {},
        heading("Rules", may("editor") ? h("a", { class: "button primary", href: "#/new" }, "New rule") : "",
            h("a", { class: "button", href: "#/published" }, "Published sets")),
        readOnlyNote ?? "", errors,
        h("div", { class: "toolbar" }, field("Filter rules", filter), field("Stage", stage), field("Kind", kind), found),
        list, pager.element);
    return { title: "Rules", element, close: () => {
        pending.abort();
        clearTimeout(timer);
        clearTimeout(again);
    } };
}
