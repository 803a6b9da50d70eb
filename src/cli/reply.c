/* Replies of the rules service: lists, tables and JSON. */
#include "cli/service.h"

#include <stdlib.h>
#include <string.h>

enum { PAGES_MAX = 200 };

/* ---- Lists ---- */

json_t *weir__call_items(const struct weir__given *given, const struct weir__service_call *call)
{
    json_t *items = json_object_get(call->json, "items");
    if (json_is_array(items))
        return items;
    fprintf(stderr, "weir %s: the reply has no list; is this a rules service?\n", given->command);
    return NULL;
}

/* Rules in files: prints the errors of files, which are why the documents may be older ones. */
static void print_file_errors(const struct weir__service_call *call)
{
    struct weir__findings findings = {.to = stderr};
    const json_t *problem;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(call->json, "files"), "errors"), i, problem)
    {
        weir_diagnostic what = weir__problem_diagnostic(problem);
        what.file = weir__member(problem, "file");
        weir__add_finding(&findings, &what);
    }
}

json_t *weir__list_all(const struct weir__given *given, const char *path)
{
    json_t *all = json_array();
    const char *after = "", *first = strchr(path, '?') ? "&" : "?";
    for (int page = 0; after && page < PAGES_MAX; page++) {
        struct weir__service_call call = {0};
        bool good = weir__call(given, &call, weir__format("%s%slimit=1000%s%s", path, first, *after ? "&" : "", after));
        const json_t *items = good ? weir__call_items(given, &call) : NULL, *next = json_object_get(call.json, "next");
        if (page == 0)
            print_file_errors(&call);
        good = items && json_array_extend(all, (json_t *)(uintptr_t)items) == 0;
        const char *text = json_is_integer(next) ? weir__digits(json_integer_value(next)) : json_string_value(next);
        after = text ? weir__path("?after=%", text) + 1 : NULL;
        weir__call_free(&call);
        if (!good) {
            json_decref(all);
            return NULL;
        }
    }
    if (!after)
        return all;
    fprintf(stderr, "weir %s: the list has too many pages; narrow the query\n", given->command);
    json_decref(all);
    return NULL;
}

/* ---- Output ---- */

int weir__call_end(const struct weir__given *given, struct weir__service_call *call, bool good,
                   void (*print)(const json_t *reply))
{
    if (good && given->json)
        good = weir__print_json(json_incref(call->json));
    else if (good)
        print(call->json);
    weir__call_free(call);
    return good ? 0 : 1;
}

const char *weir__member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

const char *weir__member_number(const json_t *object, const char *name, char *buffer)
{
    const json_t *number = json_object_get(object, name);
    *buffer = '\0';
    if (json_is_integer(number))
        snprintf(buffer, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    return buffer;
}

int64_t weir__member_int(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

const char *weir__member_time(const json_t *object, const char *name, char *buffer)
{
    snprintf(buffer, 32, "%.16s", weir__member(object, name));
    if (strlen(buffer) > 10 && buffer[10] == 'T')
        buffer[10] = ' ';
    return buffer;
}

void weir__print_diff(const char *diff)
{
    bool colour = weir__has_colour(stdout);
    char *rest = weir__format("%s", diff), *line;
    while ((line = strsep(&rest, "\n")) && (*line || rest)) {
        const char *paint = !colour ? "" : *line == '+' ? "\033[32m" : *line == '-' ? "\033[31m" : "";
        fputs(paint, stdout);
        weir__print_text(stdout, strsep(&line, "\t"));
        while (line) { /* tabs are indentation, not a trick */
            putchar('\t');
            weir__print_text(stdout, strsep(&line, "\t"));
        }
        puts(*paint ? "\033[0m" : "");
    }
}

void weir__print_items(const json_t *items, const struct weir__column *columns, size_t count, const char *none)
{
    struct weir__text_table table = {.columns = columns, .column_count = count};
    char buffer[WEIR__ITEM_CELL];
    const json_t *item;
    size_t i;
    json_array_foreach(items, i, item) for (size_t c = 0; c < count; c++)
        weir__text_table_cell(&table, columns[c].format ? columns[c].format(item, columns[c].member, buffer)
                                                        : weir__member(item, columns[c].member));
    if (json_array_size(items) == 0)
        puts(none);
    weir__text_table_print(&table, stdout);
}
