import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { close, host, open, require } from "./harness.mjs";
import { hostile, pages as views, rule, user, visit } from "./pages.mjs";

const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

async function accessible(page, what) {
    /* By the protocol, past the page's own policy, which would not let this script in. */
    const session = await page.context().newCDPSession(page);
    await session.send("Runtime.evaluate", { expression: axe });
    const { result } = await session.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
        expression: "axe.run(document, { resultTypes: ['violations'] }).then((r) => JSON.stringify(r.violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary)])))" });
    assert.deepEqual(JSON.parse(result.value), [], what);
}

for (const colorScheme of ["light", "dark"]) {
    test(`every view is accessible by axe-core, ${colorScheme}`, async () => {
        const page = await open("#/", { colorScheme });
        for (const view of views) {
            await visit(page, view);
            await accessible(page, `${colorScheme} ${view}`);
        }
        await page.getByRole("button", { name: "New token" }).click();
        await accessible(page, "a dialog");
        await close(page);
    });
}

test("dark as the system has it, and by the switch, which is remembered", async () => {
    const page = await open("#/", { colorScheme: "dark" });
    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await back();
    await page.getByLabel("Colours").selectOption("light");
    const light = await back();
    assert.notEqual(dark, light);
    await page.reload();
    await page.getByRole("heading", { level: 1 }).waitFor();
    assert.equal(await back(), light);
    await page.emulateMedia({ colorScheme: "light" });
    await page.getByLabel("Colours").selectOption("dark");
    assert.equal(await back(), dark);
    await close(page);
});

test("names with script in them are text, everywhere", async () => {
    const page = await open("#/");
    await page.evaluate(() => {
        window.refused = [];
        document.addEventListener("securitypolicyviolation", (event) => window.refused.push(event.violatedDirective));
    });
    for (const view of views) {
        await page.evaluate((hash) => (location.hash = hash), view);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await page.waitForTimeout(300);
        assert.equal(await page.locator("main img, main script").count(), 0, view);
    }
    assert.deepEqual(await page.evaluate(() => window.refused), [], "nothing was even tried");
    await visit(page, `#/rules/${encodeURIComponent(hostile)}`);
    assert.equal(await page.getByRole("heading", { level: 1 }).textContent(), hostile);
    await visit(page, views.find((view) => view.startsWith("#/keys?")));
    await page.getByText(`user:${user}`).first().waitFor();
    await close(page);
});

test("can be used by keys alone", async () => {
    const page = await open("#/");
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("Filter the list").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("g");
    await page.keyboard.press("r");
    await page.getByRole("heading", { name: "Rules", level: 1 }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "H1", "the new view's heading has the focus");
    await page.keyboard.press("/");
    await page.keyboard.type(rule);
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await page.getByRole("link", { name: rule }).focus();
    await page.keyboard.press("Enter");
    const area = page.getByLabel("Rule as YAML");
    await area.focus();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("# a note");
    await page.getByText("Valid", { exact: true }).waitFor();
    await page.keyboard.press("Control+s");
    await page.getByText("Version 3").first().waitFor();
    assert.match(await page.locator("#announcer").textContent(), /Saved as version 3/);
    await area.focus();
    await page.keyboard.press("Tab");
    assert.notEqual(await page.evaluate(() => document.activeElement.tagName), "TEXTAREA", "the editor is no trap");
    await close(page);
});
