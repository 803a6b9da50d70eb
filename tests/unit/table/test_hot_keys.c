/* Hot keys against exact counts. */
#include "../../test.h"

#include "table/hot_keys.h"

#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS   1000000
#define EVENTS 4000000
#define ONE_IN 16

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static uint64_t hash_text(const void *context, const char *key, size_t len)
{
    uint64_t hash = *(const uint64_t *)context;
    for (size_t i = 0; i < len; i++)
        hash = mix(hash ^ (uint8_t)key[i]);
    return hash;
}

static const uint64_t secret = 0x1234567;
static uint64_t dice = 1;

static uint64_t roll(void)
{
    return test_random(&dice);
}

static struct weir__hot made(uint32_t sketches)
{
    struct weir__hot hot;
    size_t bytes = weir__row_file_bytes(&weir__hot_format, sketches);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(weir__row_file_format(memory, bytes, &weir__hot_format), 0);
    CHECK(weir__hot_attach(memory, bytes, &hot));
    CHECK_EQ(hot.rule_slots, sketches);
    return hot;
}

static void drop(struct weir__hot *hot)
{
    munmap(hot->header, hot->header->file.bytes);
}

static void note(struct weir__hot_rule *hot_rule, const char *key, uint64_t weight, enum weir__hot_kind kind,
                 uint32_t per_mille, uint32_t minute)
{
    struct weir__hot_sample note = {.hash = hash_text(&secret, key, strlen(key)),
                                    .key = key,
                                    .key_len = strlen(key),
                                    .weight = weight,
                                    .kind = kind,
                                    .random = roll(),
                                    .per_mille = per_mille,
                                    .minute = minute};
    weir__hot_sample(hot_rule, &note);
}

/* Cumulative shares of Zipf 0.99, from which the next key is drawn. */
static double *zipf_shares(void)
{
    double *sum = malloc(KEYS * sizeof *sum), all = 0;
    for (size_t i = 0; i < KEYS; i++)
        sum[i] = all += 1 / pow((double)(i + 1), 0.99);
    return sum;
}

static size_t zipf_next(const double *sum)
{
    double at = (double)(roll() >> 11) / 9007199254740992.0 * sum[KEYS - 1];
    size_t low = 0, high = KEYS - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sum[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many of the true top 20 are among the first 20 of the list. */
static int recall(const struct weir__hot_key *keys, size_t count, const uint32_t *exact)
{
    int found = 0;
    uint32_t bar = 0;
    for (size_t rank = 0; rank < 200; rank++) { /* the 20th largest exact count: heavy keys have small numbers */
        size_t larger = 0;
        for (size_t other = 0; other < 200; other++)
            larger += exact[other] > exact[rank];
        if (larger < 20 && (!bar || exact[rank] < bar))
            bar = exact[rank];
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(keys[i].len > 5 && keys[i].len < 13);
        size_t number = strtoul(keys[i].text + 5, NULL, 10);
        found += number < KEYS && exact[number] >= bar;
    }
    return found;
}

static void try_zipf(unsigned one_in)
{
    struct weir__hot hot = made(3);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 77, 1);
    struct weir__hot_key top[20];
    double *sum = zipf_shares();
    uint32_t *exact = calloc(KEYS, sizeof *exact);
    for (size_t i = 0; i < EVENTS; i++) {
        char key[32];
        size_t number = zipf_next(sum);
        exact[number]++;
        if (roll() % one_in)
            continue;
        snprintf(key, sizeof key, "user:%06zu", number);
        note(hot_rule, key, one_in, WEIR__HOT_ADMITTED, 100, 1);
    }
    size_t count = weir__hot_top(hot_rule, WEIR__HOT_ADMITTED, hash_text, &secret, top, 20);
    CHECK_EQ(count, 20);
    int found = recall(top, count, exact);
    CHECK(found >= 19);
    printf("  one in %u: %d of 20; the heaviest %" PRIu64 " +- %" PRIu64 ", exactly %u\n", one_in, found, top[0].weight,
           top[0].error, exact[0]);
    /* Four times the error of sketch and sampling. */
    double error = sqrt((double)exact[0] * (one_in + (double)EVENTS / WEIR__HOT_COUNTERS));
    CHECK(fabs((double)top[0].weight - (double)exact[0]) < 4 * error);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_DENIED, hash_text, &secret, top, 20), 0);
    free(exact);
    free(sum);
    drop(&hot);
}

TEST(nearly_all_of_the_true_top_20_are_found)
{
    try_zipf(1);
    try_zipf(ONE_IN);
}

TEST(keys_are_counted_by_weight)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 5, 1);
    struct weir__hot_key top[4];
    note(hot_rule, "light", 10, WEIR__HOT_DENIED, 1000, 1);
    note(hot_rule, "heavy", 900, WEIR__HOT_DENIED, 1000, 1);
    note(hot_rule, "light", 10, WEIR__HOT_DENIED, 1000, 1);
    note(hot_rule, "heavy", 5, WEIR__HOT_DENIED, 1000, 1);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_DENIED, hash_text, &secret, top, 4), 2);
    CHECK_EQ(top[0].weight, 905);
    CHECK_EQ(top[1].weight, 20);
    CHECK(top[0].len == 5 && memcmp(top[0].text, "heavy", 5) == 0);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_DENIED, hash_text, &secret, top, 1), 1);
    CHECK_EQ(top[0].weight, 905);
    weir__hot_age(hot_rule);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_DENIED, hash_text, &secret, top, 4), 2);
    CHECK_EQ(top[0].weight, 452);
    CHECK_EQ(top[1].weight, 10);
    for (int i = 0; i < 10; i++)
        weir__hot_age(hot_rule);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_DENIED, hash_text, &secret, top, 4), 0);
    drop(&hot);
}

TEST(long_keys_are_cut_and_marked)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 5, 1);
    struct weir__hot_key top[2];
    char key[301];
    memset(key, 'k', 300);
    key[300] = 0;
    note(hot_rule, key, 3, WEIR__HOT_ADMITTED, 0, 1);
    note(hot_rule, key, 3, WEIR__HOT_ADMITTED, 0, 1);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_ADMITTED, hash_text, &secret, top, 2), 1);
    CHECK_EQ(top[0].len, 300);
    CHECK_EQ(top[0].shown, WEIR__HOT_TEXT_MAX);
    drop(&hot);
}

TEST(text_of_another_key_is_not_shown)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 5, 1);
    struct weir__hot_key top[1];
    note(hot_rule, "some key", 3, WEIR__HOT_ADMITTED, 900, 1);
    note(hot_rule, "some key", 3, WEIR__HOT_ADMITTED, 900, 1);
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_ADMITTED, hash_text, &secret, top, 1), 1);
    CHECK_EQ(top[0].len, 8);
    for (size_t i = 0; i < WEIR__HOT_TEXTS; i++)
        hot_rule->sketch[0].text[i].word[0] ^= 1;
    CHECK_EQ(weir__hot_top(hot_rule, WEIR__HOT_ADMITTED, hash_text, &secret, top, 1), 1);
    CHECK_EQ(top[0].len, 0);
    drop(&hot);
}

TEST(key_near_its_limit_is_listed_while_it_is)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 5, 1);
    struct weir__hot_key near[8];
    note(hot_rule, "far", 1, WEIR__HOT_ADMITTED, 799, 10);
    note(hot_rule, "near", 1, WEIR__HOT_ADMITTED, 850, 10);
    note(hot_rule, "over", 1, WEIR__HOT_DENIED, 1000, 11);
    CHECK_EQ(weir__hot_nearest(hot_rule, 11, 5, hash_text, &secret, near, 8), 2);
    CHECK_EQ(near[0].weight, 1000);
    CHECK(near[0].len == 4 && memcmp(near[0].text, "over", 4) == 0);
    CHECK(near[1].len == 4 && memcmp(near[1].text, "near", 4) == 0);
    CHECK_EQ(weir__hot_nearest(hot_rule, 16, 5, hash_text, &secret, near, 8), 1);
    CHECK_EQ(weir__hot_nearest(hot_rule, 17, 5, hash_text, &secret, near, 8), 0);
    drop(&hot);
}

/* Whatever their hashes: few keys do not hide each other. */
TEST(two_keys_near_their_limit_are_both_listed)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 5, 1);
    struct weir__hot_key near[8];
    for (uint32_t pair = 0; pair < 1000; pair++) {
        char one[16], other[16];
        uint32_t minute = 10 * pair + 10;
        snprintf(one, sizeof one, "a%u", pair);
        snprintf(other, sizeof other, "b%u", pair);
        for (int i = 0; i < 3; i++) {
            note(hot_rule, one, 1, WEIR__HOT_ADMITTED, 900, minute);
            note(hot_rule, other, 1, WEIR__HOT_DENIED, 1000, minute);
        }
        CHECK_EQ(weir__hot_nearest(hot_rule, minute, 5, hash_text, &secret, near, 8), 2);
        CHECK(near[0].len == strlen(other) && memcmp(near[0].text, other, near[0].len) == 0);
        CHECK(near[1].len == strlen(one) && memcmp(near[1].text, one, near[1].len) == 0);
    }
    drop(&hot);
}

TEST(usage_histogram_counts_keys_not_requests)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 5, 1);
    uint64_t count[WEIR__HOT_USES];
    CHECK_EQ(weir__hot_uses(hot_rule, 3, 5, count), 0);
    /* One key in four uses 95 %, the others 15 %, but the others send ten times as many requests. */
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 20000; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i);
            if (i % 4 == 0 && round)
                continue;
            note(hot_rule, key, 1, WEIR__HOT_ADMITTED, i % 4 == 0 ? 950 : 150, 3);
        }
    uint64_t keys = weir__hot_uses(hot_rule, 3, 5, count), taken = 0;
    for (int i = 0; i < WEIR__HOT_USES; i++)
        taken += count[i];
    CHECK_EQ(taken, WEIR__HOT_KEY_SAMPLES);
    CHECK_EQ(count[1] + count[9], taken);
    CHECK(count[9] > 256 / 4 - 35 && count[9] < 256 / 4 + 35); /* five standard errors */
    CHECK(keys > 20000 * 2 / 3 && keys < 20000 * 3 / 2);
    CHECK_EQ(weir__hot_uses(hot_rule, 9, 5, count), 0);
    drop(&hot);
}

TEST(rules_without_a_sketch_are_counted)
{
    struct weir__hot hot = made(2);
    CHECK(weir__hot_find(&hot, 1, 1) != NULL);
    CHECK(weir__hot_find(&hot, 2, 1) != NULL);
    CHECK(weir__hot_find(&hot, 1, 1) == weir__hot_lookup(&hot, 1));
    CHECK(weir__hot_find(&hot, 3, 1) == NULL);
    CHECK(weir__hot_find(&hot, 0, 1) == NULL);
    CHECK(weir__hot_lookup(&hot, 3) == NULL);
    CHECK_EQ(hot.header->without, 2);
    drop(&hot);
}

static bool is_clear(const struct weir__hot_rule *hot_rule)
{
    const uint64_t *word = (const uint64_t *)(const void *)hot_rule->sketch,
                   *end = (const uint64_t *)(const void *)(hot_rule + 1);
    while (word < end && !*word)
        word++;
    return word == end;
}

/* The sketch of a removed rule becomes free because nothing is recorded in it. */
TEST(idle_sketch_is_reused_by_another_rule)
{
    struct weir__hot hot = made(2);
    struct weir__hot_rule *one = weir__hot_find(&hot, 10, 100), *two = weir__hot_find(&hot, 11, 100);
    CHECK(one && two && one != two);
    note(one, "secret:of:one", 5, WEIR__HOT_ADMITTED, 900, 101);
    CHECK(!weir__hot_find(&hot, 12, 104)); /* claimed a moment ago, if never recorded in */
    struct weir__hot_rule *three = weir__hot_find(&hot, 12, 105);
    CHECK(three == two); /* which was idle for longer */
    CHECK(weir__hot_lookup(&hot, 12) == two && !weir__hot_lookup(&hot, 11));
    CHECK(!weir__hot_find(&hot, 11, 105));
    note(three, "a", 1, WEIR__HOT_DENIED, 10, 109);
    CHECK(weir__hot_find(&hot, 11, 106) == one); /* idle means five minutes, not the small difference of two clocks */
    CHECK(is_clear(one) && weir__hot_peak(one, 106) == 0);
    CHECK(!weir__hot_lookup(&hot, 10) && weir__hot_lookup(&hot, 11) == one);
    /* A clock that goes back a little does not make a sketch idle; one that restarted does. */
    note(one, "a", 1, WEIR__HOT_DENIED, 10, 109);
    CHECK(!weir__hot_find(&hot, 10, 107));
    CHECK(weir__hot_find(&hot, 10, 3) != NULL);
    drop(&hot);
}

TEST(process_killed_while_claiming_keeps_nothing)
{
    struct weir__hot hot = made(1);
    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 10, 100);
    hot_rule->rule = WEIR__HOT_CLEARING;
    CHECK(!weir__hot_find(&hot, 10, 101) &&
          !weir__hot_find(&hot, 12, 104)); /* the claiming process may still be alive */
    CHECK(!weir__hot_lookup(&hot, WEIR__HOT_CLEARING) && !weir__hot_find(&hot, WEIR__HOT_CLEARING, 105));
    CHECK(weir__hot_find(&hot, 12, 105) == hot_rule && weir__hot_lookup(&hot, 12) == hot_rule);
    drop(&hot);
}

/* Against a plain model: a recently used rule keeps its sketch, no rule has two, and a lookup finds the rule's own. */
TEST(sketches_agree_with_a_model)
{
    enum { RULES = 40, SKETCHES = 8 };
    struct weir__hot hot = made(SKETCHES);
    uint32_t minute = 1000, last_minute[RULES + 1] = {0};
    int64_t takeovers = 0, refused = 0;
    for (int64_t i = 0, rounds = test_scaled(60000, 6000); i < rounds; i++) {
        uint64_t rule = roll() % RULES + 1;
        minute += roll() % 64 == 0;
        const struct weir__hot_rule *had = weir__hot_lookup(&hot, rule);
        struct weir__hot_rule *hot_rule = weir__hot_find(&hot, rule, minute);
        uint32_t least = minute, owners = 0;
        for (uint32_t k = 0; k < SKETCHES; k++) {
            uint64_t owner = hot.rule_slot[k].rule;
            CHECK(owner <= RULES);
            if (owner && owner != rule && last_minute[owner] < least)
                least = last_minute[owner];
            owners += owner == rule;
        }
        CHECK(owners == (hot_rule != NULL));
        CHECK(!had || had == hot_rule);
        if (hot_rule) {
            CHECK_EQ(hot_rule->rule, rule);
            CHECK(had || is_clear(hot_rule));
            takeovers += !had;
            note(hot_rule, "key", 1, WEIR__HOT_ADMITTED, 5, minute);
            last_minute[rule] = minute;
        } else {
            refused++;
            CHECK(minute - least < WEIR__HOT_IDLE); /* all of them are in use */
        }
        for (uint64_t other = 1; other <= RULES; other++)
            CHECK(!last_minute[other] || minute - last_minute[other] >= WEIR__HOT_IDLE ||
                  weir__hot_lookup(&hot, other));
    }
    CHECK(takeovers > SKETCHES && refused > 0);
    drop(&hot);
}

/* Processes that claim concurrently: each rule has one sketch in the end, and all processes find it. */
TEST(concurrent_claims_give_each_rule_one_sketch)
{
    enum { RULES = 6, PROCESSES = 4 };
    for (int round = 0; round < (int)test_scaled(20, 4); round++) {
        struct weir__hot hot = made(RULES);
        pid_t child[PROCESSES];
        for (uint64_t old = 0; old < RULES; old++) /* of removed rules */
            CHECK(weir__hot_find(&hot, 1000 + old, 10) != NULL);
        for (int p = 0; p < PROCESSES; p++) {
            child[p] = fork();
            for (int look = 0; child[p] == 0 && look < 200; look++)
                for (uint64_t rule = 1; rule <= RULES; rule++) {
                    struct weir__hot_rule *hot_rule = weir__hot_find(&hot, rule, 20);
                    if (hot_rule && hot_rule->rule == rule)
                        note(hot_rule, "key", 1, WEIR__HOT_ADMITTED, 5, 20);
                }
            if (child[p] == 0)
                _exit(0);
        }
        for (int p = 0; p < PROCESSES; p++)
            waitpid(child[p], NULL, 0);
        /* Two concurrent claims for the same rule leave one sketch unused, until that is idle, too. */
        for (int pass = 0; pass < 2; pass++)
            for (uint64_t rule = 1; rule <= RULES; rule++) {
                struct weir__hot_rule *hot_rule = weir__hot_find(&hot, rule, 30);
                if (hot_rule)
                    note(hot_rule, "key", 1, WEIR__HOT_ADMITTED, 5, 30);
            }
        for (uint64_t rule = 1; rule <= RULES; rule++)
            CHECK(weir__hot_lookup(&hot, rule) != NULL);
        drop(&hot);
    }
}

TEST(invalid_area_is_refused)
{
    struct weir__hot hot;
    size_t bytes = weir__row_file_bytes(&weir__hot_format, 1);
    struct weir__hot_header *memory = calloc(1, bytes);
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    CHECK_EQ(weir__row_file_format(memory, bytes - 1, &weir__hot_format), WEIR_ESIZE);
    CHECK_EQ(weir__row_file_format(memory, bytes, &weir__hot_format), 0);
    CHECK(weir__hot_attach(memory, bytes, &hot));
    CHECK(!weir__hot_attach(memory, bytes - 1, &hot));
    memory->file.rows = 2;
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    memory->file.rows = 0;
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    memory->file.rows = 1;
    memory->file.layout++;
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    free(memory);
}

/* Concurrent writers, one of them killed: every listed key is a real one, and the heaviest is first. */
TEST(concurrent_writers_and_a_kill_leave_a_valid_list)
{
    struct weir__hot hot = made(1);
    pid_t writer[3];
    for (int w = 0; w < 3; w++) {
        writer[w] = fork();
        if (writer[w] == 0) {
            struct weir__hot_rule *hot_rule = weir__hot_find(&hot, 9, 1);
            dice = (uint64_t)w * 1000;
            for (int i = 0; w == 2 || i < 200000; i++) {
                char key[24];
                snprintf(key, sizeof key, "key:%d", i % 3 ? (int)(roll() % 5000) : 0);
                note(hot_rule, key, 1, WEIR__HOT_ADMITTED, 900, 1);
            }
            _exit(0);
        }
    }
    waitpid(writer[0], NULL, 0);
    waitpid(writer[1], NULL, 0);
    kill(writer[2], SIGKILL);
    waitpid(writer[2], NULL, 0);
    struct weir__hot_key top[20];
    size_t count = weir__hot_top(weir__hot_lookup(&hot, 9), WEIR__HOT_ADMITTED, hash_text, &secret, top, 20);
    CHECK_EQ(count, 20);
    CHECK(top[0].len == 5 && memcmp(top[0].text, "key:0", 5) == 0);
    for (size_t i = 0; i < count; i++)
        CHECK(!top[i].len || memcmp(top[i].text, "key:", 4) == 0);
    drop(&hot);
}

TEST_MAIN
