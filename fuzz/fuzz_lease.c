/*
 * Leases as texts that clients send back: any text is refused, or is one that this engine made; and one made of
 * arbitrary leases (e.g. of an earlier segment) never frees more than it names.
 *
 * Input: 1 byte: odd, a text follows; even, how many leases, and bytes that change valid ones, which are then formatted
 * with the segment's secret.
 */
#include <weir/check.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LIMIT 3

static weir *engine;
static weir_permits taken[LIMIT]; /* all that there is */

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool take(weir_permits *held)
{
    static const weir_attribute attributes[] = {{WEIR_ATTR_PATH, NULL, "/"}};
    weir_query query = {.attributes = attributes, .attribute_count = 1, .permits = held};
    weir_result answer;
    *held = (weir_permits){.count = 0};
    check(weir_check(engine, &query, &answer) == 0);
    return weir_passes(&answer.decision);
}

static void prepare(void)
{
    weir_options options = {.segment = {.size = 1 << 20},
                            .rules_text = "rules: [ { name: a, algorithm: concurrency, limit: 3, lease: 1d } ]\n"};
    check(weir_open(&options, &engine) == 0);
    for (int i = 0; i < LIMIT; i++)
        check(take(&taken[i]) && taken[i].count == 1);
}

/* As many can be taken as were freed, and then all is as before. */
static void refill(int freed)
{
    weir_permits held[WEIR_PERMITS_MAX + 1];
    int got = 0;
    while (got <= WEIR_PERMITS_MAX && take(&held[got]))
        got++;
    check(got <= freed);
    for (int i = 0; i < got; i++) {
        int gone = 0;
        while (gone < LIMIT && weir_permits_renew(engine, &taken[gone]) == 0 && taken[gone].count)
            gone++;
        check(gone < LIMIT); /* one of these it must have been */
        taken[gone] = held[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_permits held = {.count = 0}, again;
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    if (size < 2)
        return -1;
    if (!engine)
        prepare();
    if (data[0] & 1) {
        int error = weir_permits_from_text(engine, (weir_text){(const char *)data + 1, size - 1}, &held);
        check(error == WEIR_ELEASE); /* 128 bits cannot be guessed */
        return 0;
    }
    held.count = data[1] % (WEIR_PERMITS_MAX + 2);
    for (int i = 0; i < WEIR_PERMITS_MAX; i++)
        held.lease[i] = taken[i % LIMIT].lease[0];
    uint8_t *bytes = (uint8_t *)held.lease;
    for (size_t i = 2; i < size && i - 2 < sizeof held.lease; i++)
        bytes[i - 2] ^= data[i];
    size_t len = weir_permits_to_text(engine, &held, text);
    check((len == 0) == (held.count == 0 || held.count > WEIR_PERMITS_MAX));
    if (!len)
        return 0;
    /* Leases of a store are left out, as there is none here. */
    int error = weir_permits_from_text(engine, (weir_text){text, len}, &again);
    check(error == 0 || error == WEIR_ELEASE);
    if (error)
        return 0;
    check(again.count > 0 && again.count <= held.count);
    weir_permits renewed = again;
    (void)!weir_permits_renew(engine, &renewed);
    check(renewed.count <= again.count);
    int freed = weir_permits_release(engine, &again);
    check(freed <= WEIR_PERMITS_MAX);
    refill(freed > 0 ? freed : WEIR_PERMITS_MAX);
    return 0;
}
