/* Rules in files: the dashboard shows them with their places, follows the files, and offers no change. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { close, open, until } from "./harness.mjs";

const { WEIR_WEB_FILES_URL: url, WEIR_WEB_FILES_OPERATOR: token, WEIR_WEB_FILES_RULES: file } = process.env;
const skip = url ? false : "served.py starts such a host";
const changes = /New rule|Save|Discard|Enforce|shadow…|Withdraw|Delete|Roll back/;

test("rules in files are shown with file and line, and cannot be changed", { skip }, async () => {
    const page = await open("#/rules", { url, token });
    await page.getByText("Read-only: the rules are those of files").waitFor();
    await page.getByText(`${file}:2`).waitFor();
    assert.equal(await page.getByRole("button", { name: changes }).count(), 0);
    assert.equal(await page.getByRole("link", { name: changes }).count(), 0);
    await page.getByRole("link", { name: "of-a-file" }).click();
    const area = page.getByLabel("Rule as YAML");
    await area.waitFor();
    assert.equal(await area.getAttribute("readonly") !== null || await area.isDisabled(), true);
    assert.equal(await page.getByRole("button", { name: changes }).count(), 0);
    await page.goto(`${url}/#/new`);
    await page.getByRole("heading", { name: "New rule" }).waitFor();
    assert.equal(await page.getByRole("textbox").count(), 0);
    await page.goto(`${url}/#/shadow`);
    await page.getByText("Add a rule with “shadow: true” to the files").waitFor();
    await page.goto(`${url}/#/published`);
    await page.getByRole("cell", { name: "published", exact: true }).waitFor();
    assert.equal(await page.getByRole("button", { name: changes }).count(), 0);
    await close(page);
});

test("a changed file is shown by itself, and one with errors by its errors", { skip }, async () => {
    const before = readFileSync(file, "utf8");
    const page = await open("#/rules/of-a-file", { url, token });
    const area = page.getByLabel("Rule as YAML");
    await area.waitFor();
    writeFileSync(file, before.replace("limit: 4", "limit: 44"));
    await until("the new text", async () => /limit: 44/.test(await area.inputValue()));
    await page.goto(`${url}/#/rules`);
    await page.getByRole("link", { name: "of-a-file" }).waitFor();
    writeFileSync(file, before.replace("limit: 4", "limt: 4"));
    await page.getByText(/rules\.yaml:2:\d+: .*limt/).waitFor();
    assert.equal(await page.getByRole("link", { name: "of-a-file" }).count(), 1, "the rules before stay");
    writeFileSync(file, before);
    await page.getByText("The files have errors").waitFor({ state: "detached" });
    await close(page);
});
