import { request, get, may, segment } from "../api";
import { announce, field, h, replace, select, table } from "../dom";
import { confirm, show } from "../dialog";
import { millis } from "../format";
import type { NewToken, Page, Token } from "../types";
import { type OpenView, badge, heading, moment, name, problem, visible } from "../view";

const roles: [string, string][] = [["viewer", "Viewer: reads"], ["editor", "Editor: writes rules and publishes"],
    ["operator", "Operator: also manages keys and tokens"]];
const lives: [string, string][] = [["7d", "7 days"], ["30d", "30 days"], ["365d", "1 year"], ["", "never"]];

export function tokens(): OpenView {
    const list = h("div", { class: "list" });
    const state = (one: Token) => one.revoked ? "revoked" : millis(one.expires) < Date.now() ? "expired" : "valid";

    async function revoke(one: Token): Promise<void> {
        const done = await confirm({
            title: "Revoke this token", danger: true, confirm: "Revoke",
            body: [h("p", {}, "All sessions of ", name(one.name), " end at once. This cannot be undone.")],
            act: async () => {
                await request(`/v1/tokens/${segment(String(one.id))}`, { method: "DELETE" });
            },
        });
        if (done) {
            announce(`${visible(one.name)} is revoked`);
            await load();
        }
    }
    async function load(): Promise<void> {
        try {
            const page = await get<Page<Token>>("/v1/tokens");
            replace(list, table("Tokens", ["Name", "Role", "State", "Created", "Expires", "Last used", ""], page.items.map((one) => [
                name(one.name), badge(one.role), state(one), moment(one.created), one.expires === null ? "never" : moment(one.expires), moment(one.last_used),
                state(one) === "valid" && h("button", { type: "button", "aria-label": `Revoke ${visible(one.name)}`, onclick: () => void revoke(one) }, "Revoke…")])));
        } catch (error) {
            replace(list, problem(error));
        }
    }
    async function create(): Promise<void> {
        const title = h("input", { type: "text", required: true, maxlength: "95", autocomplete: "off" });
        const role = select(roles, "viewer");
        const expires = select(lives, "30d");
        let made: NewToken | null = null;
        const done = await confirm({
            title: "New token", confirm: "Create", body: [field("Name", title, "The user or the purpose"), field("Role", role), field("Expires after", expires)],
            act: async () => {
                made = (await request<NewToken>("/v1/tokens", {
                    method: "POST", json: { name: title.value.trim(), role: role.value, expires: expires.value || null } })).body;
            },
        });
        if (!done) return;
        const text = h("input", { type: "text", readonly: true, class: "code", value: made!.token, onfocus: () => text.select() });
        show("The new token", [h("p", {}, "It is shown only once: weir keeps its hash."), field("Token", text)]);
        await load();
    }
    if (may("operator")) void load();
    else replace(list, h("p", { class: "muted" }, "Tokens need the operator's role."));
    return { title: "Tokens", element: h("div", {},
        heading("Tokens", may("operator") ? h("button", { type: "button", class: "primary", onclick: () => void create() }, "New token") : ""), list) };
}
