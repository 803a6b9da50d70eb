/* Stands in for `weir serve` while the dashboard is developed: answers as web/README.md says, in memory, one host. The tests
 * run against it only when WEIR_WEB_URL does not name a real one. */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { Rules, lint } from "./standin_rules.mjs";
import { Traffic } from "./standin_traffic.mjs";

const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const types = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const ranks = { viewer: 0, editor: 1, operator: 2 };

class Refusal extends Error {
    constructor(status, message, errors) {
        super(message);
        Object.assign(this, { status, errors });
    }
}

const checked = (text) => {
    const { errors, seen } = lint(text);
    if (errors.length) throw new Refusal(422, errors[0].message, errors);
    return seen.name;
};

class Standin {
    rules = new Rules();
    traffic = new Traffic(this.rules);
    tokens = new Map();
    sessions = new Map();
    audit = [];

    constructor(dist, operator) {
        this.dist = dist;
        this.token("tests", "operator", operator);
    }

    token(name, role, secret = randomBytes(18).toString("base64url")) {
        const one = { id: this.tokens.size + 1, name, role, created: new Date().toISOString(), expires: null, revoked: null, last_used: null };
        this.tokens.set(secret, one);
        return { ...one, token: secret };
    }

    who(request) {
        const bearer = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1];
        const cookie = /weir_session=([\w-]+)/.exec(request.headers.cookie ?? "")?.[1];
        const token = this.tokens.get(bearer ?? this.sessions.get(cookie));
        if (!token || token.revoked) throw new Refusal(401, "log in first");
        return token;
    }

    allow(who, role) {
        if (ranks[who.role] < ranks[role]) throw new Refusal(403, `this needs the role ${role}`);
    }

    log(who, action, object, details) {
        this.audit.unshift({ at: new Date().toISOString(), who: who.name, action, object, details, address: "127.0.0.1" });
    }

    document(name) {
        const found = this.rules.documents.get(name);
        if (!found) throw new Refusal(404, "there is no such rule");
        return found;
    }

    full(document, version) {
        const row = this.rules.row(document);
        const one = document.versions.find((each) => each.version === (version ?? row.version));
        if (!one) throw new Refusal(404, "there is no such version");
        return { ...row, version: one.version, text: one.text, author: one.author, at: one.at, reason: one.reason };
    }

    list({ q = "", stage, limit = 50, after = "" }) {
        const all = [...this.rules.documents.values()].map((one) => this.rules.row(one)).filter((row) => row.name.includes(q) && row.name > after &&
            (!stage || row.stage === stage || (stage === "shadow" && row.shadow_version) || (stage === "enforced" && row.enforced_version)));
        all.sort((a, b) => (a.name < b.name ? -1 : 1));
        const items = all.slice(0, Number(limit));
        return { items, next: all.length > items.length ? items[items.length - 1].name : null };
    }

    session(method, request, body, reply) {
        if (method === "POST") {
            const token = this.tokens.get(body.token);
            if (!token || token.revoked) throw new Refusal(401, "the token is not known");
            const id = randomBytes(18).toString("base64url");
            this.sessions.set(id, body.token);
            reply.setHeader("set-cookie", `weir_session=${id}; HttpOnly; SameSite=Strict; Path=/`);
            return { who: token.name, role: token.role, expires: new Date(Date.now() + 43200e3).toISOString() };
        }
        const who = this.who(request);
        if (method === "DELETE") this.sessions.delete(/weir_session=([\w-]+)/.exec(request.headers.cookie)?.[1]);
        return method === "DELETE" ? null : { who: who.name, role: who.role, expires: new Date(Date.now() + 43200e3).toISOString() };
    }

    rule(method, [name, verb], query, body, who, request, reply) {
        if (method !== "GET") this.allow(who, "editor");
        if (name === undefined && method === "GET") return this.list(query);
        if (name === undefined) {
            const made = checked(body);
            if (this.rules.documents.has(made)) throw new Refusal(409, "there is a rule of this name");
            this.log(who, "rule.create", made);
            reply.statusCode = 201;
            return this.full(this.rules.save(made, body, who.name, query.reason));
        }
        const document = this.document(name);
        const last = document.versions.length;
        if (verb === "versions") return { items: document.versions.map(({ text, ...one }) => one).reverse(), next: null };
        if (verb === "rollback") {
            this.log(who, "rule.rollback", name, { version: body.version });
            this.rules.save(name, this.rules.text(document, body.version), who.name, body.reason);
        } else if (verb === "publish") {
            this.log(who, "rule.publish", name, { stage: body.stage, version: body.version });
            return { revision: this.rules.publish(document, body.stage, body.version ?? (body.stage === "draft" ? null : last), who.name, body.reason), ...this.rules.row(document) };
        } else if (method === "PUT" || method === "DELETE") {
            if (!request.headers["if-match"]) throw new Refusal(428, "If-Match is needed");
            if (request.headers["if-match"] !== `"v${last}"`) throw new Refusal(412, "somebody else has changed it");
            if (method === "DELETE" && (document.enforced || document.shadow) && query.withdraw !== "true") throw new Refusal(409, "it is in force");
            if (method === "PUT" && checked(body) !== name) throw new Refusal(422, "a rule keeps its name");
            this.log(who, method === "PUT" ? "rule.update" : "rule.delete", name, { reason: query.reason });
            if (method === "PUT") this.rules.save(name, body, who.name, query.reason);
            else this.rules.documents.delete(name);
            if (method === "DELETE") return null;
        }
        const full = this.full(document, query.version && Number(query.version));
        reply.setHeader("etag", `"v${full.version}"`);
        return full;
    }

    revision(method, [number, verb], body, who) {
        if (number === undefined) return { items: this.rules.revisions.map(({ text, stages, ...one }) => one).reverse(), next: null };
        if (verb !== "rollback") return this.rules.revisions[number - 1];
        this.allow(who, "editor");
        this.log(who, "revision.rollback", number);
        return { revision: this.rules.back(Number(number), who.name, body.reason) };
    }

    key(method, [rule, key, verb], body, who) {
        this.allow(who, "operator");
        const document = this.document(rule);
        const id = JSON.stringify([rule, key]);
        if (method === "GET") return this.traffic.key(document, key);
        this.log(who, `key.${method === "PUT" ? "block" : verb ? "unblock" : "reset"}`, `${rule} ${key}`);
        if (method === "PUT") this.traffic.blocked.set(id, Date.now() + { m: 60, h: 3600, d: 86400 }[body.for.at(-1)] * parseInt(body.for) * 1000);
        else if (verb) this.traffic.blocked.delete(id);
        else this.traffic.counters.delete(id);
        return { rule, key };
    }

    tokenList(method, [id], body, who, reply) {
        this.allow(who, "operator");
        if (method === "GET") return { items: [...this.tokens.values()], next: null };
        if (method === "POST") {
            reply.statusCode = 201;
            return this.token(body.name, body.role);
        }
        for (const one of this.tokens.values()) if (one.id === Number(id)) one.revoked = new Date().toISOString();
        return null;
    }

    advice() {
        return { advice: this.list({ stage: "enforced", limit: 5 }).items.filter((row) => this.traffic.tallies.get(row.name)?.denied).map((row) => ({
            rule: row.name, kind: "too_strict", message: `Keys of ${row.name} are denied although each asks steadily.`,
            figures: { keys: 1, denied_percent: 40 }, changed: this.full(this.document(row.name)).text.replace(/^limit: (\d+)/m, (_, n) => `limit: ${n * 2}`) })) };
    }

    answer(method, parts, query, body, request, reply) {
        const [what, ...rest] = parts;
        if (what === "session") return this.session(method, request, body, reply);
        const who = this.who(request);
        if (what === "rules") return this.rule(method, rest, query, body, who, request, reply);
        if (what === "validate") return checked(body) && { ok: true, warnings: [] };
        if (what === "revisions") return this.revision(method, rest, body, who);
        if (what === "keys") return this.key(method, rest, body, who);
        if (what === "tokens") return this.tokenList(method, rest, body, who, reply);
        if (what === "audit") return { items: this.audit.slice(Number(query.after ?? 0)).slice(0, 50), next: null };
        if (what === "advice") return this.advice();
        if (what === "stats") return rest[0] === "history" ? this.traffic.history(query) : rest[0] === "hot" ? this.traffic.hot(query) : this.traffic.stats();
        throw new Refusal(404, "there is nothing here");
    }

    file(path, reply) {
        const name = path === "/" ? "/index.html" : path;
        if (!/^\/(index\.html|assets\/[\w.-]+)$/.test(name)) throw new Refusal(404, "there is nothing here");
        reply.setHeader("content-type", types[name.split(".").pop()]);
        reply.setHeader("content-security-policy", csp);
        reply.end(readFileSync(this.dist + name));
    }

    async serve(request, reply) {
        const url = new URL(request.url, "http://x");
        let text = "";
        for await (const chunk of request) text += chunk;
        try {
            if (!url.pathname.startsWith("/v1/")) return this.file(url.pathname, reply);
            const json = (request.headers["content-type"] ?? "").includes("json");
            const parts = url.pathname.slice(4).split("/").map(decodeURIComponent);
            const content = this.answer(request.method, parts, Object.fromEntries(url.searchParams), json ? JSON.parse(text) : text, request, reply);
            if (content === null) reply.statusCode = 204;
            else reply.setHeader("content-type", "application/json");
            reply.end(content === null ? undefined : JSON.stringify(content));
        } catch (error) {
            reply.statusCode = error.status ?? 500;
            reply.setHeader("content-type", "application/json");
            reply.end(JSON.stringify({ error: { code: String(reply.statusCode), message: error.message, errors: error.errors } }));
        }
    }
}

const listen = (handler) => new Promise((resolve) => {
    const server = createServer(handler).listen(0, "127.0.0.1", () => resolve(server));
});
const address = (server) => `http://127.0.0.1:${server.address().port}`;

/* Returns { url, gateway, close() }; `operator` is the first token. */
export async function standin(dist, operator) {
    const host = new Standin(dist, operator);
    const admin = await listen((request, reply) => host.serve(request, reply));
    const gateway = await listen((request, reply) => {
        reply.statusCode = host.traffic.request(new URL(request.url, "http://x").pathname, request.headers["x-user-id"]) ? 200 : 429;
        reply.end();
    });
    return { url: address(admin), gateway: address(gateway), close: () => [admin, gateway].forEach((one) => one.close() && one.closeAllConnections()) };
}
