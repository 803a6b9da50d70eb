import { show } from "./dialog";
import { h, table } from "./dom";

const places: [string, string, string][] = [["o", "#/", "Overview"], ["r", "#/rules", "Rules"], ["s", "#/shadow", "Shadow"],
    ["k", "#/keys", "Keys"], ["d", "#/denials", "Denials"], ["c", "#/check", "Check"], ["q", "#/queue", "Queue"], ["a", "#/advice", "Advice"], ["l", "#/audit", "Audit log"], ["t", "#/tokens", "Tokens"]];
const off = "weir shortcuts off";

function enabled(): boolean {
    try {
        return localStorage.getItem(off) === null;
    } catch {
        return true;
    }
}

function enable(on: boolean): void {
    try {
        if (on) localStorage.removeItem(off);
        else localStorage.setItem(off, "1");
    } catch {
        /* No storage: the setting is not kept. */
    }
}

export function listShortcuts(): void {
    const box = h("input", { type: "checkbox", id: "shortcuts-on", checked: enabled() });
    box.addEventListener("change", () => enable(box.checked));
    const keys = (...all: string[]) => all.map((one) => h("kbd", {}, one));
    show("Keyboard shortcuts", [
        table("Keyboard shortcuts", ["What", "Keys"], [
            ...places.map(([key, , label]) => [label, keys("g", key)]),
            ["Filter the list", keys("/")], ["New rule", keys("n")], ["Save the rule", keys("Ctrl", "S")], ["This list", keys("?")]]),
        h("p", {}, box, " ", h("label", { for: "shortcuts-on" }, "Enable single-key shortcuts"))]);
}

export function startShortcuts(): void {
    let waiting = 0;
    document.addEventListener("keydown", (event) => {
        if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
            event.preventDefault();
            window.dispatchEvent(new Event("weir:save"));
            return;
        }
        const target = event.target as HTMLElement;
        if (event.ctrlKey || event.metaKey || event.altKey || !enabled() || target.closest("input, textarea, select, dialog")) return;
        const going = Date.now() < waiting;
        waiting = 0;
        const place = going ? places.find(([key]) => key === event.key) : undefined;
        if (place) location.hash = place[1];
        else if (event.key === "g") waiting = Date.now() + 1500;
        else if (event.key === "?") listShortcuts();
        else if (event.key === "n") location.hash = "#/new";
        else if (event.key === "/") document.querySelector<HTMLElement>("[data-filter]")?.focus();
        else return;
        event.preventDefault();
    });
}
