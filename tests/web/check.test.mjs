/* The page that tries a request: weir check in the browser. */
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { api, close, fresh, makeRule, open, send, until } from "./harness.mjs";

let rule;
before(async () => {
    rule = await makeRule({ stage: "enforced", limit: 3 });
    await until("the rule is in force", async () => (await send(`/${rule}`, fresh("probe"), 4)).includes(429));
});

const attempt = (page) => page.getByRole("button", { name: "Try", exact: true }).click();
const decision = (page) => page.getByRole("region", { name: "Decision" });

test("a viewer tries a request: the decision with its reason, and nothing is taken", async () => {
    const user = fresh("user");
    const page = await open("#/check", { role: "viewer" });
    await page.getByLabel("URL").fill(`https://shop.example/${rule}?page=2`);
    await page.getByLabel("Headers").fill(`X-User-Id: ${user}\n`);
    for (let i = 0; i < 5; i++) {
        await attempt(page);
        await decision(page).getByText(`Allowed by ${rule}: within the limit.`).waitFor();
        const row = decision(page).locator("tbody tr");
        assert.match(await row.textContent(), new RegExp(`user:${user}3 in 10\\smin2`)); /* of 3 one would be taken, again and again */
    }
    assert.deepEqual(await send(`/${rule}`, user, 4), [200, 200, 200, 429]);
    await attempt(page);
    await decision(page).getByText(new RegExp(`Denied by ${rule}: over the limit; retry in [1-9]`)).waitFor();
    await decision(page).getByText("The client gets status 429.").waitFor();
    await page.getByLabel("Headers").fill("");
    await attempt(page);
    await decision(page).getByText(/the request lacks (the header x-user-id|an attribute of its key)/i).first().waitFor();
    await page.getByLabel("URL").fill("/nothing-here");
    await attempt(page);
    await decision(page).getByText("Allowed: no rule matches.").waitFor();
    const denied = (await api("GET", `/v1/denials?about=${user}`)).denials;
    assert.equal(denied.filter((one) => !one.shadow).reduce((sum, one) => sum + one.count, 0), 1, "what is tried is not recorded");
    await close(page);
});

test("wrong input is named, in the page and by the server", async () => {
    const page = await open("#/check", { role: "viewer" });
    const alert = page.locator("main [role=alert]");
    const wrong = async (label, text, message) => {
        await page.getByLabel(label).fill(text);
        await attempt(page);
        await alert.getByText(message).waitFor();
        await page.getByLabel(label).fill(label === "URL" ? "/" : "");
    };
    await wrong("URL", "shop.example/x", "URL: “shop.example/x” must begin with / or http://");
    await wrong("URL", "/a b", "have no blanks");
    await wrong("Headers", "X-A: 1\nno colon", "Headers, line 2: “no colon” is not such as X-User-Id: 42");
    await wrong("Attributes", "User-Id=1", "Attributes, line 1");
    await wrong("Client address", "10.0.0.256", "attributes.ip: ");
    await close(page);
});
