/* A real Chromium before a real server, which served.py starts:
 *   WEIR_WEB_URL       the admin listener, e.g. http://127.0.0.1:9091
 *   WEIR_WEB_GATEWAY   a gateway of the same host, whose requests the published rules decide
 *   WEIR_WEB_OPERATOR  an operator's token
 *   WEIR_WEB_FILES_URL, WEIR_WEB_FILES_OPERATOR, WEIR_WEB_FILES_RULES  those of a host whose rules are in that file
 *   WEIR_WEB_SHOTS     where screenshots go (default build/web-shots)
 * Every test makes rules of its own, with names that no other run has used. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
export const require = createRequire(`${root}build/node/web/node_modules/x.js`);
const { chromium } = require("playwright-core");

export const host = {
    url: process.env.WEIR_WEB_URL?.replace(/\/$/, ""), gateway: process.env.WEIR_WEB_GATEWAY?.replace(/\/$/, ""), operator: process.env.WEIR_WEB_OPERATOR,
};
assert.ok(host.url && host.gateway && host.operator, "tests/web/run starts these tests");
export const shots = process.env.WEIR_WEB_SHOTS ?? `${root}build/web-shots`;
const tokens = { operator: host.operator };

mkdirSync(shots, { recursive: true });
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });

after(() => browser.close());

export function fresh(prefix = "web") {
    return `${prefix}-${randomBytes(3).toString("hex")}`;
}

/* The REST API as a script would use it. Fails the test when the status is not as expected. */
export async function api(method, path, { body, yaml, headers = {}, token = host.operator, status } = {}) {
    const type = yaml !== undefined ? { "content-type": "application/yaml" } : body !== undefined ? { "content-type": "application/json" } : {};
    const answer = await fetch(host.url + path, {
        method, body: yaml ?? (body === undefined ? undefined : JSON.stringify(body)),
        headers: { authorization: `Bearer ${token}`, ...type, ...headers },
    });
    const text = await answer.text();
    assert.ok(status ? answer.status === status : answer.ok, `${method} ${path}: ${answer.status} ${text.slice(0, 300)}`);
    return text && (answer.headers.get("content-type") ?? "").includes("json") ? JSON.parse(text) : text;
}

export const ruleText = (name, { limit = 3, path = `/${name}`, window = "10m" } = {}) => `name: ${name}
match: { path: ${path} }
key: user:\${header:X-User-Id}
limit: ${limit}
window: ${window}
algorithm: fixed_window
align: first_request
`;

/* A rule of a fresh name; `stage` is how far it is published. */
export async function makeRule({ name = fresh(), stage, ...how } = {}) {
    await api("POST", "/v1/rules", { yaml: ruleText(name, how), status: 201 });
    if (stage) await api("POST", `/v1/rules/${encodeURIComponent(name)}/publish`, { body: { stage, reason: "tests" } });
    return name;
}

/* Through the gateway; resolves to the statuses. */
export async function send(path, user, times) {
    const statuses = [];
    for (let i = 0; i < times; i++) statuses.push((await fetch(`${host.gateway}${path}`, { headers: { "x-user-id": user } })).status);
    return statuses;
}

/* What is published takes a moment to reach the workers. */
export async function until(what, check, milliseconds = 30000) {
    const end = Date.now() + milliseconds;
    for (;;) {
        if (await check()) return;
        assert.ok(Date.now() < end, `within ${milliseconds} ms: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}

export async function tokenOf(role) {
    tokens[role] ??= (await api("POST", "/v1/tokens", { body: { name: fresh(role), role, expires: "1d" }, status: 201 })).token;
    return tokens[role];
}

/* A page that is logged in as `role`, or not at all. What goes wrong in it fails the test that calls page.sound(). */
export async function open(place = "#/", { role = "operator", token, url = host.url, ...context } = {}) {
    const tab = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...context });
    const page = await tab.newPage();
    page.setDefaultTimeout(60000); /* a busy machine takes its time */
    const wrong = [];
    const elsewhere = [];
    page.on("pageerror", (error) => wrong.push(String(error)));
    page.on("console", (message) => {
        const expected = /status of (400|401|404|409|412|422|429)/.test(message.text()); /* Chromium's own note on a refused request */
        if (message.type() === "error" && !expected) wrong.push(message.text());
    });
    page.on("dialog", (dialog) => {
        if (dialog.type() !== "beforeunload") wrong.push(`dialog: ${dialog.message()}`);
        void dialog.accept().catch(() => undefined);
    });
    page.on("request", (request) => {
        if (new URL(request.url()).origin !== url) elsewhere.push(request.url());
    });
    page.sound = () => {
        assert.deepEqual(wrong, []);
        assert.deepEqual(elsewhere, [], "requests to other sites");
    };
    await page.goto(`${url}/${place}`);
    if (role) {
        await logIn(page, token ?? await tokenOf(role));
        await page.getByRole("heading", { level: 1 }).waitFor();
    }
    return page;
}

export async function logIn(page, token) {
    await page.getByLabel("Token", { exact: true }).fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.locator(".login-dialog").waitFor({ state: "detached" });
}

export async function close(page) {
    page.sound();
    await page.context().close();
}
