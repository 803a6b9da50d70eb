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
    await card.getByText("normal").waitFor();
    const slow = Promise.all(Array.from({ length: 6 }, () => fetch(`${host.gateway}/slow/8`)));
    await card.getByText("limits shrink").waitFor();
    const facts = await card.locator(".facts").textContent();
    assert.match(facts, /Level\s*\d+/);
    assert.match(facts, /Requests in flight\s*[456].*Adaptive limits\s*\d+/);
    await slow;
    await close(page);
});

test("what is shed stands beside what is denied", async () => {
    const page = await open("#/rules");
    const counts = (shed) => ({ allowed: 100, denied: 7, delayed: 0, shed });
    await page.route("**/v1/stats", async (route) => {
        const stats = await (await route.fetch()).json();
        stats.rules = [{ name: "bulk", shadow: false, totals: counts(4321), rates: { "1s": counts(12), "10s": counts(12), "60s": counts(12) } }];
        await route.fulfill({ json: stats });
    });
    await page.route("**/v1/stats/history*", (route) => route.fulfill({ json: { known: true, until: Math.floor(Date.now() / 1000), step: 1, allowed: [5], denied: [1], delayed: [0], shed: [3], shadow_denied: [0] } }));
    await page.goto(`${host.url}/#/`);
    await page.locator(".tile.series-shed", { hasText: "12/s" }).getByText("4,321 in total").waitFor();
    const chart = page.locator('section.chart[data-rule="bulk"]');
    assert.match(await chart.locator(".legend").textContent(), /denied.*delayed.*shed/);
    await page.waitForFunction(() => /shed 3/.test(document.querySelector('section.chart[data-rule="bulk"] .plot').getAttribute("aria-label")));
    await close(page);
});

test("latency as ranges with two digits, and rates with three", async () => {
    const page = await open("#/rules");
    const counts = { allowed: 1234.56, denied: 98765.4, delayed: 0.25, shed: 12 };
    const check_seconds = { p50: 32.768e-6, p99: 1.048576e-3, below_s: [16.384e-6, 32.768e-6, 65.536e-6, 1.048576e-3], counts: [0, 0, 0, 0, 0] };
    await page.route("**/v1/stats", async (route) => {
        const stats = await (await route.fetch()).json();
        stats.rules = [{ name: "bulk", shadow: false, totals: counts, rates: { "1s": counts, "10s": counts, "60s": counts } }];
        await route.fulfill({ json: { ...stats, check_seconds } });
    });
    await page.goto(`${host.url}/#/`);
    const latency = page.getByRole("region", { name: "Latency", exact: true });
    await latency.getByText("No check was timed yet").waitFor();
    check_seconds.counts = [0, 60, 30, 9, 1];
    await latency.getByText("100 timed, about 1 in 64").waitFor();
    assert.deepEqual(await latency.locator("dd").allTextContents(), ["≈ 16 to 33 µs", "≈ 33 to 66 µs", "≈ 0.066 to 1 ms"]);
    assert.deepEqual(await latency.locator("tbody th").allTextContents(), ["16 to 33 µs", "33 to 66 µs", "0.066 to 1 ms", "over 1 ms"]);
    const tiles = await page.locator(".tile .big").allTextContents();
    assert.deepEqual(tiles.slice(0, 4), ["1,230/s", "98.8K/s", "12/s", "0.3/s"]);
    for (const text of await page.locator(".facts dd").allTextContents())
        for (const [figure] of text.matchAll(/(?<![\w.:/-])\d+\.\d+(?![\w.])/g)) assert.ok(figure.replace(/^0\.0*|\D/g, "").length <= 3, `${figure} of “${text}”`);
    await close(page);
});

const hostOf = (name, more = {}) => ({ id: name.padEnd(16, "0"), name, here: false, state: "running", heard_s: 1.2, via: "store", version: "0.1.0",
    rates: { allowed: 10, denied: 2, delayed: 0, shed: 1 }, level: 41.2, store: "up", rules: "9f31c02000000000", rule_count: 3, rules_differ: false, ...more });

test("all hosts: this one by itself", async () => {
    const page = await open();
    const hosts = page.getByRole("region", { name: "All hosts" });
    await hosts.getByText("(this host)").waitFor();
    assert.equal(await hosts.locator("tbody tr").count(), 1);
    assert.match(await hosts.locator("tbody tr").textContent(), /running.*now.*none/);
    await page.getByText("1 running", { exact: true }).waitFor();
    await close(page);
});

test("all hosts: silent ones first, other rules, and names that are no markup", async () => {
    const page = await open("#/rules");
    const evil = "<img src=x onerror=alert(1)>\u202e";
    const told = { fleet: { running: 3, silent: 1, left_out: 0, rules_differ: 1, store: "unavailable", why: "<b>gone</b>", agent: true },
        hosts: [hostOf("gate-1", { here: true, via: "here", heard_s: 0 }), hostOf(evil), hostOf("lags", { rules: "4be07aa000000000", rules_differ: true }),
            hostOf("dead", { state: "silent", heard_s: 47, rates: null, level: null })] };
    await page.route("**/v1/hosts", (route) => route.fulfill({ json: told }));
    await page.goto(`${host.url}/#/`);
    const rows = page.getByRole("region", { name: "All hosts" }).locator("tbody tr");
    await rows.nth(3).waitFor();
    assert.deepEqual((await rows.locator("th").allTextContents()).map((text) => text.slice(0, 4)), ["dead", "lags", "<img", "gate"]);
    assert.match(await rows.nth(0).textContent(), /silent.*47\ss ago/);
    assert.match(await rows.nth(1).textContent(), /other rules.*4be07aa/);
    assert.match(await rows.nth(2).textContent(), /onerror=alert\(1\)>\\u202e.*10\/s.*2\/s.*1\/s.*41/);
    assert.equal(await page.locator(".hosts img, .hosts b").count(), 0);
    await page.getByText("3 running, 1 silent, other rules on 1, the store is unavailable: <b>gone</b>").waitFor();
    told.hosts[3].state = "running";
    told.fleet.silent = 0;
    await page.waitForFunction(() => !document.querySelector(".hosts").textContent.includes("silent"));
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
