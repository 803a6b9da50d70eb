/*
 * Rules, read from YAML, and weir_check, which decides a request under all rules that match it.
 *
 *     weir *w;
 *     weir_options how = {.segment = {.path = "/dev/shm/weir", .size = 64 << 20, .flags = WEIR_OPEN_CREATE},
 *                         .rules_path = "rules.d"};
 *     weir_attribute about[] = {{WEIR_ATTR_PATH, "", "/api/items"}, {WEIR_ATTR_METHOD, "", "GET"},
 *                               {WEIR_ATTR_PEER, "", "192.0.2.7"}, {WEIR_ATTR_NAMED, "user_id", "42"}};
 *     weir_query query = {.attributes = about, .attribute_count = 4};
 *     weir_result result;
 *
 *     if (weir_open(&how, &w) == 0 && weir_check(w, &query, &result) == 0 && weir_passes(&result.decision))
 *         serve();
 *
 * Included by weir.h. The language of the rules is described in docs/reference/rules.md.
 */
#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Loading rules, and diagnostics ---- */

enum weir_severity { WEIR_IS_ERROR = 0, WEIR_IS_WARNING };

/* One diagnostic of a rule file. Valid only during the call. */
typedef struct weir_diagnostic {
    enum weir_severity severity;
    const char *file;
    int line, column;       /* from 1; 0: the file as a whole */
    const char *message;    /* one sentence without a full stop */
    const char *suggestion; /* a word that was perhaps meant, or NULL */
    const char *source;     /* the line of text, or NULL */
} weir_diagnostic;

typedef void weir_diagnose(void *context, const weir_diagnostic *diagnostic);

/* A checked, compiled and immutable set of rules. */
typedef struct weir_rules weir_rules;

/*
 * Reads a file, or every *.yaml and *.yml of a directory in the order of their names. Reports every error, not only the
 * first, to `diagnose` (may be NULL); returns WEIR_ERULES if there was one.
 */
WEIR_MUST_CHECK int weir_rules_load(const char *path, weir_diagnose *diagnose, void *context, weir_rules **rules);
/* Reads from memory; `name` stands for the file in messages. Files that the rules name have absolute paths. */
WEIR_MUST_CHECK int weir_rules_parse(const char *name, const char *text, size_t len, weir_diagnose *diagnose,
                                     void *context, weir_rules **rules);
/* NULL is allowed. */
void weir_rules_free(weir_rules *rules);

/* A rule as its author sees it; the texts live as long as the set. */
typedef struct weir_rule_info {
    const char *name;
    const char *domain; /* descriptor dialect, else NULL */
    const char *key;    /* the template as written; "" for one bucket for all */
    const char *file;
    int line;
    enum weir_algorithm algorithm;
    int64_t limit;         /* the default tier's; 0: banned, -1: unlimited */
    int64_t window_ns;     /* 0 for calendar windows */
    bool by_tier;          /* there are others */
    bool shadow;           /* evaluated and counted, never enforced */
    int64_t bytes_per_key; /* of a segment's size, all that is set aside included, so that it is at most 90 % full, for
                              keys that use their whole limit, in the tier that needs most; 0: nothing is counted, and
                              algorithm and window mean nothing */
} weir_rule_info;

size_t weir_rules_count(const weir_rules *rules);
/* The rule at `index` < weir_rules_count, in the order of the files. */
void weir_rules_info(const weir_rules *rules, size_t index, weir_rule_info *info);

/* ---- An engine: a segment and rules ---- */

typedef struct weir weir;
/* The requests of checks to a store; see store.h. */
typedef struct weir_async weir_async;

enum {
    WEIR_NO_WATCH = 1,   /* weir_check does not poll the rule files; only weir_reload does */
    WEIR_NO_CONNECT = 2, /* there is a store, and the caller sends the requests to it, see store.h */
    WEIR_HIDE_KEYS = 4,  /* of hot keys and of denied keys and clients only hashes are kept, not their texts */
    WEIR_RULES_LATER = 8 /* weir_open does not read rules_path: there are no rules until weir_reload does */
};

/*
 * How the counters of several hosts agree; docs/reference/rules.md. Without a store, all are local. WEIR_PER_ALGORITHM
 * is a default only, and that of weir serve and nginx: token and leaky buckets are eventual (strict without a ledger),
 * all others strict.
 */
enum weir_consistency { WEIR_LOCAL = 0, WEIR_EVENTUAL, WEIR_STRICT, WEIR_LEASED, WEIR_PER_ALGORITHM };

typedef struct weir_options {
    weir_segment *attached;       /* an open segment, which stays the caller's; or NULL and: */
    weir_segment_options segment; /* what to open; closed by weir_close */
    const char *rules_path;       /* a file or a directory, watched; or NULL and: */
    const char *rules_text;       /* the rules themselves; files that they name have absolute paths */
    weir_diagnose *diagnose;      /* receives diagnostics of the rules, now and at each reload; may be NULL */
    void *diagnose_context;
    int flags;
    const char *store; /* the URL of a store that hosts share, or NULL; docs/reference/store.md. weir_check sends
                          requests to it and waits. Needs the store library: see weir_store_use */
    enum weir_consistency
        default_consistency; /* of rules without one, such as all of the descriptor dialect; with a store. 0: they
                                count on each host. With WEIR_EVENTUAL, concurrency and limits of requests are strict */
    /*
     * With a store: the delta ledger of rules of `consistency: eventual`, which weir agent sends to the store. A file,
     * by convention the segment's path and ".ledger"; created with segment.mode when the first such rule is loaded. "":
     * anonymous memory. NULL: none, and such rules are local.
     */
    const char *ledger;
    uint64_t ledger_bytes; /* of a new one; 128 a key in use. 0: a quarter of the segment, and at least 1 MiB */
    /*
     * The heaviest keys of each rule (docs/reference/statistics.md): a file, by convention the segment's path and
     * ".hot", created with segment.mode. "": anonymous memory. NULL: none. If it cannot be opened, that is reported to
     * `diagnose`, and no hot keys are sampled.
     */
    const char *hot;
    uint64_t hot_bytes; /* of a new one: 108 KiB a rule. 0: 8 MiB */
    /*
     * The load page, in which the agent publishes the host's load, for elastic and adaptive rules and for shedding
     * (docs/reference/overload.md): a file, by convention the segment's path and ".load", created with segment.mode.
     * "": anonymous memory. NULL: none, and limits are not scaled. If it cannot be opened, that is reported to
     * `diagnose`.
     */
    const char *load;
    /*
     * The ring of recent denials, for weir why (docs/reference/denials.md): a file, by convention the segment's path
     * and ".denials", created with segment.mode. "": anonymous memory. NULL: none. If it cannot be opened, that is
     * reported to `diagnose`, and no denials are recorded.
     */
    const char *denial_ring;
    uint64_t denial_bytes; /* of a new one: 640 a denied key. 0: 1 MiB */
    /*
     * With a store: the queue of blocks and resets of keys, which weir agent sends to all hosts
     * (docs/reference/store.md). A file of 64 KiB, by convention the segment's path and ".keys", created with
     * segment.mode. "": anonymous memory. NULL: none, and they hold on this host alone. If it cannot be opened, that is
     * reported to `diagnose`.
     */
    const char *key_commands;
} weir_options;

WEIR_MUST_CHECK int weir_open(const weir_options *options, weir **engine);
/* Must be the last call on its handle. NULL is allowed. */
void weir_close(weir *engine);
/*
 * Polls the rule files now. Returns 1: a new set is active; 0: unchanged; or a negative error, and the previous rules
 * stay active (WEIR_ERULESBUSY: another thread is reloading, the files are being written, or too many old sets are
 * still in use; try again). weir_check polls by itself, at most once a second.
 */
int weir_reload(weir *engine);
/* The engine's segment, e.g. for weir_clock. */
weir_segment *weir_engine_segment(weir *engine);

/* ---- What a request is ---- */

typedef struct weir_text {
    const char *data;
    size_t len;
} weir_text;

/* Spaces and tabs around a value are no part of it (RFC 9110, section 5.5), except for path, target and query. */
enum weir_attribute_kind {
    WEIR_ATTR_PATH = 0, /* decoded and normalised, without the query; or leave it out and give WEIR_ATTR_TARGET */
    WEIR_ATTR_TARGET,   /* the raw request target; weir splits, decodes and normalises it */
    WEIR_ATTR_QUERY,    /* the raw query string without '?' */
    WEIR_ATTR_METHOD,
    WEIR_ATTR_HOST,   /* with or without port */
    WEIR_ATTR_PEER,   /* the address of the other end of the connection, as text */
    WEIR_ATTR_HEADER, /* by name, in lower case; several lines of one name are joined by ", " (Cookie: "; ") */
    WEIR_ATTR_NAMED   /* anything the application knows: user_id, api_key, tier … */
};

/* True and *value set if the request has it. The text must stay as it is until weir_check returns. */
typedef bool weir_lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value);

/* An attribute of an array, as C strings. Names of headers in any case. */
typedef struct weir_attribute {
    enum weir_attribute_kind kind;
    const char *name; /* of a header or a named attribute */
    const char *value;
} weir_attribute;

#define WEIR_PERMITS_MAX       8 /* concurrency rules that one request may match; further ones fail */
#define WEIR_PERMITS_NAMES_MAX 3072

/* Permits that a request holds. Copy it freely (weir_permits_size bytes of it suffice), but release it once. */
typedef struct weir_permits {
    uint32_t count;     /* 0: none to release */
    uint32_t names_len; /* not 0: some of them are in the store */
    int64_t lease_ns;   /* the shortest lease: a longer request must renew them before it ends */
    weir_lease lease[WEIR_PERMITS_MAX];
    char names[WEIR_PERMITS_NAMES_MAX]; /* of those in the store */
} weir_permits;

static inline size_t weir_permits_size(const weir_permits *permits)
{
    return offsetof(weir_permits, names) + (permits->count ? permits->names_len : 0);
}

typedef struct weir_query {
    weir_lookup *lookup; /* called for the attributes that the rules and the record of a denial need; or NULL and: */
    void *lookup_context;
    /*
     * One of each name. Refuse or join several lines of a header (by ", ", cookies by "; "), whichever way the values
     * come: rules go by the first that they get, and a server behind perhaps by another.
     */
    const weir_attribute *attributes;
    size_t attribute_count;
    const uint8_t *peer; /* the peer's address in network order, 4 or 16 bytes; saves WEIR_ATTR_PEER */
    size_t peer_len;
    /*
     * Decoded and resolved; saves WEIR_ATTR_PATH. Not for a target with an encoded slash in a path parameter
     * ("/a;x%2f..%2fb"): give WEIR_ATTR_TARGET then, since servers read it in two ways.
     */
    weir_text path;
    bool has_cost;     /* `cost` replaces that of the rules */
    int64_t cost;      /* 0: peek; negative: refund, then `now` should be weir_result.now of the take */
    bool dry_run;      /* takes nothing, counts nothing */
    weir_time now;     /* {0, 0}: read the clock */
    weir_async *async; /* the replies of the store, or NULL: see store.h */
    /*
     * Out: the permits that the request holds under concurrency rules, if it is allowed, to be released when it is
     * done. NULL: each is held until its lease expires.
     */
    weir_permits *permits;

    /* Out: the outcome of each matching rule; may be NULL. */
    struct weir_outcome *outcomes;
    size_t outcomes_max;
    /* Out: the message and the body of a denial, if the rule has its own. */
    char *text;
    size_t text_size;

    /* With a negative cost: the rules that are not refunded (weir_outcome_took), by weir_outcome_id. */
    const uint64_t *not_taken;
    size_t not_taken_count;
} weir_query;

/* ---- The result ---- */

enum weir_reason {
    WEIR_BY_LIMIT = 0,
    WEIR_BY_NOTHING,    /* no rule matched */
    WEIR_BY_ALLOW_LIST, /* the key or the network is on one */
    WEIR_BY_BLOCK_LIST,
    WEIR_BY_BAN,         /* a limit of 0 */
    WEIR_BY_UNLIMITED,   /* a tier or descriptor without a limit */
    WEIR_BY_MISSING_KEY, /* on_missing_key: deny, or skip */
    WEIR_BY_FAILURE,     /* the counter could not be reached; the rule's on_store_failure decided */
    WEIR_BY_SHED         /* overload: requests of higher priority come first */
};

/* The priority of a request, from the rules that match it; normal if none has one. */
enum weir_priority { WEIR_CRITICAL = 0, WEIR_HIGH, WEIR_NORMAL, WEIR_LOW };

/* What a limit counts: `qu` of RateLimit-Policy. Costs of other kinds count as requests. */
enum weir_unit { WEIR_UNIT_REQUESTS = 0, WEIR_UNIT_CONTENT_BYTES, WEIR_UNIT_CONCURRENT_REQUESTS };

#define WEIR_NAME_MAX      95  /* bytes of a rule's name */
#define WEIR_KEY_SHOWN_MAX 191 /* bytes of a key that an outcome shows */

/* The outcome of one rule. */
typedef struct weir_outcome {
    weir_decision decision;
    enum weir_reason reason;
    int error;        /* with WEIR_BY_FAILURE: why; with WEIR_BY_LIMIT: why the host decided alone, not the store */
    bool shadow;      /* counted, not enforced */
    bool key_cut;     /* the key is longer than shown */
    uint16_t key_len; /* bytes of it that are shown; they may contain zero bytes */
    int64_t cost;     /* units that the request takes */
    int64_t quota;    /* units a window, as written in the rule */
    int64_t effective_limit; /* `quota` scaled by the load */
    int64_t window_ns;       /* its length; calendar months and years by their longest */
    char rule[WEIR_NAME_MAX + 1];
    char key[WEIR_KEY_SHOWN_MAX + 1];
    /* The figures of RateLimit-Policy and RateLimit; docs/reference/headers.md defines them. */
    enum weir_unit unit;
    int64_t capacity;            /* q: what a key may hold at once, scaled by the load; -1: there is no limit */
    int64_t policy_window_ns;    /* w: in it `capacity` units recover; 0: none, as of requests in flight */
    int64_t effective_window_ns; /* t of an allowed request: in it a client should use no more than what remains */
} weir_outcome;

/*
 * Of an allowed request: whether it took from this rule's counter. It did not if a shadow rule denied it, or the
 * counter or the store failed.
 */
static inline bool weir_outcome_took(const weir_outcome *outcome)
{
    return outcome->reason == WEIR_BY_LIMIT && !outcome->error && outcome->cost > 0 && weir_passes(&outcome->decision);
}

/*
 * The name of an outcome's reason, as services, logs and weir why show it: "limit", "concurrency", "never_fits",
 * "blocked", "block_list" … (docs/reference/http.md).
 */
const char *weir_outcome_reason(const weir_outcome *outcome);

/*
 * Fills in unit, capacity, policy_window_ns and effective_window_ns from `limit` and the outcome's decision and
 * window_ns, for the headers of a weir_take. Results of weir_check have them.
 */
void weir_outcome_set_policy(weir_outcome *outcome, const weir_limit *limit);

/* The id of the rule of an outcome, from its name and whether it is a shadow. */
uint64_t weir_outcome_id(const weir_outcome *outcome);

/* Sets of response headers, see docs/reference/headers.md. */
enum {
    WEIR_HEADERS_X_RATELIMIT = 1,
    WEIR_HEADERS_DRAFT = 2,
    WEIR_HEADERS_RETRY_AFTER = 4,
    WEIR_HEADERS_RESET_DELTA = 8, /* X-RateLimit-Reset in seconds from now instead of since 1970 */
    WEIR_HEADERS_LIST_ALL = 16    /* RateLimit has an item for every rule that limits the request, not for one */
};

enum weir_body { WEIR_BODY_AUTO = 0, WEIR_BODY_JSON, WEIR_BODY_PROBLEM, WEIR_BODY_TEXT, WEIR_BODY_NONE };
enum weir_on_limit { WEIR_ON_LIMIT_REJECT = 0, WEIR_ON_LIMIT_DELAY, WEIR_ON_LIMIT_QUEUE };

#define WEIR_MISSING_MAX  95 /* bytes of weir_result.missing */
#define WEIR_OTHERS_MAX   16
#define WEIR_OTHERS_BYTES 4096

/*
 * How to take for a request that was denied with on_limit: queue when it is carried out later: `cost` units of `key`
 * under `rule`.
 */
typedef struct weir_deferral {
    char rule[WEIR_NAME_MAX + 1]; /* as its author wrote it: of a rule with several limits, all of them */
    weir_text key;                /* whole, in query->text; empty: there was no room, and it cannot wait */
    weir_text tier;               /* of its limit, in query->text, too; empty: the default, or there are none */
    int64_t cost;
    int64_t max, max_bytes, max_age_ms; /* bounds of the queue; 0: not set in the rule */
    /*
     * The other rules that limit the request, with key, tier and cost each, in query->text: for weir_taken.others.
     * Digits, letters, '.' and ';', at most WEIR_OTHERS_BYTES. With more than WEIR_OTHERS_MAX of them `key` is empty.
     */
    weir_text others;
} weir_deferral;

typedef struct weir_result {
    weir_decision decision;  /* of the whole request: of the reported rule. Its wait or delay is the longest of all */
    weir_outcome decided_by; /* the rule that is reported (docs/reference/headers.md): one that denies, or that of
                                `report`, or the one with the smallest share left; WEIR_BY_NOTHING: no rule matched */
    size_t matched;          /* rules that matched, shadow ones too */
    size_t outcomes;         /* written to query->outcomes, in the order of the rules */
    bool shadow_denied;      /* the request is allowed, but a shadow rule denied it */
    enum weir_priority priority;
    int status;          /* HTTP status of a denial */
    unsigned headers;    /* WEIR_HEADERS_… to send */
    enum weir_body body; /* which body a denial gets */
    /*
     * Of a denial: WEIR_ON_LIMIT_QUEUE only if waiting helps, and every rule that denies says so. Then `deferral` is
     * set, and only then.
     */
    enum weir_on_limit on_limit;
    weir_deferral deferral;
    weir_text message;   /* in query->text; empty: the default message */
    weir_text body_text; /* in query->text; empty: none of the rule's own */
    weir_time now;       /* the time of the decision */
    weir_text tier;      /* of a denial: that of the limit, in query->text; empty: the default, or there are none */
    /* Of a denial with WEIR_BY_MISSING_KEY: what the request lacks, such as "header x-api-key"; else empty. */
    char missing[WEIR_MISSING_MAX + 1];
} weir_result;

/*
 * Decides a request under all rules that match: it takes from all of them or from none. 0, or a negative error if the
 * query is invalid. A failing counter is not an error: the rule's on_store_failure decides. With weir_options.store it
 * waits for the store if a strict rule matches, at most for the deadline. It needs at most 16 KiB of stack; 64 KiB
 * where it reloads rules (not with WEIR_NO_WATCH) or connects to the store.
 */
WEIR_MUST_CHECK int weir_check(weir *engine, const weir_query *query, weir_result *result);

/*
 * Releases the permits of a check; their count is 0 afterwards. Returns the number of permits released, without those
 * that had expired. Negative: why some could not be released, which expire with their leases. Waits for the store, at
 * most for the deadline, if some are there.
 */
int weir_permits_release(weir *engine, weir_permits *permits);
/*
 * Extends all leases by their full duration from now; permits that have ended are removed. 0 or a negative error. Under
 * a strict rule, a permit that the store does not know any more is taken again if there is room; WEIR_ELEASE: there is
 * none now, and the next call tries again.
 */
int weir_permits_renew(weir *engine, weir_permits *permits);

#define WEIR_PERMITS_TEXT_MAX 4640

/*
 * Permits as a text of letters, digits, '-' and '_' with a zero byte, for clients that release them later. Only
 * processes with access to the segment can make one. Returns its length; 0: there are no permits, or it failed.
 */
size_t weir_permits_to_text(weir *engine, const weir_permits *permits, char text[WEIR_PERMITS_TEXT_MAX + 1]);
/*
 * Parses such a text. WEIR_ELEASE: it is not one of this segment. Of a text of another host only the permits in the
 * shared store are read; WEIR_ELEASE if there are none.
 */
WEIR_MUST_CHECK int weir_permits_from_text(weir *engine, weir_text text, weir_permits *permits);

/*
 * The client by the rules' `identity`: the query's peer, or the address that it forwards if it is a trusted proxy.
 * Writes the full address in network order and returns its length, 4 or 16; 0: there is none; or a negative error. For
 * logs: a check determines it by itself if a rule needs it.
 */
WEIR_MUST_CHECK int weir_client(weir *engine, const weir_query *query, uint8_t address[16]);

/* ---- The descriptor dialect ---- */

typedef struct weir_descriptor_entry {
    weir_text key, value;
} weir_descriptor_entry;

typedef struct weir_descriptor {
    const weir_descriptor_entry *entries;
    size_t entry_count;
    bool has_hits; /* `hits` counts instead of the query's */
    int64_t hits;  /* 0: peek; negative: refund */
    /* A limit that replaces the rules' (0 window: none). Clock-aligned fixed window. */
    int64_t override_limit;
    int64_t override_window_ns;
} weir_descriptor;

/* The rule that a descriptor matched, as its author wrote it. */
typedef struct weir_descriptor_match {
    weir_text limit_name; /* rate_limit.name; empty: none */
    weir_text metadata;   /* an object of JSON; empty: none */
    int64_t limit;        /* requests_per_unit; -1: unlimited */
    int64_t window_ns;    /* the unit, times unit_multiplier; calendar months and years by their longest */
    bool by_clock;        /* its windows start at multiples of their length since 1970 */
    bool quota_mode;      /* denies only together with all others of its kind */
} weir_descriptor_match;

typedef void weir_descriptor_matched(void *context, size_t descriptor, const weir_descriptor_match *match);

typedef struct weir_descriptor_query {
    weir_text domain;
    const weir_descriptor *descriptors;
    size_t descriptor_count;
    int64_t hits; /* 0 is 1, as in Envoy's protocol */
    bool dry_run;
    /*
     * Denied hits count, as in envoyproxy/ratelimit: in fixed windows all of them, until the window ends; with other
     * algorithms those that the request (more than 1) or a descriptor names, where they leave a debt.
     */
    bool charge_denied;
    weir_time now;
    weir_async *async;      /* as in weir_query */
    weir_outcome *outcomes; /* one a descriptor, in order; must have room for descriptor_count */
    /* Called for each descriptor that a rule matched; its texts are valid during the call. May be NULL. */
    weir_descriptor_matched *matched;
    void *matched_context;
} weir_descriptor_query;

/*
 * Decides descriptors as envoyproxy/ratelimit does, but all or nothing. outcomes[i] is the outcome of descriptor i
 * (reason WEIR_BY_NOTHING: no rule matched). *decision is that of the whole request.
 */
WEIR_MUST_CHECK int weir_check_descriptors(weir *engine, const weir_descriptor_query *query, weir_result *result);

/* ---- Headers and bodies of responses ---- */

#define WEIR_HEADERS(X)                                                                                                \
    X(LIMIT, "X-RateLimit-Limit")                                                                                      \
    X(REMAINING, "X-RateLimit-Remaining")                                                                              \
    X(RESET, "X-RateLimit-Reset")                                                                                      \
    X(X_RETRY_AFTER, "X-RateLimit-Retry-After")                                                                        \
    X(POLICY, "RateLimit-Policy")                                                                                      \
    X(RATELIMIT, "RateLimit")                                                                                          \
    X(RETRY_AFTER, "Retry-After")                                                                                      \
    X(CACHE_CONTROL, "Cache-Control")

enum weir_header {
#define WEIR_HEADER_ENUM(name, text) WEIR_HEADER_##name,
    WEIR_HEADERS(WEIR_HEADER_ENUM)
#undef WEIR_HEADER_ENUM
        WEIR_HEADER_COUNT
};

/* The name of a header as it is sent; NULL if there is none of this number. */
const char *weir_header_name(enum weir_header header);

/* `value` is valid during the call, and ends in a zero byte. */
typedef void weir_emit_header(void *context, enum weir_header header, const char *value, size_t len);

/*
 * The response headers of a result. With `outcomes` (of the same check) RateLimit-Policy lists every rule, and with
 * WEIR_HEADERS_LIST_ALL so does RateLimit: as many as fit (2048 and 1024 bytes), the reported one among them.
 */
void weir_result_headers(const weir_result *result, const weir_outcome *outcomes, weir_emit_header *emit,
                         void *context);

#define WEIR_HEADER_ROOM 3328 /* bytes: enough for the values of all headers */

/*
 * Writes the values of all headers one after the other, in the order of enum weir_header, and their lengths; 0: the
 * header is not sent. Returns the total length.
 */
size_t weir_result_header_values(const weir_result *result, const weir_outcome *outcomes, char values[WEIR_HEADER_ROOM],
                                 uint16_t lens[WEIR_HEADER_COUNT]);
/*
 * The body of a denial, into `buffer`; *type is its content type. Returns its length, at most size. `accepts_problem`:
 * the client's Accept names application/problem+json.
 */
size_t weir_result_body(const weir_result *result, bool accepts_problem, char *buffer, size_t size, const char **type);
/* The value of the header WWW-Authenticate, which a denial with status 401 must have; NULL: none. */
const char *weir_result_challenge(const weir_result *result);

/* ---- One key of a rule, for an operator ---- */

/*
 * `rule` is a rule's name. A rule with several limits: one of them by its whole name ("api/1m"), or all of them by the
 * name that their author wrote. Of two rules of one name the enforced one is meant, not the shadow.
 * `key` is a filled-in template, as weir_outcome shows it, but whole; "*" for a rule without one. WEIR_ENORULE: there
 * is no such rule. `now` may be {0, 0}: read the clock.
 */

/*
 * The outcome of one more unit under the rule's default tier (without one, the first); takes nothing:
 * `decision.remaining` is without that unit. Of several limits, the tightest. Of a strict rule it is the store's; if
 * outcome->error is set, the store did not reply and it is the count of this host alone.
 */
WEIR_MUST_CHECK int weir_key_state(weir *engine, const char *rule, const void *key, size_t len, weir_time now,
                                   weir_outcome *outcome);
/*
 * Resets the counters of the key, in all tiers. A block stays. Of a strict rule also in the store: returns the store's
 * error if that failed. With weir_options.key_commands on all hosts, within a second; 1: on this host alone, as the
 * queue of these commands is full.
 */
WEIR_MUST_CHECK int weir_key_reset(weir *engine, const char *rule, const void *key, size_t len, weir_time now);
/*
 * Denies the key's requests under the rule until now + for_ns (at most 400 days), in all tiers that have a limit; its
 * counter goes on as it was. 0 unblocks. On this host at once; with weir_options.key_commands on all hosts, within a
 * second; 1: on this host alone, as the queue of these commands is full. WEIR_ELIMIT: the rule has no counter, as it
 * bans or lets pass everything.
 */
WEIR_MUST_CHECK int weir_key_block(weir *engine, const char *rule, const void *key, size_t len, int64_t for_ns,
                                   weir_time now);

/* Where a block or a reset of a key holds. */
enum weir_reach {
    WEIR_THIS_HOST = 0,  /* there is no store, or it must not get texts of keys */
    WEIR_ALL_HOSTS,      /* within a second */
    WEIR_ALL_HOSTS_LATER /* here; elsewhere when the agent runs, or reaches the store, again */
};

/* Where the next block or reset would hold, by the last round of the agent. */
enum weir_reach weir_key_reach(weir *engine);

/* ---- Settling: correcting a take by the actual cost ---- */

/* A take of a check from one counter: the fields of an outcome with WEIR_BY_LIMIT that passes, and the full key. */
typedef struct weir_taken {
    const char *rule;
    bool shadow;
    const void *key;
    size_t key_len;
    int64_t quota; /* with window_ns: selects the tier of the rule; the first, if no tier matches any more */
    int64_t window_ns;
    weir_text tier;   /* or its name; empty: not known */
    weir_text others; /* weir_key_take: other rules, as in weir_deferral; empty: none */
} weir_taken;

/*
 * Corrects a counter by `amount`. Negative refunds as weir_refund does, with `now` of the check (weir_result.now);
 * positive charges as weir_charge does, with the present time. WEIR_ENORULE: the rule no longer exists or has no
 * counter. Under a strict rule the store does it, at its own time; on an error of the store it did not.
 */
WEIR_MUST_CHECK int weir_key_settle(weir *engine, const weir_taken *taken, int64_t amount, weir_time now,
                                    weir_decision *decision);

/* ---- A request whose rule and key are known already ---- */

/*
 * Takes `cost` units as a request would that this rule matched, and counts as one: for deferred requests that are to
 * pass now. Of a rule with several limits all are decided, by its own name or that of any of them, and so are the rules
 * of what->others that are still enforced; takes from all or from none, and *outcome is of the one that denies, or of
 * the tightest. WEIR_EINVAL: `others` is malformed. Permits go to `permits`, which may be NULL as in weir_query.
 * WEIR_ENORULE: no enforced rule has this name; other failures of a counter follow the rule's failure policy. `now` may
 * be {0, 0}. An engine with connections of its own queries the store of a strict rule.
 */
WEIR_MUST_CHECK int weir_key_take(weir *engine, const weir_taken *what, int64_t cost, weir_time now,
                                  weir_permits *permits, weir_outcome *outcome);

#define WEIR_SECRET_BYTES 32

/*
 * A secret for `purpose` that all processes of the segment derive alike, and no others: a key for a message
 * authentication code. It must not be disclosed.
 */
WEIR_MUST_CHECK int weir_segment_secret(const weir_segment *segment, const char *purpose,
                                        uint8_t secret[WEIR_SECRET_BYTES]);

/* ---- Statistics ---- */

typedef struct weir_rule_stats {
    uint64_t allowed, delayed, denied; /* of a shadow rule: its decisions if it were enforced */
    uint64_t listed;                   /* passed or denied by an allow- or block-list */
    uint64_t missing_key;              /* requests without one of the key's attributes */
    uint64_t failures;                 /* decided by on_store_failure, whether open, closed or local */
    uint64_t rolled_back;              /* taken, then refunded because another rule denied */
    uint64_t shed;                     /* denied because of overload; not included in `denied` */
    uint64_t shed_of[4];               /* `shed` by enum weir_priority; critical requests are never shed */
    uint64_t warnings;                 /* keys that reached warn_at, once a window each */
} weir_rule_stats;

/*
 * Totals since the segment was made, of all processes; a rule is identified by its name and `shadow`. WEIR_ENORULE:
 * there is none. WEIR_ENOSTATS: the segment has no room for its statistics.
 */
WEIR_MUST_CHECK int weir_rule_stats_read(weir *engine, const char *rule, bool shadow, weir_rule_stats *stats);
/* All active rules, in order, until `visit` returns non-zero, which is returned. */
int weir_rules_each(weir *engine, int (*visit)(void *context, const weir_rule_info *info, const weir_rule_stats *stats),
                    void *context);

/* Keys of a rule, from those that were sampled in the last ten minutes (weir_options.hot). */
typedef struct weir_hot_stats {
    uint64_t keys;       /* estimated number */
    uint64_t near_limit; /* keys that had used 80 % of their limit or more; at most 64 are counted, and of limits below
                            250 many are missed: `warn_at` is exact */
    uint32_t peak_per_mille; /* largest share of its limit that a key had used in the last one or two minutes */
} weir_hot_stats;

/* All rules whose keys are sampled, in order, until `visit` returns non-zero, which is returned. */
int weir_hot_each(weir *engine, int (*visit)(void *context, const weir_rule_info *info, const weir_hot_stats *stats),
                  void *context);

#define WEIR_TIMES 16

/* Histogram of the durations of checks, of those that were timed (about 1 in 64): count[i] took less than below_ns[i],
 * and not less than below_ns[i - 1]. */
typedef struct weir_times {
    int64_t below_ns[WEIR_TIMES];
    uint64_t count[WEIR_TIMES];
} weir_times;

WEIR_MUST_CHECK int weir_times_read(weir *engine, weir_times *times);

/* The engine's connections to the store, since it was opened in this process. */
typedef struct weir_store_stats {
    uint64_t requests, failed; /* sent; without a reply in time, or with an error */
    uint64_t slow;             /* of the failed: exceeded the deadline */
    uint64_t refused;          /* of the failed: not sent, since the circuit breaker was open */
    uint64_t rolled_back;      /* counters that were refunded */
    uint64_t connects;
    bool up;   /* a connection works */
    int error; /* of the last connection that failed; 0: none did */
} weir_store_stats;

typedef struct weir_engine_stats {
    uint64_t reloads;         /* rulesets activated */
    uint64_t reload_failures; /* rulesets refused */
    uint64_t polls;           /* checks of the rule files for changes */
    uint64_t regex_limited;   /* regular expressions that reached their bound, or a cut, and counted as matching */
    size_t rules;
    size_t rule_bytes;      /* of the active set */
    weir_store_stats store; /* zeros without weir_options.store, or with WEIR_NO_CONNECT */
} weir_engine_stats;

WEIR_MUST_CHECK int weir_engine_stats_read(weir *engine, weir_engine_stats *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
