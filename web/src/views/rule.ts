/* One rule: text, stages and history. */
import { Failure, request, get, may, query, segment, errorText } from "../api";
import { announce, field, h, replace, setText, table } from "../dom";
import { confirm, show } from "../dialog";
import { diffView } from "../diff";
import { Editor } from "../editor";
import type { Page, RuleDocument, RuleRow, Stage, Version } from "../types";
import { type OpenView, type Route, badge, heading, moment, name, place, problem, readOnly, visible } from "../view";
import { conflictPanel } from "./conflict";
import { forget, keep, kept } from "./unsaved";

const starter = `name: my-rule
match: { path: /api/* }
key: ip:\${client_ip}
limit: 100
window: 1m
`;

/* A text area has only \n as a line break. */
function plain(rule: RuleDocument): RuleDocument {
    return { ...rule, text: rule.text.replace(/\r\n?/g, "\n") };
}

async function textOf(rule: string, version: number | null): Promise<string> {
    if (version === null || version === undefined) return "";
    return (await get<RuleDocument>(`/v1/rules/${segment(rule)}${query({ version })}`)).text;
}

interface Step {
    label: string;
    result: string;
    effect: string;
    stage: Stage;
    version: number | null; /* null: all published versions */
}

export const steps = {
    enforce: (version: number): Step => ({ label: "Enforce", result: "enforced", stage: "enforced", version,
        effect: "It decides requests on every host within seconds." }),
    shadow: (version: number): Step => ({ label: "Run in shadow", result: "in shadow", stage: "shadow", version,
        effect: "It is evaluated and counted beside the enforced version, and denies nothing." }),
    dropShadow: (version: number): Step => ({ label: "Drop the shadow", result: "without a shadow", stage: "draft", version,
        effect: "The shadow is no longer evaluated. The enforced version stays." }),
    withdraw: (): Step => ({ label: "Withdraw", result: "withdrawn", stage: "draft", version: null,
        effect: "It is no longer evaluated, neither enforced nor in shadow. Its text stays." }),
};

/* The difference of the texts before and after the step. */
async function difference(rule: RuleRow, step: Step): Promise<HTMLElement> {
    const withdraws = step.stage === "draft";
    const from = withdraws ? step.version ?? rule.enforced_version ?? rule.shadow_version : rule.enforced_version;
    const [now, then] = await Promise.all([textOf(rule.name, from), withdraws ? "" : textOf(rule.name, step.version)]);
    const label = from === null ? "Nothing is enforced yet" : withdraws ? `v${from} is withdrawn` : `Enforced v${from} to v${step.version}`;
    return diffView(now, then, label);
}

/* Shows the difference and asks for confirmation. True: published. */
export async function publish(rule: RuleRow, step: Step): Promise<boolean> {
    const change = await difference(rule, step);
    const done = await confirm({
        title: `${step.label}: ${visible(rule.name)}${step.version === null ? "" : ` v${step.version}`}`, confirm: step.label,
        danger: step.stage === "draft", reason: true, body: [h("p", {}, step.effect), change],
        act: async (reason) => {
            const version = step.version === null ? {} : { version: step.version };
            await request(`/v1/rules/${segment(rule.name)}/publish`, { method: "POST", json: { stage: step.stage, ...version, reason } });
        },
    });
    if (done) announce(`${visible(rule.name)}: ${step.result}`);
    return done;
}

class RulePage {
    readonly element = h("div", { class: "rule" });
    private readonly state = h("p", { class: "stages" });
    private readonly history = h("div");
    private readonly actions = h("div", { class: "buttons" });
    private readonly conflict = h("div");
    private readonly error = h("p", { class: "error", role: "alert" });
    private readonly reason = h("input", { type: "text", maxlength: "500", autocomplete: "off" });
    private readonly save = h("button", { type: "button", class: "primary", onclick: () => void this.store() }, "Save");
    private readonly discard = h("button", { type: "button", onclick: () => this.drop() }, "Discard changes");
    private editor!: Editor;
    private rule!: RuleDocument;
    private etag = "";
    private bad = false;

    constructor(private readonly name: string) {}

    async load(proposal: string | null): Promise<void> {
        const reply = await request<RuleDocument>(`/v1/rules/${segment(this.name)}`);
        this.rule = plain(reply.body);
        this.etag = reply.etag;
        const unsaved = readOnly() ? null : proposal ?? kept(this.name)?.text ?? null;
        const base = kept(this.name)?.etag;
        if (unsaved !== null && proposal === null && base) this.etag = base; /* so that changes of others since then are detected */
        this.editor = new Editor("Rule as YAML", unsaved ?? this.rule.text, this.name, !may("editor"), (verdict) => {
            if (verdict) this.bad = !verdict.ok;
            if (this.dirty) keep(this.name, this.editor.text, this.etag);
            else forget(this.name);
            this.draw();
        });
        replace(this.element, heading(visible(this.name)), readOnly(), this.state, this.editor.element,
            may("editor") ? h("div", { class: "toolbar save" }, field("Reason for the change", this.reason), this.save, this.discard) : null,
            this.error, this.conflict, this.actions, h("section", {}, h("h2", {}, "History"), this.history));
        this.draw();
        await this.loadHistory();
        if (unsaved !== null && unsaved !== this.rule.text) {
            announce(proposal === null ? "Your unsaved changes were restored" : "The advice is in the editor, not saved yet");
        }
    }

    get dirty(): boolean {
        return this.editor !== undefined && this.editor.text !== this.rule.text;
    }

    shortcut(): void {
        if (!this.save.disabled) void this.store();
    }

    private draw(): void {
        if (!this.editor) return;
        const { rule } = this;
        const stage = (label: string, version: number | null) => version !== null && version !== undefined
            ? h("span", { class: "nowrap" }, badge(label), ` v${version}`) : null;
        replace(this.state, stage("enforced", rule.enforced_version), stage("shadow", rule.shadow_version), rule.stage === "draft" && stage("draft", rule.version),
            h("span", { class: "muted" }, `Version ${rule.version}, `, moment(rule.at), rule.file ? [" in ", place(rule)] : [" by ", name(rule.author)]));
        this.save.disabled = !this.dirty || this.bad;
        this.discard.disabled = !this.dirty;
        if (!may("editor")) return;
        const act = (step: Step, possible: boolean, kind = "") =>
            h("button", { type: "button", class: kind, disabled: !possible || this.dirty,
                onclick: () => void publish(rule, step).then((done) => (done ? this.refresh() : undefined)).catch((e) => this.fail(e)) }, `${step.label}…`);
        const live = rule.enforced_version !== null || rule.shadow_version !== null;
        const focused = this.actions.contains(document.activeElement) ? document.activeElement?.textContent : null;
        replace(this.actions,
            act(steps.shadow(rule.version), rule.kind === "rule" && rule.shadow_version !== rule.version && rule.enforced_version !== rule.version),
            act(steps.enforce(rule.version), rule.enforced_version !== rule.version, "primary"),
            act(steps.withdraw(), live),
            h("button", { type: "button", class: "danger", disabled: this.dirty, onclick: () => void this.remove() }, "Delete…"),
            this.dirty ? h("span", { class: "hint" }, "Save or discard the changes first") : null);
        if (focused) [...this.actions.querySelectorAll("button")].find((one) => one.textContent === focused)?.focus();
    }

    private fail(error: unknown): void {
        if (error instanceof Failure && error.problems.length) this.editor.refuse(error.problems);
        setText(this.error, errorText(error));
    }

    /* Loads the server's state; the text in the editor stays. */
    private async refresh(): Promise<void> {
        const reply = await request<RuleDocument>(`/v1/rules/${segment(this.name)}`);
        this.rule = plain(reply.body);
        this.etag = reply.etag;
        setText(this.error, "");
        this.draw();
        await this.loadHistory();
    }

    /* Rules in files change without this page. */
    async follow(): Promise<void> {
        if (!this.editor) return;
        try {
            await this.refresh();
            if (this.dirty) this.editor.text = this.rule.text;
        } catch (error) {
            this.fail(error);
        }
    }

    private async store(): Promise<void> {
        const text = this.editor.text;
        this.save.disabled = true;
        setText(this.error, "");
        try {
            await request(`/v1/rules/${segment(this.name)}${query({ reason: this.reason.value.trim() })}`,
                { method: "PUT", yaml: text, ifMatch: this.etag });
            forget(this.name);
            this.reason.value = "";
            replace(this.conflict);
            await this.refresh();
            announce(`Saved as version ${this.rule.version}`);
        } catch (error) {
            this.draw();
            if (error instanceof Failure && error.status === 412) await this.showConflict();
            else this.fail(error);
        }
    }

    /* Another user saved first: shows both texts and the choice. */
    private async showConflict(): Promise<void> {
        const theirs = await request<RuleDocument>(`/v1/rules/${segment(this.name)}`);
        const settle = (text: string) => {
            this.rule = plain(theirs.body);
            this.etag = theirs.etag;
            replace(this.conflict);
            this.editor.text = text;
            this.editor.area.focus();
            void this.loadHistory();
        };
        replace(this.conflict, conflictPanel(theirs.body, this.editor.text, () => settle(this.editor.text), () => settle(theirs.body.text)));
        this.conflict.querySelector("h2")?.focus();
        announce("This rule was changed by another user", "bad");
    }

    private drop(): void {
        forget(this.name);
        this.editor.text = this.rule.text;
        void this.refresh().catch((error) => this.fail(error));
        replace(this.conflict);
    }

    private async remove(): Promise<void> {
        const done = await confirm({
            title: `Delete ${visible(this.name)}`, danger: true, reason: true, confirm: "Delete",
            body: [h("p", {}, "It is withdrawn from the published rules, too. Its history is kept.")],
            act: async (reason) => {
                await request(`/v1/rules/${segment(this.name)}${query({ reason, withdraw: "true" })}`, { method: "DELETE", ifMatch: this.etag });
            },
        });
        if (!done) return;
        forget(this.name);
        announce(`${visible(this.name)} is deleted`);
        location.hash = "#/rules";
    }

    private async compare(version: number): Promise<void> {
        const then = await textOf(this.name, version);
        show(`Version ${version}`, [diffView(then, this.rule.text, `Version ${version} to ${this.rule.version}`), h("h3", {}, "Its text"),
            h("pre", { class: "scroll", tabindex: "0" }, then)]);
    }

    private async rollBack(version: number): Promise<void> {
        const then = await textOf(this.name, version);
        const done = await confirm({
            title: `Roll back to version ${version}`, confirm: "Roll back", reason: true,
            body: [h("p", {}, "The old text becomes a new version. Publish it to make it active."),
                diffView(this.rule.text, then, `Version ${this.rule.version} to ${version}`)],
            act: async (reason) => {
                await request(`/v1/rules/${segment(this.name)}/rollback`, { method: "POST", json: { version, reason } });
            },
        });
        if (!done) return;
        await this.refresh();
        this.editor.text = this.rule.text;
        announce(`Rolled back: version ${this.rule.version} has the text of version ${version}`);
    }

    private async loadHistory(): Promise<void> {
        const page = await get<Page<Version>>(`/v1/rules/${segment(this.name)}/versions${query({ limit: 100 })}`);
        const act = (label: string, to: string, version: number, call: (version: number) => Promise<void>) => h("button", {
            type: "button", "aria-label": `${label}${to} version ${version}`, onclick: () => void call.call(this, version).catch((e: unknown) => this.fail(e)),
        }, `${label}…`);
        replace(this.history, table("Versions", ["Version", "Time", "Author", "Reason", ""], page.items.map((row) => [
            `v${row.version}`, moment(row.at), name(row.author), name(row.deleted ? "deleted" : row.reason ?? ""),
            row.version === this.rule.version || row.deleted ? "" : h("span", { class: "buttons" }, act("Compare", "", row.version, this.compare),
                may("editor") && !this.dirty && act("Roll back", " to", row.version, this.rollBack))])));
    }
}

export function rule(route: Route): OpenView {
    const wanted = route.parts[1] ?? "";
    const page = new RulePage(wanted);
    const proposal = route.query.get("proposal") === "1" ? kept(`advice ${wanted}`)?.text ?? null : null;
    page.load(proposal).catch((error) => replace(page.element, heading(visible(wanted)), problem(error)));
    const leave = (event: BeforeUnloadEvent) => {
        if (page.dirty) event.preventDefault();
    };
    const save = () => page.shortcut();
    const again = readOnly() ? window.setInterval(() => void page.follow(), 2000) : 0;
    window.addEventListener("beforeunload", leave);
    window.addEventListener("weir:save", save);
    return { title: visible(wanted), element: page.element, dirty: () => page.dirty, close: () => {
        clearInterval(again);
        window.removeEventListener("beforeunload", leave);
        window.removeEventListener("weir:save", save);
    } };
}

export function newRule(): OpenView {
    const refused = readOnly();
    if (refused) return { title: "New rule", element: h("div", {}, heading("New rule"), refused) };
    const error = h("p", { class: "error", role: "alert" });
    const reason = h("input", { type: "text", maxlength: "500", autocomplete: "off" });
    const create = h("button", { type: "button", class: "primary", disabled: true, onclick: () => void store() }, "Create draft");
    const editor = new Editor("New rule as YAML", kept("")?.text ?? starter, "", false, (verdict) => {
        create.disabled = verdict === null || !verdict.ok;
        if (editor.text !== starter) keep("", editor.text, "");
    });
    async function store(): Promise<void> {
        try {
            const made = await request<RuleDocument>(`/v1/rules${query({ reason: reason.value.trim() })}`, { method: "POST", yaml: editor.text });
            forget("");
            announce(`${visible(made.body.name)} is saved as a draft`);
            location.hash = `#/rules/${encodeURIComponent(made.body.name)}`;
        } catch (failed) {
            if (failed instanceof Failure && failed.problems.length) editor.refuse(failed.problems);
            setText(error, errorText(failed));
        }
    }
    const save = () => void (create.disabled || store());
    window.addEventListener("weir:save", save);
    return {
        title: "New rule", dirty: () => editor.text !== starter, close: () => window.removeEventListener("weir:save", save),
        element: h("div", { class: "rule" }, heading("New rule"), editor.element,
            h("div", { class: "toolbar save" }, field("Reason for the change", reason), create), error),
    };
}
