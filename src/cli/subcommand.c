/* Commands that have commands. */
#include "cli/subcommand.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct weir__option all_options[] = {
#define OPTION(name, word, value) {word, 0, value},
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
    enum weir__with which[WEIR__WITH_COUNT];
    size_t count = 0;
    for (int i = 0; i < WEIR__WITH_COUNT; i++) {
        if (i > WEIR__WITH_HELP && !(sub->options >> i & 1))
            continue;
        options[count] = all_options[i];
        if (i == WEIR__WITH_HELP)
            options[count].letter = 'h';
        which[count++] = (enum weir__with)i;
    }
    struct weir__args args = {given->command, options, count, argv, argc, 1, 0, false, NULL};
    int option;
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == WEIR__ARG_WORD) {
            given->arguments[given->argument_count++] = argv[args.at - 1];
            continue;
        }
        given->is[which[option]] = true;
        given->value[which[option]] = args.value;
    }
    if (given->is[WEIR__WITH_HELP]) {
        fputs(sub->help, stdout);
        return 0;
    }
    if (given->argument_count < sub->least || given->argument_count > sub->most) {
        fprintf(stderr, "weir %s: %s\n%s", given->command,
                given->argument_count < sub->least ? sub->lacks : "there is a word too much", sub->help);
        return 2;
    }
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
    if (fflush(stdout) || ferror(stdout)) {
        perror("weir: standard output");
        return 1;
    }
    return code;
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
    struct weir__command_line given = {.command = name, .arguments = calloc((size_t)argc, sizeof(char *))};
    int code = given.arguments ? read_line(sub, &given, argc - 1, argv + 1) : 1;
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
    fprintf(stderr, "weir %s: --%s is a number from 1 on\n", given->command, all_options[option].name);
    return -1;
}

/* ---- Asking ---- */

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
    if (!text || !path) {
        fprintf(stderr, "weir %s: no memory, or a text that is not UTF-8\n", given->command);
        free(text);
        return false;
    }
    struct weir__service_request request = {.method = "POST", .path = path, .body = text, .len = strlen(text)};
    bool good = weir__service_call(given->service, &request, reply) &&
                weir__service_reply_is_good(given->service, reply, about);
    free(text);
    return good;
}

/* The path of the page that begins behind `next`. From malloc, or NULL. */
static char *page_path(const char *path, const json_t *next)
{
    char *escaped = NULL, *full_path = NULL;
    char number[24] = "";
    if (json_is_integer(next))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(next));
    else if (json_is_string(next) && !(escaped = weir__query_escape(json_string_value(next))))
        return NULL;
    const char *after = escaped ? escaped : number;
    size_t size = strlen(path) + strlen(after) + 32;
    full_path = malloc(size);
    if (full_path)
        snprintf(full_path, size, "%s%climit=1000%s%s", path, strchr(path, '?') ? '&' : '?', *after ? "&after=" : "",
                 after);
    free(escaped);
    return full_path;
}

json_t *weir__service_reply_items(const struct weir__command_line *given, const struct weir__service_reply *reply)
{
    json_t *items = json_object_get(reply->json, "items");
    if (json_is_array(items))
        return items;
    fprintf(stderr, "weir %s: the answer has no list in it; is this a rules service?\n", given->command);
    return NULL;
}

json_t *weir__given_list(const struct weir__command_line *given, const char *path)
{
    json_t *all = json_array(), *next = NULL;
    bool good = all != NULL, more = true;
    for (int page = 0; good && more && page < PAGES_MAX; page++) {
        struct weir__service_reply reply = {0};
        char *this_page = page_path(path, next);
        good = this_page && weir__given_get(given, this_page, NULL, &reply);
        free(this_page);
        json_t *items = good ? weir__service_reply_items(given, &reply) : NULL;
        good = items && json_array_extend(all, items) == 0;
        json_decref(next);
        next = json_incref(json_object_get(reply.json, "next"));
        more = json_is_string(next) || json_is_integer(next);
        weir__service_reply_free(&reply);
    }
    json_decref(next);
    if (good && !more)
        return all;
    if (good)
        fprintf(stderr, "weir %s: the list does not end\n", given->command);
    json_decref(all);
    return NULL;
}

/* ---- Showing ---- */

int weir__print_json(const json_t *value)
{
    if (json_dumpf(value, stdout, JSON_COMPACT) != 0) {
        fprintf(stderr, "weir: out of memory\n");
        return 1;
    }
    putchar('\n');
    return 0;
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
    const char *text = weir__member(object, name);
    snprintf(buffer, 32, "%.16s", text);
    if (strlen(buffer) > 10 && buffer[10] == 'T')
        buffer[10] = ' ';
    return buffer;
}
