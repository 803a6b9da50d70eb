/* Logging in, over whatever is shown: what was typed there stays. */
import { Failure, ask, setSession, words } from "./api";
import { field, h, setText } from "./dom";
import { duration } from "./format";
import type { Session } from "./types";

let asking: Promise<void> | null = null;

function why(error: unknown): string {
    if (error instanceof Failure && error.status === 401) return "This token is not known, or no longer valid.";
    if (error instanceof Failure && error.status === 429) {
        return `Too many tries. Try again in ${duration(error.retryAfter || 60)}.`;
    }
    return words(error);
}

/* Resolves when somebody is logged in. Several callers get the same dialog. */
export function logIn(reason: string): Promise<void> {
    asking ??= new Promise<void>((resolve) => {
        const token = h("input", { type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
        const error = h("p", { class: "error", role: "alert" });
        const button = h("button", { class: "primary" }, "Log in");
        const form = h("form", { class: "login" }, h("h2", { id: "login-title" }, "Log in to weir"), h("p", {}, reason),
            field("Token", token, "Made with: weir token create"), error, h("div", { class: "buttons" }, button));
        const dialog = h("dialog", { "aria-labelledby": "login-title", class: "login-dialog" }, form);
        dialog.addEventListener("cancel", (event) => event.preventDefault());
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            button.disabled = true;
            ask<Session>("/v1/session", { method: "POST", json: { token: token.value.trim() } }).then((answer) => {
                setSession(answer.body);
                asking = null;
                dialog.remove();
                resolve();
            }, (failed: unknown) => {
                button.disabled = false;
                setText(error, why(failed));
                token.select();
            });
        });
        document.body.append(dialog);
        dialog.showModal();
        token.focus();
    });
    return asking;
}
