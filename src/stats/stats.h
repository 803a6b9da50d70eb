/*
 * The interface of src/stats: weir top, weir advise, weir why, JSON for the REST API, the history writer of the agent.
 * membership.h has the list of hosts.
 */
#ifndef WEIR_STATS_STATS_H
#define WEIR_STATS_STATS_H

#include "base/host_calls.h"

/* ---- Commands ---- */

struct weir__top_options {
    const char *what;  /* path of a weir.yaml or of a segment */
    const char *rules; /* a path; NULL: those of weir.yaml */
    bool once, json;
    int64_t interval_ms;
    int64_t keys;     /* of each rule, in JSON */
    const char *host; /* only this one, by its name or id; NULL: all that share the store */
    bool this_host;
};

/* weir top: shows statistics of this host or several, live or once. Returns the exit code. */
int weir__top_run(const struct weir__top_options *options, weir_diagnose *diagnose, void *context);

/* weir advise: suggests changes to the rules from the statistics. `rule` NULL: all. Returns the exit code. */
struct weir__advise_options {
    const char *what, *rules, *rule;
    bool json;
};
int weir__advise_run(const struct weir__advise_options *options, weir_diagnose *diagnose, void *context);

/* weir why: what was denied to a client, key, request or by a rule, from the ring of recent denials. Returns the exit
 * code. */
struct weir__why_options {
    const char *what, *rules; /* as in weir__top_options */
    const char *subject;      /* a client, a key or its hash, a request's id, or a rule; NULL: everything */
    int64_t since_ns;         /* before now */
    bool json;
    const char *host; /* only this one, by its name or id; NULL: all that share the store */
    bool this_host;
    const char *rule;   /* only denials by this rule, or one of its limits; NULL: any */
    const char *ticket; /* with `rule`: the deferred request whose key `subject` is, as JSON; NULL: none */
};
int weir__why_run(const struct weir__why_options *options, weir_diagnose *diagnose, void *context);

/*
 * ---- JSON: for GET /v1/stats, /v1/stats/history, /v1/stats/hot, /v1/advice and /v1/hosts, and for the commands ----
 *
 * Each function leaves a text from malloc in *json and returns 0, WEIR_ENORULE or WEIR_ENOMEM. The snapshot must be
 * recent.
 */
struct weir__snapshot;
struct weir__membership;

/* Where the rules were read from: a file or a directory, or with `path` NULL a text. */
struct weir__rule_source {
    const char *path;
    weir_text text;
    struct weir__rule_trees *trees; /* parsed on first use */
};
/* Frees the parsed rules; the next use reads them again. */
void weir__rule_source_free(struct weir__rule_source *source);

#define WEIR__STATS_KEYS_MAX 256

/* With query->n hot keys of each rule and list; 0: without. */
int weir__stats_json_current(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json);
/* Without a rule: the sum over all enforced rules, with shadow rules' denials as shadow_denied. */
int weir__stats_json_history(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json);
/* Of an enforced rule. */
int weir__stats_json_hot_keys(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json);
/* What was denied to query->key, as weir why takes it, by query->rule, in the last query->seconds; of none: everything.
 * query->n 0: all entries. Errors are also those of the file: WEIR_ENOENT … */
int weir__stats_json_denied(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json);
/* The hashes by which a store knows a key, and a client: for query->about. The first is that of the key. */
#define WEIR__SUBJECT_DIGEST 66
void weir__subject_digest(const char *about, char digest[WEIR__SUBJECT_DIGEST]);
/* The hosts: "fleet" has totals, "hosts" each of them, this one first. */
int weir__stats_json_hosts(const struct weir__membership *membership, char **json);
/* `rule` NULL: all. `source`: where the rules' texts are from, for the changed rules. */
int weir__stats_json_advice(const struct weir__snapshot *snapshot, const char *rule, struct weir__rule_source *source,
                            char **json);

/*
 * ---- The agent's history writer ----
 *
 * Once a second it appends each rule's counts to the history file; every five minutes it halves the weights of hot
 * keys, so that their lists cover the recent past.
 */
struct weir__history_writer;

/* The size in bytes of a new history file for this many rules. */
uint64_t weir__history_writer_bytes(size_t rules);

/*
 * Opens the history beside the engine's segment. 0; WEIR_EBUSY: another process writes it already; or why it cannot be
 * opened, with *ending the file name's ending. The engine must outlive the writer.
 */
int weir__history_writer_open(weir *engine, const char *segment_path, struct weir__history_writer **writer,
                              const char **ending);
/*
 * Call it several times a second; it writes once a second. 0; WEIR_ELOST: the history's file was truncated and is
 * created anew; or why that failed. Repeats its result until the next second.
 */
int weir__history_writer_tick(struct weir__history_writer *writer);
/* For root, before an agent of another user starts: makes the history if there is none or if it has too few rows. */
int weir__history_writer_prepare(const char *segment_path, size_t rules);
/* NULL is allowed. */
void weir__history_writer_close(struct weir__history_writer *writer);

#endif
