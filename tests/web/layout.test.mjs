/* Every page at the widths of a phone, a tablet and desktops, and on paper. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { close, fresh, makeRule, open } from "./harness.mjs";
import { pages, visit } from "./pages.mjs";

/* Runs in the page. Texts and controls that are cut off or reach beyond the page, and words that are broken inside.
 * What scrolls by itself is code, and nothing else; a word is at most 18 letters long. */
function misfits() {
    const wrong = new Set();
    const width = document.documentElement.clientWidth;
    const path = (element) => `${element.closest("[aria-label], section, nav, header")?.getAttribute("aria-label") ?? ""} ${element.tagName} ${element.className}`;
    const ignored = ".visually-hidden, .skip, .probe, .uplot, .gutter, input, textarea, pre, .diff-lines, option, #toasts";
    for (const element of document.querySelectorAll("body *")) {
        if (element.closest(ignored) || !element.checkVisibility()) continue;
        const box = element.getBoundingClientRect();
        const style = getComputedStyle(element);
        const cut = style.overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1;
        if (box.right > width + 1 || box.left < -1) wrong.add(`beyond the page: ${path(element)} ${Math.round(box.left)} to ${Math.round(box.right)}`);
        if (cut && style.display !== "inline") wrong.add(`cut off: ${path(element)} ${element.scrollWidth} in ${element.clientWidth}`);
    }
    const range = document.createRange();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        if (text.parentElement.closest(ignored) || !text.parentElement.checkVisibility()) continue;
        for (const word of text.data.matchAll(/[\p{L}\p{N}]+/gu)) {
            if (word[0].length > 18) continue;
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
            if (lines.size > 1) wrong.add(`broken: ${path(text.parentElement)} “${word[0]}”`);
        }
    }
    if (document.documentElement.scrollWidth > width) wrong.add(`the page scrolls sideways: ${document.documentElement.scrollWidth}`);
    return [...wrong];
}

/* What is still wrong a moment later: tables that have just come are laid out with the next frame. */
async function findMisfits(page) {
    if ((await page.evaluate(misfits)).length === 0) return [];
    await page.waitForTimeout(400);
    return page.evaluate(misfits);
}

for (const width of [360, 390, 1024, 1280, 1440]) {
    test(`every page fits ${width} pixels: nothing is cut off, no word is broken`, async () => {
        const phone = width < 600 ? { isMobile: true, hasTouch: true, deviceScaleFactor: 1 } : {};
        const page = await open("#/", { viewport: { width, height: 800 }, ...phone });
        const wrong = [];
        for (const view of pages) {
            await visit(page, view);
            wrong.push(...(await findMisfits(page)).map((one) => `${view} ${one}`));
        }
        await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
        wrong.push(...(await findMisfits(page)).map((one) => `shortcuts: ${one}`));
        assert.deepEqual(wrong, []);
        await close(page);
    });
}

test("a cut-off text and a broken word are found", async () => {
    const page = await open("#/advice");
    await page.evaluate(() => {
        const add = (text, style) => Object.assign(document.querySelector("main").appendChild(document.createElement("p")), { textContent: text }).style.cssText = style;
        add("clipped text", "width: 20px; overflow: hidden; white-space: nowrap");
        add("broken", "width: 20px; overflow-wrap: anywhere");
        add("far", "position: relative; left: 4000px");
    });
    const found = (await findMisfits(page)).join("\n");
    for (const what of [/cut off/, /broken: .*“broken”/, /beyond the page/, /sideways/]) assert.match(found, what);
    await page.context().close();
});

/* Runs in the page: how many of the charts have lines in them. */
function drawn() {
    const inked = [...document.querySelectorAll("section.chart")].map((chart) => {
        const canvas = chart.querySelector("canvas");
        return canvas !== null && canvas.width > 0 && canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0);
    });
    return { charts: inked.length, inked: inked.filter(Boolean).length };
}

test("charts out of sight are drawn, for a capture of the whole page and for paper", async () => {
    for (let i = 0; i < 12; i++) await makeRule({ name: fresh("paper"), stage: "enforced" });
    const page = await open("#/", { viewport: { width: 500, height: 400 }, colorScheme: "dark" });
    await page.waitForFunction(() => document.querySelectorAll("section.chart").length === 13);
    await page.waitForFunction(() => document.querySelectorAll("section.chart canvas").length === 13, undefined, { timeout: 5000 }); /* nobody scrolls */
    assert.deepEqual(await page.evaluate(drawn), { charts: 13, inked: 13 });
    const image = () => page.locator("section.chart canvas").last().evaluate((canvas) => canvas.toDataURL());
    const before = await image();
    await page.waitForTimeout(1500); /* for another sample */
    await page.emulateMedia({ media: "print" });
    await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
    assert.notEqual(await image(), before, "on paper it is up to date");
    assert.equal(await page.locator("#places").isVisible(), false);
    for (const box of await page.locator("section.chart .u-wrap").all()) assert.ok((await box.boundingBox()).width <= 500);
    await close(page);
});
