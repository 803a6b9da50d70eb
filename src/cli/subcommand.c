/* Commands with subcommands. */
#include "cli/subcommand.h"
#include "base/text.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool has_value;
} all_options[] = {
#define OPTION(name, word, value) {word, value},
    WEIR__SERVICE_OPTIONS(OPTION) WEIR__OWN_OPTIONS(OPTION)
#undef OPTION
};

enum { NAME_MAX_BYTES = 40, SUBCOMMANDS_MAX = 16, PAGES_MAX = 200 };

static const struct weir__subcommand *find(const char *command, const struct weir__subcommand *list, size_t count,
                                           const char *name)
{
    const char *names[SUBCOMMANDS_MAX];
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
        if (known < SUBCOMMANDS_MAX)
            names[known++] = list[i].name;
    }
    const char *likely = weir__suggest(weir__text_of(name), names, known);
    fprintf(stderr, "weir %s: no command '%s'", command, name);
    if (likely)
        fprintf(stderr, "; did you mean '%s'?\n", likely);
    else
        fprintf(stderr, "; 'weir %s --help' lists them\n", command);
    return NULL;
}

/* Reads the options of one subcommand. -1, or the exit code. */
static int read_line(const struct weir__subcommand *sub, struct weir__command_line *given, int argc, char **argv)
{
    struct weir__option options[WEIR__WITH_COUNT];
    size_t count = 0;
    for (int i = 0; i < WEIR__WITH_COUNT; i++)
        if (i <= WEIR__WITH_JSON || (sub->options >> i & 1))
            options[count++] = (struct weir__option){.name = all_options[i].name,
                                                     .flag = all_options[i].has_value ? NULL : &given->is[i],
                                                     .value = all_options[i].has_value ? &given->value[i] : NULL};
    struct weir__args args = {given->command, sub->help, options, count, given->arguments, sub->most, 0, NULL};
    int code = weir__args_read(&args, argc, argv);
    if (code >= 0)
        return code;
    if (args.argument_count < sub->least) {
        fprintf(stderr, "weir %s: %s\n%s", given->command, sub->lacks, sub->help);
        return 2;
    }
    for (int i = 0; i < WEIR__WITH_COUNT; i++)
        given->is[i] |= given->value[i] != NULL;
    given->argument_count = args.argument_count;
    given->json = given->is[WEIR__WITH_JSON];
    return -1;
}

static int run(const struct weir__subcommand *sub, struct weir__command_line *given)
{
    const char *const *value = given->value;
    struct weir__service_options options = {.command = given->command,
                                            .url = value[WEIR__WITH_URL],
                                            .token = value[WEIR__WITH_TOKEN],
                                            .token_file = value[WEIR__WITH_TOKEN_FILE],
                                            .ca = value[WEIR__WITH_CA],
                                            .database = value[WEIR__WITH_DB],
                                            .file = value[WEIR__WITH_FILE],
                                            .queue = strncmp(given->command, "queue ", 6) == 0};
    int code;
    given->service = weir__service_open(&options, &code);
    if (!given->service)
        return code;
    code = sub->run(given);
    weir__service_close(given->service);
    return weir__flush(code);
}

int weir__subcommand_run(const char *command, const char *help, const struct weir__subcommand *list, size_t count,
                         int argc, char **argv)
{
    char name[NAME_MAX_BYTES];
    if (argc < 2) {
        fprintf(stderr, "weir %s: which command?\n%s", command, help);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(help, stdout);
        return 0;
    }
    const struct weir__subcommand *sub = find(command, list, count, argv[1]);
    if (!sub)
        return 2;
    snprintf(name, sizeof name, "%s %s", command, sub->name);
    struct weir__command_line given = {.command = name,
                                       .arguments = weir__must(calloc((size_t)argc, sizeof(const char *)))};
    int code = read_line(sub, &given, argc - 1, argv + 1);
    if (code < 0)
        code = run(sub, &given);
    free(given.arguments);
    return code;
}

int64_t weir__given_number(const struct weir__command_line *given, enum weir__with option)
{
    int64_t number = 0;
    if (!given->is[option])
        return 0;
    const char *text = given->value[option];
    if (weir__read_int(*text == 'v' ? text + 1 : text, 1, INT64_MAX, &number))
        return number;
    fprintf(stderr, "weir %s: --%s is a number of at least 1\n", given->command, all_options[option].name);
    return -1;
}

/* ---- Requests ---- */

bool weir__given_get(const struct weir__command_line *given, const char *path, const char *about,
                     struct weir__service_reply *reply)
{
    struct weir__service_request request = {.method = "GET", .path = path};
    return weir__service_call(given->service, &request, reply) &&
           weir__service_reply_is_good(given->service, reply, about);
}

bool weir__given_post(const struct weir__command_line *given, const char *path, json_t *body, const char *about,
                      struct weir__service_reply *reply)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    *reply = (struct weir__service_reply){0};
    if (!text) {
        fprintf(stderr, "weir %s: no memory, or a text that is not UTF-8\n", given->command);
        return false;
    }
    struct weir__service_request request = {.method = "POST", .path = path, .body = text, .len = strlen(text)};
    bool good = weir__service_call(given->service, &request, reply) &&
                weir__service_reply_is_good(given->service, reply, about);
    free(text);
    return good;
}

json_t *weir__service_reply_items(const struct weir__command_line *given, const struct weir__service_reply *reply)
{
    json_t *items = json_object_get(reply->json, "items");
    if (json_is_array(items))
        return items;
    fprintf(stderr, "weir %s: the reply has no list; is this a rules service?\n", given->command);
    return NULL;
}

/* Appends the page that begins after `next` to `all`, and sets `next` anew. False after an error was printed. */
static bool add_page(const struct weir__command_line *given, const char *path, json_t *all, json_t **next)
{
    struct weir__buffer page = {0};
    struct weir__service_reply reply;
    char number[32];
    weir__buffer_printf(&page, "%s", path);
    weir__query_add(&page, "limit", "1000");
    if (json_is_integer(*next))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(*next));
    weir__query_add(&page, "after", json_is_integer(*next) ? number : json_string_value(*next));
    bool good = weir__given_get(given, weir__buffer_text(&page), NULL, &reply);
    json_t *items = good ? weir__service_reply_items(given, &reply) : NULL;
    json_decref(*next);
    *next = json_incref(json_object_get(reply.json, "next"));
    good = items && json_array_extend(all, items) == 0;
    weir__service_reply_free(&reply);
    weir__buffer_free(&page);
    return good;
}

json_t *weir__given_list(const struct weir__command_line *given, const char *path)
{
    json_t *all = json_array(), *next = NULL;
    bool good = true, more = true;
    for (int page = 0; good && more && page < PAGES_MAX; page++) {
        good = add_page(given, path, all, &next);
        more = json_is_string(next) || json_is_integer(next);
    }
    json_decref(next);
    if (good && !more)
        return all;
    if (good)
        fprintf(stderr, "weir %s: the list does not end\n", given->command);
    json_decref(all);
    return NULL;
}

/* ---- Output ---- */

bool weir__print_json(json_t *value)
{
    bool good = json_dumpf(weir__must(value), stdout, JSON_COMPACT) == 0;
    json_decref(value);
    putchar('\n');
    return good;
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

const char *weir__member_time(const json_t *object, const char *name, char *buffer)
{
    snprintf(buffer, 32, "%.16s", weir__member(object, name));
    if (strlen(buffer) > 10 && buffer[10] == 'T')
        buffer[10] = ' ';
    return buffer;
}

void weir__print_items(const json_t *items, const struct weir__item_column *columns, size_t count, const char *none)
{
    struct weir__column shown[WEIR__TABLE_COLUMNS];
    struct weir__text_table table = {.columns = shown, .column_count = count};
    char buffer[WEIR__ITEM_CELL];
    const json_t *item;
    size_t i;
    for (size_t c = 0; c < count; c++)
        shown[c] = columns[c].column;
    json_array_foreach(items, i, item) for (size_t c = 0; c < count; c++)
        weir__text_table_cell(&table, columns[c].format ? columns[c].format(item, columns[c].member, buffer)
                                                        : weir__member(item, columns[c].member));
    if (json_array_size(items) == 0)
        puts(none);
    weir__text_table_print(&table, stdout);
}
