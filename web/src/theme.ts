/* Light, dark, or the system's setting. */
import { repaintCharts } from "./charts";

export type Theme = "auto" | "light" | "dark";
const key = "weir theme";

export function theme(): Theme {
    try {
        const kept = localStorage.getItem(key);
        return kept === "light" || kept === "dark" ? kept : "auto";
    } catch {
        return "auto";
    }
}

export function setTheme(wanted: Theme): void {
    try {
        localStorage.setItem(key, wanted);
    } catch {
        /* No storage: the choice lasts until the page is closed. */
    }
    document.documentElement.dataset.theme = wanted;
    repaintCharts();
}

export function startTheme(): void {
    document.documentElement.dataset.theme = theme();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaintCharts);
}
