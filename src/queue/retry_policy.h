/*
 * The retry policy of deliveries: which statuses are final, exponential back-off with full jitter, and a circuit
 * breaker for each rule. Pure functions: no clocks, sockets or files; `now_ms` and `random` (any 64 bits) are
 * arguments.
 */
#ifndef WEIR_QUEUE_RETRY_POLICY_H
#define WEIR_QUEUE_RETRY_POLICY_H

#include <weir/weir.h>

#define WEIR__RETRY_FIRST_MS INT64_C(1000)
#define WEIR__RETRY_MAX_MS   INT64_C(300000)

/* True: the request is delivered. False for 5xx, 408, 425, 429 and no reply (0): retry. */
bool weir__retry_is_final(int status);
/* True for no reply (0) and 502 to 504: the upstream is unavailable, for other requests of the rule too. */
bool weir__retry_is_unavailable(int status);
/* Back-off after `attempts` attempts (1 or more): uniform in [0, min(1 s * 2^(attempts - 1), 5 min)]. */
int64_t weir__retry_backoff_ms(int attempts, uint64_t random);

/*
 * The group in which a request is set aside: equal for requests of one rule and key that the same other rules
 * (weir_deferral.others) limit under the same keys, whatever their tier and cost. 0: no other rule limits it.
 */
uint64_t weir__retry_aside_group(weir_text rule, weir_text key, weir_text others);

/* ---- Circuit breaker by rule ---- */

/*
 * Opens after 3 consecutive deliveries of a rule that found the upstream unavailable. While it is open one request at a
 * time is sent as a probe, after 1 s, 2 s, 4 s … 30 s; the first that gets a reply closes it. So an outage does not use
 * up the attempts of all waiting requests.
 */
#define WEIR__RULE_BREAKERS         64 /* rules; a further one replaces the one that opened the longest ago */
#define WEIR__RULE_BREAKER_FAILURES 3
#define WEIR__RULE_BREAKER_MAX_MS   INT64_C(30000)

struct weir__rule_breaker {
    uint64_t rule;     /* hash of its name; 0: unused */
    unsigned failures; /* consecutive, while closed */
    unsigned probes;   /* that failed; 0: closed */
    bool probing;      /* a probe was sent */
    int64_t until_ms;  /* the next probe */
};

struct weir__rule_breakers {
    struct weir__rule_breaker list[WEIR__RULE_BREAKERS];
};

/* 0: the request may be sent, as a probe if the breaker is open. Else the time before which it may not. */
int64_t weir__rule_breaker_until(struct weir__rule_breakers *breakers, weir_text rule, int64_t now_ms);
/* Records the result of a delivery. */
void weir__rule_breaker_record(struct weir__rule_breakers *breakers, weir_text rule, bool unavailable, int64_t now_ms);

#endif
