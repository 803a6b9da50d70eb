/* weir queue: lists, shows, cancels and requeues deferred requests. */
#include "base/duration.h"
#include "cli/service.h"

#include <string.h>

enum { PAGE = 1000, PAGES_MAX = 10000, LIST_DEFAULT = 100, TEXT = 40 };

/* ---- stats ---- */

static const char *bytes_cell(const json_t *item, const char *member, char *buffer)
{
    return weir__bytes_text(json_number_value(json_object_get(item, member)), buffer);
}

static const char *wait_cell(const json_t *item, const char *member, char *buffer)
{
    const json_t *number = json_object_get(item, member);
    double seconds = json_number_value(number);
    bool fits = json_is_number(number) && seconds >= 0 && seconds < 9e9; /* as nanoseconds */
    char text[TEXT];
    if (!fits)
        return "";
    snprintf(buffer, WEIR__ITEM_CELL, "%s s", weir__wait_text((int64_t)(seconds * 1e9), text));
    return buffer;
}

static void print_stats(const json_t *stats)
{
    static const struct weir__column columns[] = {
        {"rule", WEIR__CUT, "rule", NULL},
        {"waiting", WEIR__RIGHT, "waiting", weir__member_number},
        {"under way", WEIR__RIGHT, "under_way", weir__member_number},
        {"dead", WEIR__RIGHT, "dead", weir__member_number},
        {"bytes", WEIR__RIGHT, "bytes", bytes_cell},
        {"oldest", WEIR__RIGHT, "oldest_s", wait_cell},
    };
    json_t *rows = json_copy(json_object_get(stats, "rules"));
    if (json_array_size(rows) > 1) {
        json_t *sum = json_copy((json_t *)(uintptr_t)stats);
        json_object_set_new(sum, "rule", json_string("all"));
        json_array_append_new(rows, sum);
    }
    weir__print_items(rows, columns, sizeof columns / sizeof *columns, "the queue is empty");
    json_decref(rows);
}

int weir__cmd_queue_stats(struct weir__given *given)
{
    struct weir__service_call call = {0};
    bool good = weir__call(given, &call, "/v1/queue/stats");
    return weir__call_end(given, &call, good, print_stats);
}

/* ---- list ---- */

/* Gets a page of the requests that the options select. False after an error was printed. */
static bool list_page(const struct weir__given *given, int64_t limit, int64_t after, const char *state,
                      struct weir__service_call *call)
{
    *call = (struct weir__service_call){0};
    return weir__call(given, call,
                      weir__path("/v1/queue?limit=%&after=%&state=%&rule=%", weir__digits(limit), weir__digits(after),
                                 state, weir__option(given, "rule"))) &&
           weir__call_items(given, call);
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
    static const struct weir__column columns[] = {
        {"ticket", 0, "ticket", NULL},
        {"state", 0, "state", NULL},
        {"rule", WEIR__CUT, "rule", NULL},
        {"key", WEIR__CUT, "key", key_cell},
        {"request", WEIR__CUT, "path", request_cell},
        {"accepted", 0, "accepted", weir__member_time},
        {"tries", WEIR__RIGHT, "attempts", weir__member_number},
        {"why", WEIR__CUT | WEIR__OPTIONAL, "why", NULL},
    };
    const json_t *items = json_object_get(reply, "items");
    weir__print_items(items, columns, sizeof columns / sizeof *columns, "no requests");
    if (json_is_integer(json_object_get(reply, "next")))
        fputs("there are more: --limit, --state, --rule\n", stderr);
}

int weir__cmd_queue_list(struct weir__given *given)
{
    int64_t limit = weir__option_number(given, "limit");
    struct weir__service_call call;
    if (limit > PAGE)
        fprintf(stderr, "weir %s: --limit is at most %d\n", given->command, PAGE);
    if (limit < 0 || limit > PAGE)
        return 2;
    bool good = list_page(given, limit ? limit : LIST_DEFAULT, 0, weir__option(given, "state"), &call);
    return weir__call_end(given, &call, good, print_list);
}

/* ---- get ---- */

static void line(const char *name, const char *value)
{
    if (*value)
        weir__print_line(stdout, "%-12s %s", name, value);
}

static void print_one(const json_t *item)
{
    static const char *const members[] = {"ticket",   "state", "why",     "rule",     "key",         "key_hex",
                                          "method",   "path",  "cost",    "attempts", "last_status", "body_bytes",
                                          "accepted", "due",   "expires", "ended"};
    const json_t *names = json_object_get(item, "headers"), *name;
    char number[TEXT];
    size_t i;
    for (i = 0; i < sizeof members / sizeof *members; i++) {
        line(members[i], weir__member(item, members[i]));
        line(members[i], weir__member_number(item, members[i], number));
    }
    json_array_foreach(names, i, name) line(i ? "" : "headers", json_string_value(name));
}

int weir__cmd_queue_get(struct weir__given *given)
{
    struct weir__service_call call = {.about = given->arguments[0]};
    bool good = weir__call(given, &call, weir__path("/v1/queue/%", given->arguments[0]));
    return weir__call_end(given, &call, good, print_one);
}

json_t *weir__deferred_find(const char *file, const char *ticket)
{
    struct weir__given_option option = {.name = WEIR__TEXT("file"), .value = file};
    struct weir__given given = {.command = "queue get", .options = &option, .option_count = 1};
    struct weir__service_call call = {0};
    int code;
    given.service = weir__service_open(&given, &code);
    if (!given.service)
        return NULL;
    bool found = weir__send(&given, &call, weir__path("/v1/queue/%", ticket)) && call.status == 200;
    json_t *item = found ? json_incref(call.json) : NULL;
    weir__call_free(&call);
    weir__service_close(given.service);
    return item;
}

/* ---- cancel and requeue ---- */

struct changing {
    struct weir__given *given;
    const char *form; /* of the path */
    const char *done; /* printed for each */
    json_t *items;    /* the changed requests */
    bool failed;
};

static void change_one(struct changing *changing, const char *ticket)
{
    struct weir__service_call call = {.method = "POST", .about = ticket, .json_body = json_object()};
    if (weir__call(changing->given, &call, weir__path(changing->form, ticket))) {
        json_array_append(changing->items, call.json);
        if (!changing->given->json)
            weir__print_line(stdout, "%s: %s", ticket, changing->done);
    } else {
        changing->failed = true;
    }
    weir__call_free(&call);
}

/* Changes all requests of a state, page by page. The next page begins after the last ticket: changed ones do not shift
 * it. */
static void change_all(struct changing *changing, const char *state)
{
    int64_t after = 0;
    for (int page = 0; page == 0 || (after && page < PAGES_MAX); page++) {
        struct weir__service_call call;
        const json_t *item;
        size_t i;
        if (!list_page(changing->given, PAGE, after, state, &call))
            changing->failed = true;
        json_array_foreach(json_object_get(call.json, "items"), i, item)
            change_one(changing, weir__member(item, "ticket"));
        after = weir__member_int(call.json, "next");
        weir__call_free(&call);
    }
}

static int change(struct changing *changing, const char *state)
{
    struct weir__given *given = changing->given;
    bool all = weir__option(given, "all");
    if (all == (given->argument_count > 0) || (!all && (weir__option(given, "rule") || weir__option(given, "state")))) {
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

int weir__cmd_queue_cancel(struct weir__given *given)
{
    struct changing changing = {.given = given, .form = "/v1/queue/%/cancel", .done = "cancelled"};
    const char *state = weir__option(given, "state");
    if (weir__option(given, "all") && (!state || (strcmp(state, "waiting") != 0 && strcmp(state, "dead") != 0))) {
        fprintf(stderr, "weir %s: --all needs --state waiting or --state dead\n", given->command);
        return 2;
    }
    return change(&changing, state);
}

int weir__cmd_queue_requeue(struct weir__given *given)
{
    struct changing changing = {.given = given, .form = "/v1/queue/%/requeue", .done = "waits again"};
    return change(&changing, "dead");
}
