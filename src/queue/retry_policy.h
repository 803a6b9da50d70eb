/*
 * The laws of delivery, without clocks, sockets or files: what an answer means, when to try again, and when to leave a
 * rule's requests alone because what they go to is unavailable. `random` is random, any 64 bits.
 */
#ifndef WEIR_QUEUE_RETRY_POLICY_H
#define WEIR_QUEUE_RETRY_POLICY_H

#include <weir/weir.h>

#define WEIR__RETRY_FIRST_MS INT64_C(1000)
#define WEIR__RETRY_MAX_MS   INT64_C(300000)

/* True: the request is answered for, and that is the end of it. False for 5xx, 408, 425, 429 and no answer (0). */
bool weir__retry_is_final(int status);
/* True: nobody was there to answer (0), or a gateway says so: others of the rule would hear the same. */
bool weir__retry_is_unavailable(int status);
/*
 * How long to wait after so many attempts (1 and more): between 0 and 1 s * 2^(attempts - 1), at most 5 minutes, each
 * as likely as the other ("full jitter"): what failed together does not come back together.
 */
int64_t weir__retry_backoff_ms(int attempts, uint64_t random);
/* True: the last attempt that `retries` allows has been made. */
bool weir__retry_is_exhausted(int attempts, int64_t retries);

/*
 * The same for requests of one rule and key that the same other rules (as weir_deferral.others has them) limit under
 * the same keys, in whatever tier and for whatever cost. 0: there are none.
 */
uint64_t weir__retry_aside_group(weir_text rule, weir_text key, weir_text others);

/* ---- Pauses ---- */

/*
 * After three requests of a rule in a row that nobody answered, the others of it are not tried in vain: one goes out
 * after 1 s, 2 s, 4 s … 30 s, and the first that is answered ends the breaker. Without it a short absence would use up
 * the attempts of everything that waits.
 */
#define WEIR__RULE_BREAKERS         64 /* rules; of more, those that were paused the longest ago are forgotten */
#define WEIR__RULE_BREAKER_FAILURES 3
#define WEIR__RULE_BREAKER_MAX_MS   INT64_C(30000)

struct weir__rule_breaker {
    uint64_t rule;  /* its hash; 0: nobody */
    unsigned row;   /* without an answer */
    unsigned tries; /* of a breaker: in vain; 0: there is none */
    bool trying;    /* one is out */
    int64_t until_ms;
};

struct weir__rule_breakers {
    struct weir__rule_breaker list[WEIR__RULE_BREAKERS];
};

/* 0: it may go, and the others of the rule wait for what becomes of it if there is a breaker. Else: not before. */
int64_t weir__rule_breaker_until(struct weir__rule_breakers *breakers, weir_text rule, int64_t now_ms);
/* What became of one. */
void weir__rule_breaker_record(struct weir__rule_breakers *breakers, weir_text rule, bool unavailable, int64_t now_ms);

#endif
