/* Unsaved texts, which outlive a reload and the end of a session, in this tab only. */
interface Unsaved {
    text: string;
    etag: string; /* of the version that was edited */
}

const prefix = "weir unsaved ";

export function keep(name: string, text: string, etag: string): void {
    try {
        sessionStorage.setItem(prefix + name, JSON.stringify({ text, etag }));
    } catch {
        /* No storage: the text is still in the page. */
    }
}

export function kept(name: string): Unsaved | null {
    try {
        const found = JSON.parse(sessionStorage.getItem(prefix + name) ?? "null") as Unsaved | null;
        return found && typeof found.text === "string" ? found : null;
    } catch {
        return null;
    }
}

/* Names of the documents with unsaved texts. */
export function unsaved(): string[] {
    try {
        return Object.keys(sessionStorage).filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));
    } catch {
        return [];
    }
}

export function forget(name: string): void {
    try {
        sessionStorage.removeItem(prefix + name);
    } catch {
        /* No storage: nothing was kept. */
    }
}
