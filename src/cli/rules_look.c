/* weir rules list, get, diff and history. */
#include "cli/rules.h"

#include <string.h>

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

/* Of rules in files: "rules.yaml:12" */
static const char *place_cell(const json_t *item, const char *member, char *buffer)
{
    const char *file = weir__member(item, member);
    return *file ? weir__format("%s:%s", file, weir__member_number(item, "line", buffer)) : "";
}

/* Prints a list, which it takes over, as JSON or as a table. Returns the exit code. */
static int print_list(const struct weir__given *given, json_t *items, const struct weir__column *columns, size_t count,
                      const char *none)
{
    bool good = items != NULL;
    if (good && given->json)
        good = weir__print_json(json_pack("{s:O}", "items", items));
    else if (good)
        weir__print_items(items, columns, count, none);
    json_decref(items);
    return good ? 0 : 1;
}

int weir__cmd_rules_list(struct weir__given *given)
{
    static const struct weir__column columns[] = {
        {"name", WEIR__CUT, "name", NULL},
        {"version", 0, "version", current_cell},
        {"enforced", 0, "enforced_version", version_cell},
        {"shadow", 0, "shadow_version", version_cell},
        {"changed", 0, "at", day_cell},
        {"by", WEIR__CUT, "author", NULL},
        {"file", WEIR__CUT | WEIR__OPTIONAL, "file", place_cell},
        {"summary", WEIR__CUT, "summary", NULL},
    };
    const char *path = weir__path("/v1/rules?stage=%&kind=%&q=%", weir__option(given, "stage"),
                                  weir__option(given, "kind"), weir__option(given, "search"));
    return print_list(given, weir__list_all(given, path), columns, sizeof columns / sizeof *columns, "no documents");
}

int weir__cmd_rules_get(struct weir__given *given)
{
    const char *name = given->arguments[0];
    int64_t version = weir__option_number(given, "version");
    if (version < 0)
        return 2;
    /* The published set is always YAML. */
    struct weir__service_call call = {.about = name, .wants_yaml = !given->json || strcmp(name, "published") == 0};
    bool good = weir__call(given, &call, weir__path("/v1/rules/%?version=%", name, weir__digits(version)));
    if (good && given->json)
        good = weir__print_json(call.json ? json_incref(call.json)
                                          : json_pack("{s:s, s:s%}", "name", name, "text", call.text, call.len));
    else if (good)
        fwrite(call.text, 1, call.len, stdout);
    weir__call_free(&call);
    return good ? 0 : 1;
}

static void print_diff(const json_t *reply)
{
    weir__print_diff(weir__member(reply, "unified"));
}

int weir__cmd_rules_diff(struct weir__given *given)
{
    struct weir__service_call call = {.about = given->arguments[0]};
    int64_t from = weir__option_number(given, "from"), to = from < 0 ? -1 : weir__option_number(given, "to");
    if (to < 0)
        return 2;
    bool good = weir__call(
        given, &call,
        weir__path("/v1/rules/%/diff?from=%&to=%", given->arguments[0], weir__digits(from), weir__digits(to)));
    return weir__call_end(given, &call, good, print_diff);
}

int weir__cmd_rules_history(struct weir__given *given)
{
    static const struct weir__column columns[] = {
        {"version", WEIR__OPTIONAL, "version", version_cell},
        {"revision", WEIR__OPTIONAL, "revision", weir__member_number},
        {"stage", WEIR__OPTIONAL, "stage", stage_cell},
        {"rules", WEIR__RIGHT | WEIR__OPTIONAL, "rules", weir__member_number},
        {"at", 0, "at", weir__member_time},
        {"by", WEIR__CUT, "author", NULL},
        {"reason", WEIR__CUT, "reason", NULL},
    };
    const char *name = weir__argument(given, NULL);
    json_t *items = weir__list_all(given, name ? weir__path("/v1/rules/%/versions", name) : "/v1/revisions");
    return print_list(given, items, columns, sizeof columns / sizeof *columns, "nothing has been published yet");
}
