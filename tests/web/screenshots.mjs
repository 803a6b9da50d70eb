/* Renews docs/images: every page at the widths of a phone, a tablet and a desktop, and some dialogs, of a fresh host with
 * traffic. tests/web/run --screenshots. As WebP: a fifth of PNG. */
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { api, close, host, open, shots, until } from "./harness.mjs";

const warm_s = 60; /* of traffic before the first one */
mkdirSync(shots, { recursive: true });

async function shoot(page, name, { whole = true } = {}) {
    await page.evaluate(() => document.fonts.ready);
    const { width, height } = await page.evaluate(() => ({ width: document.documentElement.clientWidth, height: document.documentElement.scrollHeight }));
    const session = await page.context().newCDPSession(page);
    const clip = { x: 0, y: 0, width, height: whole ? Math.min(height, 1800) : page.viewportSize().height, scale: 1 };
    const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 75, captureBeyondViewport: whole, clip });
    writeFileSync(`${shots}/dashboard-${name}.webp`, Buffer.from(data, "base64"));
    if (process.env.WEIR_WEB_PNG) await page.screenshot({ path: `${process.env.WEIR_WEB_PNG}/${name}.png`, fullPage: whole });
}

const key = "key: user:${header:X-User-Id}";
const rules = {
    search: `name: search\nmatch: { path: /search }\n${key}\nlimit: 400\nwindow: 1m\nalgorithm: sliding_window_counter\n`,
    checkout: `name: checkout\nmatch: { path: /checkout, method: POST }\n${key}\nlimit: 20\nwindow: 1m\nalgorithm: token_bucket\nburst: 10\n`,
    login: "name: login\nmatch: { path: /auth/login, method: POST }\nkey: ip:${client_ip}\nlimit: 5\nwindow: 1m\nalgorithm: sliding_window_log\n",
    reports: `name: reports\nmatch: { path: /reports }\n${key}\nlimit: 1\nwindow: 10s\non_limit: queue\n`,
};
const publish = (name, body) => api("POST", `/v1/rules/${name}/publish`, { body });
const send = (method, path, user) => fetch(host.gateway + path, { method, headers: { "x-user-id": user } }).then((reply) => reply.status);

async function makeRules() {
    for (const [name, yaml] of Object.entries(rules)) {
        await api("POST", `/v1/rules?reason=${encodeURIComponent("first version")}`, { yaml, status: 201 });
        await publish(name, { stage: "enforced", reason: "limits for the launch" });
    }
    await api("PUT", "/v1/rules/search?reason=stricter", { yaml: rules.search.replace("limit: 400", "limit: 300"), headers: { "if-match": "\"v1\"" } });
    await publish("search", { stage: "shadow", version: 2, reason: "would 300 be enough?" });
    for (const [name, role] of [["ana", "editor"], ["ci", "viewer"]]) await api("POST", "/v1/tokens", { body: { name, role, expires: "30d" }, status: 201 });
    await until("the rules are in force", async () => (await send("POST", "/auth/login", "probe")) === 429);
}

async function makeTraffic(ended) {
    const users = ["alice", "bob", "carol", "dave", "erin", "frank", "grace"];
    for (let i = 0; !ended(); i++) {
        const user = users[(i * i) % users.length];
        await Promise.all([send("GET", "/search", user), i % 3 ? 0 : send("POST", "/checkout", user), i % 9 ? 0 : send("POST", "/auth/login", user),
            i % 90 ? 0 : send("POST", "/reports", user)]);
        await new Promise((resolve) => setTimeout(resolve, 25 + 10 * Math.sin(i / 60)));
    }
}

const pages = { overview: "#/", rules: "#/rules", rule: "#/rules/search", new: "#/new", published: "#/published", shadow: "#/shadow", keys: "#/keys?rule=search&key=user%3Aalice",
    denials: "#/denials", check: "#/check?method=POST&url=%2Fauth%2Flogin", queue: "#/queue?state=", advice: "#/advice", audit: "#/audit", tokens: "#/tokens" };

async function visit(page, view) {
    await page.goto(`${host.url}/${view}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    if (view === pages.check) {
        await page.getByLabel("Client address").fill("127.0.0.1");
        await page.getByRole("button", { name: "Try", exact: true }).click();
    }
    await page.waitForTimeout(2500);
}

/* Of a rule that somebody else has saved meanwhile. */
async function shootConflict() {
    const page = await open("#/rules/checkout", { viewport: { width: 1440, height: 900 }, colorScheme: "light", deviceScaleFactor: 1 });
    const area = page.getByLabel("Rule as YAML");
    await area.fill((await area.inputValue()).replace("limit: 20", "limit: 30"));
    await page.getByText("Valid", { exact: true }).waitFor();
    await api("PUT", "/v1/rules/checkout?reason=fewer", { yaml: rules.checkout.replace("limit: 20", "limit: 15"), headers: { "if-match": "\"v1\"" } });
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByRole("region", { name: "Conflict" }).waitFor();
    await page.locator(".toast").first().waitFor({ state: "detached" });
    await shoot(page, "conflict");
    await page.context().close();
}

test("screenshots", async () => {
    await makeRules();
    let done = false;
    const traffic = makeTraffic(() => done);
    await new Promise((resolve) => setTimeout(resolve, warm_s * 1000));
    try {
        for (const [width, height] of [[1440, 900], [1024, 768], [390, 800]]) {
            const page = await open("#/", { viewport: { width, height }, colorScheme: width === 390 ? "dark" : "light", isMobile: width === 390, deviceScaleFactor: 1 });
            for (const [name, view] of Object.entries(pages)) {
                await visit(page, view);
                await shoot(page, `${name}-${width}`);
            }
            if (width === 1440) {
                await visit(page, pages.rule);
                const area = page.getByLabel("Rule as YAML");
                await area.fill((await area.inputValue()).replace("window:", "windw:"));
                await page.locator(".gutter .bad").first().waitFor();
                await shoot(page, "editor", { whole: false });
                await page.getByRole("button", { name: "Discard changes" }).click();
                await page.getByRole("button", { name: "Enforce…" }).click();
                await page.getByRole("dialog").locator(".diff-line.new").first().waitFor();
                await shoot(page, "publish", { whole: false });
            }
            await close(page);
        }
        await shootConflict();
    } finally {
        done = true;
    }
    await traffic;
});
