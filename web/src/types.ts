/* What the admin listener answers, as the dashboard reads it. README.md says it in words; a time is RFC 3339 in UTC. */

export type Role = "viewer" | "editor" | "operator";
export type Stage = "draft" | "shadow" | "enforced";
export type Kind = "rule" | "domain" | "settings";
export type Time = string | number;

export interface Session {
    who: string;
    role: Role;
    expires: Time | null;
    key_texts: boolean; /* false: keys are shown by their hashes */
}

export interface Page<T> {
    items: T[];
    next?: string | number | null;
}

export interface RuleRow {
    name: string;
    kind: Kind;
    version: number;
    stage: Stage;
    enforced_version: number | null;
    shadow_version: number | null;
    author: string;
    at: Time;
    summary?: string;
}

export interface RuleDocument extends RuleRow {
    text: string;
    reason?: string;
}

export interface Version {
    version: number;
    author: string;
    at: Time;
    reason?: string;
    deleted?: boolean;
}

export interface Revision {
    revision: number;
    at: Time;
    author: string;
    reason?: string;
}

export interface Problem {
    severity?: "error" | "warning";
    field?: string | null;
    line?: number;
    column?: number;
    message: string;
    suggestion?: string | null;
}

export interface Counts {
    allowed: number;
    denied: number;
    delayed: number;
    shed?: number; /* denied for the sake of more important ones, and not among the denied */
}

export type Span = "1s" | "10s" | "60s";
export type Facts = Record<string, unknown>;

/* A rule in force; its shadow is one of its own, of the same name. */
export interface RuleFigures {
    name: string;
    shadow: boolean;
    totals: Counts;
    rates: Record<Span, Counts | null>;
}

/* How loaded the host is: all from 0 to 100 but for what is in flight. */
export interface Load {
    known: boolean; /* false: the agent is silent, and limits are as they are written */
    level: number;
    throttle: number; /* where adaptive limits are, from their min to their max */
    in_flight: number;
    signals: Record<string, number>;
    shed: Record<string, number>; /* by priority */
}

export interface Stats {
    at: Time;
    version?: string;
    rates: Record<Span, Counts | null>; /* of the enforced rules together */
    rules: RuleFigures[];
    segment: Facts | null;
    store: Facts | null;
    load?: Load | null; /* null: nothing says how loaded the host is */
    host: Facts | null;
    reloads: Facts | null;
    check_seconds?: { p50: number; p99: number };
}

/* Rates, the newest last, which is of the second `until`. */
export interface History {
    known: boolean; /* false: nobody keeps one */
    until: Time;
    step: number;
    allowed: number[];
    denied: number[];
    delayed: number[];
    shed?: number[];
    shadow_denied: number[];
}

/* A host that was heard of. Its texts are its own. */
export interface Host {
    id: string;
    name: string;
    here: boolean;
    state: "running" | "silent";
    heard_s: number; /* ago */
    via: "here" | "store" | "rules";
    version: string;
    rates: Counts | null;
    level: number | null;
    store: "none" | "unknown" | "up" | "away";
    rules: string | null; /* what those in force say, as a number */
    rule_count: number;
    rules_differ: boolean; /* from those of most hosts */
}

export interface Hosts {
    fleet: { running: number; silent: number; left_out: number; rules_differ: number; store: Host["store"]; why: string | null; agent: boolean };
    hosts: Host[];
}

export interface HotKey {
    key: string;
    hidden: boolean; /* the key is only known by its hash, */
    cut: boolean; /* or by its beginning */
    count: number;
    error: number;
}

export interface NearKey {
    key: string;
    hidden: boolean;
    cut: boolean;
    used: number; /* of its limit: 1 is all of it */
}

export interface HotKeys<T> {
    known: boolean;
    keys: T[];
    uses: { keys: number; tenths: number[] }; /* keys by how much of their limit they use; the last: more than all of it */
}

/* As the service's GET /v1/keys: what one unit more would be told. */
export interface KeyState {
    rule: string;
    key: string;
    reason: string; /* "blocked" while it is */
    limit: number | null;
    remaining: number | null;
    reset_s: number | null;
    retry_after_s: number | null;
}

/* A request that waits for its limit, or has. */
export interface Deferred {
    ticket: string; /* cut short for who is no operator */
    sequence: number;
    rule: string;
    key?: string; /* or, if it is no text: */
    key_hex?: string;
    cost: number;
    method: string;
    path: string;
    state: "waiting" | "under_way" | "delivered" | "dead" | "cancelled";
    attempts: number;
    last_status: number | null;
    why: string | null;
    accepted: Time;
}

interface QueueCounts {
    waiting: number;
    under_way: number;
    dead: number;
    bytes: number;
    oldest_s: number | null;
}

export interface QueueFigures extends QueueCounts {
    rules: (QueueCounts & { rule: string })[];
}

export interface Advice {
    rule: string;
    kind: string;
    message: string;
    figures?: Facts;
    document?: string | null; /* the changed rule, as the service takes it */
}

export interface AuditEntry {
    at: Time;
    who: string;
    action: string;
    object: string;
    details?: unknown;
    address?: string;
}

export interface Token {
    id: string | number;
    name: string;
    role: Role;
    created: Time;
    expires: Time | null;
    revoked: Time | boolean | null;
    last_used: Time | null;
}

export interface NewToken extends Token {
    token: string;
}
