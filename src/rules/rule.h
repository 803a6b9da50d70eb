/* A compiled rule. Immutable once the set is built. */
#ifndef WEIR_RULES_RULE_H
#define WEIR_RULES_RULE_H

#include "rules/paths.h"
#include "rules/key.h"

/* ---- match ---- */

/* One condition on an attribute: any of the patterns, or with `negate` none of them. A missing attribute matches
 * nothing. */
struct weir__condition {
    int16_t attribute;
    bool negate;
    bool absent; /* holds exactly if the attribute is missing; no patterns */
    const struct weir__pattern *patterns;
    size_t pattern_count;
    const struct weir__pattern *normal; /* of a path: as many for its normal form; NULL: it has none */
    bool normal_differs;                /* from the patterns */
};

/* Methods as bits: the known ones from WEIR__METHOD_KNOWN on, any other, and none at all. */
enum { WEIR__METHODS = 9, WEIR__METHOD_NONE = 1, WEIR__METHOD_OTHER = 2, WEIR__METHOD_KNOWN = 4 };
enum { WEIR__METHOD_ANY = (WEIR__METHOD_KNOWN << WEIR__METHODS) - 1 };
extern const char *const weir__methods[WEIR__METHODS]; /* the known methods in the order of their bits */
/* The bit of a method that is not empty, in any case. */
unsigned weir__method_bit(weir_text method);

struct weir__match {
    const struct weir__path_entry *entries; /* hosts × paths for the index; `rule` is not set here */
    size_t entry_count;
    unsigned methods;                         /* allowed methods; tested first */
    const struct weir__condition *conditions; /* not decided by the index: method, headers, query, named, regex, not */
    size_t condition_count;
    const struct weir__networks *networks; /* NULL: any client */
    bool networks_negate;
    uint8_t form;     /* normal form of paths, WEIR__FORM_…: in the match, in costs by path and in the key */
    uint64_t written; /* hash of the text: rules with the same hash match the same requests */
};

/* ---- limit ---- */

enum weir__limit_kind { WEIR__LIMITED, WEIR__BANNED, WEIR__UNLIMITED };

struct weir__quota {
    weir_text tier; /* empty: the default. First, so that weir__text_compare finds a quota by its tier */
    enum weir__limit_kind kind;
    int64_t units;             /* as written */
    int64_t window_ns;         /* as written; calendar months and years by their longest */
    weir_limit limit;          /* if LIMITED */
    const weir_limit *ceiling; /* of a scaled limit: the limit at its largest scale; else NULL */
    int64_t full_cap;          /* of a copy without the reserve: limit.cap with it; else 0 */
    const weir_limit *warned;  /* the marks of keys that were warned (engine/warning.c); NULL: no warn_at */
};

/* ---- overload: elastic, adaptive, reserve, priority (docs/reference/overload.md) ---- */

struct weir__overload_policy {
    uint16_t min, max;        /* adaptive: per cent of the limit; max 0: not adaptive */
    uint16_t up_to, below;    /* elastic: per cent of the limit, and of load; up_to 0: not elastic */
    uint8_t reserve;          /* per cent that only critical requests may use */
    bool has_class;           /* `priority` is given */
    enum weir_priority class; /* if has_class */
};

/* The scale of the rule's limits, for weir__limit_scale. Level and throttle are in per mille. */
int64_t weir__overload_scale(const struct weir__overload_policy *policy, uint32_t level, uint32_t throttle);

/* True if the load scales the rule's limits. */
static inline bool weir__overload_is_scaled(const struct weir__overload_policy *policy)
{
    return policy->max || policy->up_to;
}

/* ---- cost ---- */

struct weir__cost {
    int64_t fallback;  /* used where no path or attribute gives a cost; 1 unless set */
    int16_t attribute; /* the attribute that holds the cost; -1: none */
    int64_t max;       /* bound of a cost from an attribute */
    struct weir__path_cost {
        struct weir__pattern path, normal; /* for the path as it was sent, and for its normal form */
        int64_t cost;
    } * paths; /* the first that matches */
    size_t path_count;
    bool normal_differs; /* a path from its normal form */
    uint64_t written;    /* hash of the text; 0: not given */
};

/* ---- policy ---- */

enum weir__on_missing { WEIR__MISSING_SKIP, WEIR__MISSING_DENY, WEIR__MISSING_SHARE };
enum weir__consistency { WEIR__LOCAL, WEIR__EVENTUAL, WEIR__STRICT, WEIR__LEASED, WEIR__PER_ALGORITHM };
/* Private flag of weir_options: the host has a store, which this process leaves out; its rules are no mistake. */
enum { WEIR__STORE_LEFT_OUT = 1 << 17 };
enum weir__on_failure { WEIR__FAIL_LOCAL, WEIR__FAIL_OPEN, WEIR__FAIL_CLOSED };

/* The response to requests that are denied for another reason than a limit. */
struct weir__other_response {
    int status;
    weir_text message; /* empty: the default message */
};

struct weir__response {
    unsigned headers; /* WEIR_HEADERS_… */
    enum weir_body body;
    int status;          /* 429 */
    weir_text message;   /* empty: the default message */
    weir_text body_text; /* with WEIR_BODY_TEXT, or of the rule's own JSON */
    struct weir__other_response blocked;
    struct weir__other_response missing;    /* status 0: 401 for a credential, 400 for anything else */
    bool own_status, own_message, own_body; /* the rule has them itself: they are also for a limit of 0 */
    weir_text report; /* the name, or the base, of the rule that an allowed request reports; empty: the tightest */
    struct weir__place report_place;
};

#define WEIR__RESPONSE_TEXT_MAX 8192
#define WEIR__HEADERS_DEFAULT   (WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RETRY_AFTER)
#define WEIR__RESPONSE_DEFAULT                                                                                         \
    ((struct weir__response){.status = 429, .headers = WEIR__HEADERS_DEFAULT, .blocked = {.status = 403}})

/* Bounds of deferred requests (`on_limit: queue`); 0: only those of the whole queue. */
struct weir__deferral {
    int64_t max, max_bytes, max_age_ms;
};

/* An allow or block list: keys (exact or globs) and networks that pass or are denied regardless of their counters. */
struct weir__access_list {
    const struct weir__networks *networks; /* NULL: none */
    const struct weir__pattern *globs;     /* keys with '*' */
    size_t glob_count;
    const weir_text *keys; /* sorted by length, then bytes */
    size_t key_count;
};

static inline bool weir__list_is_empty(const struct weir__access_list *list)
{
    return !list->networks && !list->glob_count && !list->key_count;
}

/* A key that was cut counts as listed if it surely is (for allow lists) or, without `surely`, if it may be (block). */
bool weir__list_has_key(const struct weir__access_list *list, weir_text key, bool surely);

struct weir__rule {
    /* What the check of a request reads: at most two cache lines, as there may be 10,000 rules. */
    weir_text name; /* unique together with `shadow`; at most WEIR_NAME_MAX bytes */
    uint32_t index; /* in the set */
    bool shadow;
    bool has_default;                 /* of the quotas */
    bool counts_bytes;                /* its cost is the Content-Length */
    uint8_t warn_at;                  /* per cent of the limit; 0: no warnings */
    const struct weir__quota *quotas; /* the default first, if there is one (has_default), then by tier */
    enum weir__on_missing on_missing;
    enum weir_on_limit on_limit;
    struct weir__template key; /* native dialect */
    struct weir__response response;

    weir_text base;   /* the name as its author wrote it, without the suffix that `limits` adds */
    weir_text domain; /* descriptor dialect; else empty */
    struct weir__place place;
    uint64_t id; /* of its counters: from name and shadow, so that they outlive a reload */

    const struct weir__match *match; /* NULL in the descriptor dialect */
    int16_t tier;                    /* attribute that chooses the quota; -1: there is only one */
    size_t quota_count;

    struct weir__cost cost;
    struct weir__deferral queue;
    enum weir__consistency consistency;
    bool consistency_given; /* set by its author; else a default applies: see weir__rule_consistency */
    struct weir__place consistency_place;
    enum weir__on_failure on_failure;
    int report_priority;
    struct weir__overload_policy overload;
    bool count_rejected;
    struct weir__access_list allow, block;

    /* descriptor dialect */
    weir_text limit_name; /* rate_limit.name: what `replaces` and clients call it; empty: none */
    bool quota_mode, detailed_metric;
    bool value_to_metric;      /* at this level or one above it */
    weir_text metadata;        /* as JSON; empty: none */
    const weir_text *replaces; /* names */
    size_t replaces_count;
};

/* True if that is the rule's name, or the name of the rule of whose limits it is one. */
static inline bool weir__rule_is_called(const struct weir__rule *rule, weir_text name)
{
    return weir__text_equal(rule->name, name) || weir__text_equal(rule->base, name);
}

/*
 * The id of a rule's counters: XXH3-64 of the name, seed 0, or 1 for a shadow rule. Segments on disk and other hosts
 * depend on it: it must never change.
 */
uint64_t weir__rule_id(weir_text name, bool shadow);

/*
 * The consistency of a rule's counters where there is a store; `fallback`: of rules that set none. WEIR__PER_ALGORITHM:
 * buckets are eventual, since they repay what several hosts admit too much between two exchanges; windows, logs and
 * concurrency never do, and are strict. Concurrency cannot be eventual: such a fallback makes it strict.
 */
enum weir__consistency weir__rule_consistency(const struct weir__rule *rule, enum weir__consistency fallback);
/* Why units of the rule cannot be leased, as the end of a sentence; NULL: they can. A fallback `leased` is strict then.
 */
const char *weir__rule_lease_obstacle(const struct weir__rule *rule);

#endif
