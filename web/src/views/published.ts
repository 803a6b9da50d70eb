import { ask, get, may, query } from "../api";
import { announce, h, replace, table } from "../dom";
import { confirm } from "../dialog";
import { diffView } from "../diff";
import { when } from "../format";
import type { Page, Revision } from "../types";
import { Pager, type Shown, heading, name, problem } from "../view";

interface RevisionText extends Revision {
    text: string;
}

/* Every set of rules that was ever in force, newest first. */
export function published(): Shown {
    const list = h("div", { class: "list" });
    const pager = new Pager("Pages of published sets", () => void load());
    let newest = 0;

    async function back(to: number): Promise<void> {
        const [now, then] = await Promise.all([get<RevisionText>(`/v1/revisions/${newest}`), get<RevisionText>(`/v1/revisions/${to}`)]);
        const done = await confirm({
            title: `Roll back to set ${to}`, danger: true, confirm: `Put set ${to} in force`, reason: true,
            body: [h("p", {}, "All rules go back to what they were in this set. It becomes a new set; nothing is lost."),
                diffView(now.text, then.text, `Set ${newest} to set ${to}`)],
            act: async (reason) => {
                await ask(`/v1/revisions/${to}/rollback`, { method: "POST", json: { reason } });
            },
        });
        if (done) {
            announce(`Set ${to} is in force again`);
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
                table("Published sets", ["Set", "When", "Who", "Why", ""], page.items.map((row) => [
                    row.revision, when(row.at), name(row.author), name(row.reason ?? ""),
                    row.revision === newest ? "in force" : may("editor") && h("button", {
                        type: "button", "aria-label": `Roll back to set ${row.revision}`,
                        onclick: () => void back(row.revision).catch((error) => announce(error.message, "bad")),
                    }, "Roll back")])));
        } catch (error) {
            replace(list, problem(error));
        }
    }
    void load();
    return { title: "Published sets", element: h("div", {}, heading("Published sets"), list, pager.element) };
}
