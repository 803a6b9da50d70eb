/*
 * The rules that a request has eval, and deciding it under all of them: it takes from all or from none.
 *
 * How (docs/rules.md, "What always holds", 1): with one counter, one take. With several, all are peeked at, and a
 * denial leaves everything as it is; then all are taken in order, and when another request came between, what was
 * taken is given back with the same `now`. What a store decides is in strict.h.
 */
#ifndef WEIR_ENGINE_EVALUATION_H
#define WEIR_ENGINE_EVALUATION_H

#include "engine/engine.h"
#include "rules/attribute.h"
#include "rules/key.h"
#include "rules/pattern.h"

#define WEIR__MATCHES_MAX 256 /* rules that apply to one request */
#define WEIR__FAST_MAX    6   /* rules that one request may match on the fast path */

/* The counter of a rule without a key template. */
#define WEIR__SHARED_KEY "*"

struct weir__store_op;

struct weir__rule_eval {
    const struct weir__rule *rule;   /* NULL: a limit of the request's own */
    const struct weir__quota *quota; /* NULL: no counter is asked */
    const char *key;                 /* of the counter */
    uint32_t key_len;
    bool shadow;
    bool quota_mode; /* descriptor dialect: denies only together with all others of its kind */
    bool replaced;   /* descriptor dialect: another rule of the request stands for it */
    bool report;     /* descriptor dialect: the caller names its cost, which may be consumed already */
    /* Of strict rules; set by weir__strict_mark. */
    bool strict;             /* the store decides */
    bool skipped;            /* not sent: the request is already denied */
    bool skipped_in_prepare; /* so it was when the request was prepared */
    bool kept;               /* a shadow: what the store took is kept */
    bool by_address;         /* the key is some text and the address of the query's peer */
    bool reserved;           /* its quota is without the rule's reserve; see overload.h */
    uint8_t permits;         /* its slot in ctx->held, from 1 on; 0: it has none */
    enum weir_reason reason;
    int error;
    int store_error; /* why the store, or the segment's slab, did not decide; another counter of the host did instead */
    struct weir__store_op *reply;
    int64_t cost;
    weir_decision decision;
};

/* A request under decision. */
struct weir__request_ctx {
    weir *engine;
    const struct weir__ruleset *ruleset;
    weir_time now;
    bool dry_run;
    bool charge_denied; /* denied requests count: see weir__eval_counts_denied */
    unsigned cpu;       /* where it runs */
    struct weir__rule_eval *evals;
    size_t count;
    weir_permits *permits;   /* where slots go; NULL: there is no rule that needs them */
    weir_async *async;       /* the replies of the store, or NULL */
    size_t strict;           /* evals that the store decides */
    uint32_t remote_permits; /* permits that the store took, for which there must be room in `held` */
    bool skipped_in_prepare; /* nothing was sent: the request is already denied */
    int request_error;       /* why nothing could be sent; 0: sent, or not needed */
    /* Set by weir__overload_apply, if a rule of the set has anything to do with it. */
    bool load_aware; /* it may be shed, or a reserve be kept from it */
    enum weir_priority priority;
    uint32_t shed; /* per mille of the requests like it */
    uint64_t dice; /* whether it is one of them */
    /* Set by weir__ctx_begin. */
    struct weir__scratch *scratch;
    int hazard; /* slot of the hazard pointer that protects `ruleset`; -1: none was free */
    bool fast;  /* every eval's plan has WEIR__PLAN_FAST, and the request takes: weir__take_all_fast may
                 * decide it. After weir__evaluate: it has. */
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
    weir_permits permits; /* for a caller that gives no place for permits */
    char keys[WEIR__MATCHES_MAX * WEIR__KEY_MAX];
    struct weir__quota quotas[WEIR__MATCHES_MAX]; /* effective limits (overload.h), or those that a descriptor brings */
};

/*
 * Acquires the published ruleset and a scratch, reads the clock unless `now` is given, and clears the rest of *ctx. To
 * be ended, unless it returns WEIR_ENOMEM: that is so only if all hazard slots are in use.
 */
int weir__ctx_begin(struct weir__request_ctx *ctx, weir *engine, weir_time now);
void weir__ctx_end(const struct weir__request_ctx *ctx);

/* What the lists of the set and of a rule say of a key; WEIR_BY_LIMIT: nothing. Networks are not looked at. */
enum weir_reason weir__key_listed(const weir_rules *rules, const struct weir__rule *rule, weir_text key);

/* A key from outside as rules count it: cut in the same way if it is long, in `text`. One that was cut stays. */
weir_text weir__key_counted(weir_text key, char text[WEIR__KEY_MAX]);
/* The tier that was taken from, or the first that counts; NULL: none does. */
const struct weir__quota *weir__quota_taken(const struct weir__rule *rule, const weir_taken *taken);

/* Writes weir_deferral.others into `room`: every rule that limits the request, but that of `by`. False: no room. */
bool weir__others_write(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, char *room, size_t size,
                        weir_text *others);
/* The cost of all of a rule's limits together: of requests in flight it is one, whatever it costs the others. */
int64_t weir__eval_base_cost(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by);

/*
 * Takes from the counters of all evals if each is in one slot, in place, and has enough: looks at all of them, then
 * swaps each. False: nothing is taken; what others' requests made it roll back is counted.
 */
bool weir__take_all_fast(const struct weir__request_ctx *ctx);

/* Decides: on the fast path if ctx->fast. Every eval has its decision and reason afterwards. Returns the eval that
 * speaks, or NULL without any. */
const struct weir__rule_eval *weir__evaluate(struct weir__request_ctx *ctx);
/* True if the enforced evals, as they stand, deny. */
bool weir__request_denied(const struct weir__request_ctx *ctx);
/* True if it asks for something: who only looks or gives back is denied nothing. */
bool weir__request_takes(const struct weir__request_ctx *ctx);
/* Looks at the enforced evals' counters in the segment. */
void weir__request_peek(const struct weir__request_ctx *ctx);
void weir__eval_peek(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval);
/* Among the segment's decisions, where no take of the segment's own has counted it. */
void weir__eval_count_verdict(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
/* What an error does to the request is the rule's policy. */
void weir__eval_fail(struct weir__rule_eval *eval, int error);
/*
 * A take of a log or wide counter that the slab had no room for (WEIR_EFULL): with `local` another counter of the host
 * stands in (slab_full.c). Returns 0, with store_error set, or the error that the policy is to decide.
 */
int weir__eval_take_without_room(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval,
                                 weir_decision *made);
/* Gives back what the eval has taken, to the counter that it was taken from. */
int weir__eval_refund(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, weir_decision *made);
/* What can be said without a counter; a quota that has none is taken off the eval. */
void weir__eval_settle(struct weir__rule_eval *eval);
/*
 * True if the eval's counter is charged even if the request is denied, or the counter denies it: as the ctx asks for,
 * in fixed windows, and for reports with any algorithm, where they leave a debt. A limit with count_rejected does so
 * itself.
 */
bool weir__eval_counts_denied(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
/*
 * Denies a look at a full log where denied requests count: a log has no debt, since only its newest `limit` units
 * count, so a full one may stand for reports beyond the limit. With other algorithms a debt denies the look.
 */
void weir__eval_look_full(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval);
/* True if the eval stands against the request. */
bool weir__eval_denies(const struct weir__rule_eval *eval);
/* What the engine tells of a eval. */
void weir__eval_outcome(const struct weir__rule_eval *eval, weir_outcome *outcome);
/* The answer as a whole, from the eval that speaks (NULL: nothing matched) and all others. */
void weir__request_result(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, weir_result *result);

#endif
