/* A chart of rates over time, by uPlot, with a sentence and a table for screen readers. */
import uPlot from "uplot";
import { get, query, errorText } from "./api";
import { freshId, h, replace, setText, table } from "./dom";
import { millis, rate } from "./format";
import { chosenHost } from "./hosts";
import type { Tally } from "./figures";
import type { History } from "./types";

export type Series = "allowed" | "denied" | "delayed" | "shed" | "shadow_denied";
export const labels: Record<Series, string> = {
    allowed: "allowed", denied: "denied", delayed: "delayed", shed: "shed", shadow_denied: "shadow would deny",
};
/* Dashes distinguish the series without colours. */
const dashes: Record<Series, number[]> = { allowed: [], denied: [], delayed: [6, 3], shed: [8, 2, 2, 2], shadow_denied: [2, 3] };
const tableRows = 12;
const hiddenDrawMs = 10000; /* charts out of sight are drawn at most this often: a capture of the whole page has them */
const charts = new Set<Chart>();

/* The least distance of times on the axis: those with seconds need more room than HH:MM, of which a phone has one a minute. */
function timeSpace(span: number, width: number): number {
    return (width * 60) / span < 88 ? 44 : 76;
}

function clock(at: number): string {
    return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export class Chart {
    readonly element: HTMLElement;
    private readonly plotBox: HTMLElement;
    private readonly tableBox = h("div");
    private readonly values = new Map<Series, HTMLElement>();
    private readonly probe = h("span", { class: "probe", "aria-hidden": "true" });
    private readonly visibility: IntersectionObserver;
    private readonly size: ResizeObserver;
    private plot: uPlot | null = null;
    private data: (number | null)[][];
    private visible = false;
    private loaded = false;
    private open = false;
    private drawnAt = 0;

    /* `rule` "": the sum of all rules. `seconds`: time span. */
    constructor(readonly title: string, readonly rule: string, readonly series: Series[], private seconds: number) {
        this.data = [[], ...series.map(() => [])];
        this.plotBox = h("div", { class: "plot", role: "img", "aria-label": `Chart of ${title}` });
        const details = h("details", { class: "chart-table" }, h("summary", {}, "Figures"), this.tableBox);
        details.addEventListener("toggle", () => {
            this.open = details.open;
            this.draw();
        });
        const id = freshId("chart");
        this.element = h("section", { class: "chart", "aria-labelledby": id, "data-rule": rule },
            h("div", { class: "chart-head" }, h("h3", { id }, h("bdi", {}, title)), this.legend()),
            this.plotBox, details, this.probe);
        this.size = new ResizeObserver(() => this.fit());
        this.visibility = new IntersectionObserver((entries) => {
            this.visible = entries[entries.length - 1]?.isIntersecting ?? false;
            this.draw();
        });
        this.size.observe(this.plotBox);
        this.visibility.observe(this.plotBox);
        charts.add(this);
    }

    close(): void {
        charts.delete(this);
        this.size.disconnect();
        this.visibility.disconnect();
        this.plot?.destroy();
    }

    async load(): Promise<void> {
        try {
            const step = Math.max(1, Math.floor(this.seconds / 600));
            const history = await get<History>(
                `/v1/stats/history${query({ rule: this.rule, seconds: this.seconds, step, ...chosenHost() })}`);
            const until = history.known ? millis(history.until) / 1000 : 0;
            const points = history.known ? history[this.series[0]!]?.length ?? 0 : 0;
            const times = Array.from({ length: points }, (_, i) => until - (points - 1 - i) * history.step);
            this.data = [times, ...this.series.map((name) => (history[name] ?? times.map(() => 0)).slice(0, points))];
            this.loaded = true;
            this.draw();
        } catch (error) {
            setText(this.plotBox, `No history: ${errorText(error)}`);
        }
    }

    setSpan(seconds: number): void {
        this.seconds = seconds;
        this.loaded = false;
        void this.load();
    }

    push(at: number, counts: Tally): void {
        if (!this.loaded) return;
        const times = this.data[0]!;
        const last = times[times.length - 1] ?? 0;
        if (at <= last!) return;
        if (last && at - last > 15) {
            this.setSpan(this.seconds); /* the page was suspended: the history has the missed samples */
            return;
        }
        times.push(at);
        this.series.forEach((name, i) => this.data[i + 1]!.push(counts[name]));
        let old = 0;
        while (old < times.length && times[old]! < at - this.seconds) old += 1;
        if (old > 0) this.data.forEach((values) => values.splice(0, old));
        this.draw();
    }

    /* Draws what is out of sight, too. */
    drawNow(): void {
        this.drawnAt = 0;
        this.draw();
    }

    /* After a change of the colours. */
    repaint(): void {
        this.plot?.destroy();
        this.plot = null;
        this.drawNow();
    }

    private legend(): HTMLElement {
        return h("ul", { class: "legend" }, this.series.map((name) => {
            const value = h("span", { class: "value" }, "–");
            this.values.set(name, value);
            return h("li", {}, h("span", { class: `swatch series-${name}`, "aria-hidden": "true" }), labels[name], " ", value);
        }));
    }

    private colour(name: string): string {
        this.probe.className = `probe ${name}`;
        return getComputedStyle(this.probe).color;
    }

    private make(): uPlot {
        this.plotBox.replaceChildren();
        const ink = this.colour("ink");
        const grid = { stroke: this.colour("grid"), width: 1 };
        const axis = { stroke: ink, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
        return new uPlot({
            width: this.plotBox.clientWidth || 300,
            height: this.plotBox.clientHeight || 160,
            legend: { show: false },
            padding: [8, 28, 0, 0], /* for half of the last time */
            cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
            scales: { y: { range: (_u, _min, max) => [0, Math.max(1, (max ?? 0) * 1.1)] } },
            axes: [{ ...axis, size: 28, space: (_u, _i, min, max, width) => timeSpace(max - min, width), values: (_u, all, _i, _space, step) => all.map((v) => clock(v).slice(0, step < 60 ? 8 : 5)) }, { ...axis, size: 46, values: (_u, all) => all.map((v) => rate(v).replace("/s", "")) }],
            series: [{}, ...this.series.map((name) => ({
                label: labels[name], stroke: this.colour(`series-${name}`), width: 2, dash: dashes[name], spanGaps: false,
                fill: name === "denied" ? this.colour("series-denied-fill") : undefined, points: { show: false },
            }))],
            hooks: { setCursor: [(plot) => this.showValues(plot.cursor.idx ?? null)] },
        }, this.data as uPlot.AlignedData, this.plotBox);
    }

    private fit(): void {
        const { clientWidth: width, clientHeight: height } = this.plotBox;
        if (this.plot && width > 0 && (width !== this.plot.width || height !== this.plot.height)) {
            this.plot.setSize({ width, height });
        }
    }

    private showValues(index: number | null): void {
        const at = index ?? this.data[0]!.length - 1;
        this.series.forEach((name, i) => setText(this.values.get(name)!, rate(this.data[i + 1]![at])));
    }

    private draw(): void {
        if (!this.loaded) return;
        this.showValues(this.plot?.cursor.idx ?? null);
        const last = this.data[0]!.length - 1;
        const rates = this.series.map((name, i) => `${labels[name]} ${rate(this.data[i + 1]![last])}`).join(", ");
        this.plotBox.setAttribute("aria-label", `Chart of ${this.title}. Now: ${rates}`);
        if (this.open) this.drawTable();
        const now = performance.now();
        if (!this.visible && this.drawnAt > 0 && now - this.drawnAt < hiddenDrawMs) return;
        this.drawnAt = now;
        if (this.plot) this.plot.setData(this.data as uPlot.AlignedData);
        else this.plot = this.make();
    }

    private drawTable(): void {
        const times = this.data[0]!;
        const part = Math.max(1, Math.ceil(times.length / tableRows));
        const rows: string[][] = [];
        for (let end = times.length; end > 0 && rows.length < tableRows; end -= part) {
            const start = Math.max(0, end - part);
            const means = this.series.map((_, i) => {
                const values = this.data[i + 1]!.slice(start, end).filter((v): v is number => v !== null);
                return values.length ? rate(values.reduce((a, b) => a + b, 0) / values.length) : "–";
            });
            rows.push([`${clock(times[start]!)} – ${clock(times[end - 1]!)}`, ...means]);
        }
        replace(this.tableBox, table(`${this.title}: means per second`, ["time", ...this.series.map((name) => labels[name])],
            rows, this.series.map((_, i) => i + 1)));
    }
}

export function repaintCharts(): void {
    for (const chart of charts) chart.repaint();
}

window.addEventListener("beforeprint", () => {
    for (const chart of charts) chart.drawNow();
});
