/*
 * weir_check and weir_check_descriptors need at most 16 KiB of stack, whatever the rules, and 64 KiB when they reload
 * them: threads of servers and of coroutine libraries have small ones. Measured on a painted stack.
 */
#include "../../engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { STACK = 256 * 1024, PAINT = 0xa5, STACK_MAX = 16 * 1024, RELOAD_STACK_MAX = 64 * 1024 };

static weir *engine;
static const char *path;

static bool lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    static char agent[3000];
    (void)context;
    (void)name;
    memset(agent, 'a', sizeof agent);
    if (kind == WEIR_ATTR_PATH)
        *value = (weir_text){path, strlen(path)};
    else if (kind == WEIR_ATTR_METHOD)
        *value = (weir_text){"GET", 3};
    else if (kind == WEIR_ATTR_HEADER)
        *value = (weir_text){agent, sizeof agent};
    else
        return false;
    return true;
}

static void *do_nothing(void *argument)
{
    return argument;
}

static void *check(void *argument)
{
    static weir_outcome outcomes[16];
    static const uint8_t peer[4] = {192, 0, 2, 1};
    static weir_result result; /* the caller's, not part of weir_check's stack */
    weir_query query = {.lookup = lookup,
                        .peer = peer,
                        .peer_len = sizeof peer,
                        .path = {path, strlen(path)},
                        .now = test_seconds(1),
                        .outcomes = outcomes,
                        .outcomes_max = 16};
    for (int i = 0; i < 4; i++) /* the last is denied */
        CHECK_EQ(weir_check(engine, &query, &result), 0);
    CHECK(!weir_passes(&result.decision));
    query.path.len = 0; /* by the lookup */
    CHECK_EQ(weir_check(engine, &query, &result), 0);
    return argument;
}

static void *check_descriptors(void *argument)
{
    static weir_outcome outcomes[2];
    static weir_result result;
    weir_descriptor_entry entry = {.key = {"user", 4}, .value = {"4711", 4}};
    weir_descriptor descriptors[2] = {{.entries = &entry, .entry_count = 1}, {.entries = &entry, .entry_count = 1}};
    weir_descriptor_query query = {.domain = {"shop", 4},
                                   .descriptors = descriptors,
                                   .descriptor_count = 2,
                                   .now = test_seconds(1),
                                   .outcomes = outcomes};
    CHECK_EQ(weir_check_descriptors(engine, &query, &result), 0);
    CHECK_EQ(result.matched, 2);
    return argument;
}

/* Bytes of stack that a thread with this function uses. */
static size_t stack_of(void *(*run)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *stack = aligned_alloc(4096, STACK);
    size_t untouched = 0;
    memset(stack, PAINT, STACK);
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstack(&attributes, stack, STACK), 0);
    CHECK_EQ(pthread_create(&thread, &attributes, run, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (untouched < STACK && stack[untouched] == PAINT)
        untouched++;
    free(stack);
    return STACK - untouched;
}

static void check_stack(const char *rules, const char *at, void *(*run)(void *))
{
    engine = test_engine(rules);
    path = at;
    stack_of(run); /* symbol binding and allocations of the first call do not count */
    size_t needed = stack_of(run) - stack_of(do_nothing);
    printf("%zu bytes of stack\n", needed);
#if !defined WEIR__SANITIZED && !defined __SANITIZE_THREAD__ /* whose frames are larger */
    CHECK(needed <= STACK_MAX);
#endif
    weir_close(engine);
}

TEST(stack_with_one_rule)
{
    check_stack("rules:\n  - { name: a, key: '${client_ip}', limit: 3, window: 1d }\n", "/a", check);
}

TEST(stack_with_lists_tiers_costs_and_expressions)
{
    check_stack("identity: { plan: header:X-Plan, user_id: header:X-User }\n"
                "block: { networks: [198.51.100.0/24] }\n"
                "rules:\n"
                "  - { name: a, match: { path: '/a/**', method: [GET] }, key: 'u:${user_id}:${path}', limit: 3, "
                "window: 1d }\n"
                "  - { name: b, match: { header: { X-Agent: { regex: '^(a|b)+c?$' } } }, key: '${user_id}', limit: 9, "
                "window: 1d, "
                "algorithm: sliding_window_log }\n"
                "  - { name: c, key: '${user_id}', limit: 3000000, window: 1d, algorithm: sliding_window_counter, "
                "shadow: true }\n",
                "/a/b/c", check);
}

/* Each segment with a star is a recursion of the search; the index has them for as many levels as it has nodes. */
TEST(stack_with_a_star_in_every_segment)
{
    char rules[1024] = "rules:\n  - { name: a, match: { path: '", deep[256] = "";
    for (int i = 0; i < 40; i++) {
        strcat(rules, i % 2 ? "/*" : "/*a*");
        strcat(deep, "/a;b");
    }
    strcat(rules, "' }, key: '${client_ip}', limit: 3, window: 1d }\n");
    check_stack(rules, deep, check);
}

TEST(stack_with_descriptors)
{
    check_stack("domain: shop\ndescriptors:\n  - { key: user, rate_limit: { unit: minute, requests_per_unit: 100 } }\n",
                "/", check_descriptors);
}

static int reloaded;

/* As weir_check does at most once a second. */
static void *reload(void *argument)
{
    reloaded = weir_reload(engine);
    return argument;
}

/* A reload also compiles regular expressions and reads time zones, on the stack of the thread that checks. */
TEST(stack_of_a_reload)
{
    char name[] = "/tmp/weir-stack-XXXXXX";
    const weir_options options = {.rules_path = name, .segment.size = 1 << 20, .flags = WEIR_NO_WATCH};
    int file = mkstemp(name);
    CHECK(file >= 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ftruncate(file, 0), 0);
        lseek(file, 0, SEEK_SET);
        dprintf(
            file,
            "identity: { user_id: header:X-User }\n"
            "rules:\n"
            "  - { name: a%d, match: { path: [ '/a/**', { regex: '^/x(a|b){1,3}(?:(?:c))$' } ] }, key: '${user_id}', "
            "limit: { default: 1, gold: 2 }, window: 1d, algorithm: fixed_window, timezone: Europe/Berlin }\n",
            i);
        if (i == 0) {
            CHECK_EQ(weir_open(&options, &engine), 0);
            continue;
        }
        size_t needed = stack_of(reload) - stack_of(do_nothing);
        CHECK_EQ(reloaded, 1);
        printf("%zu bytes of stack\n", needed);
#if !defined WEIR__SANITIZED && !defined __SANITIZE_THREAD__
        CHECK(needed <= RELOAD_STACK_MAX);
#endif
    }
    weir_close(engine);
    close(file);
    unlink(name);
}

TEST_MAIN
