/* The stand-in's rules: as much of the rules service as the dashboard's tests need, in memory. */

const known = ["name", "match", "key", "limit", "window", "algorithm", "align", "burst", "soft", "shadow", "cost", "on_limit", "domain", "descriptors",
    "identity", "allow", "block", "priority", "consistency"];

/* Looks at single lines only: `field: value`. */
export function lint(text) {
    const errors = [];
    const seen = {};
    text.split("\n").forEach((line, i) => {
        if (/^\s*(#|$)/.test(line)) return;
        const found = /^([a-z_]+):\s*(.*)$/.exec(line);
        if (!found) {
            if (!/^\s/.test(line)) errors.push({ field: "", line: i + 1, column: 1, message: "expected a field and a colon" });
            return;
        }
        const [, field, value] = found;
        seen[field] = value;
        const at = { field, line: i + 1, column: field.length + 3 };
        if (!known.includes(field)) {
            const near = known.find((one) => [...field].filter((c) => one.includes(c)).length >= one.length - 1 && one[0] === field[0]);
            errors.push({ ...at, column: 1, message: `unknown field '${field}'`, suggestion: near ? `did you mean '${near}'?` : undefined });
        } else if (field === "limit" && !/^(\d+|unlimited|\{.*\})$/.test(value)) {
            errors.push({ ...at, message: `expected a number, 'unlimited' or a map of tiers, not '${value}'` });
        } else if (field === "window" && !/^\d+(\.\d+)?(ms|s|m|h|d|w|mo|y)?$/.test(value)) {
            errors.push({ ...at, message: `expected a duration such as 30s or 1h, not '${value}'` });
        }
    });
    if (!seen.domain && !seen.identity) {
        for (const field of ["name", "limit", "window"]) {
            if (!seen[field]) errors.push({ field, line: 1, column: 1, message: `'${field}' is needed` });
        }
    }
    return { errors, seen };
}

export class Rules {
    documents = new Map();
    revisions = [];

    row(document) {
        const { name, versions, enforced, shadow } = document;
        const last = versions[versions.length - 1];
        const stage = last.version === enforced ? "enforced" : last.version === shadow ? "shadow" : "draft";
        return {
            name, kind: "rule", version: last.version, stage, enforced_version: enforced, shadow_version: shadow, author: last.author, at: last.at,
            summary: `${lint(last.text).seen.limit} per ${lint(last.text).seen.window}`,
        };
    }

    save(name, text, author, reason) {
        const document = this.documents.get(name) ?? { name, versions: [], enforced: null, shadow: null };
        this.documents.set(name, document);
        document.versions.push({ version: document.versions.length + 1, text, author, reason, at: new Date().toISOString() });
        return document;
    }

    text(document, version) {
        return document.versions.find((one) => one.version === version)?.text ?? "";
    }

    publish(document, stage, version, who, reason) {
        if (stage === "draft") {
            if (!version || document.enforced === version) document.enforced = null;
            if (!version || document.shadow === version) document.shadow = null;
        } else {
            document[stage] = version;
            if (stage === "enforced" && document.shadow === version) document.shadow = null;
        }
        return this.seal(who, reason);
    }

    seal(who, reason) {
        const stages = [...this.documents.values()].map((one) => [one.name, one.enforced, one.shadow]);
        const text = stages.filter((one) => one[1]).map(([name, version]) => this.text(this.documents.get(name), version)).join("---\n");
        this.revisions.push({ revision: this.revisions.length + 1, at: new Date().toISOString(), author: who, reason, text, stages });
        return this.revisions.length;
    }

    back(number, who, reason) {
        const wanted = this.revisions[number - 1];
        for (const document of this.documents.values()) document.enforced = document.shadow = null;
        for (const [name, enforced, shadow] of wanted.stages) {
            const document = this.documents.get(name);
            if (document) Object.assign(document, { enforced, shadow });
        }
        return this.seal(who, reason);
    }
}
