/* What there is to advise depends on days of traffic: a server's answer is put in its place. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, makeRule, open, ruleText } from "./harness.mjs";

test("advice opens the changed rule in the editor, ready for the shadow, and saves nothing by itself", async () => {
    const rule = await makeRule({ stage: "enforced" });
    const page = await open("#/rules");
    await page.route("**/v1/advice*", (route) => route.fulfill({ json: { advice: [{
        rule, kind: "too_strict", message: "12 of 40 keys are denied <b>steadily</b>", figures: { denied_percent: 41.5, keys: 40 }, document: ruleText(rule, { limit: 9 }), changed: `rules: [ { name: ${rule}, limit: 9, window: 1m, shadow: true } ]` }] } }));
    await page.getByRole("link", { name: "Advice" }).click();
    await page.getByText("12 of 40 keys are denied <b>steadily</b>").waitFor();
    await page.getByText("41.5%").waitFor();
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

test("says nothing when there is nothing to say", async () => {
    const page = await open("#/rules");
    await page.route("**/v1/advice*", (route) => route.fulfill({ json: { advice: [] } }));
    await page.getByRole("link", { name: "Advice" }).click();
    await page.getByText("Nothing to advise").waitFor();
    await close(page);
});
