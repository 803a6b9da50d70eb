/* Modal dialogs: confirmation of an action, and information. */
import { errorText } from "./api";
import { field, freshId, h, setText } from "./dom";

interface Confirmation {
    title: string;
    body: (Node | string)[];
    confirm: string;
    danger?: boolean;
    reason?: boolean; /* with a field for the reason, which the history shows */
    act: (reason: string) => Promise<void>; /* if it fails, the dialog stays open and shows the error */
}

/* True: confirmed and done. */
export function confirm(action: Confirmation): Promise<boolean> {
    return new Promise((resolve) => {
        const id = freshId("dialog");
        const reason = h("input", { type: "text", maxlength: "500", autocomplete: "off" });
        const error = h("p", { class: "error", role: "alert" });
        const yes = h("button", { type: "submit", class: action.danger ? "danger" : "primary" }, action.confirm);
        const no = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
        const form = h("form", { method: "dialog" }, h("h2", { id }, action.title), action.body,
            action.reason ? field("Reason", reason, "Kept in the history") : null, error,
            h("div", { class: "buttons" }, no, yes));
        const dialog = h("dialog", { "aria-labelledby": id }, form);
        let done = false;
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            yes.disabled = true;
            action.act(reason.value.trim()).then(() => {
                done = true;
                dialog.close();
            }, (failed: unknown) => {
                yes.disabled = false;
                setText(error, errorText(failed));
            });
        });
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(done);
        });
        document.body.append(dialog);
        dialog.showModal();
        (action.danger ? no : action.reason ? reason : yes).focus();
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
