/* Creates elements. Text never becomes markup. */

type Child = Node | string | number | null | undefined | false | Child[];
type Listener = (event: never) => void;
type Value = string | number | boolean | null | undefined | Listener;

function append(parent: Node, child: Child): void {
    if (Array.isArray(child)) {
        for (const one of child) append(parent, one);
    } else if (child instanceof Node) {
        parent.appendChild(child);
    } else if (child !== null && child !== undefined && child !== false) {
        parent.appendChild(document.createTextNode(String(child)));
    }
}

/* h("button", { class: "x", onclick: f, disabled: true }, "text", node, …) */
export function h<T extends keyof HTMLElementTagNameMap>(
    tag: T,
    attributes: Record<string, Value> = {},
    ...children: Child[]
): HTMLElementTagNameMap[T] {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
    }
    append(element, children);
    return element;
}

export function replace(parent: Element, ...children: Child[]): void {
    const fragment = document.createDocumentFragment();
    append(fragment, children);
    parent.replaceChildren(fragment);
}

/* Changes the text only if it differs, so that the browser lays out nothing in vain. */
export function setText(node: Node, text: string): void {
    if (node.textContent !== text) node.textContent = text;
}

let ids = 0;
export function freshId(prefix: string): string {
    ids += 1;
    return `${prefix}-${ids}`;
}

/* A field with its label. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
    control.id ||= freshId("field");
    const note = hint ? h("span", { class: "hint", id: `${control.id}-hint` }, hint) : null;
    if (note) control.setAttribute("aria-describedby", note.id);
    return h("div", { class: "field" }, h("label", { for: control.id }, label), control, note);
}

export function select(options: [string, string][], value: string): HTMLSelectElement {
    const element = h("select");
    for (const [key, label] of options) element.append(h("option", { value: key, selected: key === value }, label));
    return element;
}

/* A table whose rows are stacked, each value after its label, while its columns need more room than it has. */
const stacking = new ResizeObserver((entries) => {
    for (const { target } of entries) {
        const box = target as HTMLElement;
        if (box.clientWidth === 0 || box.clientWidth < Number(box.dataset.needs)) continue;
        box.classList.remove("stacked");
        const needs = box.firstElementChild!.scrollWidth;
        box.dataset.needs = String(needs);
        box.classList.toggle("stacked", needs > box.clientWidth);
    }
});

/* Roles are explicit: browsers drop those of table elements that are laid out otherwise. */
export function table(caption: string, heads: string[], rows: Child[][], numeric: number[] = []): HTMLElement {
    const cell = (i: number) => (numeric.includes(i) ? "num" : null);
    const body = rows.map((row) =>
        h("tr", { role: "row" }, row.map((child, i) =>
            i === 0 ? h("th", { role: "rowheader", scope: "row", class: cell(i), "data-label": heads[i] }, child) :
                h("td", { role: "cell", class: cell(i), "data-label": heads[i] }, child))));
    const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
        h("table", { role: "table" }, h("caption", { class: "visually-hidden" }, caption),
            h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads.map((head, i) =>
                h("th", { role: "columnheader", scope: "col", class: cell(i) }, head || h("span", { class: "visually-hidden" }, "Actions"))))),
            h("tbody", { role: "rowgroup" }, body)));
    stacking.observe(box);
    return box;
}

/* Announces a text to screen readers, and shows it for 6 seconds. */
export function announce(text: string, kind: "good" | "bad" = "good"): void {
    const announcer = document.getElementById("announcer");
    if (announcer) announcer.textContent = text;
    const toasts = document.getElementById("toasts");
    if (!toasts) return;
    const toast = h("div", { class: `toast ${kind}` }, text);
    toasts.append(toast);
    while (toasts.childElementCount > 3) toasts.firstElementChild?.remove();
    setTimeout(() => toast.remove(), 6000);
}
