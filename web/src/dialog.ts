/* Questions that need an answer before anything happens. */
import { words } from "./api";
import { field, freshId, h, setText } from "./dom";

interface Question {
    title: string;
    body: (Node | string)[];
    confirm: string;
    danger?: boolean;
    reason?: boolean; /* asks why, for the history */
    act: (reason: string) => Promise<void>; /* while it fails the dialog stays and says why */
}

/* True when it was done. */
export function confirm(question: Question): Promise<boolean> {
    return new Promise((resolve) => {
        const id = freshId("dialog");
        const reason = h("input", { type: "text", maxlength: "500", autocomplete: "off" });
        const error = h("p", { class: "error", role: "alert" });
        const yes = h("button", { type: "submit", class: question.danger ? "danger" : "primary" }, question.confirm);
        const no = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
        const form = h("form", { method: "dialog" }, h("h2", { id }, question.title), question.body,
            question.reason ? field("Reason", reason, "Kept in the history") : null, error,
            h("div", { class: "buttons" }, no, yes));
        const dialog = h("dialog", { "aria-labelledby": id }, form);
        let done = false;
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            yes.disabled = true;
            question.act(reason.value.trim()).then(() => {
                done = true;
                dialog.close();
            }, (failed: unknown) => {
                yes.disabled = false;
                setText(error, words(failed));
            });
        });
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(done);
        });
        document.body.append(dialog);
        dialog.showModal();
        (question.danger ? no : question.reason ? reason : yes).focus();
    });
}

export function show(title: string, body: (Node | string)[]): void {
    const id = freshId("dialog");
    const close = h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close");
    const dialog = h("dialog", { "aria-labelledby": id }, h("h2", { id }, title), body, h("div", { class: "buttons" }, close));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    close.focus();
}
