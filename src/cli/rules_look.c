/* weir rules list, get, diff and history. */
#include "cli/cli.h"
#include "cli/rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT = 32 };

/* "v3" */
static const char *version_cell(const json_t *item, const char *member, char *buffer)
{
    buffer[0] = 'v';
    return *weir__member_number(item, member, buffer + 1) ? buffer : "";
}

static const char *current_cell(const json_t *item, const char *member, char *buffer)
{
    return json_is_true(json_object_get(item, "deleted")) ? "deleted" : version_cell(item, member, buffer);
}

static const char *stage_cell(const json_t *item, const char *member, char *buffer)
{
    (void)buffer;
    return json_is_true(json_object_get(item, "deleted")) ? "deleted" : weir__member(item, member);
}

static const char *day_cell(const json_t *item, const char *member, char *buffer)
{
    weir__member_time(item, member, buffer);
    buffer[strcspn(buffer, " ")] = '\0';
    return buffer;
}

/* Prints a list, which it takes over, as JSON or as a table. Returns the exit code. */
static int print_list(const struct weir__command_line *given, json_t *items, const struct weir__item_column *columns,
                      size_t count, const char *none)
{
    bool good = items != NULL;
    if (good && given->json)
        good = weir__print_json(json_pack("{s:O}", "items", items));
    else if (good)
        weir__print_items(items, columns, count, none);
    json_decref(items);
    return good ? 0 : 1;
}

int weir__rules_list(struct weir__command_line *given)
{
    static const struct weir__item_column columns[] = {
        {{"name", WEIR__CUT}, "name", NULL},
        {{"version", 0}, "version", current_cell},
        {{"enforced", 0}, "enforced_version", version_cell},
        {{"shadow", 0}, "shadow_version", version_cell},
        {{"changed", 0}, "at", day_cell},
        {{"by", WEIR__CUT}, "author", NULL},
        {{"summary", WEIR__CUT}, "summary", NULL},
    };
    struct weir__buffer path = {0};
    weir__buffer_printf(&path, "/v1/rules");
    weir__query_add(&path, "stage", given->value[WEIR__WITH_STAGE]);
    weir__query_add(&path, "kind", given->value[WEIR__WITH_KIND]);
    weir__query_add(&path, "q", given->value[WEIR__WITH_SEARCH]);
    json_t *items = weir__given_list(given, weir__buffer_text(&path));
    weir__buffer_free(&path);
    return print_list(given, items, columns, sizeof columns / sizeof *columns, "no documents");
}

int weir__rules_get(struct weir__command_line *given)
{
    const char *name = given->arguments[0];
    int64_t version = weir__given_number(given, WEIR__WITH_VERSION);
    char query[NUMBER_TEXT] = "";
    if (version < 0)
        return 2;
    if (version > 0)
        snprintf(query, sizeof query, "?version=%" PRId64, version);
    char *path = weir__service_path("/v1/rules/", name, query);
    /* The published set is always YAML. */
    bool yaml = !given->json || strcmp(name, "published") == 0;
    struct weir__service_request request = {.method = "GET", .path = path, .wants_yaml = yaml};
    struct weir__service_reply reply = {0};
    bool good = weir__service_call(given->service, &request, &reply) &&
                weir__service_reply_is_good(given->service, &reply, name);
    if (good && given->json)
        good = weir__print_json(reply.json ? json_incref(reply.json)
                                           : json_pack("{s:s, s:s%}", "name", name, "text", reply.body, reply.len));
    else if (good)
        fwrite(reply.body, 1, reply.len, stdout);
    weir__service_reply_free(&reply);
    free(path);
    return good ? 0 : 1;
}

/* Adds the number of an option to a query. False after an error was printed. */
static bool add_number(const struct weir__command_line *given, enum weir__with option, const char *name,
                       struct weir__buffer *path)
{
    int64_t number = weir__given_number(given, option);
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%" PRId64, number);
    weir__query_add(path, name, number > 0 ? text : NULL);
    return number >= 0;
}

int weir__rules_diff(struct weir__command_line *given)
{
    struct weir__buffer path = {0};
    struct weir__service_reply reply = {0};
    char *start = weir__service_path("/v1/rules/", given->arguments[0], "/diff");
    int code = 2;
    weir__buffer_printf(&path, "%s", start);
    free(start);
    if (add_number(given, WEIR__WITH_FROM, "from", &path) && add_number(given, WEIR__WITH_TO, "to", &path)) {
        bool good = weir__given_get(given, weir__buffer_text(&path), given->arguments[0], &reply);
        if (good && given->json)
            good = weir__print_json(json_incref(reply.json));
        else if (good)
            fputs(weir__member(reply.json, "unified"), stdout);
        code = good ? 0 : 1;
    }
    weir__service_reply_free(&reply);
    weir__buffer_free(&path);
    return code;
}

int weir__rules_history(struct weir__command_line *given)
{
    static const struct weir__item_column columns[] = {
        {{"version", WEIR__OPTIONAL}, "version", version_cell},
        {{"revision", WEIR__OPTIONAL}, "revision", weir__member_number},
        {{"stage", WEIR__OPTIONAL}, "stage", stage_cell},
        {{"rules", WEIR__RIGHT | WEIR__OPTIONAL}, "rules", weir__member_number},
        {{"at", 0}, "at", weir__member_time},
        {{"by", WEIR__CUT}, "author", NULL},
        {{"reason", WEIR__CUT}, "reason", NULL},
    };
    bool versions = given->argument_count > 0;
    char *path = versions ? weir__service_path("/v1/rules/", given->arguments[0], "/versions") : NULL;
    json_t *items = weir__given_list(given, versions ? path : "/v1/revisions");
    free(path);
    return print_list(given, items, columns, sizeof columns / sizeof *columns, "nothing has been published yet");
}
