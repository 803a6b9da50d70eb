/* The difference of two texts, against what it must say: both texts can be told from it, and no shorter one is missed. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const esbuild = createRequire(`${root}build/node/web/node_modules/x.js`)("esbuild");
const source = readFileSync(`${root}web/src/diff.ts`, "utf8").replace(/^import .*$/gm, "");
const { compare } = await import(`data:text/javascript,${encodeURIComponent(esbuild.transformSync(source, { loader: "ts" }).code)}`);

const join = (lines, other) => lines.filter((line) => line.kind !== other).map((line) => `${line.text}\n`).join("");

/* The longest common part by trying everything. */
function common(a, b) {
    if (a.length === 0 || b.length === 0) return 0;
    if (a[0] === b[0]) return 1 + common(a.slice(1), b.slice(1));
    return Math.max(common(a.slice(1), b), common(a, b.slice(1)));
}

test("a difference gives both texts back, and is as short as can be", () => {
    let seed = 7;
    const random = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    for (let round = 0; round < 2000; round++) {
        const text = () => Array.from({ length: random(8) }, () => "abc"[random(3)]);
        const [a, b] = [text(), text()];
        const lines = compare(a.map((line) => `${line}\n`).join(""), b.map((line) => `${line}\n`).join(""));
        assert.deepEqual([join(lines, "new"), join(lines, "gone")], [a, b].map((all) => all.map((line) => `${line}\n`).join("")));
        assert.equal(lines.filter((line) => line.kind === "same").length, common(a, b));
        lines.forEach((line) => {
            if (line.left) assert.equal(a[line.left - 1], line.text);
            if (line.right) assert.equal(b[line.right - 1], line.text);
        });
    }
});

test("texts too long to compare line by line are shown as replaced", () => {
    const long = (word) => Array.from({ length: 3000 }, (_, i) => `${word} ${i}\n`).join("");
    const lines = compare(`same\n${long("a")}end\n`, `same\n${long("b")}end\n`);
    assert.equal(lines.filter((line) => line.kind === "same").length, 2);
    assert.equal(join(lines, "gone"), `same\n${long("b")}end\n`);
});
