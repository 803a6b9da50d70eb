/* Bundles the dashboard: node web/build.mjs MODULES OUTPUT. MODULES is the node_modules folder with esbuild and uPlot.
 * OUTPUT gets index.html and assets/ whose names carry a hash of what is in them. */
import { createRequire } from "node:module";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, extname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const [modules, output] = process.argv.slice(2).map((path) => resolve(path));
const source = join(dirname(fileURLToPath(import.meta.url)), "src");
const esbuild = createRequire(join(modules, "x.js"))("esbuild");

const license = (name) => readFileSync(join(modules, name, "LICENSE"), "utf8"); /* which must go where the code goes */

const result = await esbuild.build({
    entryPoints: [join(source, "main.ts"), join(source, "style.css")],
    bundle: true, minify: true, format: "esm", target: "es2022", nodePaths: [modules], outdir: output, entryNames: "[name]",
    write: false, legalComments: "none", banner: { js: `/*! with uPlot:\n${license("uplot")}*/`, css: "/*! with uPlot's style, MIT licence: see the script */" }, logLevel: "warning", charset: "utf8",
});

rmSync(output, { recursive: true, force: true });
mkdirSync(join(output, "assets"), { recursive: true });
function put(name, bytes) {
    const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
    const path = `assets/${basename(name, extname(name))}-${hash}${extname(name)}`;
    writeFileSync(join(output, path), bytes);
    return `/${path}`;
}
const file = (end) => result.outputFiles.find((one) => one.path.endsWith(end)).contents;
const page = readFileSync(join(source, "index.html"), "utf8")
    .replace("@JS@", put("main.js", file(".js")))
    .replace("@CSS@", put("style.css", file(".css")))
    .replace("@ICON@", put("icon.svg", readFileSync(join(source, "icon.svg"))));
writeFileSync(join(output, "index.html"), page);
