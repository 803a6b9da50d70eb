/*
 * Evaluation of a request under all rules that match it: it takes from all of their counters or from none.
 *
 * With one counter this is one take. With several, all are peeked at, and a denial leaves them unchanged; then all are
 * taken in order, and if a concurrent request makes one of them deny, the takes before it are rolled back with the same
 * `now` (docs/reference/rules.md, "Guarantees"). strict.h has the part of rules that the store decides.
 */
#ifndef WEIR_ENGINE_EVALUATION_H
#define WEIR_ENGINE_EVALUATION_H

#include "engine/engine.h"
#include "rules/attribute.h"
#include "rules/key.h"
#include "rules/pattern.h"

#define WEIR__MATCHES_MAX 256 /* rules that apply to one request */
#define WEIR__FAST_MAX    6   /* rules that one request may match on the fast path */

struct weir__store_op;

/* A matched rule with its key and its decision. */
struct weir__rule_eval {
    const struct weir__rule *rule;   /* NULL: a limit that the request brings */
    const struct weir__quota *quota; /* NULL: decided without a counter */
    const char *key;                 /* of the counter */
    uint32_t key_len;
    bool shadow;
    bool quota_mode; /* descriptor dialect: denies only together with all others of its kind */
    bool replaced;   /* descriptor dialect: another rule of the request replaces it */
    bool report;     /* descriptor dialect: the caller names its cost, which may be consumed already */
    /* Of strict rules; set by weir__strict_mark. */
    bool strict;             /* the store decides */
    bool skipped;            /* not sent: the request is already denied */
    bool skipped_in_prepare; /* it was skipped when the request was prepared */
    bool keeps_units;        /* a shadow: it counts the request, as the other rules allow it */
    bool by_address;         /* the key is some text and the address of the query's peer */
    bool without_reserve;    /* its quota is without the rule's reserve; see weir__overload_apply */
    uint8_t permit_number;   /* of its permit in ctx->permits, from 1 on; 0: it has none */
    uint8_t lease;           /* enum weir__lease_use: leased units pay for it, see leased.h */
    enum weir_reason reason;
    int error;
    int store_error; /* why the store, or the slab, did not decide; another counter of the host did instead */
    struct weir__store_op *reply;
    int64_t cost;
    weir_decision decision;
};

/* A request under evaluation. */
struct weir__request_ctx {
    weir *engine;
    const struct weir__ruleset *ruleset;
    weir_time now;
    bool dry_run;
    bool charge_denied; /* denied requests count: see weir__eval_counts_denied */
    unsigned cpu;       /* the processor that it runs on */
    struct weir__rule_eval *evals;
    size_t count;
    weir_permits *permits;   /* receives permits; NULL: no rule needs any */
    weir_async *async;       /* the replies of the store, or NULL */
    size_t strict;           /* evals that the store decides */
    uint32_t remote_permits; /* permits that the store took, for which there must be room in `permits` */
    bool skipped_in_prepare; /* nothing was sent: the request is already denied */
    int request_error;       /* why nothing could be sent; 0: sent, or not needed */
    /* Set by weir__overload_apply, if the ruleset has elastic or adaptive limits, priorities or reserves. */
    bool load_aware; /* it may be shed, or a reserve be kept from it */
    enum weir_priority priority;
    uint32_t shed; /* share of the requests of its priority that is shed, in per mille */
    uint64_t dice; /* the random number that decides whether it is shed */
    /* Set by weir__ctx_begin. */
    struct weir__scratch *scratch;
    int hazard;  /* slot of the hazard pointer that protects `ruleset`; -1: none was free */
    bool fast;   /* every eval's plan has WEIR__PLAN_FAST, and the request takes: weir__take_all_fast may decide it.
                  * After weir__evaluate: it has, and no eval warned. */
    bool warned; /* the decision of some eval has WEIR_WARNED */
};

/* Leased units of a counter that a check relies on: see leased.h. */
struct weir__lease_promise {
    uint64_t hash; /* of the leased units */
    int64_t cost;
};

/* A spend of leased units: see leased.h. */
struct weir__spend {
    int64_t end_us;    /* of the lease */
    int64_t remaining; /* over all hosts, as far as this one knows */
};

/*
 * The memory of one evaluation: too large for a stack, and touched only as far as it is used. Each hazard slot has one,
 * which belongs to the request that holds the slot.
 */
struct weir__scratch {
    size_t keys_used, quotas_used;
    bool has_values; /* `values` was begun for this request */
    struct weir__matching matching;
    uint32_t found[WEIR__MATCHES_MAX];
    struct weir__rule_eval evals[WEIR__MATCHES_MAX];
    struct weir__values values;
    weir_permits permits;                         /* for a caller that passes none */
    struct weir__spend spends[WEIR__MATCHES_MAX]; /* by eval */
    char keys[WEIR__MATCHES_MAX * WEIR__KEY_MAX];
    struct weir__quota quotas[WEIR__MATCHES_MAX]; /* effective limits, or those that descriptors bring */
};

/*
 * Acquires the published ruleset and a scratch, reads the clock unless `now` is given, and clears the rest of *ctx.
 * Must be paired with weir__ctx_end, unless it returns WEIR_ENOMEM, which it does only if all hazard slots are in use.
 */
int weir__ctx_begin(struct weir__request_ctx *ctx, weir *engine, weir_time now);
void weir__ctx_end(const struct weir__request_ctx *ctx);

/* Whether the lists of the set and of the rule allow or block a key; WEIR_BY_LIMIT: neither. Networks are not checked.
 */
enum weir_reason weir__key_listed(const weir_rules *rules, const struct weir__rule *rule, weir_text key);
/* A key as rules count it: a long one is cut, into `text`; one that was cut before is unchanged. */
weir_text weir__key_counted(weir_text key, char text[WEIR__KEY_MAX]);
/* The tier that was taken from, or the first with a counter; NULL: none has one. */
const struct weir__quota *weir__quota_taken(const struct weir__rule *rule, const weir_taken *taken);

/* Writes weir_deferral.others into `buffer`: every rule that limits the request, except that of `by`. False: no room.
 */
bool weir__others_write(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, char *buffer,
                        size_t size, weir_text *others);
/* The largest cost among the limits of a rule: that of a concurrency limit is 1 whatever the others cost. */
int64_t weir__eval_base_cost(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by);

/*
 * Takes from the counters of all evals if each is in one slot, in place, and has enough left: looks at all of them,
 * then swaps each. False: nothing is taken; takes that concurrent requests made it roll back are counted.
 */
bool weir__take_all_fast(const struct weir__request_ctx *ctx);

/* Refunds a take, to the counter that it took from, without the delta ledger. */
int weir__eval_roll_back(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *made);

/* Operations on the counter of an eval in the segment, recorded in the delta ledger if the rule is eventual. */
enum weir__operation {
    WEIR__PEEK,
    WEIR__ADMIT,     /* takes the cost if it fits; with a negative cost refunds it */
    WEIR__ROLL_BACK, /* refunds what WEIR__ADMIT took, since the request is denied */
    WEIR__SETTLE,    /* charges the cost whether it fits or not, or refunds it; not counted as a decision */
    WEIR__RESET
};
/* Returns 0 or an error; WEIR__RESET leaves *made unchanged. */
int weir__eval_operate(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, enum weir__operation what,
                       weir_decision *made);
/* Decides the eval by an operation on its counter; if that fails, by on_store_failure. */
void weir__eval_decide(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, enum weir__operation what);

/*
 * Decides: on the fast path if ctx->fast. Every eval has its decision and reason afterwards. Returns the eval that is
 * reported to the client; NULL: there is none.
 */
const struct weir__rule_eval *weir__evaluate(struct weir__request_ctx *ctx);
/*
 * As weir__evaluate, on one of the fast paths: NULL if they cannot decide, and nothing is taken. Without a store's
 * reply, whatever the consistency of the rules is.
 */
const struct weir__rule_eval *weir__evaluate_fast(struct weir__request_ctx *ctx);
/* True if the enforced evals, as they are decided so far, deny. */
bool weir__request_denied(const struct weir__request_ctx *ctx);
/* True if the request takes from a counter: one that only peeks or refunds is never denied. */
bool weir__request_takes(const struct weir__request_ctx *ctx);
/* Peeks at the counters of the enforced evals in the segment. */
void weir__request_peek(const struct weir__request_ctx *ctx);
/* Counts the verdict in the segment's statistics, where no take of the segment has counted it. */
void weir__eval_count_verdict(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
/* Decides by the rule's on_store_failure. */
void weir__eval_fail(struct weir__rule_eval *eval, int error);
/* Decides without a counter; removes a quota that has none from the eval. */
void weir__eval_settle(struct weir__rule_eval *eval);
/*
 * True if the eval's counter is charged even if the request is denied: with ctx->charge_denied, in fixed windows, and
 * for reports with any algorithm, where they leave a debt. A limit with count_rejected does so itself.
 */
bool weir__eval_counts_denied(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
/*
 * Denies a peek at a full sliding log where denied requests are charged. A sliding log keeps only its newest `limit`
 * units and cannot go into debt, so a full one may have been charged beyond the limit. With the other algorithms the
 * debt itself denies the peek.
 */
void weir__eval_look_full(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval);

/* The effective window of limits that do not recover continuously. */
int64_t weir__window_left_ns(const weir_limit *limit, int64_t window_ns, const weir_decision *decision);

static inline bool weir__eval_denies(const struct weir__rule_eval *eval)
{
    return !weir_passes(&eval->decision);
}

static inline bool weir__eval_enforced(const struct weir__rule_eval *eval)
{
    return !eval->shadow && !eval->replaced;
}

/*
 * Sets WEIR_WARNED in the decision of an eval that has taken and whose key has used the share of its limit that warn_at
 * names, for the first time in its window, and counts it; `denied`: the request as a whole.
 */
void weir__eval_warn(struct weir__request_ctx *ctx, struct weir__rule_eval *eval, bool denied);

/* True if a smaller share of its limit is left under `a`: exact for any numbers. */
static inline bool weir__smaller_share(const weir_decision *a, const weir_decision *b)
{
    __extension__ typedef __int128 product;
    return (product)a->remaining * b->limit < (product)b->remaining * a->limit;
}

/*
 * The effective window of RateLimit (t, docs/reference/headers.md), in nanoseconds: a client that uses what remains,
 * and no more, within it is not denied, and gets at least one unit after it. Not for requests in flight. `window_ns` is
 * the window as written.
 */
static inline int64_t weir__effective_window_ns(const weir_limit *limit, int64_t window_ns,
                                                const weir_decision *decision)
{
    int64_t left = decision->remaining;
    if (limit->algorithm > WEIR_LEAKY_BUCKET || limit->refill != WEIR_REFILL_CONTINUOUS)
        return weir__window_left_ns(limit, window_ns, decision);
    /* Continuous refill: the time in which as many units recover. With none left, the time until there is one. */
    return weir__us_to_ns(weir__mul_div_up(left > 0 ? left : 1 - left, limit->period_us, limit->period_units));
}

/* Fills in the public outcome of an eval. */
void weir__eval_outcome(const struct weir__rule_eval *eval, weir_outcome *outcome);
/* Describes what a request lacked for a rule (WEIR_BY_MISSING_KEY). True if it is a credential. */
bool weir__rule_missing(const struct weir__rule *rule, struct weir__values *values, char text[WEIR_MISSING_MAX + 1]);
/* Fills in the public result, from the reported eval (NULL: no rule matched) and all others. */
void weir__request_result(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, weir_result *result);

/*
 * ---- Overload control (overload.c): effective limits of elastic and adaptive rules, shedding by priority, reserves
 * (docs/reference/overload.md). Not called for rulesets without any of these ----
 */

/*
 * Sets the request's priority and its random number for shedding. Replaces each quota that the load scales, or a
 * reserve reduces, by a copy in `scaled`, which has one element per eval.
 */
void weir__overload_apply(struct weir__request_ctx *ctx, struct weir__quota *scaled);
/* True if no list or ban denies the request and it is to be shed, before any counter is used. */
bool weir__overload_must_shed(const struct weir__request_ctx *ctx);
/* Sheds it: decides all evals, and returns the one that is reported to the client. */
const struct weir__rule_eval *weir__overload_shed(struct weir__request_ctx *ctx);
/* After the decision: marks evals that were denied only because of a reserve as shed. */
void weir__overload_mark_shed(const struct weir__request_ctx *ctx);
/* The effective quota now, for operations on one key of a rule: the quota itself, or a scaled copy in `scaled`. */
const struct weir__quota *weir__quota_effective(const weir *engine, const struct weir__rule *rule,
                                                const struct weir__quota *quota, weir_time now,
                                                struct weir__quota *scaled);

#endif
