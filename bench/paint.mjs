/* How long the dashboard takes to its first paint and to its list of rules, in Chromium: paint.mjs URL TOKEN ROUNDS.
 * Prints {paint: [ms…], rows: [ms…]}. Each round is a page that has nothing cached. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const [url, token, rounds] = process.argv.slice(2);
const modules = fileURLToPath(new URL("../build/node/web/node_modules/x.js", import.meta.url));
const { chromium } = createRequire(modules)("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const figures = { paint: [], rows: [] };
for (let i = 0; i < Number(rounds); i++) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    await context.request.post(`${url}/v1/session`, { data: { token }, headers: { origin: url } });
    const page = await context.newPage();
    await page.goto(`${url}/#/rules`);
    await page.locator("tbody tr").first().waitFor();
    figures.rows.push(await page.evaluate(() => performance.now()));
    figures.paint.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    await context.close();
}
await browser.close();
console.log(JSON.stringify(figures));
