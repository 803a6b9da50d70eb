import type { Time } from "./types";

/* Measured figures have at most three digits; counts and limits below 100,000 are exact. */
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 3 });
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

export function count(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (!Number.isInteger(value) && Math.abs(value) < 1000) return fine.format(value);
    return Math.abs(value) < 100000 ? whole.format(value) : short.format(value);
}

export function rate(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (Math.abs(value) < 100 && !Number.isInteger(value)) return `${value.toFixed(1)}/s`;
    return `${(value < 10000 ? fine : short).format(value)}/s`;
}

export function share(value: number): string {
    return Number.isFinite(value) ? percent.format(value) : "–";
}

/* Milliseconds since 1970; NaN if it is not a time. Numbers are seconds. */
export function millis(time: Time | null | undefined): number {
    if (time === null || time === undefined) return NaN;
    return typeof time === "number" ? time * 1000 : Date.parse(time);
}

export function when(time: Time | null | undefined): string {
    const at = millis(time);
    if (Number.isNaN(at)) return "–";
    const date = new Date(at);
    const two = (n: number) => String(n).padStart(2, "0");
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

/* No break between a figure and its unit. */
export function duration(seconds: number | null | undefined): string {
    if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
    if (seconds > 0 && seconds < 1e-6) return `${Math.round(seconds * 1e9)}\u00a0ns`;
    if (seconds > 0 && seconds < 1e-3) return `${fine.format(seconds * 1e6)}\u00a0µs`;
    if (seconds > 0 && seconds < 1) return `${Math.round(seconds * 1000)}\u00a0ms`;
    const units: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const parts: string[] = [];
    let left = Math.round(seconds);
    for (const [size, name] of units) {
        if (left >= size && parts.length < 2) {
            parts.push(`${Math.floor(left / size)}\u00a0${name}`);
            left %= size;
        }
    }
    return parts.join(" ") || "0\u00a0s";
}

/* "16 to 33 µs" */
export function durationRange(from: number, to: number): string {
    const units: [number, string][] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
    const [size, unit] = units.find(([least]) => to >= least) ?? units[3]!;
    return from > 0 ? `${rough.format(from / size)} to ${rough.format(to / size)} ${unit}` : `under ${rough.format(to / size)} ${unit}`;
}

export function bytes(value: number): string {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let size = value;
    let unit = 0;
    while (size >= 1024 && unit < units.length - 1) {
        size /= 1024;
        unit += 1;
    }
    return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)}\u00a0${units[unit]}`;
}

/* Formats a value of the server by the ending of its name: fill, size_bytes, lag_s, denied_percent, started_at. */
export function fact(name: string, value: unknown): string {
    if (value === null || value === undefined || value === "") return "–";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (Array.isArray(value)) return value.map((one) => fact(name, one)).join(", ");
    if (typeof value === "object") return JSON.stringify(value);
    if (/(^|_)at$/.test(name) || name === "since") return when(value as Time);
    if (typeof value !== "number") return String(value);
    if (/(_ratio|^fill|_share)$/.test(name)) return share(value);
    if (/(_bytes|^bytes)$/.test(name)) return bytes(value);
    if (/_percent$/.test(name)) return share(value / 100);
    if (/_ms$/.test(name)) return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
    if (/(_seconds|_s|^uptime)$/.test(name)) return duration(value);
    return count(value);
}

export function factLabel(name: string): string {
    const label = name.replace(/_(bytes|ms|seconds|s|ratio|percent|at)$/, "").replaceAll("_", " ");
    return label.charAt(0).toUpperCase() + label.slice(1);
}
