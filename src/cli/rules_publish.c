/* weir rules publish and rollback. */
#include "cli/rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 64 };

bool weir__rules_stage(const struct weir__command_line *given, enum weir__with option, bool draft)
{
    const char *stage = given->value[option];
    if (given->is[option] &&
        (strcmp(stage, "shadow") == 0 || strcmp(stage, "enforced") == 0 || (draft && strcmp(stage, "draft") == 0)))
        return true;
    fprintf(stderr, "weir %s: --%s shadow%s enforced%s\n", given->command,
            option == WEIR__WITH_STAGE ? "stage" : "publish", draft ? "," : " or", draft ? " or draft" : "");
    return false;
}

/* A body with the reason, if there is one. */
static json_t *with_reason(const struct weir__command_line *given, json_t *body)
{
    if (body && given->is[WEIR__WITH_REASON])
        json_object_set_new(body, "reason", json_string(given->value[WEIR__WITH_REASON]));
    return body;
}

static const char *error_code(const struct weir__service_reply *reply)
{
    return weir__member(json_object_get(reply->json, "error"), "code");
}

int weir__rules_put(const struct weir__command_line *given, json_t *documents, struct weir__service_reply *reply)
{
    json_t *body = documents ? with_reason(given, json_pack("{s:o}", "documents", documents)) : NULL;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    int result = -1;
    *reply = (struct weir__service_reply){0};
    if (text) {
        struct weir__service_request request = {
            .method = "POST", .path = "/v1/revisions", .body = text, .len = strlen(text)};
        bool sent = weir__service_call(given->service, &request, reply);
        if (sent && reply->status == 409 && strcmp(error_code(reply), "unchanged") == 0)
            result = 0;
        else if (sent && reply->status == 201 && reply->json)
            result = 1;
    } else {
        fprintf(stderr, "weir %s: no memory, or a text that is not UTF-8\n", given->command);
    }
    json_decref(body);
    free(text);
    return result;
}

void weir__rules_want(json_t **documents, const char *name, const char *stage, int64_t version)
{
    json_t *wanted = json_pack("{s:s, s:s}", "name", name, "stage", stage);
    if (version > 0)
        json_object_set_new(wanted, "version", json_integer(version));
    if (json_array_append_new(*documents, wanted) == 0)
        return;
    json_decref(*documents);
    *documents = NULL;
}

/* Reports the outcome for each document; `put` is the result of weir__rules_put. */
static void report_published(const struct weir__command_line *given, const struct weir__service_reply *reply, int put,
                             json_t *published)
{
    const json_t *documents = json_object_get(reply->json, "documents");
    for (size_t i = 0; i < given->argument_count; i++) {
        const char *name = given->arguments[i], *stage = given->value[WEIR__WITH_STAGE];
        bool changed = put > 0 && json_is_true(json_object_get(json_array_get(documents, i), "changed"));
        if (given->json)
            json_array_append_new(published,
                                  json_pack("{s:s, s:s, s:b}", "name", name, "stage", stage, "changed", changed));
        else
            weir__print_line(stdout, "%s: %s", name, changed ? stage : "unchanged");
    }
}

int weir__rules_publish(struct weir__command_line *given)
{
    int64_t version = weir__given_number(given, WEIR__WITH_VERSION);
    if (version < 0 || !weir__rules_stage(given, WEIR__WITH_STAGE, true))
        return 2;
    if (version > 0 && given->argument_count > 1) {
        fprintf(stderr, "weir %s: --version is for one document\n", given->command);
        return 2;
    }
    json_t *wanted = json_array(), *published = json_array();
    for (size_t i = 0; i < given->argument_count; i++)
        weir__rules_want(&wanted, given->arguments[i], given->value[WEIR__WITH_STAGE], version);
    struct weir__service_reply reply;
    int put = weir__rules_put(given, wanted, &reply);
    bool good = put == 0 || (reply.status && weir__service_reply_is_good(given->service, &reply, NULL));
    if (good)
        report_published(given, &reply, put, published);
    json_t *revision = put > 0 ? json_object_get(reply.json, "revision") : NULL;
    if (given->json) {
        good &=
            weir__print_json(json_pack("{s:b, s:O, s:O?}", "ok", good, "published", published, "revision", revision));
    } else if (revision) {
        printf("revision %" JSON_INTEGER_FORMAT " is published\n", json_integer_value(revision));
    }
    json_decref(published);
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

/* ---- rollback ---- */

static int roll_back_revision(struct weir__command_line *given, int64_t number)
{
    char path[PATH_MAX_BYTES];
    struct weir__service_reply reply;
    snprintf(path, sizeof path, "/v1/revisions/%" PRId64 "/rollback", number);
    bool good = weir__given_post(given, path, with_reason(given, json_object()), NULL, &reply);
    if (good && given->json)
        good = weir__print_json(json_incref(reply.json));
    else if (good)
        printf("revision %" JSON_INTEGER_FORMAT " is published, as revision %" PRId64 " was\n",
               json_integer_value(json_object_get(reply.json, "revision")), number);
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

static int roll_back_document(struct weir__command_line *given, const char *name, int64_t to)
{
    char *path = weir__service_path("/v1/rules/", name, "/rollback");
    struct weir__service_reply reply;
    bool good =
        weir__given_post(given, path, with_reason(given, json_pack("{s:I}", "version", (json_int_t)to)), name, &reply);
    int64_t version = json_integer_value(json_object_get(reply.json, "version")), revision = 0;
    if (good && !given->json)
        weir__print_line(stdout, "%s: v%" PRId64 " has the text of v%" PRId64, name, version, to);
    if (good && given->is[WEIR__WITH_PUBLISH]) {
        struct weir__service_reply put;
        json_t *wanted = json_array();
        weir__rules_want(&wanted, name, given->value[WEIR__WITH_PUBLISH], version);
        good = weir__rules_put(given, wanted, &put) >= 0;
        if (!good && put.status)
            weir__service_reply_is_good(given->service, &put, name);
        revision = json_integer_value(json_object_get(put.json, "revision"));
        weir__service_reply_free(&put);
        if (good && !given->json)
            printf("revision %" PRId64 " is published\n", revision);
    }
    if (good && given->json)
        good = weir__print_json(json_pack("{s:s, s:I, s:I, s:o}", "name", name, "version", (json_int_t)version, "of",
                                          (json_int_t)to, "revision", revision ? json_integer(revision) : json_null()));
    weir__service_reply_free(&reply);
    free(path);
    return good ? 0 : 1;
}

int weir__rules_rollback(struct weir__command_line *given)
{
    int64_t to = weir__given_number(given, WEIR__WITH_TO), revision = weir__given_number(given, WEIR__WITH_REVISION);
    if (to < 0 || revision < 0 ||
        (given->is[WEIR__WITH_PUBLISH] && !weir__rules_stage(given, WEIR__WITH_PUBLISH, false)))
        return 2;
    if (given->argument_count == 1 && to > 0 && revision == 0)
        return roll_back_document(given, given->arguments[0], to);
    if (given->argument_count == 0 && revision > 0 && to == 0 && !given->is[WEIR__WITH_PUBLISH])
        return roll_back_revision(given, revision);
    fprintf(stderr, "weir %s: a document and --to with a version, or --revision alone\n", given->command);
    return 2;
}
