/* What the files of ingest share: ingest.c (listener), ingest_request.c (parsing), ingest_commit.c (queue thread). */
#ifndef WEIR_QUEUE_INGEST_INTERNAL_H
#define WEIR_QUEUE_INGEST_INTERNAL_H

#include "base/log.h"
#include "config/config.h"
#include "queue/queue.h"

/* ---- Parsing (ingest_request.c): no HTTP, no queue ---- */

/* Headers that nginx's location adds to a deferred request. */
#define WEIR__INGEST_FIELDS(X)                                                                                         \
    X(METHOD, "X-Weir-Method")                                                                                         \
    X(TARGET, "X-Weir-Target")                                                                                         \
    X(RULE, "X-Weir-Rule")                                                                                             \
    X(KEY, "X-Weir-Key")                                                                                               \
    X(TIER, "X-Weir-Tier")                                                                                             \
    X(COST, "X-Weir-Cost")                                                                                             \
    X(BOUNDS, "X-Weir-Bounds")                                                                                         \
    X(CONNECTION, "X-Weir-Connection")                                                                                 \
    X(RETRY_AFTER, "X-Weir-Retry-After")

enum weir__ingest_field {
#define WEIR__INGEST_ENUM(name, text) WEIR__INGEST_##name,
    WEIR__INGEST_FIELDS(WEIR__INGEST_ENUM)
#undef WEIR__INGEST_ENUM
        WEIR__INGEST_COUNT
};

extern const char *const weir__ingest_field_names[WEIR__INGEST_COUNT];

#define WEIR__TIER_MAX 256
/* The tier of a deferred request, which its stored headers begin with (X-Weir-Tier); empty: none. */
weir_text weir__deferred_tier(const struct weir__deferred *item, char room[WEIR__TIER_MAX + 1]);
/* The other rules that limit it (weir_taken.others), in the next line (X-Weir-Others); empty: none. */
weir_text weir__deferred_others(const struct weir__deferred *item);

struct weir__header_line {
    weir_text name, value;
};

/* Hop-by-hop (RFC 9110, 7.6.1), about framing, or between nginx and the agent. */
bool weir__is_hop_header(weir_text name);
/*
 * True if the header is stored: configured or always needed, and not hop-by-hop (`connection` is the client's
 * Connection header). as_sent: the headers are those that the gateway would send upstream. Else they may be the
 * client's own, and only headers that do not identify the client are stored.
 */
bool weir__ingest_keeps_header(const struct weir__queue_config *queue, weir_text connection, bool as_sent,
                               weir_text name);

/*
 * Parses nginx's fields (indexed by enum weir__ingest_field; data NULL: absent) and header lines into a request without
 * body. The item's method and target are those of `fields`, its other texts are in *room, to be freed. NULL, or what is
 * wrong; then *room is NULL.
 */
const char *weir__ingest_read_request(const struct weir__queue_config *queue,
                                      const weir_text fields[WEIR__INGEST_COUNT], const struct weir__header_line *lines,
                                      size_t line_count, struct weir__deferred *item, struct weir__queue_bounds *bounds,
                                      char **room);

/* ---- The committer (ingest_commit.c): the one thread that calls the queue ---- */

#define WEIR__TICKET_JSON_MAX 2048

enum weir__ingest_job_kind { WEIR__JOB_PUT, WEIR__JOB_FIND, WEIR__JOB_CANCEL };

/* A call of the queue. Owned by the committer from weir__committer_add until `done`. */
struct weir__ingest_job {
    enum weir__ingest_job_kind kind;
    struct weir__queue_put put;       /* else its ticket and error alone */
    int fd;                           /* the client's connection; -1: unknown */
    char json[WEIR__TICKET_JSON_MAX]; /* out, of a find, or a cancel that came too late: the ticket; "": none */
};

struct weir__committer;

/* Calls `done` for each job in the committer's thread. NULL: out of memory. */
struct weir__committer *weir__committer_start(const struct weir__config *config, const struct weir__logger *log,
                                              void (*done)(struct weir__ingest_job *job),
                                              struct weir__dispatcher *dispatcher);
/* False: the backlog is full, or the committer is ending; the job stays the caller's. */
bool weir__committer_add(struct weir__committer *committer, struct weir__ingest_job *job);
/* Completes the jobs that were added; further ones are refused. */
void weir__committer_end(struct weir__committer *committer);
void weir__committer_free(struct weir__committer *committer);

/* A weir__deferred_visit: writes what a ticket's holder may see, as JSON, to `json` (WEIR__TICKET_JSON_MAX bytes). */
int weir__ticket_json(void *json, const struct weir__deferred *item);

#endif
