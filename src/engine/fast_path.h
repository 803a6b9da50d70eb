/*
 * The usual request at a gateway: one rule lets it pass, or each of a few. Nobody asks for more of that than the rule's
 * name, the key, what is left and the headers; so it is told right where it will be kept, without an answer in between,
 * and what is always the same of it was written when the rules were read.
 */
#ifndef WEIR_ENGINE_FAST_PATH_H
#define WEIR_ENGINE_FAST_PATH_H

#include <weir/check.h>

#define WEIR__FAST_RESULT_BYTES 2304 /* bytes: enough for all of it */
#define WEIR__FEW_MAX           6    /* rules that are a few */

/* A second as text: requests that come one after the other mostly tell the same one. Zeroed at first. */
struct weir__second {
    uint64_t number;
    uint64_t len;
    char text[32];
};

struct weir__fast_result {
    struct weir__second *reset; /* kept by the caller from one to the next */
    bool headers;               /* wanted */
    bool told;                  /* out, as all below; false: there is an answer instead */
    uint8_t rule_len, key_len;
    uint16_t values_len;
    uint16_t lens[WEIR_HEADER_COUNT]; /* of the headers' values, as of weir_result_header_values; 0: not sent */
    int64_t limit, remaining;
    char *text; /* in: WEIR__FAST_RESULT_BYTES bytes; out: the rule's name, the key, and the values one behind the other
                 */
};

/*
 * weir_check for who can do with less, of a query that is known to make sense; the rules are not looked at on the disk,
 * as who has a timer need not let requests wait for that.
 */
WEIR_MUST_CHECK int weir__check_fast(weir *engine, const weir_query *query, weir_result *answer,
                                     struct weir__fast_result *fast);

/* ---- For the engine ---- */

struct weir__rule_eval;
struct weir__ruleset;
struct weir__rule_stats;
struct weir__template;
struct weir__request_ctx;

/* What a rule with one limit says each time, and what it needs to decide on the quick way. */
struct weir__rule_plan {
    int64_t limit;                    /* as decisions tell it */
    const weir_limit *quick;          /* NULL: it needs more than there is here */
    const struct weir__template *key; /* of the rule */
    struct weir__rule_stats *rule_stats;
    int64_t cost;
    bool address; /* the key is some text and an address: see weir__template_is_address */
    bool share;   /* what the key lacks does not matter */
    bool written; /* what it lets pass may have to be written down: see ledger.h */
    unsigned headers;
    uint8_t name_len, limit_len;
    uint16_t policy_len, ratelimit_len; /* of RateLimit only what stands before the numbers */
    char text[]; /* name, limit, policy, ratelimit: each may be read WEIR__PLAN_TEXT_STEP further */
};
#define WEIR__PLAN_TEXT_STEP 16

/* For all rules of a set that has all else; what there is no memory for is told the long way. */
void weir__rule_plans_make(struct weir__ruleset *ruleset, bool read_only);

/* False: it is not that simple, and nothing was told. */
bool weir__fast_result_fill(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                            const weir_query *query, struct weir__fast_result *fast);

/*
 * All of it at once: a path that leads to a few rules, whose counters are in one slot each and have enough. False: the
 * request is not as usual as that, and nothing was taken.
 */
struct weir__asked {
    weir *engine;
    const struct weir__ruleset *ruleset;
    unsigned cpu;
    uint32_t count; /* out, if that much was found: of the rules that match; else 0 */
    weir_time now;
    uint32_t rules[WEIR__FEW_MAX];
};
bool weir__evaluate_fast(struct weir__asked *asked, const weir_query *query, struct weir__fast_result *fast);

#endif
