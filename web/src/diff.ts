/* The difference of two texts, by lines. */
import { h } from "./dom";

export interface Line {
    kind: "same" | "gone" | "new";
    text: string;
    left: number; /* line numbers; 0: not in that text */
    right: number;
}

/* Maximal size of the table below, with a cell for each pair of lines; larger differences are shown as one replacement. */
const cellsMax = 4_000_000;

/* Cell (i, j): length of the longest common subsequence of a from i and b from j. */
function commonLengths(a: string[], b: string[]): Uint32Array {
    const wide = b.length + 1;
    const table = new Uint32Array((a.length + 1) * wide);
    for (let i = a.length - 1; i >= 0; i--) {
        for (let j = b.length - 1; j >= 0; j--) {
            table[i * wide + j] = a[i] === b[j] ? table[(i + 1) * wide + j + 1]! + 1
                : Math.max(table[(i + 1) * wide + j]!, table[i * wide + j + 1]!);
        }
    }
    return table;
}

export function compare(before: string, after: string): Line[] {
    const a = before === "" ? [] : before.replace(/\n$/, "").split("\n");
    const b = after === "" ? [] : after.replace(/\n$/, "").split("\n");
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
    let tail = 0;
    while (tail < a.length - start && tail < b.length - start && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
    const aEnd = a.length - tail;
    const bEnd = b.length - tail;
    const aMiddle = a.slice(start, aEnd);
    const bMiddle = b.slice(start, bEnd);
    const known = aMiddle.length * bMiddle.length <= cellsMax ? commonLengths(aMiddle, bMiddle) : null;
    const wide = bMiddle.length + 1;
    const lines: Line[] = [];
    let i = 0;
    let j = 0;
    const same = (from: number, to: number, shift: number) => {
        for (let n = from; n < to; n++) lines.push({ kind: "same", text: a[n]!, left: n + 1, right: n + 1 + shift });
    };
    same(0, start, 0);
    while (i < aMiddle.length || j < bMiddle.length) {
        const gone = j >= bMiddle.length ||
            (i < aMiddle.length && (!known || known[(i + 1) * wide + j]! >= known[i * wide + j + 1]!));
        if (known && i < aMiddle.length && j < bMiddle.length && aMiddle[i] === bMiddle[j]) {
            lines.push({ kind: "same", text: aMiddle[i]!, left: start + i + 1, right: start + j + 1 });
            i += 1;
            j += 1;
        } else if (gone) {
            lines.push({ kind: "gone", text: aMiddle[i]!, left: start + i + 1, right: 0 });
            i += 1;
        } else {
            lines.push({ kind: "new", text: bMiddle[j]!, left: 0, right: start + j + 1 });
            j += 1;
        }
    }
    same(aEnd, a.length, b.length - a.length);
    return lines;
}

const contextLines = 3;

/* Leaves out equal lines, except some around each change; null marks a gap. */
function withContext(lines: Line[]): (Line | null)[] {
    const near = new Set<number>();
    lines.forEach((line, i) => {
        if (line.kind === "same") return;
        for (let n = Math.max(0, i - contextLines); n <= Math.min(lines.length - 1, i + contextLines); n++) near.add(n);
    });
    const result: (Line | null)[] = [];
    lines.forEach((line, i) => {
        if (near.has(i)) result.push(line);
        else if (result[result.length - 1] !== null) result.push(null);
    });
    return result;
}

const signs = { same: " ", gone: "−", new: "+" };
const signLabels = { same: "", gone: "removed: ", new: "added: " };

export function diffView(before: string, after: string, label: string): HTMLElement {
    const lines = compare(before, after);
    const changed = lines.filter((line) => line.kind !== "same");
    if (changed.length === 0) return h("p", { class: "diff-none" }, `${label}: no difference`);
    const added = changed.filter((line) => line.kind === "new").length;
    const rows = withContext(lines).map((line) =>
        line === null ? h("div", { class: "diff-gap" }, "⋯") : h("div", { class: `diff-line ${line.kind}` },
            h("span", { class: "diff-number", "aria-hidden": "true" }, line.left || ""),
            h("span", { class: "diff-number", "aria-hidden": "true" }, line.right || ""),
            h("span", { class: "diff-sign", "aria-hidden": "true" }, signs[line.kind]),
            h("span", { class: "visually-hidden" }, signLabels[line.kind]), h("code", {}, line.text)));
    return h("figure", { class: "diff" },
        h("figcaption", {}, `${label}: ${added} added, ${changed.length - added} removed`),
        h("div", { class: "diff-lines scroll", tabindex: "0", role: "region", "aria-label": label }, rows));
}
