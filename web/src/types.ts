/* What the admin listener answers, as the dashboard reads it. README.md says it in words; a time is RFC 3339 in UTC. */

export type Role = "viewer" | "editor" | "operator";
export type Stage = "draft" | "shadow" | "enforced";
export type Kind = "rule" | "domain" | "settings";
export type Time = string | number;

export interface Session {
    who: string;
    role: Role;
    expires: Time | null;
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
    who: string;
    reason?: string;
}

export interface Problem {
    field?: string;
    line?: number;
    column?: number;
    message: string;
    suggestion?: string;
}

export interface Counts {
    allowed: number;
    denied: number;
    delayed: number;
    shadow_denied: number;
}

export type Span = "1s" | "10s" | "60s";

export interface RuleStats {
    name: string;
    totals: Counts;
    rates: Record<Span, Counts>;
}

export type Facts = Record<string, unknown>;

export interface Stats {
    at: Time;
    totals: Counts;
    rates: Record<Span, Counts>;
    rules: RuleStats[];
    rules_total?: number;
    segment: Facts | null;
    store: Facts | null;
    host: Facts | null;
    reloads: Facts | null;
}

export interface History {
    step: number;
    start: Time;
    series: Record<keyof Counts, (number | null)[]>;
}

export interface HotKey {
    rule: string;
    key: string;
    count: number;
    error: number;
}

export interface NearKey {
    rule: string;
    key: string;
    used: number;
    limit: number;
}

export interface UsageBar {
    from: number;
    to: number | null;
    keys: number;
}

export interface NearKeys {
    items: NearKey[];
    histogram?: UsageBar[];
}

export interface KeyCounter {
    name: string;
    limit: number | null;
    used: number;
    remaining: number;
    reset_after: number | null;
    algorithm?: string;
}

export interface KeyState {
    rule: string;
    key: string;
    blocked_until: Time | null;
    counters: KeyCounter[];
}

export interface Advice {
    rule: string;
    kind: string;
    summary: string;
    figures?: Facts;
    proposal?: string;
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
