/* weir rules publish and rollback. */
#include "cli/rules.h"

#include <inttypes.h>
#include <string.h>

bool weir__rules_stage(const struct weir__given *given, const char *option, bool draft)
{
    const char *stage = weir__option(given, option);
    if (stage &&
        (strcmp(stage, "shadow") == 0 || strcmp(stage, "enforced") == 0 || (draft && strcmp(stage, "draft") == 0)))
        return true;
    fprintf(stderr, "weir %s: --%s shadow%s enforced%s\n", given->command, option, draft ? "," : " or",
            draft ? " or draft" : "");
    return false;
}

void weir__rules_want(json_t **documents, const char *name, const char *stage, int64_t version)
{
    json_t *wanted = json_pack("{s:s, s:s, s:o*}", "name", name, "stage", stage, "version",
                               version > 0 ? json_integer(version) : NULL);
    if (json_array_append_new(*documents, wanted) == 0)
        return;
    json_decref(*documents);
    *documents = NULL;
}

int weir__rules_put(const struct weir__given *given, json_t *documents, struct weir__service_call *call)
{
    *call = (struct weir__service_call){.method = "POST"};
    call->json_body = json_pack("{s:o, s:s*}", "documents", documents, "reason", weir__option(given, "reason"));
    bool sent = weir__send(given, call, "/v1/revisions");
    const char *code = weir__member(json_object_get(call->json, "error"), "code");
    if (sent && call->status == 409 && strcmp(code, "unchanged") == 0)
        return 0;
    return sent && call->status == 201 && call->json ? 1 : -1;
}

/* Reports the outcome for each document; `put` is the result of weir__rules_put. */
static void report_published(const struct weir__given *given, const struct weir__service_call *call, int put,
                             json_t *published)
{
    const json_t *documents = json_object_get(call->json, "documents");
    for (size_t i = 0; i < given->argument_count; i++) {
        const char *name = given->arguments[i], *stage = weir__option(given, "stage");
        bool changed = put > 0 && json_is_true(json_object_get(json_array_get(documents, i), "changed"));
        if (given->json)
            json_array_append_new(published,
                                  json_pack("{s:s, s:s, s:b}", "name", name, "stage", stage, "changed", changed));
        else
            weir__print_line(stdout, "%s: %s", name, changed ? stage : "unchanged");
    }
}

int weir__cmd_rules_publish(struct weir__given *given)
{
    int64_t version = weir__option_number(given, "version");
    if (version < 0 || !weir__rules_stage(given, "stage", true))
        return 2;
    if (version > 0 && given->argument_count > 1) {
        fprintf(stderr, "weir %s: --version is for one document\n", given->command);
        return 2;
    }
    json_t *wanted = json_array(), *published = json_array();
    for (size_t i = 0; i < given->argument_count; i++)
        weir__rules_want(&wanted, given->arguments[i], weir__option(given, "stage"), version);
    struct weir__service_call call;
    int put = weir__rules_put(given, wanted, &call);
    bool good = put == 0 || (call.status && weir__is_good(given, &call));
    if (good)
        report_published(given, &call, put, published);
    json_t *revision = put > 0 ? json_object_get(call.json, "revision") : NULL;
    if (given->json) {
        good &=
            weir__print_json(json_pack("{s:b, s:O, s:O?}", "ok", good, "published", published, "revision", revision));
    } else if (revision) {
        printf("revision %" JSON_INTEGER_FORMAT " is published\n", json_integer_value(revision));
    }
    json_decref(published);
    weir__call_free(&call);
    return good ? 0 : 1;
}

/* ---- rollback ---- */

static int roll_back_revision(struct weir__given *given, int64_t number)
{
    struct weir__service_call call = {.method = "POST",
                                      .json_body = json_pack("{s:s*}", "reason", weir__option(given, "reason"))};
    bool good = weir__call(given, &call, weir__path("/v1/revisions/%/rollback", weir__digits(number)));
    if (good && given->json)
        good = weir__print_json(json_incref(call.json));
    else if (good)
        printf("revision %" PRId64 " is published, as revision %" PRId64 " was\n",
               weir__member_int(call.json, "revision"), number);
    weir__call_free(&call);
    return good ? 0 : 1;
}

static int roll_back_document(struct weir__given *given, const char *name, int64_t to)
{
    struct weir__service_call call = {
        .method = "POST",
        .about = name,
        .json_body = json_pack("{s:I, s:s*}", "version", (json_int_t)to, "reason", weir__option(given, "reason"))};
    bool good = weir__call(given, &call, weir__path("/v1/rules/%/rollback", name));
    int64_t version = weir__member_int(call.json, "version"), revision = 0;
    weir__call_free(&call);
    if (good && !given->json)
        weir__print_line(stdout, "%s: v%" PRId64 " has the text of v%" PRId64 "%s", name, version, to,
                         weir__option(given, "publish") ? "" : "; it is not published: --publish enforced does that");
    if (good && weir__option(given, "publish")) {
        json_t *wanted = json_array();
        weir__rules_want(&wanted, name, weir__option(given, "publish"), version);
        good = weir__rules_put(given, wanted, &call) >= 0;
        call.about = name;
        if (!good && call.status)
            weir__is_good(given, &call);
        revision = weir__member_int(call.json, "revision");
        weir__call_free(&call);
        if (good && !given->json)
            printf("revision %" PRId64 " is published\n", revision);
    }
    if (good && given->json)
        good = weir__print_json(json_pack("{s:s, s:I, s:I, s:o}", "name", name, "version", (json_int_t)version, "of",
                                          (json_int_t)to, "revision", revision ? json_integer(revision) : json_null()));
    return good ? 0 : 1;
}

int weir__cmd_rules_rollback(struct weir__given *given)
{
    int64_t to = weir__option_number(given, "to"), revision = weir__option_number(given, "revision");
    const char *name = weir__argument(given, NULL), *publish = weir__option(given, "publish");
    if (to < 0 || revision < 0 || (publish && !weir__rules_stage(given, "publish", false)))
        return 2;
    if (name && to > 0 && revision == 0)
        return roll_back_document(given, name, to);
    if (!name && revision > 0 && to == 0 && !publish)
        return roll_back_revision(given, revision);
    fprintf(stderr, "weir %s: a document and --to with a version, or --revision alone\n", given->command);
    return 2;
}
