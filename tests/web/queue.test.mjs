import assert from "node:assert/strict";
import { test } from "node:test";
import { api, close, fresh, host, open, until } from "./harness.mjs";

const text = (name) => `name: ${name}
match: { path: /${name} }
key: user:\${header:X-User-Id}
limit: 1
window: 2s
on_limit: queue
`;
const publish = (name, stage) => api("POST", `/v1/rules/${name}/publish`, { body: { stage, reason: "tests" } });
const ask = async (name, user) => {
    const answer = await fetch(`${host.gateway}/${name}`, { method: "POST", body: "x", headers: { "x-user-id": user } });
    return { status: answer.status, ticket: answer.status === 202 ? JSON.parse(await answer.text()).ticket : "" };
};
const state = async (ticket) => (await api("GET", `/v1/queue/${ticket}`)).state;

/* A rule, and the tickets of requests under it that are dead, because it was taken out of force. */
async function dead(times) {
    const name = fresh("queue");
    await api("POST", "/v1/rules", { yaml: text(name), status: 201 });
    await publish(name, "enforced");
    await until("the rule is in force", async () => (await ask(name, fresh("probe"))).status === 200 &&
        (await ask(name, "probe"), await ask(name, "probe")).status === 202);
    const tickets = [];
    for (let i = 0; i < times; i++) {
        const user = fresh("user");
        let ticket = ""; // workers load the rule one after the other, so a request may still pass
        await until("a request is deferred", async () => (ticket = (await ask(name, user)).ticket) !== "");
        tickets.push(ticket);
    }
    await publish(name, "draft");
    await until("they are dead", async () => (await Promise.all(tickets.map(state))).every((one) => one === "dead"));
    return { name, tickets };
}

const list = (page) => page.getByRole("region", { name: "Deferred requests", exact: true });
const row = (page, ticket) => list(page).getByRole("row").filter({ hasText: ticket.slice(0, 8) });

test("dead requests are listed, let wait again, and cancelled, each after a question", async () => {
    const { name, tickets: [one, other] } = await dead(2);
    const page = await open(`#/queue?rule=${name}`);
    await row(page, one).getByText("its rule is gone").waitFor();
    const figures = page.getByRole("region", { name: "Deferred requests by rule" }).getByRole("row").filter({ hasText: name });
    assert.ok(Number(await figures.getByRole("cell").nth(2).textContent()) >= 2);

    await row(page, other).getByRole("button", { name: /^Cancel/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel", exact: true }).click();
    assert.equal(await state(other), "dead", "a question that was left did nothing");
    await row(page, other).getByRole("button", { name: /^Cancel/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the request" }).click();
    await row(page, other).waitFor({ state: "detached" });
    assert.equal(await state(other), "cancelled");

    await publish(name, "enforced");
    await row(page, one).getByRole("button", { name: /^Requeue/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Requeue" }).click();
    await row(page, one).waitFor({ state: "detached" });
    await until("it is delivered", async () => (await state(one)) === "delivered");
    await page.getByLabel("State", { exact: true }).selectOption("delivered");
    await row(page, one).waitFor();
    const audit = await api("GET", "/v1/audit?limit=50");
    for (const [action, ticket] of [["queue_cancel", other], ["queue_requeue", one]])
        assert.ok(audit.items.some((line) => line.action === action && line.object === `${ticket.slice(0, 8)}…`), action);
    await close(page);
});

test("who is no operator looks, and has neither tickets nor buttons", async () => {
    const { name, tickets: [one] } = await dead(1);
    const page = await open(`#/queue?rule=${name}`, { role: "viewer" });
    await row(page, one).waitFor();
    assert.equal(await list(page).getByRole("button").count(), 0);
    assert.ok(!(await page.content()).includes(one));
    await close(page);
});
