/* The frame around the views: session, navigation, and the view that the address names. */
import { Failure, request, may, session, setSession, whenExpired, errorText } from "./api";
import { announce, h, replace, setText } from "./dom";
import { confirm } from "./dialog";
import { whenHostChosen } from "./hosts";
import { logIn, logInByLink } from "./login";
import { listShortcuts, startShortcuts } from "./shortcuts";
import { type Theme, setTheme, startTheme, theme } from "./theme";
import type { Session } from "./types";
import { type OpenView, type View, type Route, heading, problem, visible } from "./view";
import { advice } from "./views/advice";
import { audit } from "./views/audit";
import { check } from "./views/check";
import { denials } from "./views/denials";
import { keys } from "./views/keys";
import { overview } from "./views/overview";
import { published } from "./views/published";
import { queue } from "./views/queue";
import { newRule, rule } from "./views/rule";
import { rules } from "./views/rules";
import { shadow } from "./views/shadow";
import { tokens } from "./views/tokens";
import { forget, unsaved } from "./views/unsaved";

const views: Record<string, View> = { "": overview, rules, shadow, keys, denials, check, queue, advice, audit, tokens, published, new: newRule };
const main = document.getElementById("main") as HTMLElement;
let shown: OpenView | null = null;

function where(): Route {
    const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const parts = path.split("/").map((part) => {
        try {
            return decodeURIComponent(part);
        } catch {
            return part;
        }
    });
    return { parts, query: new URLSearchParams(query) };
}

function open(focus: boolean): void {
    shown?.close?.();
    const place = where();
    const view = place.parts[0] === "rules" && place.parts[1] ? rule : views[place.parts[0] ?? ""];
    try {
        shown = view ? view(place) : { title: "Not found", element: h("div", {}, heading("Not found"), problem("There is no such page.")) };
    } catch (error) {
        shown = { title: "Error", element: h("div", {}, heading("Error"), problem(error)) };
    }
    document.title = `${shown.title} · weir`;
    replace(main, shown.element);
    for (const link of document.querySelectorAll<HTMLAnchorElement>("#places a")) {
        const here = (link.hash.replace(/^#\/?/, "") || "") === (place.parts[0] ?? "");
        if (here) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    if (focus) {
        window.scrollTo(0, 0);
        (main.querySelector("h1") ?? main).focus();
    }
}

function drawWho(): void {
    const box = document.getElementById("who") as HTMLElement;
    replace(box, session ? [h("span", {}, h("bdi", {}, visible(session.who)), ` (${session.role})`),
        h("button", { type: "button", class: "quiet", onclick: () => void logOut() }, "Log out")] : null);
    for (const link of document.querySelectorAll<HTMLElement>("[data-role=operator]")) link.hidden = !may("operator");
}

/* Logging out: requests that are still under way will be refused, which is not reported. */
let leaving = false;

/* Also deletes unsaved texts from this browser. */
async function logOut(): Promise<void> {
    const act = async () => {
        leaving = true;
        try {
            await request("/v1/session", { method: "DELETE" });
        } catch (error) {
            leaving = false;
            throw error;
        }
        unsaved().forEach(forget);
    };
    const lost = unsaved();
    try {
        if (lost.length === 0) await act();
        else if (!await confirm({ title: "Log out", danger: true, confirm: "Log out", act,
            body: [h("p", {}, "Changes that are not saved are dropped: ", lost.map((name) => visible(name) || "a new rule").join(", "))] })) return;
    } catch (error) {
        announce(`Not logged out: ${errorText(error)}`, "bad");
        return;
    }
    setSession(null);
    shown?.close?.();
    shown = null;
    main.replaceChildren();
    drawWho();
    await logIn("You are logged out.");
    leaving = false;
    drawWho();
    open(true);
}

function startFrame(): void {
    const choice = document.getElementById("theme") as HTMLSelectElement;
    choice.value = theme();
    choice.addEventListener("change", () => setTheme(choice.value as Theme));
    document.getElementById("shortcuts")?.addEventListener("click", listShortcuts);
    document.getElementById("skip")?.addEventListener("click", (event) => {
        event.preventDefault(); /* the address names the view */
        main.focus();
    });
}

async function start(): Promise<void> {
    startTheme();
    startFrame();
    startShortcuts();
    let link = "none";
    try {
        link = await logInByLink();
        if (link !== "done") setSession((await request<Session>("/v1/session")).body);
    } catch (error) {
        if (!(error instanceof Failure) || error.status !== 401) {
            setText(main, `weir does not reply: ${errorText(error)}`);
            setTimeout(() => location.reload(), 5000);
            return;
        }
        await logIn(link === "refused" ? "This login link was used, or has expired." : "The dashboard needs a token.");
    }
    drawWho();
    whenExpired(() => {
        if (leaving) return;
        void logIn("Your session has ended. Log in to go on; nothing you typed is lost.").then(() => {
            drawWho();
            if (!shown?.dirty?.() && !document.querySelector("dialog[open]")) open(false);
        });
    });
    window.addEventListener("hashchange", () => open(true));
    whenHostChosen(() => {
        open(false);
        main.querySelector<HTMLElement>("[data-hosts]")?.focus();
    });
    open(false);
}

void start();
