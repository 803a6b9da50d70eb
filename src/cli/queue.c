/* weir queue: deferred requests, listed, looked at, cancelled and put back. */
#include "base/duration.h"
#include "cli/cli.h"
#include "cli/subcommand.h"
#include "cli/table.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The database of rules has no requests in it. */
#define WHICH                                                                                                          \
    "\n"                                                                                                               \
    "Which queue:\n"                                                                                                   \
    "  --url URL            of a rules service: https://host:9091, also by WEIR_URL;\n"                                \
    "                       with --ca FILE, and --token-file FILE or WEIR_TOKEN\n"                                     \
    "  --file weir.yaml     the one that this file names; weir.yaml is used without\n"                                 \
    "                       any of these\n"                                                                            \
    "  --json               for scripts\n"                                                                             \
    "\n"                                                                                                               \
    "Exits with 0, 1 if it was refused or failed, 2 for a wrong command line.\n"

static const char help[] = "usage: weir queue COMMAND [OPTIONS]\n"
                           "Requests that were denied and wait until their limit lets them pass.\n"
                           "\n"
                           "  stats                               what waits, by rule\n"
                           "  list [--state STATE] [--rule RULE] [--limit N]\n"
                           "  get TICKET\n"
                           "  cancel TICKET..., or --all --state waiting|dead [--rule RULE]\n"
                           "  requeue TICKET..., or --all [--rule RULE]\n" WHICH;
static const char stats_help[] = "usage: weir queue stats [OPTIONS]\n"
                                 "How many requests wait, are under way or were given up, by rule.\n" WHICH;
static const char list_help[] = "usage: weir queue list [OPTIONS]\n"
                                "Deferred requests, the oldest first.\n"
                                "\n"
                                "  --state waiting|under_way|delivered|dead|cancelled\n"
                                "  --rule RULE\n"
                                "  --limit N            at most so many, up to 1000; 100 without it\n" WHICH;
static const char get_help[] = "usage: weir queue get TICKET [OPTIONS]\n"
                               "One deferred request; of its headers the names.\n" WHICH;
static const char cancel_help[] = "usage: weir queue cancel TICKET... [OPTIONS]\n"
                                  "       weir queue cancel --all --state waiting|dead [--rule RULE] [OPTIONS]\n"
                                  "Requests that wait or are dead are not delivered any more.\n" WHICH;
static const char requeue_help[] =
    "usage: weir queue requeue TICKET... [OPTIONS]\n"
    "       weir queue requeue --all [--rule RULE] [OPTIONS]\n"
    "Dead requests wait again, with new attempts and their whole age before them.\n" WHICH;

enum { PAGE = 1000, PAGES_MAX = 10000, LIST_DEFAULT = 100, TEXT = 40, PATH_MAX_BYTES = 256 };

/* ---- stats ---- */

static void number_cell(struct weir__text_table *table, const json_t *object, const char *name)
{
    char text[TEXT];
    weir__text_table_cell(table, weir__member_number(object, name, text));
}

static void stats_row(struct weir__text_table *table, const json_t *object, const char *rule)
{
    char text[TEXT];
    const json_t *oldest = json_object_get(object, "oldest_s");
    weir__text_table_cell(table, rule);
    number_cell(table, object, "waiting");
    number_cell(table, object, "under_way");
    number_cell(table, object, "dead");
    weir__text_table_cell(table, weir__bytes_text(json_number_value(json_object_get(object, "bytes")), text));
    weir__text_table_cell(
        table, json_is_number(oldest) ? weir__wait_text((int64_t)(json_number_value(oldest) * 1e9), text) : "");
}

static bool print_stats(const json_t *stats)
{
    static const struct weir__column columns[] = {{"rule", false, true, false},      {"waiting", true, false, false},
                                                  {"under way", true, false, false}, {"dead", true, false, false},
                                                  {"bytes", true, false, false},     {"oldest", true, false, false}};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    const json_t *rules = json_object_get(stats, "rules"), *rule;
    size_t i;
    json_array_foreach(rules, i, rule) stats_row(&table, rule, weir__member(rule, "rule"));
    if (json_array_size(rules) > 1)
        stats_row(&table, stats, "all");
    bool good = weir__text_table_print(&table, stdout);
    if (json_array_size(rules) == 0)
        puts("nothing waits, and nothing is dead");
    weir__text_table_free(&table);
    return good;
}

static int stats(struct weir__command_line *given)
{
    struct weir__service_reply reply;
    bool good = weir__given_get(given, "/v1/queue/stats", NULL, &reply);
    if (good)
        good = given->json ? weir__print_json(reply.json) == 0 : print_stats(reply.json);
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

/* ---- list ---- */

/* A page of what the options name. False: told. */
static bool list_page(const struct weir__command_line *given, int64_t limit, int64_t after, const char *state,
                      struct weir__service_reply *reply)
{
    char *rule = given->is[WEIR__WITH_RULE] ? weir__query_escape(given->value[WEIR__WITH_RULE]) : NULL;
    char *word = state ? weir__query_escape(state) : NULL, *path = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&path, &len);
    *reply = (struct weir__service_reply){0};
    if (to) {
        fprintf(to, "/v1/queue?limit=%" PRId64 "&after=%" PRId64, limit, after);
        if (word)
            fprintf(to, "&state=%s", word);
        if (rule)
            fprintf(to, "&rule=%s", rule);
        fclose(to);
    }
    bool good = path && weir__given_get(given, path, NULL, reply) && weir__service_reply_items(given, reply);
    free(path);
    free(word);
    free(rule);
    return good;
}

static bool print_list(const json_t *items)
{
    static const struct weir__column columns[] = {{"ticket", false, false, false}, {"state", false, false, false},
                                                  {"rule", false, true, false},    {"key", false, true, false},
                                                  {"request", false, true, false}, {"accepted", false, false, false},
                                                  {"tries", true, false, false},   {"why", false, true, true}};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    char text[TEXT], request[PATH_MAX_BYTES];
    const json_t *item;
    size_t i;
    json_array_foreach(items, i, item)
    {
        const char *hex = weir__member(item, "key_hex");
        snprintf(request, sizeof request, "%s %s", weir__member(item, "method"), weir__member(item, "path"));
        weir__text_table_cell(&table, weir__member(item, "ticket"));
        weir__text_table_cell(&table, weir__member(item, "state"));
        weir__text_table_cell(&table, weir__member(item, "rule"));
        weir__text_table_cell(&table, *hex ? hex : weir__member(item, "key"));
        weir__text_table_cell(&table, request);
        weir__text_table_cell(&table, weir__member_time(item, "accepted", text));
        number_cell(&table, item, "attempts");
        weir__text_table_cell(&table, weir__member(item, "why"));
    }
    bool good = weir__text_table_print(&table, stdout);
    if (json_array_size(items) == 0)
        puts("no requests");
    weir__text_table_free(&table);
    return good;
}

static int list(struct weir__command_line *given)
{
    int64_t limit = weir__given_number(given, WEIR__WITH_LIMIT);
    struct weir__service_reply reply;
    if (limit < 0 || limit > PAGE) {
        if (limit > 0)
            fprintf(stderr, "weir %s: --limit is at most %d\n", given->command, PAGE);
        return 2;
    }
    bool good = list_page(given, limit ? limit : LIST_DEFAULT, 0, given->value[WEIR__WITH_STATE], &reply);
    if (good && given->json) {
        good = weir__print_json(reply.json) == 0;
    } else if (good) {
        good = print_list(json_object_get(reply.json, "items"));
        if (json_is_integer(json_object_get(reply.json, "next")))
            fputs("there are more: --limit, --state, --rule\n", stderr);
    }
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

/* ---- get ---- */

static void line(const char *name, const char *value)
{
    if (!*value)
        return;
    printf("%-12s ", name);
    weir__print_text(stdout, value, SIZE_MAX, false);
    putchar('\n');
}

static void print_one(const json_t *item)
{
    static const char *const members[] = {"ticket", "state", "why", "rule", "key", "key_hex", "method", "path"};
    static const char *const numbers[] = {"cost", "attempts", "last_status", "body_bytes"};
    static const char *const times[] = {"accepted", "due", "expires", "ended"};
    const json_t *names = json_object_get(item, "headers"), *name;
    char text[TEXT];
    size_t i;
    for (i = 0; i < sizeof members / sizeof *members; i++)
        line(members[i], weir__member(item, members[i]));
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++)
        line(numbers[i], weir__member_number(item, numbers[i], text));
    for (i = 0; i < sizeof times / sizeof *times; i++)
        line(times[i], weir__member(item, times[i]));
    json_array_foreach(names, i, name) line(i ? "" : "headers", json_string_value(name));
}

/* "/v1/queue/TICKET" and what comes behind. From malloc, or NULL. */
static char *ticket_path(const char *ticket, const char *rest)
{
    char *escaped = weir__query_escape(ticket), *path = NULL;
    size_t len = 0;
    FILE *to = escaped ? open_memstream(&path, &len) : NULL;
    if (to) {
        fprintf(to, "/v1/queue/%s%s", escaped, rest);
        fclose(to);
    }
    free(escaped);
    return path;
}

static int get(struct weir__command_line *given)
{
    char *path = ticket_path(given->arguments[0], "");
    struct weir__service_reply reply = {0};
    bool good = path && weir__given_get(given, path, given->arguments[0], &reply);
    if (good && given->json)
        good = weir__print_json(reply.json) == 0;
    else if (good)
        print_one(reply.json);
    weir__service_reply_free(&reply);
    free(path);
    return good ? 0 : 1;
}

/* ---- cancel and requeue ---- */

struct changing {
    struct weir__command_line *given;
    const char *rest; /* of the path */
    const char *done; /* what is said of each */
    json_t *items;    /* what they are now */
    bool failed;
};

static void change_one(struct changing *changing, const char *ticket)
{
    char *path = ticket_path(ticket, changing->rest);
    struct weir__service_reply reply;
    if (weir__given_post(changing->given, path, json_object(), ticket, &reply)) {
        json_array_append(changing->items, reply.json);
        if (!changing->given->json) {
            weir__print_text(stdout, ticket, SIZE_MAX, false);
            printf(": %s\n", changing->done);
        }
    } else {
        changing->failed = true;
    }
    weir__service_reply_free(&reply);
    free(path);
}

/* All of a state, page after page: what is changed leaves the list behind where the next page begins. */
static void change_all(struct changing *changing, const char *state)
{
    int64_t after = 0;
    bool more = true;
    for (int page = 0; more && page < PAGES_MAX; page++) {
        struct weir__service_reply reply;
        const json_t *item;
        size_t i;
        if (!list_page(changing->given, PAGE, after, state, &reply)) {
            changing->failed = true;
            more = false;
        }
        json_array_foreach(json_object_get(reply.json, "items"), i, item)
            change_one(changing, weir__member(item, "ticket"));
        const json_t *next = json_object_get(reply.json, "next");
        more = more && json_is_integer(next);
        after = json_integer_value(next);
        weir__service_reply_free(&reply);
    }
}

static int change(struct changing *changing, const char *state)
{
    struct weir__command_line *given = changing->given;
    bool all = given->is[WEIR__WITH_ALL];
    if (all == (given->argument_count > 0) || (!all && (given->is[WEIR__WITH_RULE] || given->is[WEIR__WITH_STATE]))) {
        fprintf(stderr, "weir %s: either tickets, or --all with what narrows it down\n", given->command);
        return 2;
    }
    changing->items = json_array();
    for (size_t i = 0; i < given->argument_count; i++)
        change_one(changing, given->arguments[i]);
    if (all)
        change_all(changing, state);
    if (given->json) {
        json_t *result = json_pack("{s:O}", "items", changing->items);
        weir__print_json(result);
        json_decref(result);
    } else if (all) {
        printf("%zu %s\n", json_array_size(changing->items), changing->done);
    }
    json_decref(changing->items);
    return changing->failed ? 1 : 0;
}

static int cancel(struct weir__command_line *given)
{
    struct changing changing = {.given = given, .rest = "/cancel", .done = "cancelled"};
    const char *state = given->value[WEIR__WITH_STATE];
    if (given->is[WEIR__WITH_ALL] && (!state || (strcmp(state, "waiting") != 0 && strcmp(state, "dead") != 0))) {
        fprintf(stderr, "weir %s: --all needs --state waiting or --state dead\n", given->command);
        return 2;
    }
    return change(&changing, state);
}

static int requeue(struct weir__command_line *given)
{
    struct changing changing = {.given = given, .rest = "/requeue", .done = "waits again"};
    return change(&changing, "dead");
}

static const struct weir__subcommand commands[] = {
    {"stats", 0, 0, 0, "", stats, stats_help},
    {"list", WEIR__WITH(STATE) | WEIR__WITH(RULE) | WEIR__WITH(LIMIT), 0, 0, "", list, list_help},
    {"get", 0, 1, 1, "which ticket?", get, get_help},
    {"cancel", WEIR__WITH(ALL) | WEIR__WITH(STATE) | WEIR__WITH(RULE), 0, SIZE_MAX, "", cancel, cancel_help},
    {"requeue", WEIR__WITH(ALL) | WEIR__WITH(RULE), 0, SIZE_MAX, "", requeue, requeue_help},
};

int weir__cmd_queue(int argc, char **argv)
{
    return weir__subcommand_run("queue", help, commands, sizeof commands / sizeof *commands, argc, argv);
}
