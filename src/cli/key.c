/* weir key: shows, blocks, unblocks, resets and charges a key, under all rules whose key it is, on all hosts. */
#include "base/duration.h"
#include "cli/service.h"

#include <string.h>

enum { SHOWN_SPAN = 64 };

/* ---- show and list ---- */

/* Rounded up to seconds; more than ten minutes, to minutes. */
static const char *span_text(const json_t *seconds, char *buffer)
{
    enum { MINUTE = 60, LONG = 600 };
    double value = json_number_value(seconds);
    if (!json_is_number(seconds) || value < 0 || value > 9e9) /* as nanoseconds */
        return "";
    int64_t rounded = (int64_t)(value + 0.999);
    rounded = rounded > LONG ? (rounded + MINUTE - 1) / MINUTE * MINUTE : rounded;
    return weir__window_text(rounded * WEIR_SECOND, buffer);
}

static const char *used_cell(const json_t *item, const char *member, char *buffer)
{
    const json_t *limit = json_object_get(item, "limit");
    (void)member;
    if (!json_is_integer(limit) || json_integer_value(limit) < 0)
        return "";
    snprintf(buffer, WEIR__ITEM_CELL, "%lld of %lld",
             (long long)(json_integer_value(limit) - weir__member_int(item, "remaining")),
             (long long)json_integer_value(limit));
    return buffer;
}

/* "blocked for 59m by alice: reason", or "passes again in 3s". */
static const char *state_cell(const json_t *item, const char *member, char *buffer)
{
    const json_t *block = json_object_get(item, "block"), *after = json_object_get(item, "retry_after_s");
    char span[SHOWN_SPAN];
    bool blocked = strcmp(weir__member(item, member), "blocked") == 0;
    const char *by = weir__member(block, "by"), *reason = weir__member(block, "reason");
    if (!blocked && json_number_value(after) <= 0)
        return "passes";
    if (!blocked)
        snprintf(buffer, WEIR__ITEM_CELL, "passes again in %s", span_text(after, span));
    else
        snprintf(buffer, WEIR__ITEM_CELL, "blocked for %s%s%s%s%s%s", span_text(after, span),
                 json_is_object(block) ? " on all hosts" : " on this host", *by ? " by " : "", by, *reason ? ": " : "",
                 reason);
    return buffer;
}

static void print_states(const json_t *items)
{
    static const struct weir__column columns[] = {{"rule", WEIR__CUT, "rule", NULL},
                                                  {"key", WEIR__CUT, "key", NULL},
                                                  {"used", WEIR__RIGHT, "limit", used_cell},
                                                  {"state", WEIR__CUT, "reason", state_cell}};
    weir__print_items(items, columns, sizeof columns / sizeof *columns, "none");
}

static const char *left_cell(const json_t *item, const char *member, char *buffer)
{
    return span_text(json_object_get(item, member), buffer);
}

static void print_blocks(const json_t *reply)
{
    static const struct weir__column columns[] = {{"rule", WEIR__CUT, "rule", NULL},
                                                  {"key", WEIR__CUT, "key", NULL},
                                                  {"for", WEIR__RIGHT, "left_s", left_cell},
                                                  {"by", WEIR__CUT, "by", NULL},
                                                  {"from", WEIR__CUT | WEIR__OPTIONAL, "host", NULL},
                                                  {"reason", WEIR__CUT | WEIR__OPTIONAL, "reason", NULL}};
    if (strcmp(weir__member(reply, "hosts"), "this") == 0)
        fputs("no store is shared with other hosts: blocks hold on one host, and weir key show KEY shows them\n",
              stderr);
    weir__print_items(json_object_get(reply, "items"), columns, sizeof columns / sizeof *columns,
                      *weir__member(reply, "why") ? "none is known here" : "no key is blocked on all hosts");
}

int weir__cmd_key_list(struct weir__given *given)
{
    struct weir__service_call call = {0};
    bool good = weir__call(given, &call, "/v1/blocks");
    const char *why = weir__format("%s", weir__member(call.json, "why"));
    int code = weir__call_end(given, &call, good, print_blocks);
    if (!*why)
        return code;
    weir__print_line(stderr,
                     "weir %s: the store cannot be read (%s): the list may lack blocks; all hosts keep those that they "
                     "have, and weir key show KEY shows them",
                     given->command, why);
    return 1;
}

/* ---- The rules of a key ---- */

/* The templates of keys in the reply for a key that no rule has. */
static const char *templates_text(const json_t *reply)
{
    const char *text = "";
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(reply, "templates"), i, item) text =
        weir__format("%s%s%s", text, i ? ", " : "", json_string_value(item));
    return *text ? text : "see weir lint";
}

/*
 * The key's state under each rule that it belongs to, or under the one of --rule. NULL after an error was printed.
 * *hosts: where a change would hold.
 */
static json_t *find_states(const struct weir__given *given, const char **hosts)
{
    const char *key = given->arguments[0], *rule = weir__option(given, "rule");
    struct weir__service_call call = {.about = key};
    json_t *items = NULL;
    if (weir__call(given, &call, weir__path("/v1/keys?about=%", key)) && (items = weir__call_items(given, &call)))
        items = json_copy(items);
    *hosts = weir__format("%s", weir__member(call.json, "hosts"));
    const char *templates = templates_text(call.json);
    weir__call_free(&call);
    for (size_t i = json_array_size(items); rule && i-- > 0;) {
        const json_t *item = json_array_get(items, i);
        if (strcmp(weir__member(item, "rule"), rule) != 0 && strcmp(weir__member(item, "rule_base"), rule) != 0)
            json_array_remove(items, i);
    }
    if (items && rule && json_array_size(items) == 0) { /* its template does not matter then */
        struct weir__service_call one = {.about = key};
        if (weir__call(given, &one, weir__path("/v1/keys/%/%", rule, key)))
            json_array_append(items, one.json);
        weir__call_free(&one);
        return json_array_size(items) ? items : (json_decref(items), NULL);
    }
    if (items && json_array_size(items) == 0) {
        bool network = strchr(key, '/') && strstr(templates, "${client_ip}");
        weir__print_line(stderr,
                         "weir %s: no rule counts a key such as '%s'; keys of rules: %s; --rule NAME takes any key%s",
                         given->command, key, templates,
                         network ? "; for a network, write block: { networks: [...] } into the rules" : "");
        json_decref(items);
        return NULL;
    }
    return items;
}

int weir__cmd_key_show(struct weir__given *given)
{
    const char *hosts;
    json_t *items = find_states(given, &hosts);
    if (!items)
        return 1;
    if (given->json) {
        bool good = weir__print_json(json_pack("{s:o, s:s}", "items", items, "hosts", hosts));
        return good ? 0 : 1;
    }
    print_states(items);
    if (strcmp(hosts, "this") == 0)
        puts("blocks hold on this host alone");
    json_decref(items);
    return 0;
}

/* ---- Changes ---- */

struct key_change {
    struct weir__given *given;
    const char *method, *form; /* of the call */
    const char *done;          /* for messages */
    int64_t cost;              /* of a take; 0: none */
    const char *span;          /* of a block; NULL: none */
    json_t *replies;
    bool failed, narrow; /* an error was printed; it does not hold on all hosts */
};

static void print_change(struct key_change *change, const json_t *reply)
{
    const char *hosts = weir__member(reply, "hosts"), *why = weir__member(reply, "why");
    const char *rule = weir__member(reply, "rule"), *key = weir__member(reply, "key");
    char number[32], span[SHOWN_SPAN];
    change->narrow |= !change->cost && strcmp(hosts, "all") != 0;
    if (change->given->json)
        return;
    if (change->cost) {
        bool allowed = json_is_true(json_object_get(reply, "allowed"));
        const char *after = span_text(json_object_get(reply, "retry_after_s"), span);
        weir__print_line(stdout, "%s: %s %s, %s left%s%s", rule, key, allowed ? "took it" : "denied",
                         weir__member_number(reply, "remaining", number), *after ? ", passes again in " : "", after);
        return;
    }
    weir__print_line(stdout, "%s: %s %s%s%s %s%s%s", rule, key, change->done, change->span ? " for " : "",
                     change->span ? change->span : "",
                     strcmp(hosts, "all") == 0    ? "on all hosts"
                     : strcmp(hosts, "this") == 0 ? "on this host only"
                                                  : "on this host, and on the others when the store has it",
                     *why ? ": " : "", why);
}

static void change_one(struct key_change *change, const json_t *item)
{
    struct weir__given *given = change->given;
    const char *rule = weir__option(given, "rule"), *reason = weir__option(given, "reason");
    const char *key = weir__member(item, "key"), *base = weir__member(item, "rule_base");
    struct weir__service_call call = {.method = change->method, .about = key};
    const char *path = weir__path(change->form, rule ? rule : base, key);
    if (change->span)
        call.json_body = json_pack("{s:s, s:s*}", "for", change->span, "reason", reason);
    else if (change->cost)
        call.json_body = json_pack("{s:I, s:s*}", "cost", (json_int_t)change->cost, "reason", reason);
    else
        path = weir__format("%s%s", path, reason ? weir__path("?reason=%", reason) : "");
    if (weir__call(given, &call, path)) {
        json_array_append(change->replies, call.json);
        print_change(change, call.json);
    } else {
        change->failed = true;
    }
    weir__call_free(&call);
}

/* A part of several different keys, such as 42 of user:42 and order:42, changes none of them. */
static bool is_one_key(const struct weir__given *given, const json_t *items)
{
    const char *first = weir__member(json_array_get(items, 0), "key");
    const json_t *item;
    size_t i;
    json_array_foreach(items, i, item)
    {
        if (strcmp(weir__member(item, "key"), first) == 0)
            continue;
        weir__print_line(stderr, "weir %s: '%s' is part of several keys; name one of them, or a rule by --rule:",
                         given->command, given->arguments[0]);
        json_array_foreach(items, i, item)
            weir__print_line(stderr, "  %s --rule %s", weir__member(item, "key"), weir__member(item, "rule_base"));
        return false;
    }
    return true;
}

static int run_change(struct key_change *change)
{
    struct weir__given *given = change->given;
    const char *hosts;
    const json_t *item;
    size_t i;
    json_t *items = find_states(given, &hosts);
    if (!items)
        return 1;
    bool all = weir__option(given, "all-hosts");
    if (all && strcmp(hosts, "this") == 0) {
        fprintf(stderr,
                "weir %s: --all-hosts needs a store that hosts share (without hash_keys); nothing was changed\n",
                given->command);
        json_decref(items);
        return 1;
    }
    if (!is_one_key(given, items)) {
        json_decref(items);
        return 2;
    }
    change->replies = json_array();
    json_array_foreach(items, i, item) change_one(change, item);
    json_decref(items);
    if (given->json)
        weir__print_json(json_pack("{s:O}", "items", change->replies));
    json_decref(change->replies);
    return change->failed || (all && change->narrow) ? 1 : 0;
}

int weir__cmd_key_block(struct weir__given *given)
{
    const char *span = weir__option(given, "for");
    return run_change(&(struct key_change){
        .given = given, .method = "PUT", .form = "/v1/keys/%/%/block", .done = "blocked", .span = span ? span : "1h"});
}

int weir__cmd_key_unblock(struct weir__given *given)
{
    return run_change(
        &(struct key_change){.given = given, .method = "DELETE", .form = "/v1/keys/%/%/block", .done = "unblocked"});
}

int weir__cmd_key_reset(struct weir__given *given)
{
    return run_change(
        &(struct key_change){.given = given, .method = "DELETE", .form = "/v1/keys/%/%", .done = "reset"});
}

int weir__cmd_key_take(struct weir__given *given)
{
    int64_t cost = weir__option_number(given, "cost");
    if (cost < 0)
        return 2;
    return run_change(&(struct key_change){
        .given = given, .method = "POST", .form = "/v1/keys/%/%/take", .done = "taken", .cost = cost ? cost : 1});
}
