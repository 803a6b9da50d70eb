/* A request as nginx brings it: see ingest.h. Without HTTP and without the queue. */
#ifndef WEIR_QUEUE_INGEST_REQUEST_H
#define WEIR_QUEUE_INGEST_REQUEST_H

#include "config/config.h"
#include "queue/queue.h"

/* What nginx's location sets, by enum weir__ingest_field. */
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

/*
 * The tier of a rule with several is kept as the first line of a request's headers, as it was fields; it goes no
 * further. True if there is one; it is put into `room`.
 */
#define WEIR__TIER_MAX 256
bool weir__deferred_tier(const struct weir__deferred *item, char room[WEIR__TIER_MAX + 1], weir_text *tier);

/*
 * The other rules that limit the request (weir_taken.others), in the line after it; empty: there are none, or it was
 * kept by a version that did not know them.
 */
weir_text weir__deferred_others(const struct weir__deferred *item);

/* A line of a request's header. */
struct weir__header_line {
    weir_text name, value;
};

/*
 * True if the header goes into the queue: wanted by the configuration or needed in any case, and not only for the
 * connection that it came by, which `connection` (what the client sent under this name) may say of any. `as_sent`: the
 * headers are those that the gateway would have sent; else they may be the client's, and only those are kept that do
 * not say who it is.
 */
bool weir__ingest_keeps_header(const struct weir__queue_config *queue, weir_text connection, bool as_sent,
                               weir_text name);

/*
 * From what was fields (by enum weir__ingest_field; data NULL: nothing) and the lines of its header to a request for
 * the queue, but for its body. All texts of the item are in one piece of memory, *room, to be freed. NULL, or what is
 * wrong with it; then *room is NULL.
 */
const char *weir__ingest_read_request(const struct weir__queue_config *queue,
                                      const weir_text fields[WEIR__INGEST_COUNT], const struct weir__header_line *lines,
                                      size_t line_count, struct weir__deferred *item, struct weir__queue_bounds *bounds,
                                      char **room);

#endif
