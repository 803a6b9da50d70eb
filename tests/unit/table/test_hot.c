/* Hot keys against exact counts. */
#include "../../test.h"

#include "table/hot.h"

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

static struct weir__hot made(uint32_t panels)
{
    struct weir__hot hot;
    size_t bytes = weir__hot_bytes(panels);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && weir__hot_make(memory, bytes) && weir__hot_attach(memory, bytes, &hot));
    CHECK_EQ(hot.panels, panels);
    return hot;
}

static void drop(struct weir__hot *hot)
{
    munmap(hot->header, hot->header->bytes);
}

static void note(struct weir__hot_panel *panel, const char *key, uint64_t weight, enum weir__hot_kind kind,
                 uint32_t per_mille, uint32_t minute)
{
    struct weir__hot_note note = {.hash = hash_text(&secret, key, strlen(key)),
                                  .key = key,
                                  .key_len = strlen(key),
                                  .weight = weight,
                                  .kind = kind,
                                  .dice = roll(),
                                  .per_mille = per_mille,
                                  .minute = minute};
    weir__hot_note(panel, &note);
}

/* Where the numbers up to `u` of the sum of all shares end: which key comes next under Zipf 0.99. */
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

/* How many of the true first 20 are among the first 20 of the list. */
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
    struct weir__hot_panel *panel = weir__hot_find(&hot, 77);
    struct weir__hot_key top[20];
    double *sum = zipf_shares();
    uint32_t *exact = calloc(KEYS, sizeof *exact);
    for (size_t i = 0; i < EVENTS; i++) {
        char key[16];
        size_t number = zipf_next(sum);
        exact[number]++;
        if (roll() % one_in)
            continue;
        snprintf(key, sizeof key, "user:%06zu", number);
        note(panel, key, one_in, WEIR__HOT_ADMITTED, 100, 1);
    }
    size_t count = weir__hot_top(panel, WEIR__HOT_ADMITTED, hash_text, &secret, top, 20);
    CHECK_EQ(count, 20);
    int found = recall(top, count, exact);
    CHECK(found >= 19);
    printf("  one in %u: %d of 20; the heaviest %" PRIu64 " +- %" PRIu64 ", exactly %u\n", one_in, found, top[0].weight,
           top[0].error, exact[0]);
    /* Four times what the sketch and the sampling err by. */
    double error = sqrt((double)exact[0] * (one_in + (double)EVENTS / WEIR__HOT_PLACES));
    CHECK(fabs((double)top[0].weight - (double)exact[0]) < 4 * error);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_DENIED, hash_text, &secret, top, 20), 0);
    free(exact);
    free(sum);
    drop(&hot);
}

TEST(nearly_all_of_the_true_top_20_are_found)
{
    try_zipf(1);
    try_zipf(ONE_IN);
}

TEST(a_key_of_weight_counts_by_it)
{
    struct weir__hot hot = made(1);
    struct weir__hot_panel *panel = weir__hot_find(&hot, 5);
    struct weir__hot_key top[4];
    note(panel, "light", 10, WEIR__HOT_DENIED, 1000, 1);
    note(panel, "heavy", 900, WEIR__HOT_DENIED, 1000, 1);
    note(panel, "light", 10, WEIR__HOT_DENIED, 1000, 1);
    note(panel, "heavy", 5, WEIR__HOT_DENIED, 1000, 1);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_DENIED, hash_text, &secret, top, 4), 2);
    CHECK_EQ(top[0].weight, 905);
    CHECK_EQ(top[1].weight, 20);
    CHECK(top[0].len == 5 && memcmp(top[0].text, "heavy", 5) == 0);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_DENIED, hash_text, &secret, top, 1), 1);
    CHECK_EQ(top[0].weight, 905);
    weir__hot_age(panel);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_DENIED, hash_text, &secret, top, 4), 2);
    CHECK_EQ(top[0].weight, 452);
    CHECK_EQ(top[1].weight, 10);
    for (int i = 0; i < 10; i++)
        weir__hot_age(panel);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_DENIED, hash_text, &secret, top, 4), 0);
    drop(&hot);
}

TEST(long_keys_are_cut_and_say_so)
{
    struct weir__hot hot = made(1);
    struct weir__hot_panel *panel = weir__hot_find(&hot, 5);
    struct weir__hot_key top[2];
    char key[301];
    memset(key, 'k', 300);
    key[300] = 0;
    note(panel, key, 3, WEIR__HOT_ADMITTED, 0, 1);
    note(panel, key, 3, WEIR__HOT_ADMITTED, 0, 1);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_ADMITTED, hash_text, &secret, top, 2), 1);
    CHECK_EQ(top[0].len, 300);
    CHECK_EQ(top[0].shown, WEIR__HOT_TEXT_MAX);
    drop(&hot);
}

TEST(a_text_that_is_not_the_keys_is_not_shown)
{
    struct weir__hot hot = made(1);
    struct weir__hot_panel *panel = weir__hot_find(&hot, 5);
    struct weir__hot_key top[1];
    note(panel, "somebody", 3, WEIR__HOT_ADMITTED, 900, 1);
    note(panel, "somebody", 3, WEIR__HOT_ADMITTED, 900, 1);
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_ADMITTED, hash_text, &secret, top, 1), 1);
    CHECK_EQ(top[0].len, 8);
    for (size_t i = 0; i < WEIR__HOT_TEXTS; i++)
        panel->sketch[0].text[i].word[0] ^= 1;
    CHECK_EQ(weir__hot_top(panel, WEIR__HOT_ADMITTED, hash_text, &secret, top, 1), 1);
    CHECK_EQ(top[0].len, 0);
    drop(&hot);
}

TEST(who_is_near_the_limit_is_told_while_it_is_so)
{
    struct weir__hot hot = made(1);
    struct weir__hot_panel *panel = weir__hot_find(&hot, 5);
    struct weir__hot_key near[8];
    note(panel, "far", 1, WEIR__HOT_ADMITTED, 799, 10);
    note(panel, "near", 1, WEIR__HOT_ADMITTED, 850, 10);
    note(panel, "over", 1, WEIR__HOT_DENIED, 1000, 11);
    CHECK_EQ(weir__hot_nearest(panel, 11, 5, hash_text, &secret, near, 8), 2);
    CHECK_EQ(near[0].weight, 1000);
    CHECK(near[0].len == 4 && memcmp(near[0].text, "over", 4) == 0);
    CHECK(near[1].len == 4 && memcmp(near[1].text, "near", 4) == 0);
    CHECK_EQ(weir__hot_nearest(panel, 16, 5, hash_text, &secret, near, 8), 1);
    CHECK_EQ(weir__hot_nearest(panel, 17, 5, hash_text, &secret, near, 8), 0);
    drop(&hot);
}

TEST(uses_are_those_of_keys_not_of_requests)
{
    struct weir__hot hot = made(1);
    struct weir__hot_panel *panel = weir__hot_find(&hot, 5);
    uint64_t count[WEIR__HOT_USES];
    CHECK_EQ(weir__hot_uses(panel, 3, 5, count), 0);
    /* One key in four uses 95 %, the others 15 %, but those make ten times the requests. */
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 20000; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i);
            if (i % 4 == 0 && round)
                continue;
            note(panel, key, 1, WEIR__HOT_ADMITTED, i % 4 == 0 ? 950 : 150, 3);
        }
    uint64_t keys = weir__hot_uses(panel, 3, 5, count), taken = 0;
    for (int i = 0; i < WEIR__HOT_USES; i++)
        taken += count[i];
    CHECK_EQ(taken, WEIR__HOT_SAMPLE);
    CHECK_EQ(count[1] + count[9], taken);
    CHECK(count[9] > 256 / 4 - 35 && count[9] < 256 / 4 + 35); /* five standard errors */
    CHECK(keys > 20000 * 2 / 3 && keys < 20000 * 3 / 2);
    CHECK_EQ(weir__hot_uses(panel, 9, 5, count), 0);
    drop(&hot);
}

TEST(rules_without_a_panel_are_counted)
{
    struct weir__hot hot = made(2);
    CHECK(weir__hot_find(&hot, 1) != NULL);
    CHECK(weir__hot_find(&hot, 2) != NULL);
    CHECK(weir__hot_find(&hot, 1) == weir__hot_look(&hot, 1));
    CHECK(weir__hot_find(&hot, 3) == NULL);
    CHECK(weir__hot_find(&hot, 0) == NULL);
    CHECK(weir__hot_look(&hot, 3) == NULL);
    CHECK_EQ(hot.header->without, 2);
    drop(&hot);
}

TEST(what_is_not_an_area_is_refused)
{
    struct weir__hot hot;
    size_t bytes = weir__hot_bytes(1);
    struct weir__hot_header *memory = calloc(1, bytes);
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    CHECK(!weir__hot_make(memory, bytes - 1));
    CHECK(weir__hot_make(memory, bytes));
    CHECK(weir__hot_attach(memory, bytes, &hot));
    CHECK(!weir__hot_attach(memory, bytes - 1, &hot));
    memory->panels = 2;
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    memory->panels = 0;
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    memory->panels = 1;
    memory->layout++;
    CHECK(!weir__hot_attach(memory, bytes, &hot));
    free(memory);
}

/* Processes that write at once, one of them killed: whatever is shown is a true key, and the heavy one is first. */
TEST(many_writers_and_a_kill_leave_a_list_that_makes_sense)
{
    struct weir__hot hot = made(1);
    pid_t writer[3];
    for (int w = 0; w < 3; w++) {
        writer[w] = fork();
        if (writer[w] == 0) {
            struct weir__hot_panel *panel = weir__hot_find(&hot, 9);
            dice = (uint64_t)w * 1000;
            for (int i = 0; w == 2 || i < 200000; i++) {
                char key[24];
                snprintf(key, sizeof key, "key:%d", i % 3 ? (int)(roll() % 5000) : 0);
                note(panel, key, 1, WEIR__HOT_ADMITTED, 900, 1);
            }
            _exit(0);
        }
    }
    waitpid(writer[0], NULL, 0);
    waitpid(writer[1], NULL, 0);
    kill(writer[2], SIGKILL);
    waitpid(writer[2], NULL, 0);
    struct weir__hot_key top[20];
    size_t count = weir__hot_top(weir__hot_look(&hot, 9), WEIR__HOT_ADMITTED, hash_text, &secret, top, 20);
    CHECK_EQ(count, 20);
    CHECK(top[0].len == 5 && memcmp(top[0].text, "key:0", 5) == 0);
    for (size_t i = 0; i < count; i++)
        CHECK(!top[i].len || memcmp(top[i].text, "key:", 4) == 0);
    drop(&hot);
}

TEST_MAIN
