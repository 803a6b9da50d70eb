/*
 * The result of an allowed request in compact form, for a gateway: rule name, key, remaining and headers, written
 * straight into the caller's buffer from text that is prepared at load time (the rules' plans).
 */
#ifndef WEIR_ENGINE_FAST_RESULT_H
#define WEIR_ENGINE_FAST_RESULT_H

#include <weir/check.h>
#include <weir/weir.h>

#define WEIR__FAST_RESULT_BYTES 2304 /* bytes: enough for all of it */

/* The last number of seconds that was formatted: consecutive requests mostly have the same. Initially zero. */
struct weir__second {
    uint64_t number;
    uint64_t len;
    char text[32];
};

struct weir__fast_result {
    struct weir__second *reset; /* kept by the caller from one to the next */
    bool headers;               /* wanted */
    bool filled;                /* out, as all below; false: weir_result has the decision instead */
    uint8_t rule_len, key_len;
    uint16_t values_len;
    uint16_t lens[WEIR_HEADER_COUNT]; /* of the headers' values, as of weir_result_header_values; 0: not sent */
    int64_t limit, remaining;
    char *text; /* in: WEIR__FAST_RESULT_BYTES bytes; out: the rule's name, the key, and the values one behind the other
                 */
};

/*
 * weir_check with a compact result where possible (fast->filled), of a query that is known to be valid. Does not poll
 * the rule files: the caller has a timer for that.
 */
WEIR_MUST_CHECK int weir__check_fast(weir *engine, const weir_query *query, weir_result *result,
                                     struct weir__fast_result *fast);
/*
 * As weir__check_fast, if no store is needed: returns 1. Else 0, and nothing is decided or taken: the fast path
 * cannot decide, as some rule is strict or too little is leased. Or an error.
 */
WEIR_MUST_CHECK int weir__check_here(weir *engine, const weir_query *query, weir_result *result,
                                     struct weir__fast_result *fast);

/* ---- For the engine ---- */

struct weir__rule_eval;
struct weir__request_ctx;
struct weir__ruleset;

/* Flags of a plan; a request is evaluated by the AND of its rules' flags. */
enum {
    WEIR__PLAN_FAST = 1,    /* its counter is in one slot and decided here, its cost positive: weir__take_all_fast */
    WEIR__PLAN_LEASED = 4,  /* the same, but of leased units: weir__take_all_leased */
    WEIR__PLAN_ADDRESS = 2, /* the key is some text and the client's address: see weir__template_is_address */
};

/* The plan of a rule, made at load time; only of enforced rules with one limit, one cost and no lists to search. */
struct weir__rule_plan {
    unsigned flags;
    unsigned headers; /* WEIR_HEADERS_… */
    int64_t cost;
    int64_t limit; /* as decisions report it */
    uint8_t name_len, limit_len;
    uint16_t policy_len, ratelimit_len; /* of RateLimit: the text before the numbers */
    char text[];                        /* name, limit, policy, ratelimit: readable WEIR__PLAN_TEXT_STEP beyond each */
};
#define WEIR__PLAN_TEXT_STEP 16

/* Makes the plans of a ruleset that is complete otherwise. False: no memory. */
bool weir__rule_plans_make(struct weir__ruleset *ruleset, const weir_rules *rules, bool read_only);

/* Fills in the fast result. False: it cannot express the decision, and is unchanged. */
bool weir__fast_result_fill(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                            const weir_query *query, struct weir__fast_result *fast);

/* Times in responses: whole seconds, rounded up, so that a client that waits this long is not early. */
static inline int64_t weir__seconds_up(int64_t ns)
{
    return ns <= 0 ? 0 : (ns - 1) / WEIR_SECOND + 1;
}

#endif
