/*
 * Queries of all hosts that share a store: docs/reference/hosts.md, "All hosts".
 *
 *   host_queries   sends a query to the store by lua/queries.lua, and gathers the replies; on the other hosts: replies
 *   host_replies   the form of a reply, which is untrusted; merging replies
 *
 * An agent sees open queries with the exchange of blocked keys (sync/key_exchange.h).
 */
#ifndef WEIR_STATS_HOST_QUERIES_H
#define WEIR_STATS_HOST_QUERIES_H

#include "stats/membership.h"
#include "stats/stats.h"

#define WEIR__QUERY_MAX       2048                /* bytes of a query */
#define WEIR__QUERY_REPLY_MAX ((size_t)512 << 10) /* bytes of a reply */
#define WEIR__QUERY_REPLY_MIN ((size_t)16 << 10)  /* with many hosts: they share WEIR__QUERY_REPLIES */
#define WEIR__QUERY_REPLIES   ((size_t)16 << 20)  /* bytes of all replies to a query */
/*
 * What replies may add to the first one that they are merged into, in bytes of their shortest text, which is 8 for a
 * member of an object: 524,288 members, some 60 MB. That is 7,000 rules that the first host does not have, or 8,000
 * denials with two other rules each. 200 hosts with 100 common rules and a hot key in each list, or 32 hosts with 20,
 * need less than half of it, if no two hosts have a key in common.
 */
#define WEIR__QUERY_MERGED ((size_t)4 << 20)

/* ---- Texts ---- */

/* A query as it travels. */
struct weir__query {
    enum weir__query_kind kind;
    struct weir__host_query what; /* its texts are in `tree` */
    const char *from, *to;        /* ids of hosts: the one that sent it, and does not reply; "": all reply */
    size_t bytes;                 /* maximum of a reply */
    json_t *tree;
};

/* Formats JSON, from malloc; NULL: no memory, a text that is not UTF-8, or one that is too long. */
char *weir__query_format(const struct weir__query *query, bool hash_keys);
/* Parses untrusted text. False: not a query, or one of a newer version. */
bool weir__query_parse(const char *text, size_t len, struct weir__query *query);
void weir__query_free(struct weir__query *query);

/*
 * Brings a reply into the form of its kind: all members exist, with the right types; others are left out. `len`: bytes
 * of its text, which bound the members that are added; SIZE_MAX: it is this host's own. Lists of numbers are cut to
 * what a host sends. NULL: no object, more members than its text can have, or no memory.
 */
json_t *weir__reply_form(enum weir__query_kind kind, const json_t *reply, size_t len);
/* Adds the host's name to the parts of a reply that are listed by host. */
void weir__reply_name(enum weir__query_kind kind, json_t *reply, const char *name, bool here);

/*
 * Merges replies of hosts, which have the form, into the first: counts and rates are added, keys and rules matched by
 * name, denials listed together; lists are sorted and cut again. The caller sets the first three members.
 */
struct weir__merge {
    enum weir__query_kind kind;
    const struct weir__host_query *query;
    bool hash_keys; /* other hosts sent hashes of keys */

    json_t *sum;   /* the first reply; NULL: none yet */
    json_t *rules; /* of it, by name */
    size_t count;  /* replies */
    size_t most;   /* denials that are kept */
    size_t left;   /* of WEIR__QUERY_MERGED */
    bool full;     /* a reply did not fit, and no further one is added */
};
/* False: it might need more memory than is left for the query, and is ignored. */
bool weir__merge_add(struct weir__merge *merge, json_t *reply);
/* The sum, which the caller frees; NULL: there was no reply. */
json_t *weir__merge_finish(struct weir__merge *merge);

/* ---- The store ---- */

/* The script lua/queries.lua and its SHA-1 for EVALSHA. */
extern const char weir__queries_script[];
extern const char weir__queries_script_sha[41];

/* A connection for queries and replies, made with the first of them; thread-safe. */
struct weir__host_queries;

/* NULL: no memory, or no store. Wrong options of the store are an error of each query. */
struct weir__host_queries *weir__host_queries_new(const struct weir__config *config);
/* NULL is allowed. */
void weir__host_queries_free(struct weir__host_queries *queries);

/* This host's reply to an untrusted query, from malloc. NULL: it needs none, or no memory. */
char *weir__host_queries_text(const struct weir__host_queries *queries, const struct weir__snapshot *snapshot,
                              weir_text query);
/* Sends it. 0, or an error of the store, and why. */
int weir__host_queries_reply(struct weir__host_queries *queries, const char *id, const char *reply,
                             char why[WEIR__HOSTS_WHY]);

/* ---- Gathering ---- */

struct weir__gather;

/* Begins a query of the hosts that query->host names, or of all. The membership must be recent. NULL: no memory. */
struct weir__gather *weir__gather_begin(const struct weir__membership *membership, enum weir__query_kind kind,
                                        const struct weir__host_query *query);
/* Sends it, if there are other hosts. `queries` NULL: no store. Errors of the store are part of the result. */
void weir__gather_send(struct weir__gather *gather, struct weir__host_queries *queries);
/* Takes the untrusted text of a reply: malformed ones, too long ones and the second one of a host are left out. */
void weir__gather_take(struct weir__gather *gather, const char *text, size_t len);
/* Reads replies. True: all are there, or time is over; else call it again after WEIR__GATHER_POLL_MS. */
#define WEIR__GATHER_POLL_MS 20
bool weir__gather_step(struct weir__gather *gather);
/*
 * Merges the replies with this host's own, which it takes over (NULL: it has none, for the reason `error`), and adds
 * "coverage": {"hosts": [names], "missing": [{"name", "why"}], "why": why other hosts were not reached, or null}. Frees
 * `gather`. 0, WEIR__HOST_UNKNOWN, WEIR__HOST_NO_REPLY, or this host's error if no other one replied.
 */
int weir__gather_finish(struct weir__gather *gather, char *own, int error, json_t **merged);
/* All of it, with waiting. */
int weir__gather_all(struct weir__gather *gather, char *own, int error, char **json);

/* The coverage as text: "3 hosts: a, b, c; not included: d (silent)". */
const char *weir__coverage_text(const json_t *merged, char *text, size_t size);

#endif
