/*
 * Sidecar files of a segment, hot keys and history, with arbitrary bytes: attaching refuses them, or every operation
 * works on them and returns values within their bounds.
 *
 * Input: 1 byte that selects the file, and whether bits are flipped instead of overwritten; 3 bytes where (modulo the
 * file); 1 byte how often; then the bytes.
 */
#include "table/history.h"
#include "table/hot_keys.h"

#include <stdlib.h>
#include <string.h>

#define PARTS  2
#define MINUTE 1000
#define SECOND UINT64_C(60000)

enum { HISTORY = 1, FLIP = 64, HEADER = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static uint64_t hash_text(const void *context, const char *key, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    (void)context;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)key[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- Hot keys ---- */

static void note_some(struct weir__hot_rule *panel, uint64_t seed, int count)
{
    for (int i = 0; i < count; i++) {
        char key[24];
        seed = seed * UINT64_C(6364136223846793005) + 1;
        for (size_t k = 0; k < sizeof key; k++)
            key[k] = (char)('a' + (seed >> 60));
        struct weir__hot_sample note = {.hash = hash_text(NULL, key, sizeof key),
                                        .key = key,
                                        .key_len = sizeof key,
                                        .weight = seed >> 50,
                                        .kind = seed >> 40 & 1 ? WEIR__HOT_DENIED : WEIR__HOT_ADMITTED,
                                        .random = seed,
                                        .per_mille = (uint32_t)(seed >> 53),
                                        .minute = MINUTE + (uint32_t)(i & 3)};
        weir__hot_sample(panel, &note);
    }
}

static void check_keys(const struct weir__hot_key *keys, size_t count, size_t max)
{
    check(count <= max);
    for (size_t i = 0; i < count; i++) {
        check(keys[i].hash && keys[i].shown <= WEIR__HOT_TEXT_MAX && keys[i].shown <= keys[i].len);
        check(i == 0 || keys[i].weight <= keys[i - 1].weight);
        /* A whole text is the key's. */
        check(!keys[i].len || keys[i].shown < keys[i].len ||
              hash_text(NULL, keys[i].text, keys[i].len) == keys[i].hash);
    }
}

static void use_hot(void *memory, size_t bytes)
{
    struct weir__hot hot;
    struct weir__hot_key keys[20];
    uint64_t uses[WEIR__HOT_USES];
    if (!weir__hot_attach(memory, bytes, &hot))
        return;
    for (uint64_t rule = 2; rule < 5; rule++) {
        struct weir__hot_rule *panel = weir__hot_find(&hot, rule, MINUTE + 2);
        check(weir__hot_lookup(&hot, rule) == panel || !panel);
        if (!panel)
            continue;
        note_some(panel, rule, 8);
        weir__hot_age(panel);
        for (int kind = 0; kind < WEIR__HOT_KINDS; kind++)
            check_keys(keys, weir__hot_top(panel, (enum weir__hot_kind)kind, hash_text, NULL, keys, 20), 20);
        size_t near = weir__hot_nearest(panel, MINUTE + 3, 10, hash_text, NULL, keys, 20);
        check_keys(keys, near, 20);
        check(weir__hot_peak(panel, MINUTE + 3) <= 0xffff);
        (void)weir__hot_uses(panel, MINUTE + 3, 10, uses);
        uint64_t sampled = 0;
        for (int i = 0; i < WEIR__HOT_USES; i++)
            sampled += uses[i];
        check(sampled <= WEIR__HOT_KEY_SAMPLES);
    }
}

/* ---- History ---- */

static void write_seconds(struct weir__history *history, uint64_t from, uint64_t to, uint64_t step)
{
    for (uint64_t second = from; second <= to; second += step) {
        weir__history_begin(history, second);
        for (uint64_t rule = 1; rule < 4; rule++) {
            struct weir__rule_stats_shard sums = {.allowed = second * rule, .denied = second, .delayed = rule};
            weir__history_add(history, second, rule, &sums, rule & 1 ? 500 : WEIR__HISTORY_UNSEEN);
        }
        weir__history_end(history, second);
    }
}

static void use_history(void *memory, size_t bytes)
{
    static struct weir__history_second seconds[WEIR__HISTORY_SECONDS];
    static struct weir__history_hour hours[WEIR__HISTORY_HOURS];
    struct weir__history history;
    if (!weir__history_attach(memory, bytes, &history))
        return;
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t rule = 0; rule < 4; rule++) {
            check(weir__history_read(&history, rule, seconds, WEIR__HISTORY_SECONDS) <= WEIR__HISTORY_SECONDS);
            check(weir__history_read(&history, rule, seconds, 7) <= 7);
            size_t count = weir__history_hours(&history, rule, hours);
            check(count <= WEIR__HISTORY_HOURS);
            for (size_t i = 1; i < count; i++)
                check(hours[i].hour > hours[i - 1].hour);
        }
        write_seconds(&history, SECOND + 10, SECOND + 30, 5);
    }
}

/* ---- Both ---- */

static void overwrite(uint8_t *memory, size_t room, const uint8_t *data, size_t size)
{
    bool flip = data[0] & FLIP;
    size_t at = (data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16) % room;
    unsigned times = data[4] + 1U;
    for (; times > 0; times--)
        for (size_t i = 5; i < size; i++, at = (at + 1) % room)
            memory[at] = flip ? memory[at] ^ data[i] : data[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 6)
        return -1;
    bool history = data[0] & HISTORY;
    size_t bytes = weir__row_file_bytes(history ? &weir__history_format : &weir__hot_format, PARTS);
    uint8_t *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(memory, 0, bytes);
    if (history) {
        struct weir__history fresh;
        check(!weir__row_file_format(memory, bytes, &weir__history_format) &&
              weir__history_attach(memory, bytes, &fresh));
        write_seconds(&fresh, SECOND - 4000, SECOND, 500);
    } else {
        struct weir__hot fresh;
        check(!weir__row_file_format(memory, bytes, &weir__hot_format) && weir__hot_attach(memory, bytes, &fresh));
        for (uint64_t rule = 1; rule < 3; rule++)
            note_some(weir__hot_find(&fresh, rule, MINUTE), rule, 20);
    }
    overwrite(memory, data[0] & HEADER ? 64 : bytes, data, size);
    if (history)
        use_history(memory, bytes);
    else
        use_hot(memory, bytes);
    free(memory);
    return 0;
}
