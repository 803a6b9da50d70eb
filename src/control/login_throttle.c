/*
 * The login throttle: weir's own counters limit wrong tokens, by address and in total. Only wrong tokens count. Those
 * over the limit are charged, too, so that the delay grows with each of them. The delay comes before the check, so that
 * a client that does not wait for the reply gains nothing. A valid token may be delayed, but wrong
 * ones never make it refused.
 *
 * Sessions of one token are limited, too: each is a row of the database and of the audit log, also for a viewer.
 */
#include "control/call.h"
#include "rules/address.h"

#include <stdio.h>
#include <stdlib.h>

#define WAIT_MAX_NS   (60 * WEIR_SECOND)
#define SEGMENT_BYTES ((uint64_t)1 << 20) /* some 60,000 addresses at once */

/* Limits per minute. */
enum { OF_ONE, OF_ALL, SESSIONS, LIMITS };
static const weir_params params[LIMITS] = {
    [OF_ONE] = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .window_ns = 60 * WEIR_SECOND},
    [OF_ALL] = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 300, .window_ns = 60 * WEIR_SECOND},
    [SESSIONS] = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 60, .window_ns = 60 * WEIR_SECOND, .id = 1},
};

struct weir__login_throttle {
    weir_segment *segment;
    weir_limit limits[LIMITS];
};

struct weir__login_throttle *weir__login_throttle_open(void)
{
    weir_segment_options options = {.size = SEGMENT_BYTES, .no_slab = true};
    struct weir__login_throttle *made = calloc(1, sizeof *made);
    bool good = made && weir_segment_open(&options, &made->segment) == 0;
    for (int i = 0; good && i < LIMITS; i++)
        good = weir_limit_init(&made->limits[i], &params[i]) == 0;
    if (good)
        return made;
    weir__login_throttle_close(made);
    return NULL;
}

void weir__login_throttle_close(struct weir__login_throttle *throttle)
{
    if (throttle)
        weir_segment_close(throttle->segment);
    free(throttle);
}

/* An IPv6 client usually has a whole /64: its addresses count as one. */
static size_t key_of(const char *address, char key[WEIR__ADDRESS_TEXT + 1])
{
    struct weir__address parsed;
    if (!address || !weir__address_parse(weir__text_of(address), &parsed))
        return (size_t)snprintf(key, WEIR__ADDRESS_TEXT, "?");
    int group = weir__address_is4(&parsed) ? 128 : 64;
    weir__address_mask(&parsed, group);
    return weir__address_text(&parsed, group, key);
}

/*
 * The wait in nanoseconds before the next wrong token of a key, which is counted if `counts`. An error (the segment is
 * full) counts as a reached limit.
 */
static int64_t wait_of(weir_segment *segment, const weir_limit *limit, const char *key, size_t len, bool counts)
{
    weir_decision decision;
    weir_time now = weir_clock(segment);
    int error = counts ? weir_take(segment, limit, key, len, 1, now, &decision)
                       : weir_peek(segment, limit, key, len, 1, now, &decision);
    if (!error && weir_passes(&decision))
        return 0;
    if (error || decision.retry_after_ns >= WAIT_MAX_NS)
        return WAIT_MAX_NS;
    int64_t wait_ns = decision.retry_after_ns;
    if (counts)
        (void)!weir_charge(segment, limit, key, len, 1, now, &decision);
    return wait_ns > 0 ? wait_ns : counts;
}

int64_t weir__login_throttle_wait(const struct weir__login_throttle *throttle, const char *address, bool counts)
{
    char key[WEIR__ADDRESS_TEXT + 1];
    size_t len = key_of(address, key);
    int64_t one = wait_of(throttle->segment, &throttle->limits[OF_ONE], key, len, counts);
    int64_t all = wait_of(throttle->segment, &throttle->limits[OF_ALL], "all", 3, counts);
    return one > all ? one : all;
}

int64_t weir__login_throttle_session(struct weir__login_throttle *throttle, const char *token_id)
{
    weir_decision decision;
    int error = weir_take(throttle->segment, &throttle->limits[SESSIONS], token_id, strlen(token_id), 1,
                          weir_clock(throttle->segment), &decision);
    if (!error && weir_passes(&decision))
        return 0;
    return error || decision.retry_after_ns <= 0 ? WEIR_SECOND : decision.retry_after_ns;
}
