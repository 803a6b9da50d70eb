/* Documents in the database. */
#include "control/call.h"

#include <stdlib.h>
#include <stdio.h>

static enum weir__document_kind kind_of(weir_text name)
{
    return weir__text_is(name, "rule")     ? WEIR__KIND_RULE
           : weir__text_is(name, "domain") ? WEIR__KIND_DOMAIN
                                           : WEIR__KIND_SETTINGS;
}

void weir__fold(char *text)
{
    for (; *text; text++)
        *text = (char)weir__lower(*text);
}

bool weir__fail_no_document(struct weir__call *call)
{
    return weir__fail(call, 404, "no_document", "there is no document of this name");
}

struct weir__stored weir__stored_find(struct weir__db *db, const char *name)
{
    struct weir__stored found = {.version = 0};
    if (strlen(name) >= sizeof found.name)
        return found; /* no name is so long */
    snprintf(found.name, sizeof found.name, "%s", name);
    weir__db_run(db, "SELECT kind, version, deleted, enforced_version, shadow_version FROM documents WHERE name = $1",
                 WEIR__S(name));
    if (weir__db_next(db)) {
        found.kind = kind_of(weir__db_text(db, 0));
        found.version = weir__db_number(db, 1);
        found.deleted = weir__db_number(db, 2) != 0;
        found.enforced = weir__db_number(db, 3);
        found.shadow = weir__db_number(db, 4);
    }
    return found;
}

const char *weir__stored_text(struct weir__call *call, const char *name, int64_t version)
{
    weir__db_run(call->db, "SELECT text FROM versions WHERE name = $1 AND version = $2 AND deleted = 0", WEIR__S(name),
                 WEIR__N(version));
    return weir__db_next(call->db) ? weir__call_copy(call, weir__db_text(call->db, 0)) : NULL;
}

void weir__stored_add(struct weir__call *call, const struct weir__document *document, int64_t version,
                      const char *reason, bool deleted)
{
    char folded[WEIR__DOCUMENT_NAME + WEIR__DOCUMENT_SUMMARY + 2];
    snprintf(folded, sizeof folded, "%s %s", document->name, document->summary);
    weir__fold(folded);
    weir__db_run(call->db,
                 "INSERT INTO documents (name, kind, version, deleted, author, at, summary, folded)"
                 " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET version = excluded.version,"
                 " deleted = excluded.deleted, author = excluded.author, at = excluded.at, summary = excluded.summary,"
                 " folded = excluded.folded",
                 WEIR__S(document->name), WEIR__S(weir__kind_name(document->kind)), WEIR__N(version), WEIR__N(deleted),
                 WEIR__S(call->who), WEIR__N(call->now_ms), WEIR__S(document->summary), WEIR__S(folded));
    weir__db_run(call->db,
                 "INSERT INTO versions (name, version, text, author, at, reason, deleted)"
                 " VALUES ($1, $2, $3, $4, $5, $6, $7)",
                 WEIR__S(document->name), WEIR__N(version), WEIR__T(document->text), WEIR__S(call->who),
                 WEIR__N(call->now_ms), WEIR__S(reason), WEIR__N(deleted));
}

void weir__stored_set_stage(struct weir__db *db, const struct weir__stored *document)
{
    weir__db_run(db, "UPDATE documents SET enforced_version = $1, shadow_version = $2 WHERE name = $3",
                 WEIR__N_OR_NULL(document->enforced), WEIR__N_OR_NULL(document->shadow), WEIR__S(document->name));
}

void weir__audit(struct weir__call *call, const char *action, const char *object, json_t *details)
{
    char *text = details ? json_dumps(details, JSON_COMPACT) : NULL;
    const char *address = call->request->address ? call->request->address : "";
    weir__db_run(call->db,
                 "INSERT INTO audit (at, who, action, object, details, address) VALUES ($1, $2, $3, $4, $5, $6)",
                 WEIR__N(call->now_ms), WEIR__S(call->who), WEIR__S(action), WEIR__S(object),
                 WEIR__S(text ? text : "{}"), WEIR__S(address));
    free(text);
    json_decref(details);
}

/* ---- Sets ---- */

/* Ordered by kind (settings, rules, domains), then by name, the enforced version before the shadow. */
#define SET_OF(staged)                                                                                                 \
    "SELECT d.name, d.kind, v.text, CASE v.version WHEN s.shadow_version THEN 1 ELSE 0 END AS shadow"                  \
    " FROM " staged " s JOIN documents d ON d.name = s.name"                                                           \
    " JOIN versions v ON v.name = s.name AND v.version IN (s.enforced_version, s.shadow_version)"                      \
    " ORDER BY CASE d.kind WHEN 'settings' THEN 0 WHEN 'rule' THEN 1 ELSE 2 END, d.name, shadow"

void weir__set_of(struct weir__db *db, int64_t revision, struct weir__set *set)
{
    static const char now[] = SET_OF("documents");
    static const char then[] =
        SET_OF("(SELECT c.name, c.enforced_version, c.shadow_version FROM revision_changes c WHERE c.revision ="
               " (SELECT max(x.revision) FROM revision_changes x WHERE x.name = c.name AND x.revision <= $1))");
    weir__db_run_with(db, revision ? then : now, &WEIR__N(revision), revision ? 1 : 0);
    while (weir__db_next(db))
        weir__set_add(set, weir__db_text(db, 0).data, kind_of(weir__db_text(db, 1)), weir__db_text(db, 2),
                      weir__db_number(db, 3) != 0);
    if (!weir__set_finish(set) && !db->error)
        db->error = WEIR__DB_MEMORY;
}
