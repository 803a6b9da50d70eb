/* weir rules list, get, diff and history. */
#include "cli/rules.h"
#include "cli/table.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT = 32, QUERY_MAX = 64 };

static int out_of_memory(void)
{
    fprintf(stderr, "weir: out of memory\n");
    return 1;
}

/* "v3", or nothing. */
static void version_cell(struct weir__text_table *table, const json_t *item, const char *name)
{
    char number[NUMBER_TEXT], text[NUMBER_TEXT + 1];
    weir__member_number(item, name, number);
    snprintf(text, sizeof text, "%s%s", *number ? "v" : "", number);
    weir__text_table_cell(table, text);
}

static void day_cell(struct weir__text_table *table, const json_t *item)
{
    char time[NUMBER_TEXT];
    weir__member_time(item, "at", time);
    time[strcspn(time, " ")] = '\0';
    weir__text_table_cell(table, time);
}

/* ---- list ---- */

/* The path with what narrows the list down. From malloc, or NULL. */
static char *list_path(const struct weir__command_line *given)
{
    static const struct {
        enum weir__with option;
        const char *name;
    } filters[] = {{WEIR__WITH_STAGE, "stage"}, {WEIR__WITH_KIND, "kind"}, {WEIR__WITH_SEARCH, "q"}};
    char *path = NULL;
    size_t len = 0;
    char between = '?';
    FILE *to = open_memstream(&path, &len);
    if (!to)
        return NULL;
    fputs("/v1/rules", to);
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (!given->is[filters[i].option])
            continue;
        char *value = weir__query_escape(given->value[filters[i].option]);
        fprintf(to, "%c%s=%s", between, filters[i].name, value ? value : "");
        free(value);
        between = '&';
    }
    return fclose(to) == 0 ? path : NULL;
}

static int print_list(const json_t *items)
{
    static const struct weir__column columns[] = {{"name", false, true, false},      {"version", false, false, false},
                                                  {"enforced", false, false, false}, {"shadow", false, false, false},
                                                  {"changed", false, false, false},  {"by", false, true, false},
                                                  {"summary", false, true, false}};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    size_t i;
    const json_t *item;
    json_array_foreach(items, i, item)
    {
        weir__text_table_cell(&table, weir__member(item, "name"));
        if (json_is_true(json_object_get(item, "deleted")))
            weir__text_table_cell(&table, "deleted");
        else
            version_cell(&table, item, "version");
        version_cell(&table, item, "enforced_version");
        version_cell(&table, item, "shadow_version");
        day_cell(&table, item);
        weir__text_table_cell(&table, weir__member(item, "author"));
        weir__text_table_cell(&table, weir__member(item, "summary"));
    }
    bool good = weir__text_table_print(&table, stdout);
    if (json_array_size(items) == 0)
        puts("no documents");
    weir__text_table_free(&table);
    return good ? 0 : 1;
}

int weir__rules_list(struct weir__command_line *given)
{
    char *path = list_path(given);
    if (!path)
        return out_of_memory();
    json_t *items = weir__given_list(given, path);
    free(path);
    if (!items)
        return 1;
    int code;
    if (given->json) {
        json_t *all = json_pack("{s:O}", "items", items);
        code = weir__print_json(all);
        json_decref(all);
    } else {
        code = print_list(items);
    }
    json_decref(items);
    return code;
}

/* ---- get ---- */

int weir__rules_get(struct weir__command_line *given)
{
    const char *name = given->arguments[0];
    int64_t version = weir__given_number(given, WEIR__WITH_VERSION);
    char query[QUERY_MAX] = "";
    if (version < 0)
        return 2;
    if (version > 0)
        snprintf(query, sizeof query, "?version=%" PRId64, version);
    char *path = weir__service_path(name, query);
    if (!path)
        return out_of_memory();
    /* The published set is always YAML. */
    bool yaml = !given->json || strcmp(name, "published") == 0;
    struct weir__service_request request = {.method = "GET", .path = path, .wants_yaml = yaml};
    struct weir__service_reply reply;
    int code = 1;
    if (weir__service_call(given->service, &request, &reply) &&
        weir__service_reply_is_good(given->service, &reply, name)) {
        if (given->json) {
            json_t *all = reply.json ? json_incref(reply.json)
                                     : json_pack("{s:s, s:s%}", "name", name, "text", reply.body, reply.len);
            code = weir__print_json(all);
            json_decref(all);
        } else {
            fwrite(reply.body, 1, reply.len, stdout);
            code = 0;
        }
    }
    weir__service_reply_free(&reply);
    free(path);
    return code;
}

/* ---- diff ---- */

int weir__rules_diff(struct weir__command_line *given)
{
    int64_t from = weir__given_number(given, WEIR__WITH_FROM), to = weir__given_number(given, WEIR__WITH_TO);
    char query[QUERY_MAX], from_text[QUERY_MAX / 2] = "", to_text[QUERY_MAX / 2] = "";
    if (from < 0 || to < 0)
        return 2;
    if (from > 0)
        snprintf(from_text, sizeof from_text, "from=%" PRId64, from);
    if (to > 0)
        snprintf(to_text, sizeof to_text, "to=%" PRId64, to);
    snprintf(query, sizeof query, "/diff%s%s%s%s", from > 0 || to > 0 ? "?" : "", from_text,
             from > 0 && to > 0 ? "&" : "", to_text);
    char *path = weir__service_path(given->arguments[0], query);
    struct weir__service_reply reply = {0};
    int code = 1;
    if (path && weir__given_get(given, path, given->arguments[0], &reply)) {
        code = 0;
        if (given->json)
            code = weir__print_json(reply.json);
        else
            fputs(weir__member(reply.json, "unified"), stdout);
    }
    weir__service_reply_free(&reply);
    free(path);
    return code;
}

/* ---- history ---- */

static int print_history(const json_t *items, bool versions)
{
    static const struct weir__column columns[] = {{"version", false, false, false}, {"stage", false, false, true},
                                                  {"rules", true, false, true},     {"at", false, false, false},
                                                  {"by", false, true, false},       {"reason", false, true, false}};
    static const struct weir__column revision = {"revision", false, false, false};
    struct weir__column shown[sizeof columns / sizeof *columns];
    memcpy(shown, columns, sizeof columns);
    if (!versions)
        shown[0] = revision;
    struct weir__text_table table = {.columns = shown, .column_count = sizeof columns / sizeof *columns};
    char text[NUMBER_TEXT];
    size_t i;
    const json_t *item;
    json_array_foreach(items, i, item)
    {
        bool deleted = json_is_true(json_object_get(item, "deleted"));
        if (versions)
            version_cell(&table, item, "version");
        else
            weir__text_table_cell(&table, weir__member_number(item, "revision", text));
        weir__text_table_cell(&table, deleted ? "deleted" : weir__member(item, "stage"));
        weir__text_table_cell(&table, weir__member_number(item, "rules", text));
        weir__text_table_cell(&table, weir__member_time(item, "at", text));
        weir__text_table_cell(&table, weir__member(item, "author"));
        weir__text_table_cell(&table, weir__member(item, "reason"));
    }
    bool good = weir__text_table_print(&table, stdout);
    if (json_array_size(items) == 0)
        puts("nothing has been published yet");
    weir__text_table_free(&table);
    return good ? 0 : 1;
}

int weir__rules_history(struct weir__command_line *given)
{
    bool versions = given->argument_count > 0;
    char *path = versions ? weir__service_path(given->arguments[0], "/versions") : NULL;
    if (versions && !path)
        return out_of_memory();
    json_t *items = weir__given_list(given, path ? path : "/v1/revisions");
    free(path);
    if (!items)
        return 1;
    json_t *all = json_pack("{s:O}", "items", items);
    int code = given->json ? weir__print_json(all) : print_history(items, versions);
    json_decref(all);
    json_decref(items);
    return code;
}
