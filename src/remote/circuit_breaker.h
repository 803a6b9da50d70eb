/*
 * The circuit breaker of one server. Closed: requests pass. After failures_max failures in a row it opens, and requests
 * are refused; at intervals with exponential back-off and 50 % jitter a probe (PING) is sent. When the probe succeeds,
 * the breaker is half open: one request passes, and only its success closes the breaker. So a server that replies to
 * PING but fails requests costs one request a probe.
 */
#ifndef WEIR_REMOTE_CIRCUIT_BREAKER_H
#define WEIR_REMOTE_CIRCUIT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum weir__breaker_state {
    WEIR__BREAKER_CLOSED,
    WEIR__BREAKER_OPEN,          /* refuses; a probe is due at retry_us */
    WEIR__BREAKER_PROBING,       /* refuses; a probe is in flight */
    WEIR__BREAKER_HALF_OPEN,     /* the probe succeeded: the next request passes */
    WEIR__BREAKER_HALF_OPEN_BUSY /* that request is in flight; refuses others */
};

struct weir__breaker {
    enum weir__breaker_state state;
    unsigned failures; /* in a row */
    unsigned failures_max;
    unsigned failed_probes; /* since it opened: each doubles the interval */
    int64_t min_us, max_us;
    int64_t retry_us;
    uint64_t random;
};

void weir__breaker_init(struct weir__breaker *breaker, unsigned failures_max, int64_t min_us, int64_t max_us,
                        uint64_t seed);
/* Whether a request may be sent. If half open, the first one may. */
bool weir__breaker_allows(struct weir__breaker *breaker);
/* Starts the probe if one is due. */
bool weir__breaker_probe(struct weir__breaker *breaker, int64_t now_us);
/* The probe succeeded. */
void weir__breaker_probed(struct weir__breaker *breaker);
/* The request of the half-open breaker is not sent after all: another one may be. */
void weir__breaker_release(struct weir__breaker *breaker);
/* A reply arrived. True: that closed the breaker. */
bool weir__breaker_succeeded(struct weir__breaker *breaker);
/* A request or a probe failed. True: that opened the closed breaker. */
bool weir__breaker_failed(struct weir__breaker *breaker, int64_t now_us);
/* When the next probe is due; INT64_MAX: none is. */
int64_t weir__breaker_due(const struct weir__breaker *breaker);

#endif
