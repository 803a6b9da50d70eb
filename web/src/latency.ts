/* How long checks take: quantiles and a histogram of those that were timed, of the last minute. */
import { h, replace, setText, table } from "./dom";
import { count, durationRange, millis } from "./format";
import type { Stats } from "./types";
import { visible } from "./view";

const spanS = 60;
const quantiles: [string, number][] = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99]];

/* The bounds of a bucket in seconds; the last one has no upper bound. */
function bucketText(below: number[], i: number): string {
    const from = i > 0 ? below[i - 1]! : 0;
    return i < below.length ? durationRange(from, below[i]!) : `over ${durationRange(0, from).replace("under ", "")}`;
}

function quantile(counts: number[], share: number): number {
    const all = counts.reduce((a, b) => a + b, 0);
    let sum = 0;
    return counts.findIndex((one) => (sum += one) >= all * share);
}

export class LatencyPanel {
    private readonly about = h("p", { class: "muted" });
    private readonly facts = h("dl", { class: "facts" });
    private readonly body = h("div");
    readonly element = h("section", { class: "card latency", "aria-label": "Latency" }, h("h3", {}, "Latency of checks"), this.about, this.facts, this.body);
    private samples: { at: number; counts: number[] }[] = [];
    private last = "";
    private host = "";

    show(stats: Stats): void {
        const { counts, below_s: below } = stats.check_seconds ?? {};
        const at = millis(stats.at) / 1000;
        if (!counts || !below) return;
        const host = String(stats.host?.name ?? "");
        const restarted = host !== this.host || this.samples.some((old) => old.counts.some((one, i) => one > (counts[i] ?? 0)));
        this.samples = restarted ? [] : this.samples.filter((old) => old.at > at - spanS);
        this.host = host;
        const first = this.samples[0]?.counts;
        this.samples.push({ at, counts });
        const recent = counts.map((one, i) => one - (first?.[i] ?? 0));
        const inSpan = first !== undefined && recent.some((one) => one > 0);
        this.draw(inSpan ? recent : counts, below, inSpan);
    }

    private draw(counts: number[], below: number[], inSpan: boolean): void {
        const shape = JSON.stringify([counts, inSpan, this.host]);
        if (shape === this.last || this.body.matches(":focus-within")) return;
        this.last = shape;
        const timed = counts.reduce((a, b) => a + b, 0);
        setText(this.about, timed === 0 ? "No check was timed yet: about 1 in 64 is." :
            `${this.host ? `On ${visible(this.host)}: ` : ""}${count(timed)} timed, about 1 in 64, ${inSpan ? "in the last minute" : "since weir started"}`);
        if (timed === 0) return;
        replace(this.facts, quantiles.map(([name, share]) =>
            h("div", {}, h("dt", {}, name), h("dd", {}, `≈ ${bucketText(below, quantile(counts, share))}`))));
        const from = counts.findIndex((one) => one > 0);
        const to = counts.length - [...counts].reverse().findIndex((one) => one > 0);
        const most = Math.max(...counts);
        replace(this.body, table("Latency of checks by duration", ["Duration", "Checks", "Distribution"], counts.slice(from, to).map((one, i) => {
            const fill = h("span", { class: "bar" });
            fill.style.width = `${(100 * one) / most}%`;
            return [h("span", { class: "nowrap" }, bucketText(below, from + i)), count(one), h("span", { class: "bar-box", "aria-hidden": "true" }, fill)];
        }), [1]));
    }
}
