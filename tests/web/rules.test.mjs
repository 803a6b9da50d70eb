import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, fresh, makeRule, open, ruleText, send, tokenOf, until } from "./harness.mjs";

const current = (rule) => api("GET", `/v1/rules/${encodeURIComponent(rule)}`);
const dialog = (page) => page.getByRole("dialog");

/* Replaces `from` by `to` in the editor, as somebody who types would. */
async function change(page, from, to) {
    const area = page.getByLabel("Rule as YAML");
    await area.waitFor();
    await area.fill((await area.inputValue()).replace(from, to));
}

async function save(page, reason) {
    await page.getByText("Valid", { exact: true }).waitFor();
    await page.getByLabel("Reason for the change").fill(reason);
    await page.getByRole("button", { name: "Save", exact: true }).click();
}

test("a new rule is checked while it is typed, and becomes a draft", async () => {
    const name = fresh();
    const page = await open("#/rules");
    await page.getByRole("link", { name: "New rule" }).click();
    const area = page.getByLabel("New rule as YAML");
    assert.match(await area.inputValue(), /^key: ip:\$\{client_ip\}$/m); /* which needs no identity, so that the rule applies */
    await area.fill(ruleText(name).replace("window:", "windw:"));
    await page.getByText(/unknown field|windw/).first().waitFor();
    assert.equal(await area.getAttribute("aria-invalid"), "true");
    await page.locator(".gutter .bad").first().waitFor();
    assert.equal(await page.getByRole("button", { name: "Create draft" }).isDisabled(), true);
    await area.fill(ruleText(name));
    await page.getByText("Valid", { exact: true }).waitFor();
    assert.equal(await page.locator(".gutter .bad").count(), 0);
    await page.getByRole("button", { name: "Create draft" }).click();
    await page.getByRole("heading", { name, level: 1 }).waitFor();
    assert.equal((await current(name)).stage, "draft");
    await close(page);
});

test("a validation error names its line, and leads there", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`);
    await change(page, "limit: 3", "limit: many");
    const line = page.getByRole("button", { name: /^Line 4/ });
    await line.waitFor();
    assert.equal(await page.locator(".gutter .bad").textContent(), "4");
    await line.click();
    const selected = await page.getByLabel("Rule as YAML").evaluate((area) => area.value.slice(0, area.selectionStart).split("\n").length);
    assert.equal(selected, 4);
    assert.equal(await page.getByRole("button", { name: "Save", exact: true }).isDisabled(), true);
    await close(page);
});

test("edit, save, publish with the difference shown, roll back", async () => {
    const rule = await makeRule({ stage: "enforced" });
    const page = await open(`#/rules/${rule}`);
    await change(page, "limit: 3", "limit: 5");
    assert.equal(await page.getByRole("button", { name: "Enforce…" }).isDisabled(), true, "not before it is saved");
    await save(page, "more for all");
    await page.getByText("Version 2").first().waitFor();
    assert.equal((await current(rule)).enforced_version, 1, "saving publishes nothing");

    await page.getByRole("button", { name: "Enforce…" }).click();
    await dialog(page).locator(".diff-line.gone", { hasText: "limit: 3" }).waitFor();
    await dialog(page).locator(".diff-line.new", { hasText: "limit: 5" }).waitFor();
    await dialog(page).getByLabel("Reason").fill("asked for");
    await dialog(page).getByRole("button", { name: "Enforce" }).click();
    await dialog(page).waitFor({ state: "detached" });
    await until("five pass, the sixth does not", async () => {
        const statuses = await send(`/${rule}`, fresh("user"), 6);
        return !statuses.slice(0, 5).includes(429) && statuses[5] === 429;
    });
    assert.equal((await current(rule)).enforced_version, 2);

    await page.getByRole("button", { name: "Roll back to version 1" }).click();
    await dialog(page).locator(".diff-line.new", { hasText: "limit: 3" }).waitFor();
    await dialog(page).getByRole("button", { name: "Roll back" }).click();
    await page.getByText("Version 3").first().waitFor();
    assert.match((await current(rule)).text, /limit: 3\n/);
    assert.match(await page.getByLabel("Rule as YAML").inputValue(), /limit: 3\n/);
    await page.getByText("more for all").waitFor();
    await close(page);
});

test("a published set is put in force again as a whole", async () => {
    const rule = await makeRule({ stage: "enforced" });
    const set = (await api("GET", "/v1/revisions?limit=1")).items[0].revision;
    await api("POST", `/v1/rules/${rule}/publish`, { body: { stage: "draft", version: 1, reason: "gone" } });
    assert.equal((await current(rule)).enforced_version, null);
    const page = await open("#/published");
    await page.getByRole("button", { name: `Roll back to set ${set}`, exact: true }).click();
    await dialog(page).locator(".diff-line.new", { hasText: `name: ${rule}` }).waitFor();
    await dialog(page).getByRole("button", { name: `Publish set ${set}` }).click();
    await dialog(page).waitFor({ state: "detached" });
    assert.equal((await current(rule)).enforced_version, 1);
    await close(page);
});

test("withdrawing takes the rule and its shadow out of force", async () => {
    const rule = await makeRule({ stage: "enforced" });
    await api("PUT", `/v1/rules/${rule}`, { yaml: ruleText(rule, { limit: 4 }), headers: { "if-match": `"v1"` } });
    await api("POST", `/v1/rules/${rule}/publish`, { body: { stage: "shadow", version: 2 } });
    const page = await open(`#/rules/${rule}`);
    await page.getByRole("button", { name: "Withdraw…" }).click();
    await dialog(page).locator(".diff-line.gone", { hasText: "limit: 3" }).waitFor();
    await dialog(page).getByRole("button", { name: "Withdraw" }).click();
    await dialog(page).waitFor({ state: "detached" });
    const now = await current(rule);
    assert.deepEqual([now.enforced_version, now.shadow_version, now.version], [null, null, 2]);
    await close(page);
});

test("two editors at once: the second sees both texts and overwrites nothing", async () => {
    const rule = await makeRule();
    const first = await open(`#/rules/${rule}`, { role: "editor" });
    const second = await open(`#/rules/${rule}`, { role: "operator" });
    await change(first, "limit: 3", "limit: 30");
    await change(second, "limit: 3", "limit: 33");
    await save(first, "first");
    await first.getByText("Version 2").first().waitFor();
    await save(second, "second");
    const panel = second.getByRole("region", { name: "Conflict" });
    await panel.waitFor();
    assert.match(await panel.getByLabel("Theirs", { exact: true }).textContent(), /limit: 30\n/);
    assert.match(await panel.getByLabel("Yours", { exact: true }).textContent(), /limit: 33\n/);
    assert.match((await current(rule)).text, /limit: 30\n/, "nothing is overwritten");
    assert.match(await second.getByLabel("Rule as YAML").inputValue(), /limit: 33\n/, "nothing is lost");
    await panel.getByRole("button", { name: "Go on with mine, based on theirs" }).click();
    await panel.waitFor({ state: "detached" });
    await save(second, "second, knowing the first");
    await second.getByText("Version 3").first().waitFor();
    const now = await current(rule);
    assert.deepEqual([now.version, /limit: 33\n/.test(now.text)], [3, true]);
    await Promise.all([close(first), close(second)]);
});

test("an unsaved text outlives leaving the page and a reload", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`);
    await change(page, "limit: 3", "limit: 77");
    await page.getByRole("link", { name: "Audit" }).click();
    await page.getByRole("heading", { name: "Audit log" }).waitFor();
    await page.goBack();
    await page.getByLabel("Rule as YAML").waitFor();
    assert.match(await page.getByLabel("Rule as YAML").inputValue(), /limit: 77/);
    await page.reload();
    await page.getByLabel("Rule as YAML").waitFor();
    assert.match(await page.getByLabel("Rule as YAML").inputValue(), /limit: 77/);
    await page.getByRole("button", { name: "Discard changes" }).click();
    assert.match(await page.getByLabel("Rule as YAML").inputValue(), /limit: 3\n/);
    await close(page);
});

test("a rule is deleted only when that is confirmed", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`, { role: "editor", token: await tokenOf("editor") });
    await page.getByRole("button", { name: "Delete…" }).click();
    await dialog(page).getByRole("button", { name: "Cancel" }).click();
    await current(rule);
    await page.getByRole("button", { name: "Delete…" }).click();
    await dialog(page).getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { name: "Rules", level: 1 }).waitFor();
    await api("GET", `/v1/rules/${rule}`, { status: 404 });
    await close(page);
});
