/* weir queue: lists, shows, cancels and requeues deferred requests. */
#include "base/duration.h"
#include "cli/cli.h"
#include "cli/subcommand.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Without --db: the database of rules has no requests. */
#define WHICH                                                                                                          \
    "\n"                                                                                                               \
    "Which queue:\n"                                                                                                   \
    "  --url URL            of a rules service: https://host:9091, also by WEIR_URL;\n"                                \
    "                       with --ca FILE, and --token-file FILE or WEIR_TOKEN\n"                                     \
    "  --file weir.yaml     the queue that this file names; weir.yaml is the default\n"                                \
    "                       without any of these\n"                                                                    \
    "  --json               for scripts\n"                                                                             \
    "\n"                                                                                                               \
    "Exits with 0, 1 if a request was refused or failed, 2 for a wrong command line.\n"

static const char help[] = "usage: weir queue COMMAND [OPTIONS]\n"
                           "Deferred requests: denied, and delivered later within their limit.\n"
                           "\n"
                           "  stats                               counts by rule\n"
                           "  list [--state STATE] [--rule RULE] [--limit N]\n"
                           "  get TICKET\n"
                           "  cancel TICKET..., or --all --state waiting|dead [--rule RULE]\n"
                           "  requeue TICKET..., or --all [--rule RULE]\n" WHICH;
static const char stats_help[] = "usage: weir queue stats [OPTIONS]\n"
                                 "The numbers of requests that wait, are under way or are dead, by rule.\n" WHICH;
static const char list_help[] = "usage: weir queue list [OPTIONS]\n"
                                "Deferred requests, the oldest first.\n"
                                "\n"
                                "  --state waiting|under_way|delivered|dead|cancelled\n"
                                "  --rule RULE\n"
                                "  --limit N            at most N, up to 1000; default 100\n" WHICH;
static const char get_help[] = "usage: weir queue get TICKET [OPTIONS]\n"
                               "Shows one deferred request, with the names of its headers.\n" WHICH;
static const char cancel_help[] = "usage: weir queue cancel TICKET... [OPTIONS]\n"
                                  "       weir queue cancel --all --state waiting|dead [--rule RULE] [OPTIONS]\n"
                                  "Cancels requests that wait or are dead: they are not delivered.\n" WHICH;
static const char requeue_help[] = "usage: weir queue requeue TICKET... [OPTIONS]\n"
                                   "       weir queue requeue --all [--rule RULE] [OPTIONS]\n"
                                   "Dead requests wait again, with new attempts and their full age.\n" WHICH;

enum { PAGE = 1000, PAGES_MAX = 10000, LIST_DEFAULT = 100, TEXT = 40 };

/* Prints a reply as JSON, or by `print`; frees it. Returns the exit code. */
static int finish(const struct weir__command_line *given, bool good, struct weir__service_reply *reply,
                  void (*print)(const json_t *value))
{
    if (good && given->json)
        good = weir__print_json(json_incref(reply->json));
    else if (good)
        print(reply->json);
    weir__service_reply_free(reply);
    return good ? 0 : 1;
}

/* ---- stats ---- */

static const char *bytes_cell(const json_t *item, const char *member, char *buffer)
{
    return weir__bytes_text(json_number_value(json_object_get(item, member)), buffer);
}

static const char *wait_cell(const json_t *item, const char *member, char *buffer)
{
    const json_t *seconds = json_object_get(item, member);
    return json_is_number(seconds) ? weir__wait_text((int64_t)(json_number_value(seconds) * 1e9), buffer) : "";
}

static void print_stats(const json_t *stats)
{
    static const struct weir__item_column columns[] = {
        {{"rule", WEIR__CUT}, "rule", NULL},
        {{"waiting", WEIR__RIGHT}, "waiting", weir__member_number},
        {{"under way", WEIR__RIGHT}, "under_way", weir__member_number},
        {{"dead", WEIR__RIGHT}, "dead", weir__member_number},
        {{"bytes", WEIR__RIGHT}, "bytes", bytes_cell},
        {{"oldest", WEIR__RIGHT}, "oldest_s", wait_cell},
    };
    json_t *rows = json_copy(json_object_get(stats, "rules"));
    if (json_array_size(rows) > 1) {
        json_t *sum = json_copy((json_t *)(uintptr_t)stats);
        json_object_set_new(sum, "rule", json_string("all"));
        json_array_append_new(rows, sum);
    }
    weir__print_items(rows, columns, sizeof columns / sizeof *columns, "nothing waits, and nothing is dead");
    json_decref(rows);
}

static int stats(struct weir__command_line *given)
{
    struct weir__service_reply reply;
    bool good = weir__given_get(given, "/v1/queue/stats", NULL, &reply);
    return finish(given, good, &reply, print_stats);
}

/* ---- list ---- */

/* Gets a page of the requests that the options select. False after an error was printed. */
static bool list_page(const struct weir__command_line *given, int64_t limit, int64_t after, const char *state,
                      struct weir__service_reply *reply)
{
    struct weir__buffer path = {0};
    weir__buffer_printf(&path, "/v1/queue?limit=%" PRId64 "&after=%" PRId64, limit, after);
    weir__query_add(&path, "state", state);
    weir__query_add(&path, "rule", given->value[WEIR__WITH_RULE]);
    bool good =
        weir__given_get(given, weir__buffer_text(&path), NULL, reply) && weir__service_reply_items(given, reply);
    weir__buffer_free(&path);
    return good;
}

static const char *key_cell(const json_t *item, const char *member, char *buffer)
{
    (void)buffer;
    const char *hex = weir__member(item, "key_hex");
    return *hex ? hex : weir__member(item, member);
}

static const char *request_cell(const json_t *item, const char *member, char *buffer)
{
    snprintf(buffer, WEIR__ITEM_CELL, "%s %s", weir__member(item, "method"), weir__member(item, member));
    return buffer;
}

static void print_list(const json_t *reply)
{
    static const struct weir__item_column columns[] = {
        {{"ticket", 0}, "ticket", NULL},
        {{"state", 0}, "state", NULL},
        {{"rule", WEIR__CUT}, "rule", NULL},
        {{"key", WEIR__CUT}, "key", key_cell},
        {{"request", WEIR__CUT}, "path", request_cell},
        {{"accepted", 0}, "accepted", weir__member_time},
        {{"tries", WEIR__RIGHT}, "attempts", weir__member_number},
        {{"why", WEIR__CUT | WEIR__OPTIONAL}, "why", NULL},
    };
    const json_t *items = json_object_get(reply, "items");
    weir__print_items(items, columns, sizeof columns / sizeof *columns, "no requests");
    if (json_is_integer(json_object_get(reply, "next")))
        fputs("there are more: --limit, --state, --rule\n", stderr);
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
    return finish(given, good, &reply, print_list);
}

/* ---- get ---- */

static void line(const char *name, const char *value)
{
    if (*value)
        weir__print_line(stdout, "%-12s %s", name, value);
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

static int get(struct weir__command_line *given)
{
    char *path = weir__service_path("/v1/queue/", given->arguments[0], "");
    struct weir__service_reply reply;
    bool good = weir__given_get(given, path, given->arguments[0], &reply);
    free(path);
    return finish(given, good, &reply, print_one);
}

/* ---- cancel and requeue ---- */

struct changing {
    struct weir__command_line *given;
    const char *rest; /* of the path */
    const char *done; /* printed for each */
    json_t *items;    /* the changed requests */
    bool failed;
};

static void change_one(struct changing *changing, const char *ticket)
{
    char *path = weir__service_path("/v1/queue/", ticket, changing->rest);
    struct weir__service_reply reply;
    if (weir__given_post(changing->given, path, json_object(), ticket, &reply)) {
        json_array_append(changing->items, reply.json);
        if (!changing->given->json)
            weir__print_line(stdout, "%s: %s", ticket, changing->done);
    } else {
        changing->failed = true;
    }
    weir__service_reply_free(&reply);
    free(path);
}

/* Changes all requests of a state, page by page. The next page begins after the last ticket: changed ones do not shift
 * it. */
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
        fprintf(stderr, "weir %s: either tickets, or --all with --state and --rule\n", given->command);
        return 2;
    }
    changing->items = json_array();
    for (size_t i = 0; i < given->argument_count; i++)
        change_one(changing, given->arguments[i]);
    if (all)
        change_all(changing, state);
    if (given->json)
        weir__print_json(json_pack("{s:O}", "items", changing->items));
    else if (all)
        printf("%zu %s\n", json_array_size(changing->items), changing->done);
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
