/* Every request goes through ask(): same origin, session by cookie, errors as Failure. */
import type { Problem, Session } from "./types";

export class Failure extends Error {
    constructor(readonly status: number, readonly code: string, message: string, readonly problems: Problem[],
        readonly retryAfter: number) {
        super(message);
    }
}

export interface Answer<T> {
    status: number;
    body: T;
    etag: string;
}

interface Request {
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
export function may(role: keyof typeof rank): boolean {
    return session !== null && rank[session.role] >= rank[role];
}

interface ErrorBody {
    error?: { code?: string; message?: string; errors?: Problem[] };
    errors?: Problem[];
}

function failure(status: number, body: unknown, retryAfter: string | null): Failure {
    const said = (body && typeof body === "object" ? body : {}) as ErrorBody;
    const problems = said.error?.errors ?? said.errors ?? [];
    const message = said.error?.message ?? problems[0]?.message ?? `the server answered ${status}`;
    return new Failure(status, said.error?.code ?? String(status), message, problems, Number(retryAfter) || 0);
}

async function read(response: Response): Promise<unknown> {
    const text = await response.text();
    if (!text || !(response.headers.get("content-type") ?? "").includes("json")) return text;
    try {
        return JSON.parse(text);
    } catch {
        throw new Failure(response.status, "format", "the server's answer is no JSON", [], 0);
    }
}

export async function ask<T>(path: string, request: Request = {}): Promise<Answer<T>> {
    const headers: Record<string, string> = { Accept: "application/json" };
    let body: string | undefined;
    if (request.json !== undefined) {
        headers["Content-Type"] = "application/json";
        body = JSON.stringify(request.json);
    } else if (request.yaml !== undefined) {
        headers["Content-Type"] = "application/yaml";
        body = request.yaml;
    }
    if (request.ifMatch) headers["If-Match"] = request.ifMatch;
    let response: Response;
    try {
        response = await fetch(path, {
            method: request.method ?? "GET", headers, body, credentials: "same-origin", cache: "no-store",
            redirect: "error", signal: request.signal,
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
    return (await ask<T>(path, { signal })).body;
}

/* The browser would resolve these two, even percent-encoded, and ask for something else. */
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

export function words(error: unknown): string {
    return error instanceof Error ? error.message : String(error);
}
