/* A token guessed a thousand times: weir limits who tries, as it limits everybody. */
#include "control/call.h"
#include "rules/address.h"

#include <stdio.h>
#include <stdlib.h>

#define FAILURES_A_MINUTE 10
#define SEGMENT_BYTES     ((uint64_t)1 << 20) /* some 60,000 addresses at once */

struct weir__guesses {
    weir_segment *segment;
    weir_limit limit;
};

struct weir__guesses *weir__guesses_open(void)
{
    weir_segment_options options = {.size = SEGMENT_BYTES, .no_slab = true};
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = FAILURES_A_MINUTE, .window_ns = 60 * WEIR_SECOND};
    struct weir__guesses *made = calloc(1, sizeof *made);
    if (made && (weir_limit_init(&made->limit, &params) != 0 || weir_segment_open(&options, &made->segment) != 0)) {
        free(made);
        return NULL;
    }
    return made;
}

void weir__guesses_close(struct weir__guesses *guesses)
{
    if (guesses)
        weir_segment_close(guesses->segment);
    free(guesses);
}

/* Somebody with a network of IPv6 has as many addresses as he likes: the first 64 bits are one. */
static size_t key_of(const char *address, char key[WEIR__ADDRESS_TEXT + 1])
{
    struct weir__address parsed;
    if (!address || !weir__address_parse((weir_text){address, strlen(address)}, &parsed))
        return (size_t)snprintf(key, WEIR__ADDRESS_TEXT, "?");
    int group = weir__address_is4(&parsed) ? 128 : 64;
    weir__address_mask(&parsed, group);
    return weir__address_text(&parsed, group, key);
}

int64_t weir__guesses_wait(struct weir__guesses *guesses, const char *address)
{
    char key[WEIR__ADDRESS_TEXT + 1];
    weir_decision decision;
    size_t len = key_of(address, key);
    int error = weir_peek(guesses->segment, &guesses->limit, key, len, 1, weir_clock(guesses->segment), &decision);
    if (error || weir_passes(&decision))
        return 0;
    return decision.retry_after_ns / WEIR_SECOND + 1;
}

void weir__guesses_wrong(struct weir__guesses *guesses, const char *address)
{
    char key[WEIR__ADDRESS_TEXT + 1];
    weir_decision decision;
    size_t len = key_of(address, key);
    (void)!weir_take(guesses->segment, &guesses->limit, key, len, 1, weir_clock(guesses->segment), &decision);
}
