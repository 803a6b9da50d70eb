/* The login throttle: delays after wrong passwords and tokens. */
#include "engine/segment.h"
#include "rules/rule.h"

/* Attempts of a peer, and of all peers: token buckets, which forget one attempt at a time. */
#define PEER_A_MINUTE 6
#define PEER_MOST     12
#define ALL_A_MINUTE  600
#define ALL_MOST      1000
#define FIRST_NS      (100000 * WEIR_MICROSECOND)
#define LONGEST_NS    (5 * WEIR_SECOND)

/* Delay of checks: doubles with each attempt beyond these. */
#define PEER_FREE        5
#define ALL_FREE         (ALL_MOST / 2)
#define FIRST_CHECK_NS   (250000 * WEIR_MICROSECOND)
#define LONGEST_CHECK_NS (2 * WEIR_SECOND)

/* The number of attempts not forgotten yet, up to `most`; with `charge`, counts one more. An error counts as most. */
static int64_t attempts(const weir_segment *segment, weir_segment *charge, int64_t a_minute, int64_t most,
                        weir_text key, weir_time now)
{
    weir_limit limit;
    weir_decision decision;
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET,
                          .limit = a_minute,
                          .window_ns = 60 * WEIR_SECOND,
                          .burst = most,
                          .id = weir__rule_id(WEIR__TEXT("wrong passwords and tokens"), false) ^ (uint64_t)most};
    if (weir_limit_init(&limit, &params) != 0 ||
        weir_peek(segment, &limit, key.data, key.len, charge != NULL, now, &decision) != 0)
        return most;
    if (charge && (!weir_passes(&decision) || weir_charge(charge, &limit, key.data, key.len, 1, now, &decision) != 0))
        return most;
    return decision.remaining > 0 ? most - decision.remaining : most;
}

int64_t weir_auth_failure(weir_segment *segment, const void *peer, size_t peer_len, weir_time now)
{
    if (!segment || !peer || !peer_len)
        return LONGEST_NS;
    weir__count(&weir__stats_shard_here(segment)->auth_failures, 1);
    int64_t by_peer = attempts(segment, segment, PEER_A_MINUTE, PEER_MOST, (weir_text){peer, peer_len}, now);
    int64_t in_all = attempts(segment, segment, ALL_A_MINUTE, ALL_MOST, WEIR__TEXT("*"), now);
    int64_t delay_ns = FIRST_NS, all_ns = LONGEST_NS / ALL_MOST * in_all;
    for (int64_t i = 1; i < by_peer && delay_ns < LONGEST_NS; i++)
        delay_ns *= 2;
    if (delay_ns < all_ns)
        delay_ns = all_ns;
    return delay_ns < LONGEST_NS ? delay_ns : LONGEST_NS;
}

int64_t weir_auth_delay(const weir_segment *segment, const void *peer, size_t peer_len, weir_time now)
{
    if (!segment || !peer || !peer_len)
        return LONGEST_CHECK_NS;
    int64_t by_peer = attempts(segment, NULL, PEER_A_MINUTE, PEER_MOST, (weir_text){peer, peer_len}, now);
    if (by_peer <= 0)
        return 0;
    if (attempts(segment, NULL, ALL_A_MINUTE, ALL_MOST, WEIR__TEXT("*"), now) > ALL_FREE)
        return LONGEST_CHECK_NS;
    if (by_peer <= PEER_FREE)
        return 0;
    int64_t delay_ns = FIRST_CHECK_NS;
    for (int64_t i = PEER_FREE + 1; i < by_peer && delay_ns < LONGEST_CHECK_NS; i++)
        delay_ns *= 2;
    return delay_ns;
}
