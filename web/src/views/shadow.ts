/* Compares shadow versions with the enforced ones. */
import { get, may, query, segment } from "../api";
import { Chart } from "../charts";
import { diffView } from "../diff";
import { h, replace, setText } from "../dom";
import { rate, share } from "../format";
import { CoverageNote, hostChoice } from "../hosts";
import { type Choice, Meter, follow } from "../live";
import type { Rule } from "../figures";
import type { Page, RuleDocument, RuleRow, Stats } from "../types";
import { Pager, type OpenView, badge, heading, problem, readOnly, ruleLink, visible } from "../view";
import { publish, steps } from "./rule";

const perPage = 6;

function column(title: string, version: number | null, text: string, denies: HTMLElement): HTMLElement {
    return h("div", {}, h("h3", {}, badge(title), version === null ? " nothing" : ` v${version}`), denies,
        h("pre", { class: "scroll", tabindex: "0", "aria-label": `${title} text` }, text || "–"));
}

class Pair {
    readonly element: HTMLElement;
    private readonly chart: Chart;
    private readonly meter = new Meter();
    private readonly enforced = h("p", { class: "denies" }, "–");
    private readonly shadow = h("p", { class: "denies" }, "–");
    private readonly verdict = h("p", { class: "verdict" });

    constructor(readonly row: RuleRow, reload: () => void) {
        this.chart = new Chart(`${row.name}: denied, and denied by the shadow`, row.name, ["denied", "shadow_denied"], 300);
        const texts = h("div");
        const failed = (error: unknown) => replace(texts, problem(error));
        const act = (label: string, step: "enforce" | "dropShadow", kind: string) => h("button", {
            type: "button", class: kind,
            onclick: () => void publish(row, steps[step](row.shadow_version!)).then((done) => done && reload()).catch(failed),
        }, label);
        this.element = h("section", { class: "card pair" }, h("h2", {}, ruleLink(row.name)), this.verdict, texts, this.chart.element,
            may("editor") ? h("div", { class: "buttons" }, act("Drop the shadow…", "dropShadow", ""), act("Enforce the shadow…", "enforce", "primary")) : null);
        const text = (version: number | null) => version === null ? Promise.resolve("")
            : get<RuleDocument>(`/v1/rules/${segment(row.name)}${query({ version })}`).then((found) => found.text);
        Promise.all([text(row.enforced_version), text(row.shadow_version)]).then(([now, then]) =>
            replace(texts, h("div", { class: "sides" }, column("enforced", row.enforced_version, now, this.enforced),
                column("shadow", row.shadow_version, then, this.shadow)), diffView(now, then, `${visible(row.name)}, enforced to shadow`)), failed);
        void this.chart.load();
    }

    show(rule: Rule | undefined, stats: Stats): void {
        if (!rule) {
            setText(this.verdict, "No request has matched this rule yet.");
            return;
        }
        const next = this.meter.next(stats, rule.totals);
        if (next) this.chart.push(next.at, next.counts);
        const minute = rule.rates["60s"];
        if (!minute) return;
        const all = minute.allowed + minute.denied + minute.delayed;
        if (all + minute.shadow_all === 0) {
            for (const text of [this.enforced, this.shadow]) setText(text, "no requests in the last minute");
            setText(this.verdict, "No request has matched this rule in the last minute.");
            return;
        }
        setText(this.enforced, `denies ${rate(minute.denied)}, ${share(all ? minute.denied / all : 0)} of its requests`);
        setText(this.shadow, `would deny ${rate(minute.shadow_denied)}, ${share(minute.shadow_all ? minute.shadow_denied / minute.shadow_all : 0)} of them`);
        const more = minute.shadow_denied - minute.denied;
        setText(this.verdict, Math.abs(more) < 0.05 ? "In the last minute both denied the same." :
            `In the last minute the shadow would have denied ${rate(Math.abs(more))} ${more > 0 ? "more" : "less"}.`);
    }

    close(): void {
        this.chart.close();
    }
}

export function shadow(): OpenView {
    const list = h("div");
    const note = new CoverageNote();
    const pager = new Pager("Pages of shadows", () => void load());
    let pairs: Pair[] = [];
    let stop: () => void = () => undefined;
    const clear = () => {
        stop();
        pairs.forEach((pair) => pair.close());
        pairs = [];
    };

    async function load(): Promise<void> {
        try {
            const page = await get<Page<RuleRow>>(`/v1/rules${query({ stage: "shadow", limit: perPage, after: pager.after })}`);
            clear();
            pager.loaded(page.next);
            pairs = page.items.filter((row) => row.shadow_version !== null).map((row) => new Pair(row, () => void load()));
            replace(list, pairs.length ? pairs.map((pair) => pair.element) :
                h("p", { class: "muted" }, readOnly() ?
                    "No rule runs in shadow. Add a rule with “shadow: true” to the files to see what a change would do." :
                    "No rule runs in shadow. Open a rule and choose “Run in shadow” to see what a change would do."));
            if (pairs.length === 0) return;
            const everything: Choice = { q: "", sort: "name", limit: Infinity, offset: 0 };
            stop = follow(() => everything, (sample) => {
                if (!sample) return;
                note.show(sample.stats.coverage);
                const rules = new Map(sample.rules.map((rule) => [rule.name, rule]));
                for (const pair of pairs) pair.show(rules.get(pair.row.name), sample.stats);
            });
        } catch (error) {
            replace(list, problem(error));
        }
    }
    void load();
    return { title: "Shadow", element: h("div", {}, heading("Shadow against enforced", hostChoice()), note.element, list, pager.element), close: clear };
}
