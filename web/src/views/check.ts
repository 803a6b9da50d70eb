/* Tries a request against the active rules, as weir check does: takes nothing, and shows why it would pass or be denied. */
import { request } from "../api";
import { field, h, replace, select, table } from "../dom";
import { count, duration } from "../format";
import type { Check, RuleCheck } from "../types";
import { type OpenView, type Route, badge, heading, name, problem, ruleLink } from "../view";

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

const reasons: Record<string, string> = {
    no_rule: "no rule matches", allow_list: "on the allow list", block_list: "on the block list", ban: "the limit is 0", unlimited: "unlimited",
    soft: "over the limit, within its soft margin", concurrency: "as many requests are in flight as the limit allows",
    never_fits: "it costs more than the limit can ever hold", blocked: "an operator blocked the key",
    store_failure: "the counter could not be reached; on_store_failure decided", shed: "shed: the host is busy with more important requests",
};

function reasonText(one: RuleCheck, missing?: string): string {
    if (one.reason === "missing_key") return missing ? `the request lacks the ${missing}` : `${one.allowed ? "the rule does not apply: " : ""}the request lacks an attribute of its key`;
    if (one.reason !== "limit") return reasons[one.reason] ?? one.reason.replaceAll("_", " ");
    return one.decision === "allow" ? "within the limit" : one.decision === "delay" ? `it has to wait for ${duration(one.delay_s)}` : "over the limit";
}

function verdict(check: Check): string {
    const by = check.rule && !(check.allowed && check.reason === "missing_key") ? ` by ${check.rule}` : "";
    const retry = check.allowed ? "" : check.retry_after_s === null ? "; waiting does not help" : `; retry in ${duration(Math.max(check.retry_after_s, 1))}`;
    return `${check.decision === "allow" ? "Allowed" : check.decision === "delay" ? "Delayed" : "Denied"}${by}: ${reasonText(check, check.missing)}${retry}.`;
}

function ruleRow(one: RuleCheck, missing?: string) {
    const limit = one.quota === null ? "–" : `${count(one.quota)}${one.window_s ? ` in ${duration(one.window_s)}` : ""}`;
    return [h("span", {}, one.rule ? ruleLink(one.rule) : "–", one.shadow ? [" ", badge("shadow")] : ""), one.decision, h("div", { class: "sentence" }, reasonText(one, missing)),
        name(one.key ?? "–"), limit, count(one.remaining), count(one.cost), duration(one.reset_s)];
}

function result(check: Check): HTMLElement {
    return h("section", { class: "card", "aria-label": "Decision" },
        h("h2", { class: `health ${check.allowed ? "good" : "bad"}`, role: "status" }, name(verdict(check))),
        h("p", {}, check.allowed ? "The request goes to the upstream." : `The client gets status ${check.status}.`,
            check.shadow_denied ? " A shadow rule would have denied it." : ""),
        check.rules.length === 0 ? h("p", { class: "muted" }, "The match of no rule fits this method, path, host and headers.") :
            table("Rules that match", ["Rule", "Decision", "Why", "Key", "Limit", "Remaining", "Cost", "Resets in"],
                check.rules.map((one) => ruleRow(one, check.missing)), [5, 6]));
}

/* Lines of names and values; wrong ones are named by their number. */
function readLines(what: string, text: string, form: RegExp, example: string): Record<string, string> {
    const found: Record<string, string> = {};
    text.split("\n").forEach((line, i) => {
        if (!line.trim()) return;
        const match = form.exec(line);
        if (!match) throw new Error(`${what}, line ${i + 1}: “${line.trim()}” is not such as ${example}`);
        found[match[1]!] = match[2]!.trim();
    });
    return found;
}

/* The host and the target of a URL. */
function readUrl(text: string): { host?: string; target: string } {
    const match = /^(?:https?:\/\/(?:[^/?#@]*@)?([^/?#\s]+))?([/?*][^#\s]*)?(?:#\S*)?$/i.exec(text);
    if (!match || (!match[1] && !match[2])) throw new Error(`URL: “${text}” must begin with / or http://, and have no blanks`);
    const target = match[2] ?? "/";
    return { ...(match[1] ? { host: match[1] } : {}), target: target.startsWith("?") ? `/${target}` : target };
}

export function check(route: Route): OpenView {
    const method = select(methods.map((one) => [one, one]), route.query.get("method") ?? "GET");
    const url = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false", "data-filter": true, value: route.query.get("url") ?? "/" });
    const ip = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const cost = h("input", { type: "number", min: "0", max: "4294967295", step: "1" });
    const lines = () => h("textarea", { class: "code lines", rows: "4", spellcheck: "false", autocomplete: "off" });
    const headers = lines();
    const attributes = lines();
    const answer = h("div");

    function body() {
        return {
            attributes: {
                ...readLines("Attributes", attributes.value, /^\s*([a-z_][a-z0-9_]*)\s*=(.*)$/, "user_id=42"), method: method.value, ...readUrl(url.value.trim()),
                ...(ip.value.trim() ? { ip: ip.value.trim() } : {}), headers: readLines("Headers", headers.value, /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:(.*)$/, "X-User-Id: 42"),
            },
            ...(cost.value ? { cost: Number(cost.value) } : {}),
        };
    }
    async function run(): Promise<void> {
        try {
            replace(answer, result((await request<Check>("/v1/check", { method: "POST", json: body() })).body));
        } catch (error) {
            replace(answer, problem(error));
        }
    }
    const form = h("form", { class: "check-form", "aria-label": "Request", onsubmit: (event: Event) => {
        event.preventDefault();
        void run();
    } }, h("div", { class: "toolbar" }, field("Method", method), field("URL", url, "A path such as /auth/login, or with a host"),
        field("Client address", ip, "An IPv4 or IPv6 address"), field("Cost", cost, "Empty: the rule's cost")),
    h("div", { class: "sides" }, field("Headers", headers, "One a line: X-User-Id: 42"),
        field("Attributes", attributes, "Those that the gateway or your application adds, one a line: user_id=42")),
    h("button", { class: "primary" }, "Try"));
    return { title: "Check", element: h("div", {}, heading("Check a request"),
        h("p", { class: "muted" }, "Decides a request by the active rules and their counters on this host, as weir check does. Nothing is taken or counted."), form, answer) };
}
