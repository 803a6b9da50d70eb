import { diffView } from "../diff";
import { h } from "../dom";
import { when } from "../format";
import type { RuleDocument } from "../types";
import { name } from "../view";

/* A concurrent change: the saved text beside the one in the editor. */
export function conflictPanel(theirs: RuleDocument, mine: string, keepMine: () => void, takeTheirs: () => void): HTMLElement {
    const side = (label: string, text: string) =>
        h("div", {}, h("h3", {}, label), h("pre", { class: "scroll", tabindex: "0", "aria-label": label }, text));
    return h("section", { class: "conflict", "aria-label": "Conflict" },
        h("h2", { tabindex: "-1" }, "This rule was changed by another user"),
        h("p", {}, `Version ${theirs.version} was saved by `, name(theirs.author), ` at ${when(theirs.at)}`,
            theirs.reason ? [": ", name(theirs.reason)] : "", ". Your text is kept, and nothing was overwritten."),
        h("div", { class: "sides" }, side("Theirs", theirs.text), side("Yours", mine)),
        diffView(theirs.text, mine, "From theirs to yours"),
        h("div", { class: "buttons" },
            h("button", { type: "button", onclick: takeTheirs }, "Take theirs"),
            h("button", { type: "button", class: "primary", onclick: keepMine }, "Go on with mine, based on theirs")));
}
