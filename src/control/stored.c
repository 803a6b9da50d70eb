/* Documents in the database. */
#include "control/call.h"

#include <stdlib.h>
#include <stdio.h>

static enum weir__document_kind kind_of(weir_text name)
{
    return weir__text_is(name, "rule")     ? WEIR__RULE_DOCUMENT
           : weir__text_is(name, "domain") ? WEIR__DOMAIN_DOCUMENT
                                           : WEIR__SETTINGS_DOCUMENT;
}

static int keep_document(void *context, const struct weir__db_row *row)
{
    struct weir__stored *found = context;
    found->kind = kind_of(weir__row_text(row, 0));
    found->version = weir__row_number(row, 1);
    found->deleted = weir__row_number(row, 2) != 0;
    found->enforced = weir__row_number(row, 3);
    found->shadow = weir__row_number(row, 4);
    return 0;
}

int weir__fail_no_document(struct weir__call *call)
{
    return weir__fail(call, 404, "no_document", "there is no document of this name", NULL);
}

int weir__stored_find(struct weir__db *db, const char *name, struct weir__stored *found)
{
    *found = (struct weir__stored){.version = 0};
    snprintf(found->name, sizeof found->name, "%s", name);
    if (strlen(name) >= sizeof found->name)
        return 0; /* no name is so long */
    return weir__db_run(
        db, "SELECT kind, version, deleted, enforced_version, shadow_version FROM documents WHERE name = $1",
        WEIR__DB_VALUES(WEIR__S(name)), keep_document, found);
}

static int keep_text(void *context, const struct weir__db_row *row)
{
    weir_text text = weir__row_text(row, 0);
    char *copy = *(char **)context = strndup(text.data, text.len);
    return copy ? 0 : WEIR__DB_MEMORY;
}

int weir__stored_text(struct weir__db *db, const char *name, int64_t version, char **text)
{
    *text = NULL;
    return weir__db_run(db, "SELECT text FROM versions WHERE name = $1 AND version = $2 AND deleted = 0",
                        WEIR__DB_VALUES(WEIR__S(name), WEIR__N(version)), keep_text, text);
}

int weir__stored_add(struct weir__call *call, const struct weir__document *document, int64_t version,
                     const char *reason, bool deleted)
{
    char folded[WEIR__DOCUMENT_NAME + WEIR__DOCUMENT_SUMMARY + 2];
    snprintf(folded, sizeof folded, "%s %s", document->name, document->summary);
    for (char *c = folded; *c; c++)
        *c = (char)weir__lower(*c);
    int error = weir__db_exec(
        call->db,
        "INSERT INTO documents (name, kind, version, deleted, author, at, summary, folded)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET version = excluded.version,"
        " deleted = excluded.deleted, author = excluded.author, at = excluded.at, summary = excluded.summary,"
        " folded = excluded.folded",
        WEIR__S(document->name), WEIR__S(weir__kind_name(document->kind)), WEIR__N(version), WEIR__N(deleted),
        WEIR__S(call->who), WEIR__N(call->now_ms), WEIR__S(document->summary), WEIR__S(folded));
    return error ? error
                 : weir__db_exec(call->db,
                                 "INSERT INTO versions (name, version, text, author, at, reason, deleted)"
                                 " VALUES ($1, $2, $3, $4, $5, $6, $7)",
                                 WEIR__S(document->name), WEIR__N(version), WEIR__T(document->text), WEIR__S(call->who),
                                 WEIR__N(call->now_ms), WEIR__S(reason), WEIR__N(deleted));
}

int weir__stored_set_stage(struct weir__db *db, const struct weir__stored *document)
{
    return weir__db_exec(db, "UPDATE documents SET enforced_version = $1, shadow_version = $2 WHERE name = $3",
                         document->enforced ? WEIR__N(document->enforced) : WEIR__NOTHING,
                         document->shadow ? WEIR__N(document->shadow) : WEIR__NOTHING, WEIR__S(document->name));
}

weir_text weir__stage_name(int64_t version, int64_t enforced, int64_t shadow)
{
    return version == enforced ? WEIR__TEXT("enforced")
           : version == shadow ? WEIR__TEXT("shadow")
                               : WEIR__TEXT("draft");
}

json_t *weir__stored_stage(int64_t version, int64_t enforced, int64_t shadow)
{
    return weir__text_json(weir__stage_name(version, enforced, shadow));
}

int weir__audit(struct weir__call *call, const char *action, const char *object, json_t *details)
{
    char *text = details ? json_dumps(details, JSON_COMPACT) : NULL;
    const char *address = call->request->address ? call->request->address : "";
    int error = weir__db_exec(call->db,
                              "INSERT INTO audit (at, who, action, object, details, address)"
                              " VALUES ($1, $2, $3, $4, $5, $6)",
                              WEIR__N(call->now_ms), WEIR__S(call->who), WEIR__S(action), WEIR__S(object),
                              WEIR__S(text ? text : "{}"), WEIR__S(address));
    free(text);
    json_decref(details);
    return error;
}

/* ---- Sets ---- */

static int add_to_set(void *context, const struct weir__db_row *row)
{
    weir__set_add(context, weir__row_text(row, 0).data, kind_of(weir__row_text(row, 1)), weir__row_text(row, 2),
                  weir__row_number(row, 3) != 0);
    return 0;
}

/* Ordered by kind (settings, rules, domains), then by name, the enforced version before the shadow. */
#define SET_OF(staged)                                                                                                 \
    "SELECT d.name, d.kind, v.text, 0 AS shadow, CASE d.kind WHEN 'settings' THEN 0 WHEN 'rule' THEN 1 ELSE 2 END"     \
    " FROM " staged " s JOIN documents d ON d.name = s.name"                                                           \
    " JOIN versions v ON v.name = s.name AND v.version = s.enforced_version"                                           \
    " UNION ALL "                                                                                                      \
    "SELECT d.name, d.kind, v.text, 1, CASE d.kind WHEN 'settings' THEN 0 WHEN 'rule' THEN 1 ELSE 2 END"               \
    " FROM " staged " s JOIN documents d ON d.name = s.name"                                                           \
    " JOIN versions v ON v.name = s.name AND v.version = s.shadow_version"                                             \
    " ORDER BY 5, 1, 4"

int weir__set_of(struct weir__db *db, int64_t revision, struct weir__set *set)
{
    static const char now[] = SET_OF("documents");
    static const char then[] =
        SET_OF("(SELECT c.name, c.enforced_version, c.shadow_version FROM revision_changes c WHERE c.revision ="
               " (SELECT max(x.revision) FROM revision_changes x WHERE x.name = c.name AND x.revision <= $1))");
    int error = revision ? weir__db_run(db, then, WEIR__DB_VALUES(WEIR__N(revision)), add_to_set, set)
                         : weir__db_run(db, now, NULL, 0, add_to_set, set);
    if (!error && !weir__set_finish(set))
        error = WEIR__DB_MEMORY;
    return error;
}
