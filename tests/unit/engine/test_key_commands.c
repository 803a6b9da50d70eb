/* The queue of key commands, and the rules of a key. */
#include "../../engine.h"

#include "engine/engine.h"

/* ---- The rules of a key ---- */

static const char rules[] =
    "identity: { user_id: header:X-User, client_ip: { ipv6_prefix: 64 } }\n"
    "rules:\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 5, window: 1m }\n"
    "  - name: two\n"
    "    match: { path: /two }\n"
    "    key: \"user:${user_id}\"\n"
    "    limits: [ { limit: 3, window: 1s }, { limit: 5, window: 1h } ]\n"
    "  - { name: login, match: { path: /login }, key: \"ip:${client_ip}\", limit: 5, window: 1m }\n"
    "  - { name: both, match: { path: /b }, key: \"${header:x-org}|${user_id}\", limit: 5, window: 1m }\n"
    "  - { name: from, match: { path: /f }, key: \"at/${client_ip}/${user_id}\", limit: 5, window: 1m }\n"
    "  - { name: all, match: { path: /all }, limit: 5, window: 1m }\n"
    "  - { name: tried, match: { path: /t }, key: \"user:${user_id}\", limit: 5, window: 1m, shadow: true }\n"
    "  - { name: closed, match: { path: /c }, key: \"user:${user_id}\", limit: 0, window: 1m }\n";

/* "rule=key rule=key" */
static const char *found(weir *engine, const char *about)
{
    static struct weir__key_rule list[WEIR__KEY_RULES_MAX];
    static char text[4096];
    size_t count = weir__key_rules(engine, weir__text_of(about), list);
    *text = 0;
    for (size_t i = 0, at = 0; i < count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s=%.*s", i ? " " : "", list[i].rule,
                               (int)list[i].key_len, list[i].key);
    return text;
}

#define CHECK_FOUND(about, expected) CHECK(strcmp(found(engine, about), expected) == 0)

TEST(key_belongs_to_the_rules_whose_templates_yield_it)
{
    weir *engine = test_engine(rules);
    CHECK_FOUND("user:42", "api=user:42 two=user:42");
    CHECK_FOUND("ip:192.0.2.1", "login=ip:192.0.2.1");
    CHECK_FOUND("ip:2001:db8::/64", "login=ip:2001:db8::/64");
    CHECK_FOUND("ip:2001:db8::7", "login=ip:2001:db8::/64"); /* an address is counted with its network */
    /* No client has these keys: a block of them would have no effect. */
    CHECK_FOUND("ip:192.0.2.0/24", "");
    CHECK_FOUND("ip:2001:db8::/48", "");
    CHECK_FOUND("ip:2001:db8::7/64", "");
    CHECK_FOUND("ip:192.0.2.1:80", "login=ip:192.0.2.1");
    CHECK_FOUND("at/192.0.2.1/7", "from=at/192.0.2.1/7");
    CHECK_FOUND("acme|42", "both=acme|42");
    CHECK_FOUND("", "");
    CHECK_FOUND("*", "all=*");
    /* The first value ends at the first separator outside of escapes. */
    CHECK_FOUND("a%7Cb|c|d", "both=a%7Cb|c|d");
    weir_close(engine);
}

TEST(value_stands_for_the_keys_that_have_no_other)
{
    weir *engine = test_engine(rules);
    CHECK_FOUND("42", "api=user:42 two=user:42");
    CHECK_FOUND("192.0.2.1", "api=user:192.0.2.1 two=user:192.0.2.1 login=ip:192.0.2.1");
    CHECK_FOUND("2001:db8::7", "api=user:2001:db8::7 two=user:2001:db8::7 login=ip:2001:db8::/64");
    CHECK_FOUND("%x", "api=user:%25x two=user:%25x");
    /* A prefix that no template has, or has for other values, is a mistake, not part of a value. */
    CHECK_FOUND("key:42", "");
    CHECK_FOUND("ip:alice", "");
    CHECK_FOUND("usr:192.0.2.1", "");
    CHECK_FOUND("fe80::1", "api=user:fe80::1 two=user:fe80::1 login=ip:fe80::/64");
    CHECK_FOUND("user:key:42", "api=user:key:42 two=user:key:42");
    CHECK_FOUND("|c", "api=user:|c two=user:|c");
    weir_close(engine);
}

TEST(templates_of_keys_are_listed_once)
{
    weir *engine = test_engine(rules);
    char list[4][WEIR__KEY_MAX];
    CHECK_EQ(weir__key_templates(engine, list, 4), 4);
    CHECK(strcmp(list[0], "user:${user_id}") == 0 && strcmp(list[1], "ip:${client_ip}") == 0);
    CHECK(strcmp(list[2], "${header:x-org}|${user_id}") == 0);
    CHECK_EQ(weir__key_templates(engine, list, 2), 2);
    weir_close(engine);
}

/* A key that the engine makes of a request belongs to its rule, whatever the values are. */
TEST(keys_of_requests_belong_to_their_rules)
{
    static const char *const values[] = {"7", "a|b", "%", "%%", "%25", "%missing", "a%7Cb", "|", "x:y"};
    weir *engine = test_engine(rules);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            char line[256];
            snprintf(line, sizeof line, "GET /b @x-org=%s @x-user=%s", values[i], values[k]);
            weir_result result = test_check(engine, line, 0);
            CHECK(weir__template_matches(
                &weir__rule_named(((struct weir__ruleset *)(uintptr_t)engine->hazards.current)->rules, "both", false)
                     ->key,
                weir__text_of(result.decided_by.key), NULL));
        }
    char longest[400];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "user:", 5);
    longest[sizeof longest - 1] = 0;
    CHECK(strncmp(found(engine, longest), "api=user:xxx", 12) == 0); /* counted by its hash */
    weir_close(engine);
}

/* ---- The queue ---- */

static struct weir__key_command command(enum weir__key_action action, const char *key)
{
    struct weir__key_command made = {.action = (uint8_t)action, .rule = "api", .rule_len = 3};
    made.key_len = (uint16_t)strlen(key);
    memcpy(made.key, key, made.key_len);
    return made;
}

static void open_queue(struct weir__key_commands *queue)
{
    memset(queue, 0, sizeof *queue);
    CHECK_EQ(weir__key_commands_open(&(struct weir__file_spec){.path = NULL}, queue), 0);
    CHECK(queue->rows >= 64 && queue->header->sender != 0);
}

TEST(queue_is_first_in_first_out_and_bounded)
{
    struct weir__key_commands queue;
    struct weir__key_command made, next;
    uint64_t ticket, first;
    int error = 1;
    char key[32];
    open_queue(&queue);
    CHECK_EQ(weir__key_commands_first(&queue, &next, &ticket), 0);
    for (uint32_t i = 0; i < queue.rows; i++) {
        snprintf(key, sizeof key, "k%u", i);
        made = command(WEIR__KEY_BLOCK, key);
        CHECK_EQ(weir__key_commands_add(&queue, &made, &ticket), 0);
        CHECK_EQ(ticket, i + 1);
    }
    CHECK_EQ(weir__key_commands_add(&queue, &made, &ticket), WEIR_EBUSY);
    CHECK(!weir__key_commands_done(&queue, 1, &error));
    for (uint32_t i = 0; i < 2 * queue.rows; i++) {
        CHECK_EQ(weir__key_commands_first(&queue, &next, &first), 1);
        CHECK_EQ(first, i + 1);
        snprintf(key, sizeof key, "k%u", i);
        CHECK(next.key_len == strlen(key) && memcmp(next.key, key, next.key_len) == 0);
        weir__key_commands_remove(&queue, i % 2 ? WEIR_EBLOCKS : 0);
        CHECK(weir__key_commands_done(&queue, first, &error));
        CHECK_EQ(error, i % 2 ? WEIR_EBLOCKS : 0);
        snprintf(key, sizeof key, "k%u", i + queue.rows);
        made = command(WEIR__KEY_BLOCK, key);
        CHECK_EQ(weir__key_commands_add(&queue, &made, &ticket), 0);
    }
    weir__key_commands_close(&queue);
}

TEST(incomplete_and_damaged_rows_are_not_commands)
{
    struct weir__key_commands queue;
    struct weir__key_command made = command(WEIR__KEY_BLOCK, "k"), next;
    uint64_t ticket;
    open_queue(&queue);
    CHECK_EQ(weir__key_commands_add(&queue, &made, &ticket), 0);
    queue.row[0].ticket = 0; /* its writer was killed before this */
    CHECK_EQ(weir__key_commands_first(&queue, &next, &ticket), WEIR_EBUSY);
    queue.row[0].ticket = 1;
    queue.row[0].command.key[0] ^= 1;
    CHECK_EQ(weir__key_commands_first(&queue, &next, &ticket), WEIR_EDAMAGED);
    weir__key_commands_remove(&queue, WEIR_EDAMAGED);
    CHECK_EQ(weir__key_commands_first(&queue, &next, &ticket), 0);
    /* Lengths out of bounds, with a checksum that is right. */
    for (int i = 0; i < 6; i++) {
        made = command(WEIR__KEY_BLOCK, "k");
        uint16_t *const len[] = {&made.rule_len, &made.key_len, &made.by_len, &made.reason_len};
        if (i < 4)
            *len[i] = 1000;
        else if (i == 4)
            made.action = WEIR__KEY_ACTIONS;
        else
            made.for_ns = -1;
        CHECK_EQ(weir__key_commands_add(&queue, &made, &ticket), 0);
        CHECK_EQ(weir__key_commands_first(&queue, &next, &ticket), WEIR_EDAMAGED);
        weir__key_commands_remove(&queue, WEIR_EDAMAGED);
    }
    /* Counters that no writer leaves. */
    queue.header->head = 1 << 20;
    CHECK_EQ(weir__key_commands_first(&queue, &next, &ticket), WEIR_EDAMAGED);
    weir__key_commands_remove(&queue, WEIR_EDAMAGED);
    CHECK_EQ(queue.header->head, queue.header->tail);
    weir__key_commands_close(&queue);
}

/* ---- The engine ---- */

TEST(commands_are_queued_where_there_is_a_store)
{
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_text = rules,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .key_commands = ""};
    weir *engine = NULL, *alone = test_engine(rules);
    struct weir__key_command next;
    uint64_t ticket;
    int why = 77;
    CHECK_EQ(weir_key_reach(alone), WEIR_THIS_HOST);
    CHECK_EQ(weir__key_reach(alone, 0, 0, &why), WEIR_THIS_HOST);
    CHECK_EQ(why, 0);
    weir_close(alone);
    CHECK_EQ(weir_open(&how, &engine), 0);
    CHECK_EQ(weir_key_reach(engine), WEIR_ALL_HOSTS_LATER); /* no agent so far */
    weir__key_commands_beat(&engine->key_commands, WEIR_ESTOREDOWN);
    CHECK_EQ(weir_key_reach(engine), WEIR_ALL_HOSTS_LATER);
    weir__key_commands_beat(&engine->key_commands, 0);
    CHECK_EQ(weir_key_reach(engine), WEIR_ALL_HOSTS);
    CHECK_EQ(weir_key_block(engine, "none", "user:7", 6, WEIR_SECOND, (weir_time){0, 0}), WEIR_ENORULE);
    CHECK_EQ(weir__key_commands_first(&engine->key_commands, &next, &ticket), 0); /* a failed one is not sent */
    struct weir__key_author author = {WEIR__TEXT("alice"), WEIR__TEXT("scraping")};
    CHECK_EQ(weir__key_block_by(engine, "api", WEIR__TEXT("user:7"), 60 * WEIR_SECOND, &author, &ticket), 0);
    CHECK_EQ(ticket, 1);
    CHECK_EQ(weir__key_reach(engine, ticket, 0, &why), WEIR_ALL_HOSTS_LATER);
    CHECK_EQ(weir__key_commands_first(&engine->key_commands, &next, &ticket), 1);
    CHECK(next.action == WEIR__KEY_BLOCK && next.for_ns == 60 * WEIR_SECOND && strcmp(next.rule, "api") == 0);
    CHECK(strcmp(next.by, "alice") == 0 && strcmp(next.reason, "scraping") == 0);
    weir__key_commands_remove(&engine->key_commands, WEIR_EBLOCKS);
    CHECK_EQ(weir__key_reach(engine, 1, 0, &why), WEIR_THIS_HOST);
    CHECK_EQ(why, WEIR_EBLOCKS);
    /* Here at once. */
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(engine, "api", "user:7", 6, (weir_time){0, 0}, &outcome), 0);
    CHECK_EQ(outcome.decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(weir__key_apply(engine, "api", WEIR__TEXT("user:7"), WEIR__KEY_UNBLOCK, 0), 0);
    CHECK_EQ(weir_key_state(engine, "api", "user:7", 6, (weir_time){0, 0}, &outcome), 0);
    CHECK_EQ(outcome.decision.verdict, WEIR_ALLOW);
    CHECK_EQ(weir__key_commands_first(&engine->key_commands, &next, &ticket), 0); /* it came from another host */
    weir_close(engine);
}

/* A command that found the queue full holds on this host alone, and its caller knows, whatever the agent does then. */
TEST(a_full_queue_is_reported)
{
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_text = rules,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .key_commands = ""};
    weir *engine = NULL;
    uint64_t ticket = 7;
    int why, queued = 0, error = 0;
    CHECK_EQ(weir_open(&how, &engine), 0);
    weir__key_commands_beat(&engine->key_commands, 0);
    while (queued < 1000 && !(error = weir_key_block(engine, "api", "user:7", 6, WEIR_SECOND, (weir_time){0, 0})))
        queued++;
    CHECK_EQ(error, 1);
    CHECK_EQ(queued, engine->key_commands.rows);
    CHECK_EQ(weir_key_reset(engine, "api", "user:7", 6, (weir_time){0, 0}), 1);
    CHECK_EQ(
        weir__key_block_by(engine, "api", WEIR__TEXT("user:7"), WEIR_SECOND, &(struct weir__key_author){0}, &ticket),
        0);
    CHECK_EQ(ticket, 0);
    CHECK_EQ(weir__key_reach(engine, ticket, 0, &why), WEIR_THIS_HOST);
    CHECK_EQ(why, WEIR_ESTORESLOW);
    weir__key_commands_remove(&engine->key_commands, 0);
    CHECK_EQ(weir_key_block(engine, "api", "user:7", 6, WEIR_SECOND, (weir_time){0, 0}), 0);
    weir_close(engine);
}

TEST(keys_that_the_store_must_not_see_stay_here)
{
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_text = rules,
                        .store = "redis://127.0.0.1:1?hash_keys=true",
                        .flags = WEIR_NO_CONNECT,
                        .key_commands = ""};
    weir *engine = NULL;
    struct weir__key_command next;
    uint64_t ticket = 7;
    int why;
    CHECK_EQ(weir_open(&how, &engine), 0);
    CHECK_EQ(
        weir__key_block_by(engine, "api", WEIR__TEXT("user:7"), WEIR_SECOND, &(struct weir__key_author){0}, &ticket),
        0);
    CHECK_EQ(ticket, 0);
    CHECK_EQ(weir__key_reach(engine, ticket, 0, &why), WEIR_THIS_HOST);
    CHECK_EQ(why, WEIR_EHASHKEYS);
    CHECK_EQ(weir__key_commands_first(&engine->key_commands, &next, &ticket), 0);
    weir_close(engine);
}

TEST_MAIN
