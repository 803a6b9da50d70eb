/* What there is to advise depends on days of traffic: a server's answer is put in its place. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, makeRule, open, ruleText } from "./harness.mjs";

const needs = { seconds: 600, requests: 1000, denied: 50, hours: 168 };

test("advice opens the changed rule in the editor, ready for the shadow, and saves nothing by itself", async () => {
    const rule = await makeRule({ stage: "enforced" });
    const page = await open("#/rules");
    await page.route("**/v1/advice*", (route) => route.fulfill({ json: { advice: [{
        rule, kind: "too_strict", message: "12 of 40 keys are denied <b>steadily</b>", figures: { denied_percent: 41.5, keys: 40 }, document: ruleText(rule, { limit: 9 }), changed: `rules: [ { name: ${rule}, limit: 9, window: 1m, shadow: true } ]` }],
        basis: { rules: 2, seconds: 3600, hours: 3, busiest: rule, requests: 5000, denied: 900, keys: true }, needs } }));
    await page.getByRole("link", { name: "Advice" }).click();
    await page.getByText("12 of 40 keys are denied <b>steadily</b>").waitFor();
    await page.getByText("Share denied").waitFor();
    await page.getByText("41.5%").waitFor();
    await page.getByRole("region", { name: "Data so far" }).waitFor();
    await page.getByRole("button", { name: /Open in the editor/ }).click();
    const area = page.getByLabel("Rule as YAML");
    await area.waitFor();
    assert.match(await area.inputValue(), /limit: 9\n/);
    assert.match((await api("GET", `/v1/rules/${rule}`)).text, /limit: 3\n/);
    await page.getByText("Valid", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Version 2").first().waitFor();
    await page.getByRole("button", { name: "Run in shadow…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Run in shadow" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    const now = await api("GET", `/v1/rules/${rule}`);
    assert.deepEqual([now.enforced_version, now.shadow_version], [1, 2]);
    await close(page);
});

test("without advice: what is looked at, how much data there is, and when there will be more", async () => {
    const page = await open("#/rules");
    const basis = { rules: 2, seconds: 240, hours: 0, busiest: "<b>search</b>", requests: 812, denied: 7, keys: true };
    await page.route("**/v1/advice*", (route) => route.fulfill({ json: { advice: [], basis, needs } }));
    const says = async (text) => {
        await page.goto(page.url().replace(/#.*/, "#/rules"));
        await page.getByRole("link", { name: "Advice" }).click();
        await page.getByText("Nothing to advise").waitFor();
        await page.getByText(text).waitFor();
    };
    await says("Advice about denials is possible in 6 min. Limits that are too loose are reported after a week of history, in 7 d.");
    const figures = page.getByRole("region", { name: "Data so far" });
    assert.deepEqual(await figures.locator("tbody tr").nth(2).locator("th, td").allTextContents(), ["Requests of the busiest rule", "812 (<b>search</b>)", "1,000"]);
    await page.getByText("Nothing to advise yet: there is too little data.").waitFor();
    await page.getByText("Too strict: many keys steadily ask for more than the limit").waitFor();
    basis.seconds = 1200;
    await says("Advice about denials is possible once a rule has 1,000 requests within an hour, in about 4 min 38 s at its present rate.");
    Object.assign(basis, { requests: 5000, hours: 200 });
    await says("There is enough data about denials: advice appears here when a rule needs it.");
    await page.getByText("Nothing to advise: the statistics suggest no change of the rules.").waitFor();
    basis.keys = false;
    await says("Keys are not sampled (hot_keys in weir.yaml): only edge bursts can be found.");
    basis.rules = 0;
    await says("There will be advice about rules once some are enforced.");
    await page.unroute("**/v1/advice*");
    await page.goto(page.url().replace(/#.*/, "#/rules"));
    await page.getByRole("link", { name: "Advice" }).click();
    await page.getByRole("region", { name: "Data so far" }).waitFor(); /* as the server has it */
    await close(page);
});
