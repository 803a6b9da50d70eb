/*
 * The circuit breaker of one server. Closed: everybody may op. After some failures in a row it opens, and nobody may;
 * from time to time one probe failed_probes whether the server is back. When it answers, one request may try; only its
 * success closes the breaker. A server that greets friendly but fails every request so costs one request a look, not
 * five.
 */
#ifndef WEIR_REMOTE_CIRCUIT_BREAKER_H
#define WEIR_REMOTE_CIRCUIT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum weir__breaker_state {
    WEIR__BREAKER_CLOSED,
    WEIR__BREAKER_OPEN,          /* until retry_us, then a probe is due */
    WEIR__BREAKER_PROBING,       /* a probe is on its way */
    WEIR__BREAKER_HALF_OPEN,     /* the probe came back: one request may try */
    WEIR__BREAKER_HALF_OPEN_BUSY /* it does */
};

struct weir__breaker {
    enum weir__breaker_state state;
    unsigned failures; /* in a row */
    unsigned failures_max;
    unsigned failed_probes; /* in vain, since it opened: each doubles the time to the next */
    int64_t min_us, max_us;
    int64_t retry_us;
    uint64_t random;
};

void weir__breaker_init(struct weir__breaker *breaker, unsigned failures_max, int64_t min_us, int64_t max_us,
                        uint64_t seed);
/* May a request be asked? In the state TRIAL one may, and becomes the one that tries. */
bool weir__breaker_allows(struct weir__breaker *breaker);
/* A probe is due: then it is begun, and false until it has ended. */
bool weir__breaker_probe(struct weir__breaker *breaker, int64_t now_us);
/* The probe came back. */
void weir__breaker_probed(struct weir__breaker *breaker);
/* The request that tries will not be asked after all: another may. */
void weir__breaker_release(struct weir__breaker *breaker);
/* A request was replied; true: that closed the breaker. */
bool weir__breaker_succeeded(struct weir__breaker *breaker);
/* A request or a probe failed; true: that opened the breaker, which was closed. */
bool weir__breaker_failed(struct weir__breaker *breaker, int64_t now_us);
/* When a probe is due: INT64_MAX if none is. */
int64_t weir__breaker_due(const struct weir__breaker *breaker);

#endif
