import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, fresh, host, logIn, makeRule, open, tokenOf } from "./harness.mjs";

test("when the session ends, logging in again loses nothing that was typed", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`);
    const area = page.getByLabel("Rule as YAML");
    await area.fill((await area.inputValue()).replace("limit: 3", "limit: 41"));
    await page.getByText("Valid", { exact: true }).waitFor();
    await page.context().clearCookies();
    // What the page asks by itself may have found out before there is time to save.
    await page.getByRole("button", { name: "Save", exact: true }).click({ timeout: 20000 }).catch(() => {});
    await page.getByText("Your session has ended").waitFor();
    await page.keyboard.press("Escape");
    assert.ok(await page.getByText("Your session has ended").isVisible(), "there is no way around it");
    await logIn(page, host.operator);
    assert.match(await area.inputValue(), /limit: 41/);
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Version 2").first().waitFor();
    assert.match((await api("GET", `/v1/rules/${rule}`)).text, /limit: 41/);
    await close(page);
});

test("a login link logs in once, and leaves the address", async () => {
    const { link } = await api("POST", "/v1/login-links", { body: { name: fresh("link"), role: "editor" }, status: 201 });
    const page = await open(`#login=${link}`, { role: null });
    await page.getByText("(editor)").waitFor();
    await page.getByRole("heading", { name: /^Segment/ }).waitFor();
    assert.ok(!page.url().includes(link), "not in the address");
    await page.goBack().catch(() => {});
    assert.ok(!page.url().includes(link), "not in the history");
    await close(page);
    const other = await open(`#login=${link}`, { role: null });
    await other.getByText("This login link was used, or has expired.").waitFor();
    assert.ok(!other.url().includes(link));
    await close(other);
});

test("a revoked token ends its sessions, and live figures go on after another log-in", async () => {
    const made = await api("POST", "/v1/tokens", { body: { name: fresh("guest"), role: "viewer", expires: "1d" }, status: 201 });
    const page = await open("#/", { token: made.token });
    await page.getByRole("heading", { name: /^Segment/ }).waitFor();
    await api("DELETE", `/v1/tokens/${made.id}`);
    await page.getByText("Your session has ended").waitFor();
    assert.equal(await page.getByRole("dialog").count(), 1, "asked once");
    await logIn(page, host.operator);
    await page.getByText("(operator)").waitFor();
    await page.getByText("Not live").waitFor({ state: "hidden" });
    await close(page);
});

test("after another log-in a view is filled again, with the new one's rights", async () => {
    const page = await open("#/tokens");
    await page.getByRole("region", { name: "Tokens" }).waitFor();
    await page.context().clearCookies();
    await page.getByRole("link", { name: "Audit" }).click();
    await page.getByText("Your session has ended").waitFor();
    await logIn(page, await tokenOf("viewer"));
    await page.getByRole("region", { name: "Audit log" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "Tokens" }).count(), 0);
    await close(page);
});

test("logging out asks when something is not saved, and leaves nothing behind", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`);
    await page.getByLabel("Rule as YAML").fill(`${await page.getByLabel("Rule as YAML").inputValue()}# secret plan\n`);
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByRole("dialog").getByText(rule).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Log out" }).click();
    await page.getByText("You are logged out").waitFor();
    assert.ok(!(await page.evaluate(() => JSON.stringify(sessionStorage))).includes("secret plan"));
    await close(page);
});

test("what is refused while one logs out does not say that the session has ended", async () => {
    const rule = await makeRule();
    const page = await open(`#/rules/${rule}`);
    let ended;
    const end = new Promise((resolve) => { ended = resolve; });
    await page.route("**/v1/validate*", async (route) => {
        await end;
        await route.continue();
    });
    await page.route("**/v1/session", async (route) => {
        const answer = await route.fetch();
        const refused = page.waitForResponse((other) => other.url().includes("/v1/validate") && other.status() === 401);
        ended();
        await (await refused).finished();
        await route.fulfill({ response: answer });
    });
    const validates = page.waitForRequest("**/v1/validate*");
    await page.getByLabel("Rule as YAML").fill(`${await page.getByLabel("Rule as YAML").inputValue()}# more\n`);
    await validates;
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Log out" }).click();
    await page.getByText("You are logged out").waitFor();
    assert.equal(await page.getByText("Your session has ended").count(), 0);
    await page.unrouteAll();
    await logIn(page, host.operator);
    await page.getByText("(operator)").waitFor();
    await page.context().clearCookies();
    // Not by a click: a poll of live figures may be the first to learn it, and its dialog would be in the way.
    await page.evaluate(() => { location.hash = "#/audit"; });
    await page.getByText("Your session has ended").waitFor(); // news again
    await close(page);
});

test("logging out ends the session on the server", async () => {
    const page = await open();
    const cookies = await page.context().cookies();
    const kept = cookies.find((one) => one.httpOnly && one.sameSite === "Strict");
    assert.ok(kept, "the cookie is HttpOnly and SameSite=Strict");
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByText("You are logged out").waitFor();
    assert.equal(await page.locator("main *").count(), 0, "nothing is left to be read");
    const answer = await fetch(`${host.url}/v1/session`, { headers: { cookie: `${kept.name}=${kept.value}` } });
    assert.equal(answer.status, 401);
    await close(page);
});

test("a token is made, shown once, used and revoked", async () => {
    const name = fresh("token");
    const page = await open("#/tokens");
    await page.getByRole("button", { name: "New token" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill(name);
    await page.getByRole("dialog").getByLabel("Role").selectOption("viewer");
    await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
    const token = await page.getByRole("dialog").getByLabel("Token", { exact: true }).inputValue();
    assert.ok(token.length >= 16);
    await api("GET", "/v1/rules?limit=1", { token });
    await page.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: `Revoke ${name}` }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await api("GET", "/v1/rules?limit=1", { token, status: 401 });
    assert.ok(!(await page.content()).includes(token), "it is shown once");
    await close(page);
});
