/* All requests go through request(): same origin, session by cookie, errors as Failure. */
import type { Problem, Session } from "./types";

export class Failure extends Error {
    constructor(readonly status: number, readonly code: string, message: string, readonly problems: Problem[],
        readonly retryAfter: number) {
        super(message);
    }
}

export interface Reply<T> {
    status: number;
    body: T;
    etag: string;
}

interface RequestOptions {
    method?: string;
    json?: unknown;
    yaml?: string;
    ifMatch?: string;
    signal?: AbortSignal;
}

type Expired = () => void;
let onExpired: Expired = () => undefined;
export function whenExpired(call: Expired): void {
    onExpired = call;
}

export let session: Session | null = null;
export function setSession(now: Session | null): void {
    session = now;
}

const rank = { viewer: 0, editor: 1, operator: 2 };
/* What editors may do is about rules: nobody may with rules in files. */
export function may(role: keyof typeof rank): boolean {
    return session !== null && rank[session.role] >= rank[role] && !(role === "editor" && session.rules === "files");
}

interface ErrorBody {
    error?: { code?: string; message?: string; field?: string | null; errors?: Problem[] };
    errors?: Problem[];
}

function failure(status: number, body: unknown, retryAfter: string | null): Failure {
    const reply = (body && typeof body === "object" ? body : {}) as ErrorBody;
    const problems = reply.error?.errors ?? reply.errors ?? [];
    const field = reply.error?.field ? `${reply.error.field}: ` : "";
    const message = reply.error?.message ? field + reply.error.message : problems[0]?.message ?? `the server replied ${status}`;
    return new Failure(status, reply.error?.code ?? String(status), message, problems, Number(retryAfter) || 0);
}

async function read(response: Response): Promise<unknown> {
    const text = await response.text();
    if (!text || !(response.headers.get("content-type") ?? "").includes("json")) return text;
    try {
        return JSON.parse(text);
    } catch {
        throw new Failure(response.status, "format", "the server's reply is not JSON", [], 0);
    }
}

export async function request<T>(path: string, options: RequestOptions = {}): Promise<Reply<T>> {
    const headers: Record<string, string> = { Accept: "application/json" };
    let body: string | undefined;
    if (options.json !== undefined) {
        headers["Content-Type"] = "application/json";
        body = JSON.stringify(options.json);
    } else if (options.yaml !== undefined) {
        headers["Content-Type"] = "application/yaml";
        body = options.yaml;
    }
    if (options.ifMatch) headers["If-Match"] = options.ifMatch;
    let response: Response;
    try {
        response = await fetch(path, {
            method: options.method ?? "GET", headers, body, credentials: "same-origin", cache: "no-store",
            redirect: "error", signal: options.signal,
        });
    } catch (error) {
        if ((error as Error).name === "AbortError") throw error;
        throw new Failure(0, "unreachable", "the server cannot be reached", [], 0);
    }
    const content = await read(response);
    if (response.status === 401 && path !== "/v1/session") onExpired();
    if (!response.ok) throw failure(response.status, content, response.headers.get("retry-after"));
    return { status: response.status, body: content as T, etag: response.headers.get("etag") ?? "" };
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await request<T>(path, { signal })).body;
}

/* The browser would resolve "." and "..", even percent-encoded, and request another path. */
export function segment(text: string): string {
    if (text === "." || text === "..") throw new Failure(0, "name", `“${text}” cannot be part of an address`, [], 0);
    return encodeURIComponent(text);
}

export function query(values: Record<string, string | number | null | undefined>): string {
    const all = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) {
        if (value !== null && value !== undefined && value !== "") all.set(name, String(value));
    }
    const text = all.toString();
    return text ? `?${text}` : "";
}

export function errorText(error: unknown): string {
    return error instanceof Error ? error.message : String(error);
}
