import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, fresh, host, logIn, makeRule, open, ruleText, tokenOf } from "./harness.mjs";

test("the page comes with a strict policy and nothing from elsewhere", async () => {
    const answer = await fetch(`${host.url}/`);
    assert.equal(answer.status, 200);
    assert.match(answer.headers.get("content-type"), /^text\/html/);
    const policy = answer.headers.get("content-security-policy");
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]) {
        assert.ok(policy.includes(part), `${part} in ${policy}`);
    }
    assert.doesNotMatch(policy, /unsafe|\*|http:|https:|data:/);
    const html = await answer.text();
    assert.doesNotMatch(html, /style=|<style|\son[a-z]+=|https?:/);
    for (const [, path] of html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)) {
        const asset = await fetch(host.url + path);
        assert.equal(asset.status, 200, path);
        assert.match(asset.headers.get("content-type"), /^(text\/(javascript|css)|image\/svg\+xml)/, path);
    }
});

test("loads, asks for a token, refuses a wrong one, shows the overview", async () => {
    const page = await open("", { role: null });
    await page.getByLabel("Token", { exact: true }).fill("no-such-token");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("This token is not known").waitFor();
    await logIn(page, host.operator);
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    await page.getByRole("heading", { name: /^Segment/ }).waitFor();
    await page.getByRole("heading", { name: /^Host/ }).waitFor();
    assert.equal(await page.title(), "Overview · weir");
    await close(page);
});

test("every view opens from the menu", async () => {
    const page = await open();
    for (const [link, title] of [["Rules", "Rules"], ["Shadow", "Shadow against enforced"], ["Keys", "Keys"], ["Check", "Check a request"], ["Advice", "Advice"],
        ["Audit", "Audit log"], ["Tokens", "Tokens"], ["Overview", "Overview"]]) {
        await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: link }).click();
        await page.getByRole("heading", { name: title, level: 1 }).waitFor();
        assert.equal(await page.locator("#places a[aria-current=page]").textContent(), link);
        assert.equal(await page.locator("main .error:visible").count(), 0, link);
    }
    await close(page);
});

test("first paint under a second with 1,000 rules, and the list is filtered by the server", async () => {
    const prefix = fresh("many");
    for (let i = 0; i < 1000; i += 20) {
        await Promise.all(Array.from({ length: 20 }, (_, n) =>
            api("POST", "/v1/rules", { yaml: ruleText(`${prefix}-${String(i + n).padStart(4, "0")}`), status: 201 })));
    }
    const page = await open();
    await page.goto("about:blank");
    await page.goto(`${host.url}/#/rules`);
    await page.locator("tbody tr").first().waitFor();
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
    const rows = await page.evaluate(() => performance.now());
    assert.ok(paint < 1000, `first contentful paint after ${paint} ms`);
    assert.ok(rows < 2000, `rows after ${rows} ms`);
    console.log(`# first contentful paint ${Math.round(paint)} ms, rows there by ${Math.round(rows)} ms`);
    assert.ok((await page.locator("tbody tr").count()) <= 50);
    await page.getByLabel("Filter rules").fill(`${prefix}-0777`);
    await page.getByRole("link", { name: `${prefix}-0777` }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await page.getByLabel("Filter rules").fill(prefix);
    await page.getByRole("link", { name: `${prefix}-0000` }).waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByRole("link", { name: `${prefix}-0050` }).waitFor();
    await page.getByRole("button", { name: "Previous" }).click();
    await page.getByRole("link", { name: `${prefix}-0000` }).waitFor();
    await close(page);
});

test("the overview of 1,000 rules in force is drawn at once, and one page of charts only", async () => {
    const page = await open("#/rules");
    const counts = (n) => ({ allowed: n, denied: n / 10, delayed: 0 });
    await page.route("**/v1/stats", async (route) => {
        const stats = await (await route.fetch()).json();
        stats.rules = Array.from({ length: 1000 }, (_, i) => ({ name: `r${i}`, shadow: false, totals: counts(i), rates: { "1s": counts(i), "10s": counts(i), "60s": counts(i) } }));
        await route.fulfill({ json: stats });
    });
    await page.route("**/v1/stats/history*", (route) => route.fulfill({ json: { known: false, until: 0, step: 1, allowed: [], denied: [], delayed: [], shadow_denied: [] } }));
    await page.goto("about:blank");
    await page.goto(host.url);
    await page.locator('section.chart[data-rule="r999"]').waitFor();
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
    const charts = await page.evaluate(() => performance.now());
    assert.ok(paint < 1000 && charts < 2000, `first contentful paint after ${paint} ms, charts after ${charts} ms`);
    console.log(`# overview: first contentful paint ${Math.round(paint)} ms, charts there by ${Math.round(charts)} ms`);
    assert.equal(await page.locator("section.chart[data-rule^=r]").count(), 12);
    await page.getByRole("button", { name: "Next" }).click();
    await page.locator('section.chart[data-rule="r987"]').waitFor();
    await page.getByLabel("Filter rules").fill("r77");
    await page.locator('section.chart[data-rule="r777"]').waitFor();
    await page.getByText("1 to 11 of 11 rules").waitFor();
    await close(page);
});

test("a viewer sees the rules and can change nothing", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`, { role: "viewer", token: await tokenOf("viewer") });
    await page.getByLabel("Rule as YAML").waitFor();
    assert.equal(await page.getByLabel("Rule as YAML").getAttribute("readonly"), "");
    assert.equal(await page.getByRole("button", { name: /Save|Enforce|Delete|Roll back/ }).count(), 0);
    assert.equal(await page.getByRole("link", { name: "Tokens" }).count(), 0);
    await close(page);
});
