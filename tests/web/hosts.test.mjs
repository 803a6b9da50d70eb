/* Several hosts that share a store: rates, keys, denials and shadows of all of them, or of the chosen one. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { close, fresh, open, until } from "./harness.mjs";

const { WEIR_WEB_HOSTS_URL: url, WEIR_WEB_HOSTS_OPERATOR: token, WEIR_WEB_HOSTS_GATEWAYS: gateways = "", WEIR_WEB_HOSTS_AGENT: agent } = process.env;
const skip = url ? false : "served.py starts such hosts";
const [first, second] = gateways.split(" ");

async function send(gateway, user, times) {
    const statuses = [];
    for (let i = 0; i < times; i++) statuses.push((await fetch(`${gateway}/shared`, { headers: { "x-user-id": user } })).status);
    return statuses;
}

const choice = (page) => page.getByLabel("Host", { exact: true });
const region = (page) => page.getByRole("region", { name: "Denials, the newest first" });

test("denials of all hosts are listed with their host, and filtered", { skip }, async () => {
    const user = fresh("both");
    assert.deepEqual(await send(first, user, 4), [200, 200, 200, 429]);
    assert.deepEqual(await send(second, user, 4), [200, 200, 200, 429]);
    const page = await open(`#/denials?about=${user}`, { url, token });
    const rows = (host) => region(page).getByRole("row").filter({ has: page.getByRole("cell", { name: host, exact: true }) }).filter({ hasText: "3 of 3" });
    await rows("gate-1").waitFor();
    await rows("gate-2").waitFor();
    await choice(page).selectOption({ label: "gate-2" });
    await rows("gate-2").waitFor();
    await until("the other host's are gone", async () => await rows("gate-1").count() === 0);
    assert.equal(await page.evaluate(() => document.activeElement?.hasAttribute("data-hosts")), true, "the focus stays");
    await page.getByRole("link", { name: "Keys", exact: true }).click(); /* the choice holds in other views */
    await page.getByRole("heading", { name: "Keys", level: 1 }).waitFor();
    assert.equal(await choice(page).locator("option:checked").textContent(), "gate-2");
    await choice(page).selectOption({ label: "All hosts" });
    await page.getByRole("heading", { name: "Top keys by admitted cost" }).waitFor();
    await close(page);
});

test("the overview and the shadow add up over all hosts", { skip }, async () => {
    const total = async (page) => Number((await page.locator(".tile.series-allowed").textContent()).match(/([\d\s,.\u202f\u00a0]+) in total/)[1].replace(/\D/g, ""));
    const page = await open("#/", { url, token });
    const shown = async (label) => {
        await choice(page).selectOption({ label });
        await until("figures", async () => /\d in total/.test(await page.locator(".tile.series-allowed").textContent()));
        return total(page);
    };
    const user = fresh("sum");
    await send(second, user, 3);
    let one, other, both;
    await until("the sum", async () => {
        one = await shown("gate-1 (this host)");
        other = await shown("gate-2");
        both = await shown("All hosts");
        return other >= 3 && both === one + other;
    });
    assert.ok(both > one);
    await page.getByRole("link", { name: "Shadow", exact: true }).click();
    await page.getByRole("heading", { name: "Shadow against enforced" }).waitFor();
    await choice(page).waitFor();
    await page.getByText(/would deny/).first().waitFor();
    await close(page);
});

test("a host that does not reply is named", { skip }, async () => {
    process.kill(Number(agent), "SIGSTOP");
    try {
        const page = await open("#/", { url, token });
        await page.getByText(/Of 1 host; not included: gate-2 \((no reply|silent)\)/).waitFor();
        await page.goto(`${url}/#/denials`);
        await page.getByText(/Of 1 host; not included: gate-2/).waitFor();
        await close(page);
    } finally {
        process.kill(Number(agent), "SIGCONT");
    }
});
