import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, fresh, host, makeRule, open, send, until } from "./harness.mjs";

const inForce = (rule) => until("the rule is in force", async () => (await send(`/${rule}`, fresh("probe"), 4)).includes(429));

test("charts and totals follow the traffic without a reload", async () => {
    const rule = await makeRule({ stage: "enforced" });
    await inForce(rule);
    const page = await open();
    await page.getByLabel("Filter rules").fill(rule);
    const chart = page.locator(`section.chart[data-rule="${rule}"]`);
    await chart.scrollIntoViewIfNeeded(); /* what nobody sees is not drawn */
    await chart.locator("canvas").waitFor();
    const total = () => page.locator(".tile.series-denied .small").textContent().then((text) => Number(text.replace(/\D/g, "")));
    await page.waitForFunction(() => /\d/.test(document.querySelector(".tile.series-denied .small").textContent));
    const before = await total();
    const user = fresh("user");
    const sending = (async () => {
        for (let i = 0; i < 20; i++) {
            await send(`/${rule}`, user, 3);
            await new Promise((resolve) => setTimeout(resolve, 150));
        }
    })();
    await page.waitForFunction((name) => {
        const values = [...document.querySelectorAll(`section.chart[data-rule="${name}"] .legend .value`)];
        return parseFloat(values[1]?.textContent) > 0;
    }, rule);
    await sending;
    await until("the total grows", async () => (await total()) >= before + 50);
    assert.match(await chart.locator(".plot").getAttribute("aria-label"), /allowed .*denied .*delayed/);
    await close(page);
});

test("how loaded the host is, and what is done about it", async () => {
    const page = await open();
    const card = page.locator("section.card", { has: page.getByRole("heading", { name: /^Load/ }) });
    await card.getByText("has room").waitFor();
    const slow = Promise.all(Array.from({ length: 6 }, () => fetch(`${host.gateway}/slow/8`)));
    await card.getByText("limits shrink").waitFor();
    const facts = await card.locator(".facts").textContent();
    assert.match(facts, /Level\s*\d+/);
    assert.match(facts, /Requests in flight\s*[456].*Adaptive limits\s*\d+/);
    await slow;
    await close(page);
});

test("a chart has its figures as a table", async () => {
    const rule = await makeRule({ stage: "enforced" });
    await inForce(rule);
    const page = await open();
    const all = page.locator("section.chart.wide");
    await all.getByText("Figures").click();
    await all.getByRole("table").waitFor();
    assert.deepEqual((await all.locator("thead th").allTextContents()).slice(0, 4), ["time", "allowed", "denied", "delayed"]);
    assert.ok((await all.locator("tbody tr").count()) > 1);
    await close(page);
});

test("says so when the server is gone, and goes on when it is back", async () => {
    const page = await open();
    await page.getByRole("heading", { name: /^Segment/ }).waitFor();
    await page.route("**/v1/stats*", (route) => route.abort());
    await page.getByText("Not live: the server cannot be reached").waitFor();
    await page.unroute("**/v1/stats*");
    await page.getByText("Not live").waitFor({ state: "hidden" });
    await page.context().close(); /* the browser's own words on the aborted requests are errors here */
});

test("shadow against enforced, side by side", async () => {
    const rule = await makeRule({ stage: "enforced", limit: 1000 });
    const page = await open(`#/rules/${rule}`);
    const area = page.getByLabel("Rule as YAML");
    await area.fill((await area.inputValue()).replace("limit: 1000", "limit: 2"));
    await page.getByText("Valid", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Version 2").first().waitFor();
    await page.getByRole("button", { name: "Run in shadow…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Run in shadow" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.goto(`${host.url}/#/shadow`);
    const pair = page.locator("section.pair", { has: page.getByRole("link", { name: rule }) });
    await pair.getByText("limit: 1000").first().waitFor();
    await pair.getByText("limit: 2", { exact: false }).first().waitFor();
    await until("the shadow counts", async () => {
        await send(`/${rule}`, "shadowed", 10);
        return /would have denied .* more/.test(await pair.locator("> .verdict").textContent());
    });
    assert.ok(!(await send(`/${rule}`, "shadowed", 5)).includes(429), "a shadow denies nothing");
    await pair.getByRole("button", { name: "Drop the shadow…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Drop the shadow" }).click();
    await pair.waitFor({ state: "detached" });
    const left = await api("GET", `/v1/rules/${rule}`);
    assert.deepEqual([left.enforced_version, left.shadow_version], [1, null], "what is enforced stays");
    await close(page);
});
