import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";
import { api, close, fresh, host, makeRule, open, require, ruleText, send, shots, until } from "./harness.mjs";

const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const hostile = fresh("<img src=x onerror=alert(1)>");
const user = "<script>alert(2)</script>";
let rule;
let views;

before(async () => {
    rule = await makeRule({ name: fresh("checkout"), stage: "enforced", limit: 20 });
    await until("the rule is in force", async () => (await send(`/${rule}`, fresh("probe"), 21)).includes(429));
    for (let i = 0; i < 6; i++) await send(`/${rule}`, `customer-${i}`, 5 * (i + 1));
    const etag = `"v1"`;
    await api("PUT", `/v1/rules/${rule}?reason=try`, { yaml: ruleText(rule, { limit: 10 }), headers: { "if-match": etag } });
    await api("POST", `/v1/rules/${rule}/publish`, { body: { stage: "shadow", version: 2, reason: "try" } });
    await makeRule({ name: fresh("beside"), stage: "shadow" });
    await makeRule({ name: hostile, path: "/hostile", stage: "enforced", limit: 2 });
    await until("the hostile rule is in force", async () => (await send("/hostile", user, 3)).includes(429));
    const key = `#/keys?rule=${encodeURIComponent(hostile)}&key=${encodeURIComponent(`user:${user}`)}`;
    views = ["#/", "#/rules", `#/rules/${rule}`, `#/rules/${encodeURIComponent(hostile)}`, "#/new", "#/published", "#/shadow", key, "#/denials", "#/queue", "#/queue?state=", "#/advice", "#/audit", "#/tokens"];
});

async function visit(page, view) {
    await page.goto(`${host.url}/${view}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForLoadState("networkidle", { timeout: 1500 }).catch(() => undefined); /* the overview never rests */
}

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

test("fits a phone of 360 pixels, in every view", async () => {
    const page = await open("#/", { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true, deviceScaleFactor: 1 });
    for (const view of views) {
        await visit(page, view);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= 360, `${view} is ${wide} pixels wide`);
    }
    await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360);
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
    await visit(page, views.find((view) => view.startsWith("#/keys")));
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

test("screenshots", async () => {
    const busy_s = process.env.WEIR_WEB_SHOTS ? 26 : 8; /* charts that are to be looked at have something in them */
    const shoot = (page, name) => page.screenshot({ path: `${shots}/${name}.png` });
    const busy = await makeRule({ name: fresh("search"), stage: "enforced", limit: 400, window: "1m" });
    const end = Date.now() + busy_s * 1000;
    const load = (async () => {
        for (let i = 0; Date.now() < end; i++) {
            await send(`/${i % 3 ? busy : rule}`, `customer-${i % 7}`, 4 + (i % 5) * 3);
            await new Promise((resolve) => setTimeout(resolve, 60));
        }
    })();
    await new Promise((resolve) => setTimeout(resolve, busy_s * 500));
    const page = await open("#/", { colorScheme: "light" });
    await page.locator("section.chart canvas").first().waitFor();
    await page.waitForTimeout(2500);
    await shoot(page, "dashboard-overview");
    await visit(page, `#/rules/${rule}`);
    const area = page.getByLabel("Rule as YAML");
    await area.fill((await area.inputValue()).replace("window:", "windw:"));
    await page.locator(".gutter .bad").first().waitFor();
    await shoot(page, "dashboard-editor");
    await page.getByRole("button", { name: "Discard changes" }).click();
    await page.getByRole("button", { name: "Enforce…" }).click();
    await page.getByRole("dialog").locator(".diff-line.new").first().waitFor();
    await shoot(page, "dashboard-publish");
    await page.keyboard.press("Escape");
    await visit(page, "#/shadow");
    await page.waitForTimeout(1500);
    await shoot(page, "dashboard-shadow");
    const phone = await open("#/", { colorScheme: "dark", viewport: { width: 390, height: 800 }, isMobile: true, deviceScaleFactor: 1 });
    await phone.waitForTimeout(2500);
    await shoot(phone, "dashboard-phone-dark");
    await load;
    await close(page);
    await close(phone);
});
