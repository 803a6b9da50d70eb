/* The login dialog, over the current view, whose input stays. */
import { Failure, request, setSession, errorText } from "./api";
import { field, h, setText } from "./dom";
import { duration } from "./format";
import type { Session } from "./types";

let pending: Promise<void> | null = null;

function reasonOf(error: unknown): string {
    if (error instanceof Failure && error.status === 401) return "This token is not known, or no longer valid.";
    if (error instanceof Failure && error.status === 429) {
        return `Too many tries. Try again in ${duration(error.retryAfter || 60)}.`;
    }
    return errorText(error);
}

/* A login link ends in #login=…, which browsers send to no server. */
export async function logInByLink(): Promise<"none" | "refused" | "done"> {
    const link = /^#login=([\w-]+)$/.exec(location.hash)?.[1];
    if (!link) return "none";
    history.replaceState(null, "", "#/"); /* neither in the history nor on the screen */
    try {
        setSession((await request<Session>("/v1/session", { method: "POST", json: { link } })).body);
        return "done";
    } catch (error) {
        if (!(error instanceof Failure) || error.status === 0) throw error;
        return "refused";
    }
}

/* Resolves after a login. Several callers share one dialog. */
export function logIn(reason: string): Promise<void> {
    pending ??= new Promise<void>((resolve) => {
        const token = h("input", { type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
        const error = h("p", { class: "error", role: "alert" });
        const button = h("button", { class: "primary" }, "Log in");
        const form = h("form", { class: "login" }, h("h2", { id: "login-title" }, "Log in to weir"), h("p", {}, reason),
            field("Token", token, "Made with: weir token create. Links that log in, once: weir token link"), error, h("div", { class: "buttons" }, button));
        const dialog = h("dialog", { "aria-labelledby": "login-title", class: "login-dialog" }, form);
        dialog.addEventListener("cancel", (event) => event.preventDefault());
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            button.disabled = true;
            request<Session>("/v1/session", { method: "POST", json: { token: token.value.trim() } }).then((reply) => {
                setSession(reply.body);
                pending = null;
                dialog.remove();
                resolve();
            }, (failed: unknown) => {
                button.disabled = false;
                setText(error, reasonOf(failed));
                token.select();
            });
        });
        document.body.append(dialog);
        dialog.showModal();
        token.focus();
    });
    return pending;
}
