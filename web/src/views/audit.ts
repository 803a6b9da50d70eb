import { get, query } from "../api";
import { h, replace, table } from "../dom";
import type { AuditEntry, Page } from "../types";
import { Pager, type OpenView, heading, moment, name, problem } from "../view";

const versions: Record<string, string> = { enforced_version: "enforced v", shadow_version: "shadow v", version: "version ", revision: "published set " };

/* Versions of 0 are none. */
function detailText(key: string, value: unknown): string | null {
    if (key in versions) return value ? `${versions[key]}${value}` : null;
    if (key === "reason") return value ? `reason: ${value}` : null;
    return `${key.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`;
}

function detailsText(details: unknown): string {
    if (details === null || details === undefined) return "";
    if (typeof details !== "object") return String(details);
    return Object.entries(details).map(([key, value]) => detailText(key, value)).filter((text) => text !== null).join(", ");
}

export function audit(): OpenView {
    const list = h("div", { class: "list" });
    const pager = new Pager("Pages of the audit log", () => void load());
    async function load(): Promise<void> {
        try {
            const page = await get<Page<AuditEntry>>(`/v1/audit${query({ limit: 50, after: pager.after })}`);
            pager.loaded(page.next);
            replace(list, page.items.length === 0 ? h("p", { class: "muted" }, "Nothing yet.") :
                table("Audit log", ["Time", "User", "Action", "Object", "Details", "Address"], page.items.map((one) => [
                    moment(one.at), name(one.who), name(one.action), name(one.object), h("div", { class: "sentence" }, name(detailsText(one.details))),
                    name(one.address ?? "")])));
        } catch (error) {
            replace(list, problem(error));
        }
    }
    void load();
    return { title: "Audit", element: h("div", {}, heading("Audit log"), list, pager.element) };
}
