import assert from "node:assert/strict";
import { before, test } from "node:test";
import { api, close, fresh, makeRule, open, send, until } from "./harness.mjs";

let rule;
let busy; /* of decisions 1 in 16 is noted: a key comes into the lists for certain only with some hundreds */
before(async () => {
    rule = await makeRule({ stage: "enforced", limit: 10 });
    busy = await makeRule({ stage: "enforced", limit: 200 });
    await until("the rules are in force", async () => (await send(`/${busy}`, fresh("probe"), 201)).includes(429));
});

const sendMany = (user) => send(`/${busy}`, user, 500);
const address = (user, of = rule) => `#/keys?rule=${encodeURIComponent(of)}&key=${encodeURIComponent(`user:${user}`)}`;
const card = (page) => page.getByRole("region", { name: "Key", exact: true });

test("heavy, limited and nearly limited keys are listed", async () => {
    const user = fresh("heavy");
    await sendMany(user);
    const page = await open(`#/keys?rule=${busy}`);
    for (const name of ["Heaviest keys by admitted cost", "Keys by denied cost", "Keys near their limit"]) {
        const list = page.getByRole("region", { name });
        await list.getByRole("link", { name: `user:${user}` }).waitFor({ timeout: 15000 });
    }
    await page.getByRole("region", { name: "Limit utilization of keys" }).waitFor();
    await close(page);
});

test("a key is looked up, blocked with confirmation, and unblocked", async () => {
    const user = fresh("user");
    await send(`/${rule}`, user, 4);
    const page = await open("#/keys");
    await page.getByLabel("Rule", { exact: true }).fill(rule);
    await page.getByLabel("Key", { exact: true }).fill(`user:${user}`);
    await page.getByRole("button", { name: "Look up" }).click();
    await card(page).getByText("Not blocked").waitFor();
    assert.deepEqual((await card(page).locator("tbody :is(td, th)").allTextContents()).slice(0, 3), ["4", "10", "6"]);

    await card(page).getByRole("button", { name: "Block…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    assert.deepEqual(await send(`/${rule}`, user, 1).then((all) => all.includes(429)), false, "cancelled is not blocked");

    await card(page).getByRole("button", { name: "Block…" }).click();
    await page.getByRole("dialog").getByLabel("For", { exact: true }).selectOption("5m");
    await page.getByRole("dialog").getByRole("button", { name: "Block" }).click();
    await card(page).getByText(/Blocked for another [45]\smin/).waitFor();
    assert.deepEqual(await send(`/${rule}`, user, 2), [403, 403]);

    await card(page).getByRole("button", { name: "Unblock…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Unblock" }).click();
    await card(page).getByText("Not blocked").waitFor();
    const audit = await api("GET", "/v1/audit?limit=50");
    assert.ok(audit.items.some((one) => /block/.test(one.action) && JSON.stringify(one).includes(user)), "it is in the audit log");
    await close(page);
});

test("without a rule, a key is shown under all whose key it is, and the reply says on which hosts it was changed", async () => {
    const user = fresh("user");
    const page = await open("#/keys");
    await page.getByLabel("Key", { exact: true }).fill(`user:${user}`);
    await page.getByRole("button", { name: "Look up" }).click();
    const own = page.getByRole("region", { name: "Key", exact: true }).filter({ hasText: rule }).first();
    await own.getByRole("button", { name: "Block…" }).click();
    await page.getByRole("dialog").getByText("on this host (no store is shared with others)").waitFor();
    await page.getByRole("dialog").getByLabel("Reason").fill("scraping");
    await page.getByRole("dialog").getByRole("button", { name: "Block" }).click();
    await page.getByText(`user:${user}: blocked on this host only: there is no store`).first().waitFor();
    await own.getByText(/Blocked for another .* on this host/).waitFor();
    const audit = await api("GET", "/v1/audit?limit=50");
    assert.ok(audit.items.some((one) => one.action === "key_block" && one.details.reason === "scraping"), "the reason is in the audit log");
    await close(page);
});

test("a key is reset", async () => {
    const user = fresh("user");
    await send(`/${rule}`, user, 11);
    const page = await open(address(user));
    await card(page).getByRole("button", { name: "Reset…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal((await send(`/${rule}`, user, 1)).includes(429), false);
    await close(page);
});

test("keys with slashes, percent signs and other scripts are the same key in the address", async () => {
    for (const user of ["a/b", "50%25", "x?y#z", "a b", "../..", "+"]) {
        await send(`/${rule}`, user, 2);
        const page = await open(address(user));
        await card(page).locator("tbody th").waitFor();
        assert.equal(await card(page).locator("tbody th").textContent(), "2", user);
        await close(page);
    }
});

test("without the operator's role the lists can be seen, and no key be touched", async () => {
    const user = fresh("seen");
    await sendMany(user);
    const page = await open(address(user, busy), { role: "editor" });
    await page.getByText("need the operator's role").waitFor();
    const region = page.getByRole("region", { name: "Heaviest keys by admitted cost" });
    await region.getByText(/^~[0-9a-f]{16}$/).first().waitFor({ timeout: 15000 });
    assert.ok(!(await region.textContent()).includes("user:"), "texts of keys are for operators");
    assert.equal(await card(page).count() + await page.locator("main").getByRole("button").count(), 0);
    await close(page);
});

test("without a rule, the keys of those with the most traffic are shown together", async () => {
    const user = fresh("heavy");
    await sendMany(user);
    const page = await open("#/keys");
    await page.getByRole("region", { name: "Keys by denied cost" }).getByRole("link", { name: `user:${user}` }).waitFor({ timeout: 15000 });
    await close(page);
});
