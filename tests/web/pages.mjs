/* Every page of the dashboard, with rules, traffic, a shadow and hostile names to show. */
import { api, fresh, host, makeRule, ruleText, send, until } from "./harness.mjs";

export const hostile = fresh("<img src=x onerror=alert(1)>");
export const user = "<script>alert(2)</script>";
export const rule = await makeRule({ name: fresh("checkout"), stage: "enforced", limit: 20 });

await until("the rule is in force", async () => (await send(`/${rule}`, fresh("probe"), 21)).includes(429));
for (let i = 0; i < 6; i++) await send(`/${rule}`, `customer-${i}`, 5 * (i + 1));
await api("PUT", `/v1/rules/${rule}?reason=try`, { yaml: ruleText(rule, { limit: 10 }), headers: { "if-match": `"v1"` } });
await api("POST", `/v1/rules/${rule}/publish`, { body: { stage: "shadow", version: 2, reason: "try" } });
await makeRule({ name: fresh("beside"), stage: "shadow" });
await makeRule({ name: hostile, path: "/hostile", stage: "enforced", limit: 2 });
await until("the hostile rule is in force", async () => (await send("/hostile", user, 3)).includes(429));
const key = `#/keys?rule=${encodeURIComponent(hostile)}&key=${encodeURIComponent(`user:${user}`)}`;
export const pages = ["#/", "#/rules", `#/rules/${rule}`, `#/rules/${encodeURIComponent(hostile)}`, "#/new", "#/published", "#/shadow", "#/keys", key,
    "#/denials", "#/check", "#/queue", "#/queue?state=", "#/advice", "#/audit", "#/tokens"];

export async function visit(page, view) {
    await page.goto(`${host.url}/${view}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForLoadState("networkidle", { timeout: 1500 }).catch(() => undefined); /* the overview never rests */
}
