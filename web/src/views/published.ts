import { request, get, may, query } from "../api";
import { announce, h, replace, table } from "../dom";
import { confirm } from "../dialog";
import { diffView } from "../diff";
import type { Page, Revision } from "../types";
import { Pager, type OpenView, heading, moment, name, problem, readOnly } from "../view";

interface RevisionText extends Revision {
    text: string;
}

/* All published sets of rules, newest first. */
export function published(): OpenView {
    const list = h("div", { class: "list" });
    const pager = new Pager("Pages of published sets", () => void load());
    let newest = 0;

    async function rollBack(to: number): Promise<void> {
        const [now, then] = await Promise.all([get<RevisionText>(`/v1/revisions/${newest}`), get<RevisionText>(`/v1/revisions/${to}`)]);
        const done = await confirm({
            title: `Roll back to set ${to}`, danger: true, confirm: `Publish set ${to}`, reason: true,
            body: [h("p", {}, "All rules return to their versions in this set, which is published as a new set."),
                diffView(now.text, then.text, `Set ${newest} to set ${to}`)],
            act: async (reason) => {
                await request(`/v1/revisions/${to}/rollback`, { method: "POST", json: { reason } });
            },
        });
        if (done) {
            announce(`Set ${to} is published again`);
            pager.restart();
            await load();
        }
    }

    async function load(): Promise<void> {
        try {
            const page = await get<Page<Revision>>(`/v1/revisions${query({ limit: 50, after: pager.after })}`);
            pager.loaded(page.next);
            if (!pager.after) newest = page.items[0]?.revision ?? 0;
            replace(list, page.items.length === 0 ? h("p", { class: "muted" }, "Nothing has been published yet.") :
                table("Published sets", ["Set", "Time", "Author", "Reason", ""], page.items.map((row) => [
                    row.revision, moment(row.at), name(row.author), name(row.reason ?? ""),
                    row.revision === newest ? "published" : may("editor") && h("button", {
                        type: "button", "aria-label": `Roll back to set ${row.revision}`,
                        onclick: () => void rollBack(row.revision).catch((error) => announce(error.message, "bad")),
                    }, "Roll back…")])));
        } catch (error) {
            replace(list, problem(error));
        }
    }
    void load();
    return { title: "Published sets", element: h("div", {}, heading("Published sets"), readOnly(), list, pager.element) };
}
