import assert from "node:assert/strict";
import { before, test } from "node:test";
import { api, close, fresh, makeRule, open, send, until } from "./harness.mjs";

let rule;
before(async () => {
    rule = await makeRule({ stage: "enforced", limit: 3 });
    await until("the rule is in force", async () => (await send(`/${rule}`, fresh("probe"), 4)).includes(429));
});

const region = (page) => page.getByRole("region", { name: "Denials, the newest first" });

test("a key's denials are found, with reason, request and when it passes", async () => {
    const user = fresh("denied");
    assert.deepEqual(await send(`/${rule}`, user, 5), [200, 200, 200, 429, 429]);
    const page = await open("#/");
    await page.getByRole("link", { name: "Denials" }).click();
    await page.getByLabel("Search").fill(`user:${user}`);
    await page.getByRole("button", { name: "Find" }).click();
    const row = region(page).getByRole("row", { name: new RegExp(user) });
    await row.waitFor();
    assert.equal(await region(page).getByRole("row").count(), 2, "the head and this one");
    const text = await row.textContent();
    assert.match(text, /limit 3 of 3 were used; the limit is 3 in 10\smin/);
    assert.match(text, new RegExp(`path /${rule}`));
    assert.match(text, /client 127\.0\.0\.1/);
    assert.match(text, /in \d+\smin/);
    await row.getByRole("link", { name: `user:${user}` }).click();
    await page.getByText("Not blocked").waitFor();
    await close(page);
});

test("a block is a reason of its own, and a name is no markup", async () => {
    const user = `<b>${fresh("blocked")}</b>`;
    const key = `/v1/keys/${rule}/${encodeURIComponent(`user:${user}`)}`;
    await api("PUT", `${key}/block`, { body: { for: "5m" } });
    assert.deepEqual(await send(`/${rule}`, user, 1), [403]);
    const page = await open(`#/denials?about=${encodeURIComponent(`user:${user}`)}`);
    await region(page).getByText("an operator had blocked the key").waitFor();
    await region(page).getByText(user).first().waitFor();
    await close(page);
});

test("nothing found says how far the records go back", async () => {
    const page = await open(`#/denials?about=${fresh("nobody")}`);
    await page.getByText(/None; the records begin at/).waitFor();
    await close(page);
});

test("without the operator's role nothing is shown", async () => {
    const page = await open("#/denials", { role: "editor" });
    await page.getByText("they need the operator's role").waitFor();
    assert.equal(await region(page).count(), 0);
    await close(page);
});
