/* A live table of this host and all hosts whose heartbeats it has received; the choice of one of them, and which of them
 * an answer is of. Their names are untrusted. */
import { get, errorText } from "./api";
import { announce, field, h, replace, setText, table } from "./dom";
import { count, duration, rate } from "./format";
import type { Counts, Coverage, Host, Hosts } from "./types";
import { name, visible } from "./view";

const pollMs = 2000;
const slowestMs = 15000;
type Health = "good" | "odd" | "bad";

function judge(host: Host): [Health, string] {
    if (host.state === "silent") return ["bad", "silent"];
    if (host.store === "unavailable") return ["bad", "store unavailable"];
    return host.rules_differ ? ["odd", "other rules"] : ["good", "running"];
}

const rankOf: Record<Health, number> = { bad: 0, odd: 1, good: 2 };

/* Unhealthy hosts first, then by name. */
function sorted(hosts: Host[]): Host[] {
    const rank = (host: Host) => rankOf[judge(host)[0]];
    return [...hosts].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id));
}

function row(host: Host) {
    const [health, word] = judge(host);
    const figure = (key: keyof Counts) => (host.rates ? rate(host.rates[key]) : "–");
    return [[name(host.name), host.here ? [" ", h("span", { class: "nowrap" }, "(this host)")] : ""], h("span", { class: `health ${health}` }, word),
        host.here ? "now" : `${duration(host.heard_s)} ago`, figure("allowed"), figure("denied"), figure("shed"), figure("delayed"),
        host.level === null ? "–" : count(Math.round(host.level)), host.store, h("code", { title: `${host.rule_count} rules` }, (host.rules ?? "–").slice(0, 7)),
        visible(host.version)];
}

const heads = ["Host", "State", "Last seen", "Allowed", "Denied", "Shed", "Delayed", "Load", "Store", "Rules", "Version"];

export class HostTable {
    private readonly summary = h("p", { class: "muted" });
    private readonly body = h("div");
    readonly element = h("section", { class: "hosts" }, h("h3", {}, "All hosts"), this.summary, this.body);
    private readonly control = new AbortController();
    private timer = 0;
    private wait = pollMs;
    private silent = NaN;

    constructor() {
        document.addEventListener("visibilitychange", this.onVisible);
        void this.poll();
    }

    close(): void {
        this.control.abort();
        clearTimeout(this.timer);
        document.removeEventListener("visibilitychange", this.onVisible);
    }

    private readonly onVisible = () => this.schedule(0);

    private schedule(after: number): void {
        clearTimeout(this.timer);
        if (!this.control.signal.aborted && !document.hidden) this.timer = window.setTimeout(() => void this.poll(), after);
    }

    private async poll(): Promise<void> {
        try {
            const reply = await get<Hosts>("/v1/hosts", this.control.signal);
            if (this.control.signal.aborted) return;
            this.wait = pollMs;
            this.show(reply);
        } catch (error) {
            if (this.control.signal.aborted) return;
            this.wait = Math.min(this.wait * 2, slowestMs);
            setText(this.summary, `Not live: ${errorText(error)}`);
        }
        this.schedule(this.wait);
    }

    private show({ fleet, hosts }: Hosts): void {
        const parts = [`${count(fleet.running)} running`];
        if (fleet.silent) parts.push(`${count(fleet.silent)} silent`);
        if (fleet.rules_differ) parts.push(`other rules on ${count(fleet.rules_differ)}`);
        if (fleet.left_out) parts.push(`${count(fleet.left_out)} not shown`);
        if (fleet.store === "unavailable") parts.push(`the store is unavailable: ${visible(fleet.why ?? "")}`);
        setText(this.summary, parts.join(", "));
        if (fleet.silent > this.silent) announce(`Hosts: ${count(fleet.silent)} silent`, "bad");
        this.silent = fleet.silent;
        /* Not while the table has the focus: the reader would lose the place. */
        if (!this.body.matches(":focus-within")) replace(this.body, table("All hosts", heads, sorted(hosts).map(row), [3, 4, 5, 6, 7]));
    }
}

/* The id of the host whose figures all views show; "": all hosts. It holds until the page is loaded again. */
let chosen = "";
let known: Host[] = [];
let onChoice: () => void = () => undefined;

/* Sets what opens the view again after another host was chosen. */
export function whenHostChosen(call: () => void): void {
    onChoice = call;
}

/* For the query of a request for statistics or denials. */
export function chosenHost(): { host: string } {
    return { host: chosen };
}

/* The choice for the head of a view; hidden if there is one host only. */
export function hostChoice(): HTMLElement {
    const control = h("select", { "data-hosts": true });
    const box = field("Host", control);
    const show = () => {
        box.hidden = known.length < 2 && chosen === "";
        replace(control, h("option", { value: "" }, "All hosts"), known.map((host) => h("option", { value: host.id, selected: host.id === chosen },
            `${visible(host.name)}${host.here ? " (this host)" : host.state === "silent" ? " (silent)" : ""}`)));
        control.value = chosen;
    };
    control.addEventListener("change", () => {
        chosen = control.value;
        onChoice();
    });
    show();
    get<Hosts>("/v1/hosts").then(({ hosts }) => {
        known = hosts;
        if (chosen && !hosts.some((host) => host.id === chosen)) {
            chosen = "";
            onChoice();
        } else if (document.activeElement !== control || control.options.length !== hosts.length + 1) {
            show();
        }
    }, () => undefined);
    return box;
}

/* Which hosts are missing in an answer. */
export class CoverageNote {
    readonly element = h("p", { class: "notice", role: "status", hidden: true });

    show(coverage: Coverage | undefined): void {
        const missing = (coverage?.missing ?? []).map((host) => `${visible(host.name)} (${visible(host.why)})`);
        const store = coverage?.why ? ` The store: ${visible(coverage.why)}.` : "";
        this.element.hidden = missing.length === 0 && !store;
        setText(this.element, this.element.hidden ? "" : `Of ${count(coverage!.hosts.length)} ${coverage!.hosts.length === 1 ? "host" : "hosts"}; ` +
            `not included: ${missing.join(", ") || "–"}.${store}`);
    }
}
