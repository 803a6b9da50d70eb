/* Replies of the admin listener; README.md describes them. Times are RFC 3339 in UTC. */

export type Role = "viewer" | "editor" | "operator";
export type Stage = "draft" | "shadow" | "enforced";
export type Kind = "rule" | "domain" | "settings";
export type Time = string | number;

export interface Session {
    who: string;
    role: Role;
    expires: Time | null;
    key_texts: boolean; /* false: keys are shown by their hashes */
    rules: "files" | "database"; /* files: rules are changed there, and shown here */
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
    file?: string; /* of rules in files */
    line?: number;
}

/* With rules in files: where they are, and why changes are not shown. */
export interface RulePage extends Page<RuleRow> {
    files?: { path: string; errors: (Problem & { file: string })[] };
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
    shed?: number; /* refused because of overload; not among the denied */
}

export type Span = "1s" | "10s" | "60s";
export type Facts = Record<string, unknown>;

/* An active rule; its shadow is listed separately under the same name. */
export interface RuleStats {
    name: string;
    shadow: boolean;
    totals: Counts;
    rates: Record<Span, Counts | null>;
}

/* The host's load. Levels and shares are 0 to 100. */
export interface Load {
    known: boolean; /* false: no agent reports it, and limits are not scaled */
    level: number;
    throttle: number; /* position of adaptive limits between min and max */
    in_flight: number;
    signals: Record<string, number>;
    shed: Record<string, number>; /* by priority */
}

/* The hosts whose figures an answer has, and those that did not reply. Names are untrusted. */
export interface Coverage {
    hosts: string[];
    missing: { name: string; why: string }[];
    why: string | null; /* why the store could not be reached */
}

export interface Stats {
    coverage?: Coverage;
    at: Time;
    version?: string;
    rates: Record<Span, Counts | null>; /* sum of the enforced rules */
    rules: RuleStats[];
    segment: Facts | null;
    store: Facts | null;
    load?: Load | null; /* null: the load is not measured */
    host: Facts | null;
    reloads: Facts | null;
    check_seconds?: { p50: number; p99: number; below_s?: number[]; counts?: number[] }; /* counts[i] took less than below_s[i]; the last: longer */
}

/* Rates, newest last; the last is that of the second `until`. */
export interface History {
    known: boolean; /* false: there is no history */
    until: Time;
    step: number;
    allowed: number[];
    denied: number[];
    delayed: number[];
    shed?: number[];
    shadow_denied: number[];
}

/* A host, by its last heartbeat. Its texts are untrusted. */
export interface Host {
    id: string;
    name: string;
    here: boolean;
    state: "running" | "silent";
    heard_s: number; /* age of the heartbeat */
    via: "here" | "store" | "rules";
    version: string;
    rates: Counts | null;
    level: number | null;
    store: "none" | "unknown" | "up" | "unavailable";
    rules: string | null; /* checksum of its active rules */
    rule_count: number;
    rules_differ: boolean; /* from those of most hosts */
}

export interface Hosts {
    fleet: { running: number; silent: number; left_out: number; rules_differ: number; store: Host["store"]; why: string | null; agent: boolean };
    hosts: Host[];
}

export interface HotKey {
    key: string;
    hidden: boolean; /* `key` is a hash */
    cut: boolean; /* `key` is the beginning of the key */
    count: number;
    error: number;
}

export interface NearKey {
    key: string;
    hidden: boolean;
    cut: boolean;
    used: number; /* share of its limit */
}

export interface HotKeys<T> {
    coverage?: Coverage;
    known: boolean;
    keys: T[];
    uses: { keys: number; tenths: number[] }; /* number of keys by the tenth of their limit that they use; the last: over the limit */
}

/* A block that holds on all hosts. */
export interface Block {
    rule: string;
    key: string;
    left_s: number;
    by: string;
    reason: string;
    host: string; /* where it was made */
}

export type Reach = "all" | "later" | "this";

/* The decision about one more unit, as of GET /v1/keys. */
export interface KeyState {
    rule: string; /* of several limits, the tightest one's */
    rule_base: string; /* as its author wrote it */
    key: string;
    block: Block | null;
    hosts: Reach; /* where a block or a reset would hold */
    reason: string; /* "blocked", or "limit" */
    limit: number | null;
    remaining: number | null;
    reset_s: number | null;
    retry_after_s: number | null;
}

/* Denials of one rule, key and reason, as of GET /v1/denials. */
export interface Denial {
    rule: string; /* empty: a list of all rules */
    shadow: boolean; /* it would have been denied */
    reason: string;
    count: number;
    first: Time;
    last: Time;
    host: string;
    here: boolean; /* it is the host of the dashboard */
    key: string; /* empty: none */
    hidden: boolean; /* `key` is a hash */
    cut: boolean; /* `key` is only the beginning of the key */
    limit: number;
    window: number | null;
    capacity: number;
    used: number;
    cost: number;
    tier: string | null;
    client: string | null;
    request_id: string | null;
    path: string | null;
    missing: string | null; /* what the request lacked */
    others: { rule: string; shadow: boolean; passed: boolean; limit: number; remaining: number }[];
    passes: boolean | null; /* now; null: unknown, or decided in the store */
    retry_after: number | null;
}

export interface Denials {
    coverage: Coverage;
    oldest: Time | null;
    more: number; /* older ones */
    denials: Denial[];
}

/* A deferred request. */
export interface Deferred {
    ticket: string; /* shortened unless the user is an operator */
    sequence: number;
    rule: string;
    key?: string;
    key_hex?: string; /* in place of `key` if that is not UTF-8 */
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

export interface QueueStats extends QueueCounts {
    rules: (QueueCounts & { rule: string })[];
}

/* The decision of a rule about a request that was tried. */
export interface RuleCheck {
    decision: "allow" | "delay" | "deny";
    allowed: boolean;
    reason: string;
    rule: string | null;
    key: string | null;
    limit: number | null;
    remaining: number | null;
    reset_s: number | null;
    retry_after_s: number | null;
    delay_s: number;
    cost: number;
    quota: number | null;
    window_s: number | null;
    shadow: boolean;
}

/* As of POST /v1/check. */
export interface Check extends RuleCheck {
    missing?: string; /* what the request lacks */
    rules: RuleCheck[];
    shadow_denied: boolean;
    status: number; /* that the client would get, if it is denied */
}

/* The evidence that there is, and the least that advice needs. */
export interface AdviceReply {
    advice: Advice[];
    basis?: { rules: number; seconds: number; hours: number; busiest: string | null; requests: number; denied: number; keys: boolean };
    needs?: { seconds: number; requests: number; denied: number; hours: number };
}

export interface Advice {
    rule: string;
    kind: string;
    message: string;
    figures?: Facts;
    document?: string | null; /* the changed rule, to be sent to /v1/rules */
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
