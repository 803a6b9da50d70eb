/* All hosts that this one has heard of, and itself: a table that follows them. What they call themselves is theirs. */
import { get, words } from "./api";
import { announce, h, replace, setText, table } from "./dom";
import { count, duration, rate } from "./format";
import type { Counts, Host, Hosts } from "./types";
import { name, visible } from "./view";

const every = 2000;
const slowest = 15000;
type Health = "good" | "odd" | "bad";

function judge(host: Host): [Health, string] {
    if (host.state === "silent") return ["bad", "silent"];
    if (host.store === "away") return ["bad", "store away"];
    return host.rules_differ ? ["odd", "other rules"] : ["good", "running"];
}

const order: Record<Health, number> = { bad: 0, odd: 1, good: 2 };

/* What needs somebody first; then by name. */
function sorted(hosts: Host[]): Host[] {
    const rank = (host: Host) => order[judge(host)[0]];
    return [...hosts].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id));
}

function row(host: Host) {
    const [health, word] = judge(host);
    const figure = (key: keyof Counts) => (host.rates ? rate(host.rates[key]) : "–");
    return [[name(host.name), host.here ? " (this host)" : ""], h("span", { class: `health ${health}` }, word),
        host.here ? "now" : `${duration(host.heard_s)} ago`, figure("allowed"), figure("denied"), figure("shed"), figure("delayed"),
        host.level === null ? "–" : count(Math.round(host.level)), host.store, h("code", { title: `${host.rule_count} rules` }, (host.rules ?? "–").slice(0, 7)),
        visible(host.version)];
}

const heads = ["host", "state", "last heard", "allowed", "denied", "shed", "delayed", "load", "store", "rules", "weir"];

export class HostTable {
    private readonly summary = h("p", { class: "muted" });
    private readonly body = h("div");
    readonly element = h("section", { class: "hosts" }, h("h3", {}, "All hosts"), this.summary, this.body);
    private readonly control = new AbortController();
    private timer = 0;
    private wait = every;
    private silent = NaN;

    constructor() {
        document.addEventListener("visibilitychange", this.seen);
        void this.poll();
    }

    close(): void {
        this.control.abort();
        clearTimeout(this.timer);
        document.removeEventListener("visibilitychange", this.seen);
    }

    private readonly seen = () => this.again(0);

    private again(after: number): void {
        clearTimeout(this.timer);
        if (!this.control.signal.aborted && !document.hidden) this.timer = window.setTimeout(() => void this.poll(), after);
    }

    private async poll(): Promise<void> {
        try {
            const told = await get<Hosts>("/v1/hosts", this.control.signal);
            if (this.control.signal.aborted) return;
            this.wait = every;
            this.show(told);
        } catch (error) {
            if (this.control.signal.aborted) return;
            this.wait = Math.min(this.wait * 2, slowest);
            setText(this.summary, `Not live: ${words(error)}`);
        }
        this.again(this.wait);
    }

    private show({ fleet, hosts }: Hosts): void {
        const parts = [`${count(fleet.running)} running`];
        if (fleet.silent) parts.push(`${count(fleet.silent)} silent`);
        if (fleet.rules_differ) parts.push(`other rules on ${count(fleet.rules_differ)}`);
        if (fleet.left_out) parts.push(`${count(fleet.left_out)} not shown`);
        if (fleet.store === "away") parts.push(`the store is away: ${visible(fleet.why ?? "")}`);
        setText(this.summary, parts.join(", "));
        if (fleet.silent > this.silent) announce(`Hosts: ${count(fleet.silent)} silent`, "bad");
        this.silent = fleet.silent;
        /* Who reads it with the keys, or has marked something, is not disturbed. */
        if (!this.body.matches(":focus-within")) replace(this.body, table("All hosts", heads, sorted(hosts).map(row), [3, 4, 5, 6, 7]));
    }
}
