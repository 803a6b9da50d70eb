/* A text editor with line numbers that validates the document while it is typed. It is a plain text area, so that
 * assistive technology works. */
import { Failure, request, query, errorText } from "./api";
import { freshId, h, replace, setText } from "./dom";
import type { Problem } from "./types";

const checkAfterMs = 250;

interface Verdict {
    ok: boolean;
    problems: Problem[];
    warnings: Problem[];
}

export class Editor {
    readonly element: HTMLElement;
    readonly area: HTMLTextAreaElement;
    private readonly gutter = h("div", { class: "gutter", "aria-hidden": "true" });
    private readonly list = h("ul", { class: "problems" });
    private readonly status: HTMLElement;
    private timer = 0;
    private pending: AbortController | null = null;
    private lines = 0;
    private marked = "";

    /* `name`: of the edited document; empty for a new one. */
    constructor(label: string, text: string, readonly name: string, readonly readOnly: boolean,
        private readonly changed: (verdict: Verdict | null) => void) {
        const id = freshId("editor");
        this.status = h("p", { class: "verdict", id: `${id}-verdict`, role: "status" });
        this.list.id = `${id}-problems`;
        this.area = h("textarea", {
            id, class: "code", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", rows: 12,
            readonly: readOnly, "aria-describedby": `${id}-verdict ${id}-problems`,
        });
        this.area.value = text;
        this.area.addEventListener("input", () => this.typed());
        this.area.addEventListener("scroll", () => (this.gutter.scrollTop = this.area.scrollTop));
        this.element = h("div", { class: "editor" }, h("label", { for: id }, label),
            h("div", { class: "editor-box" }, this.gutter, this.area), this.status, this.list);
        this.number([], []);
        if (!readOnly && text.trim()) void this.check();
    }

    get text(): string {
        return this.area.value;
    }

    set text(value: string) {
        this.area.value = value;
        this.typed();
    }

    /* Shows the errors with which the server refused to save. */
    refuse(problems: Problem[]): void {
        const warnings = problems.filter((one) => one.severity === "warning");
        this.show({ ok: false, problems: problems.filter((one) => one.severity !== "warning"), warnings });
    }

    private typed(): void {
        this.changed(null);
        this.pending?.abort();
        clearTimeout(this.timer);
        if (this.area.value.split("\n").length !== this.lines) this.number([], []);
        this.timer = window.setTimeout(() => void this.check(), checkAfterMs);
    }

    private async check(): Promise<void> {
        const control = new AbortController();
        this.pending = control;
        try {
            const reply = await request<{ warnings?: Problem[] }>(`/v1/validate${query({ name: this.name })}`,
                { method: "POST", yaml: this.text, signal: control.signal });
            this.show({ ok: true, problems: [], warnings: reply.body.warnings ?? [] });
        } catch (error) {
            if (control.signal.aborted) return;
            if (error instanceof Failure && (error.status === 422 || error.status === 400)) {
                this.refuse(error.problems.length ? error.problems : [error]);
            } else {
                setText(this.status, `Not checked: ${errorText(error)}`);
            }
        }
    }

    private show(verdict: Verdict): void {
        const { problems, warnings } = verdict;
        this.area.setAttribute("aria-invalid", String(!verdict.ok));
        this.status.classList.toggle("bad", !verdict.ok);
        const plural = (n: number, word: string) => `${n} ${word}${n === 1 ? "" : "s"}`;
        setText(this.status, verdict.ok ? (warnings.length ? `Valid, ${plural(warnings.length, "warning")}` : "Valid")
            : plural(problems.length, "error"));
        const byLine = (a: Problem, b: Problem) => (a.line ?? 0) - (b.line ?? 0);
        problems.sort(byLine);
        replace(this.list, problems.map((one) => this.item(one, "error")), warnings.map((one) => this.item(one, "warning")));
        this.number(problems, warnings);
        this.changed(verdict);
    }

    private item(problem: Problem, kind: "error" | "warning"): HTMLElement {
        const place = problem.line ? `Line ${problem.line}${problem.column ? `, column ${problem.column}` : ""}` : kind;
        const text = [problem.field ? `${problem.field}: ` : "", problem.message,
            problem.suggestion ? `; did you mean “${problem.suggestion}”?` : ""].join("");
        return h("li", { class: kind },
            problem.line ? h("button", { type: "button", class: "link", onclick: () => this.go(problem) }, place) : h("strong", {}, place),
            " ", h("span", {}, text));
    }

    private go(problem: Problem): void {
        const lines = this.text.split("\n");
        const line = Math.min(problem.line ?? 1, lines.length);
        const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
        const at = start + Math.min((problem.column ?? 1) - 1, lines[line - 1]!.length);
        this.area.focus();
        this.area.setSelectionRange(at, start + lines[line - 1]!.length);
    }

    private number(problems: Problem[], warnings: Problem[]): void {
        const lines = this.text.split("\n").length;
        const bad = new Set(problems.map((one) => one.line));
        const odd = new Set(warnings.map((one) => one.line));
        const marked = `${lines}:${[...bad].join()}:${[...odd].join()}`;
        if (marked === this.marked) return;
        this.marked = marked;
        this.lines = lines;
        this.area.rows = Math.min(32, Math.max(12, lines + 1));
        replace(this.gutter, Array.from({ length: lines }, (_, i) =>
            h("div", { class: bad.has(i + 1) ? "bad" : odd.has(i + 1) ? "odd" : null }, i + 1)));
        this.gutter.scrollTop = this.area.scrollTop;
    }
}
