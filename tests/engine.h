/* An engine on an anonymous segment for tests, and requests as one line of code. */
#ifndef WEIR_TESTS_ENGINE_H
#define WEIR_TESTS_ENGINE_H

#include "test.h"

#include <weir/weir.h>

static inline void test_print_diagnostic(void *context, const weir_diagnostic *d)
{
    (void)context;
    if (d->severity == WEIR_IS_WARNING)
        return;
    printf("  %s:%d:%d: %s\n", d->file, d->line, d->column, d->message);
}

/* Exits if the rules are invalid, which is a mistake in the test. */
static inline weir *test_engine(const char *rules)
{
    weir_options how = {.segment = {.size = 8 << 20}, .rules_text = rules, .diagnose = test_print_diagnostic};
    weir *engine = NULL;
    int error = weir_open(&how, &engine);
    if (error) {
        printf("  the test's rules: %s\n", weir_strerror(error));
        exit(1);
    }
    return engine;
}

/* Up to 8 attributes from "METHOD path" and "name=value" words: header names begin with '@', ip= is the peer. */
struct test_request {
    weir_attribute attributes[12];
    size_t count;
    char text[1024];
    weir_query query;
};

static inline void test_add(struct test_request *r, enum weir_attribute_kind kind, const char *name, const char *value)
{
    r->attributes[r->count++] = (weir_attribute){kind, name, value};
}

/* Parses a line such as "POST /auth/login ip=192.0.2.1 user_id=7 @x-plan=pro host=a.example". */
static inline void test_request(struct test_request *r, const char *line)
{
    memset(r, 0, sizeof *r);
    snprintf(r->text, sizeof r->text, "%s", line);
    int word = 0;
    char *rest = NULL;
    for (char *at = strtok_r(r->text, " ", &rest); at; at = strtok_r(NULL, " ", &rest), word++) {
        char *equal = strchr(at, '=');
        if (word == 0) {
            test_add(r, WEIR_ATTR_METHOD, "", at);
        } else if (word == 1) {
            test_add(r, WEIR_ATTR_TARGET, "", at);
        } else if (equal) {
            *equal = 0;
            enum weir_attribute_kind kind = at[0] == '@'              ? WEIR_ATTR_HEADER
                                            : strcmp(at, "ip") == 0   ? WEIR_ATTR_PEER
                                            : strcmp(at, "host") == 0 ? WEIR_ATTR_HOST
                                                                      : WEIR_ATTR_NAMED;
            test_add(r, kind, at[0] == '@' ? at + 1 : at, equal + 1);
        }
    }
    r->query.attributes = r->attributes;
    r->query.attribute_count = r->count;
}

static inline weir_time test_seconds(double s)
{
    int64_t ns = (int64_t)(s * 1e9);
    return (weir_time){.mono_ns = WEIR_DAY + ns, .wall_ns = 20000 * WEIR_DAY + ns};
}

/* Checks one request at `s` seconds. */
static inline weir_result test_check(weir *engine, const char *line, double s)
{
    struct test_request r;
    weir_result result;
    test_request(&r, line);
    r.query.now = test_seconds(s);
    int error = weir_check(engine, &r.query, &result);
    if (error) {
        printf("  weir_check: %s\n", weir_strerror(error));
        exit(1);
    }
    return result;
}

static inline bool test_passes(weir *engine, const char *line, double s)
{
    weir_result result = test_check(engine, line, s);
    return weir_passes(&result.decision);
}

/* For a query's `lookup`: a request without any attributes but those in the query. */
static inline bool test_no_attributes(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    (void)context;
    (void)kind;
    (void)name;
    (void)value;
    return false;
}

/* How many of `count` requests at the same moment pass. */
static inline int test_passing(weir *engine, const char *line, double s, int count)
{
    int passed = 0;
    for (int i = 0; i < count; i++)
        passed += test_passes(engine, line, s);
    return passed;
}

#endif
