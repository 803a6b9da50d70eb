/* Shared by all views. */
import { errorText, session } from "./api";
import { h } from "./dom";
import { when } from "./format";
import type { Time } from "./types";

export interface OpenView {
    title: string;
    element: HTMLElement;
    close?: () => void;
    dirty?: () => boolean; /* has unsaved input */
}

export interface Route {
    parts: string[]; /* path segments after #/, decoded */
    query: URLSearchParams;
}

export type View = (route: Route) => OpenView;

const columnLetters = 18;

/* Names are untrusted: invisible characters, and those that change the direction of text, are shown as escapes. */
export function visible(text: string): string {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
        (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/* Words that are longer than a column may break after separators, or anywhere; others, and figures with their units, stay whole. */
export function name(text: string): HTMLElement {
    const words = visible(text).match(/(?:\S|(?<=\d)\u00a0(?=\p{L}))+\s*|\s+/gu) ?? [];
    const pieces = words.flatMap((word) => (word.length > columnLetters ? word.match(/.{1,18}?[:/.,_=&?@-]+\s*|.{1,18}/gs)! : word));
    return h("bdi", { class: "name" }, pieces.map((piece, i) => [i > 0 && h("wbr"), piece]));
}

/* A time, which breaks only between its date and its clock, and only where there is little room. */
export function moment(time: Time | null | undefined): HTMLElement {
    return h("span", { class: "moment" }, when(time).split(" ").map((part, i) => [i > 0 && " ", h("span", { class: "nowrap" }, part)]));
}

export function ruleLink(rule: string): HTMLElement {
    return h("a", { href: `#/rules/${encodeURIComponent(rule)}` }, name(rule));
}

export function keyLink(rule: string, key: string): HTMLElement {
    return h("a", { href: `#/keys?rule=${encodeURIComponent(rule)}&key=${encodeURIComponent(key)}` }, name(key));
}

export function badge(text: string): HTMLElement {
    return h("span", { class: `badge ${text.replace(/[^a-z]/g, "-")}` }, text);
}

export function problem(error: unknown): HTMLElement {
    return h("p", { class: "error", role: "alert" }, errorText(error));
}

export function heading(text: string, ...more: (Node | string)[]): HTMLElement {
    return h("div", { class: "view-head" }, h("h1", { tabindex: "-1" }, name(text)), ...more);
}

/* Where a document of rules in files is. */
export function place(document: { file?: string; line?: number }): HTMLElement | string {
    return document.file ? h("span", { class: "place" }, name(`${document.file}:${document.line ?? 1}`)) : "";
}

/* Says that rules are not changed here; null: they are. */
export function readOnly(): HTMLElement | null {
    return session?.rules !== "files" ? null : h("p", { class: "notice read-only", role: "note" },
        "Read-only: the rules are those of files, and are changed there.");
}

/* Pages of a list whose replies name only the next page; earlier ones are remembered here. */
export class Pager {
    readonly element: HTMLElement;
    private readonly earlier: HTMLButtonElement;
    private readonly later: HTMLButtonElement;
    private before: string[] = [];
    private following = "";
    after = "";

    constructor(label: string, load: () => void) {
        this.earlier = h("button", { type: "button", onclick: () => {
            this.after = this.before.pop() ?? "";
            load();
        } }, "Previous");
        this.later = h("button", { type: "button", onclick: () => {
            this.before.push(this.after);
            this.after = this.following;
            load();
        } }, "Next");
        this.element = h("nav", { class: "pager", "aria-label": label, hidden: true }, this.earlier, this.later);
    }

    restart(): void {
        this.before = [];
        this.after = "";
    }

    loaded(next: string | number | null | undefined): void {
        this.following = next === null || next === undefined ? "" : String(next);
        this.earlier.disabled = this.before.length === 0;
        this.later.disabled = this.following === "";
        this.element.hidden = this.earlier.disabled && this.later.disabled;
    }
}
