/*
 * The table under random orders of its accesses to shared memory; see explore.h. Some processes (coroutines) use a few
 * keys of a nearly full table, some of them die at any point; at no point may a key count twice. At the end, without
 * concurrency: nothing was granted beyond the limit, nothing is lost, nothing blocks, and everything that dead
 * processes left is available again.
 *
 * A failure prints how to reproduce it: WEIR_TEST_SEED with one test's name prints every access of one schedule.
 */
#include "explore.h"

#include "table/slab.h"

/* Few generations, so that tags share them; few rounds, so that waiting for a dead process is detected soon. */
#undef WEIR__MOVES
#undef WEIR__ROUNDS
#define WEIR__MOVES  4
#define WEIR__ROUNDS 256

/* The sources, with the atomics of explore.h. Static names that two of them use are made distinct here. */
#include "table/cuckoo.c"
#include "table/slab.c"

#include "table/slot_pair.c"

#define gather ring_gather
#include "table/window_ring.c"
#undef gather
#undef SEALED

#define flush  log_flush
#define make   log_make
#define pack   log_pack
#define salted log_salted
#define unpack log_unpack
#include "table/sliding_log.c"
#undef flush
#undef make
#undef pack
#undef salted
#undef unpack

#include "table/take.c"
#include "table/resize.c"
#include "table/fast_path.h"

#include "world.h"

enum { REFUNDS = 1, RESETS = 2, BLOCKS = 4, RESIZES = 8 };

struct scenario {
    enum weir_algorithm algorithm;
    int buckets;
    int64_t unit; /* units of the limit per unit of the test: large, where only large limits use that representation */
    int cap_least, cap_range; /* units */
    int cost_most;
    int chunks_min, chunks_range;
    bool edge;                    /* one clock is in the previous window */
    bool tight;                   /* the slab is too small for all: WEIR_EFULL may happen */
    int64_t counts_us;            /* from now on, for so long all granted units still count in full */
    int64_t kept_us;              /* for so long a slot may be kept for a dead process; 0 is 5 s */
    unsigned also;                /* REFUNDS, RESETS, BLOCKS, RESIZES */
    void (*prepare)(int64_t cap); /* NULL: a key with or without an entry */
};

static const struct scenario *scenario;
static weir_limit limit, filler_limit;
static int64_t cap, own[EXPLORE_MAX][KEYS]; /* own: units that a process was granted and has not refunded */
static int acts[EXPLORE_MAX];
static bool narrow;

static struct weir_stats covered; /* over all schedules of a test: displacements, evicted_live; `errors` is deaths */

static void note(int error)
{
    if (error && !(error == WEIR_EFULL && scenario->tight))
        explore_fail("%s%s", explore.current < 0 ? "alone: " : "", error == WEIR_EBUSY ? "WEIR_EBUSY" : "an error");
}

/* ---- The processes ---- */

static int64_t most_given(const struct key *key)
{
    /* A reset of two slots is not atomic: a request in between may still count in the second one. */
    bool two_slots = scenario->algorithm == WEIR_SLIDING_WINDOW_COUNTER && scenario->unit > 1;
    return cap * (1 + key->resets * (two_slots ? 2 : 1));
}

/* Decides as the engine does: on the fast path, if the key's entry is in place, or on the slow one. */
static int decide(const struct weir__op *op, const struct weir__key_location *where, int64_t cost,
                  weir_decision *decision)
{
    bool home = explore_random(2), other = explore_random(2);
    bool fast =
        (home || other) && op->mono_us >= (int64_t)weir__load64(&op->table->header->blocked_until_us) && cost > 0;
    if (fast && weir__may_take_fast(&limit, cost)) {
        weir__cell *slot = weir__slot_at(&op->table->bucket[home ? where->primary : where->alternate], where->tag);
        if (weir__fast_take(op->mono_us, &limit, slot, where->tag, cost, decision))
            return 0;
    }
    return weir__table_take(op, &limit, where, cost, WEIR__TAKE, decision);
}

static void take(int who, int k, int64_t units, int64_t now_us)
{
    struct weir__op op = op_at(now_us);
    struct key *key = &keys[k];
    bool blocked = key->blocked;
    weir_decision decision = {0};
    key->requested += units;

    explore_log("take %d of key %d at %+d", (int)units, k, (int)(now_us - BASE));
    int error = decide(&op, &key->where, units * scenario->unit, &decision);
    explore_log("take of key %d: error %d, verdict %d", k, error, (int)decision.verdict);
    note(error);
    if (!error && decision.verdict == WEIR_DENY && key->requested <= cap)
        explore_fail("refused, though all that was ever asked for fits");
    if (error || !weir_passes(&decision))
        return;
    key->given += units;
    if (who >= 0)
        own[who][k] += units;
    if (world.stats.evicted_live)
        return; /* an eviction that is allowed, and reported */
    if (key->given - key->refunded > most_given(key))
        explore_fail("%d given of at most %d", (int)(key->given - key->refunded), (int)most_given(key));
    if (blocked && !key->unblocked)
        explore_fail("a blocked key was admitted");
}

static void refund(int who, int k, int64_t now_us)
{
    struct weir__op op = op_at(now_us);
    weir_decision decision;
    int64_t units = own[who][k] ? 1 + explore_random((int)own[who][k]) : 0;
    if (!units)
        return;
    explore_log("refund %d of key %d at %+d", (int)units, k, (int)(now_us - BASE));
    own[who][k] -= units;
    keys[k].refunded += units;
    note(weir__table_take(&op, &limit, &keys[k].where, -units * scenario->unit, WEIR__TAKE, &decision));
}

static void reset(int k, int64_t now_us)
{
    struct weir__op op = op_at(now_us);
    explore_log("reset key %d", k);
    keys[k].resets++;
    note(weir__table_reset(&op, &limit, &keys[k].where));
}

static void block(int k, int64_t now_us, bool begin)
{
    struct weir__op op = op_at(now_us);
    explore_log("%s key %d", begin ? "block" : "unblock", k);
    keys[k].unblocked |= !begin;
    int error = weir__table_block(&op, &keys[k].where, begin ? 2 * HOUR : 0);
    note(error);
    keys[k].blocked |= begin && !error;
}

static void use_filler(int64_t now_us, bool drop)
{
    struct weir__op op = op_at(now_us);
    weir_decision decision;
    if (!near_fillers)
        return;
    int i = explore_random(near_fillers);
    explore_log("%s filler %" PRIx64, drop ? "drop" : "take", filler[i].tag);
    note(drop ? weir__slot_drop(&op, &filler[i])
              : weir__slot_take(&op, &filler_limit, &filler[i], 1, WEIR__TAKE, &decision));
}

static int64_t resizes, finished; /* over all schedules of a test */

/* Begins to resize, or goes on with it; another process may have begun, ended or died. */
static void resize(int64_t now_us, bool begin)
{
    struct weir__op op = op_at(now_us);
    uint64_t moved;
    unsigned doublings = (unsigned)explore_random(DOUBLINGS_MAX + 1);
    explore_log(begin ? "resize to %u doublings" : "go on to resize", doublings);
    if (begin && weir__resize_begin(&table, doublings) == 0)
        resizes++;
    else if (!begin && weir__is_resizing(&table))
        finished += weir__resize_finish(&op, &moved) == 0;
}

static void act(int me)
{
    int64_t now_us = clocks[explore_random(2)];
    int k = narrow || explore_random(3) ? 0 : explore_random(KEYS), cost = 1 + explore_random(scenario->cost_most);
    int kind = explore_random(scenario->also & ~(unsigned)RESIZES ? 14 : 10);

    if (scenario->also & RESIZES && !explore_random(3))
        resize(now_us, explore_random(2));
    else if (kind < 5)
        take(me, k, cost, now_us);
    else if (kind < 10)
        use_filler(now_us, kind >= 8);
    else if (scenario->also & REFUNDS && (kind < 12 || !(scenario->also & ~(unsigned)REFUNDS)))
        refund(me, k, now_us);
    else if (scenario->also & RESETS && (kind < 13 || !(scenario->also & BLOCKS)))
        reset(k, now_us);
    else if (scenario->also & BLOCKS)
        block(k, now_us, explore_random(4) > 0);
}

static void process(int me)
{
    for (int i = 0; i < acts[me]; i++)
        act(me);
}

/* ---- Afterwards, without concurrency ---- */

/* The key's current count, in units. */
static int64_t units_counted(const struct key *key, int64_t now_us)
{
    struct weir__op op = op_at(now_us);
    weir_decision decision = {0};
    note(weir__table_take(&op, &limit, &key->where, 0, WEIR__TAKE, &decision));
    return cap - decision.remaining / scenario->unit;
}

/* The account and the table must agree, unless a process died in the middle or something was evicted or reset. */
static void check_account(const struct key *key, int64_t now_us)
{
    int64_t counted = units_counted(key, now_us), due = key->given - key->refunded;
    if (world.stats.evicted_live || key->resets)
        return;
    if (counted < due)
        explore_fail("units lost: %d of %d", (int)(due - counted), (int)due);
    /* Nothing is refunded that was taken in the previous window, nor instead of what was logged later. */
    bool later = limit.algorithm == WEIR_SLIDING_WINDOW_LOG && clocks[0] != clocks[1];
    bool exact = !explore.kills && !((scenario->edge || later) && key->refunded);
    if (exact && counted != due)
        explore_fail("%d counted, %d given", (int)counted, (int)due);
}

static void check_alone(void)
{
    bool lossless = !explore.kills && !world.stats.evicted_live;
    int64_t later = clocks[1] + (scenario->kept_us ? scenario->kept_us : 5000000);
    struct weir__op op = op_at(clocks[1]);

    show_world("end");
    for (int i = 0; i < KEYS; i++) {
        check_account(&keys[i], clocks[1]);
        check_account(&keys[i], clocks[1] + scenario->counts_us);
    }
    for (int i = 0; i < 4 * KEYS; i++)
        take(-1, i % KEYS, 1, clocks[1]);
    if (weir__is_resizing(&table)) {
        uint64_t moved;
        note(weir__resize_finish(&op, &moved));
        for (int i = 0; i < KEYS; i++)
            check_account(&keys[i], clocks[1]);
    }
    look_up_all(&op);
    check_settled(later);

    for (int i = 0; i < KEYS; i++) {
        reset(i, clocks[1]);
        if (units_counted(&keys[i], clocks[1]))
            explore_fail("a reset key holds something");
        block(i, clocks[1], false);
    }
    /* No process died, so nothing is kept for one: chunks are free without waiting for a lease to expire. */
    for (uint64_t i = 0; i < table.chunks && lossless && !scenario->tight; i++)
        if (world.lease[i])
            explore_fail("chunk %d was not released", (int)i);

    check_reclaimed(BASE + 20 * HOUR);
    int64_t before = keys[0].given;
    take(-1, 0, 1, BASE + 40 * HOUR);
    if (keys[0].given == before)
        explore_fail("the key conflicts with no other and is refused");
}

/* ---- Schedules ---- */

static void make_limit(void)
{
    weir_params params = {.algorithm = scenario->algorithm,
                          .limit = cap * scenario->unit,
                          .window_ns = HOUR * 1000,
                          .buckets = scenario->buckets};
    weir_params other = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .window_ns = HOUR * 1000};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    CHECK_EQ(weir_limit_init(&filler_limit, &other), 0);
}

static void run_schedule(const char *test, uint64_t seed)
{
    /* Each test has other schedules. */
    explore.random = seed;
    for (; *test; test++)
        explore.random = explore.random * 31 + (uint64_t)*test;
    explore.why[0] = 0;
    explore.kills = 0;
    cap = scenario->cap_least + explore_random(scenario->cap_range);
    clocks[0] = scenario->edge ? BASE - 1 : BASE;
    clocks[1] = explore_random(4) ? clocks[0] + 1 : clocks[0];
    make_limit();
    narrow = explore_random(2);
    make_world(scenario->chunks_min + (scenario->chunks_range ? explore_random(scenario->chunks_range) : 0), narrow);
    memset(own, 0, sizeof own);
    if (fillers && explore_random(2))
        use_filler(clocks[0], true);
    if (scenario->prepare)
        scenario->prepare(cap);
    else if (explore_random(2))
        take(-1, 0, 1, clocks[0]);

    show_world("begin");
    int count = 2 + explore_random(EXPLORE_MAX - 1);
    for (int i = 0; i < count; i++)
        acts[i] = 1 + explore_random(3);
    explore_run(count, process);
    covered.displaced += world.stats.displaced > 0;
    covered.evicted_live += world.stats.evicted_live > 0;
    covered.errors += explore.kills > 0;
    check_alone();
}

/* Runs schedules of the scenarios in turn, or the one that WEIR_TEST_SEED names, with a trace. */
static void run_schedules(const char *test, const struct scenario *scenarios, int count, int64_t schedules)
{
    const char *only = getenv("WEIR_TEST_SEED");
    int64_t failed = 0, steps = INT64_MAX, total = test_scaled(schedules, 50);
    uint64_t first = only ? strtoull(only, NULL, 0) : 1, shortest = 0;
    char why[sizeof explore.why] = "";

    memset(&covered, 0, sizeof covered);
    explore.trace = only;
    for (uint64_t seed = first; seed < first + (uint64_t)(only ? 1 : total); seed++) {
        scenario = &scenarios[seed % (uint64_t)count];
        run_schedule(test, seed);
        if (!explore.why[0])
            continue;
        if (!failed++)
            printf("  schedule %" PRIu64 ": %s\n", seed - first + 1, explore.why);
        if (explore.failed_step < steps) {
            steps = explore.failed_step;
            shortest = seed;
            memcpy(why, explore.why, sizeof why);
        }
    }
    CHECK_EQ(failed, 0);
    if (failed)
        printf("  shortest, at step %" PRId64 ": %s\n  WEIR_TEST_SEED=%" PRIu64 " test_interleavings %s\n", steps, why,
               shortest, test);
    /* Otherwise nothing was tested. */
    if (total >= 1000 && !only)
        CHECK(covered.errors > 100 && (scenario->prepare || (covered.displaced > 100 && covered.evicted_live > 100)));
}

#define RUN(schedules, ...)                                                                                            \
    do {                                                                                                               \
        static const struct scenario scenarios_[] = {__VA_ARGS__};                                                     \
        run_schedules(__func__ + sizeof "test_" - 1, scenarios_, (int)(sizeof scenarios_ / sizeof *scenarios_),        \
                      schedules);                                                                                      \
    } while (0)

/* Building blocks of scenarios. */
#define SLOT .algorithm = WEIR_TOKEN_BUCKET, .unit = 1, .cap_least = 1, .cap_range = 3, .cost_most = 1
#define PACKED                                                                                                         \
    .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 2, .unit = 1, .cap_least = 1, .cap_range = 3, .cost_most = 1
/* Its tentative entries name a window and are kept as long as that matters. */
#define PAIR                                                                                                           \
    .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 2, .unit = WEIR__PACKED_MAX + 1, .cap_least = 1,              \
    .cap_range = 3, .cost_most = 1, .kept_us = 3 * HOUR
#define WIDE                                                                                                           \
    .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 3, .unit = 1, .cap_least = 1, .cap_range = 3, .cost_most = 1, \
    .counts_us = HOUR / 3
#define LOG                                                                                                            \
    .algorithm = WEIR_SLIDING_WINDOW_LOG, .unit = 1, .cap_least = 3, .cap_range = 8, .cost_most = 3,                   \
    .counts_us = HOUR / 3
#define ROOMY .chunks_min = 40

TEST(one_slot)
{
    RUN(25000, {SLOT});
}

/* ---- Displacements alone: the entry of a key is found, wherever its displacement is ---- */

/* The slot in which the key counts, by a scan of all slots; NULL: it is being displaced. */
static weir__cell *counting_slot(uint64_t *line)
{
    for (uint64_t i = 0; i < table.buckets * WEIR__BUCKET_SLOTS; i++) {
        weir__cell *slot = &world.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
        *line = i / WEIR__BUCKET_SLOTS;
        if (weir__is_entry_of(slot->lo, keys[0].where.tag))
            return slot;
    }
    return NULL;
}

static void move_key(const struct weir__op *op)
{
    uint64_t line, next;
    weir__cell *from = counting_slot(&line), seen, there;
    if (!from)
        return;
    seen = *from;
    next = weir__alternate_bucket(keys[0].where.tag, line, table.buckets);
    weir__cell *to = free_slot(op, next, &there);
    if (to)
        displace(op, line, from, seen, to, there, (int)(to - world.bucket[next].slot));
}

/* The first coroutines displace it back and forth, the last one looks it up. */
static void displace_or_look_up(int me)
{
    const struct weir__op op = op_at(clocks[0]), only = {&table, NULL, clocks[0], clocks[0]};
    for (int i = 0; i < 3; i++) {
        weir__cell *slot = NULL, seen;
        if (me + 1 < explore.count)
            move_key(&op);
        else if (weir__lookup_helping(explore_random(2) ? &op : &only, &keys[0].where, &slot, &seen) || !slot)
            explore_fail("not found, though it is there");
    }
}

/*
 * The first coroutines displace it back and forth, fewer than 8 times in all, as a version has 3 bits. The last one
 * resizes: then it must not have stayed behind.
 */
static void displace_or_resize(int me)
{
    const struct weir__op op = op_at(clocks[0]);
    weir__cell *slot = NULL, seen;
    uint64_t moved;
    for (int i = 0; i < (me < 3 ? 2 : 1) && me + 1 < explore.count; i++)
        move_key(&op);
    if (me + 1 < explore.count)
        return;
    if (weir__resize_begin(&table, 1) || weir__resize_finish(&op, &moved))
        explore_fail("the resize did not end");
    else if (weir__lookup_helping(&op, &keys[0].where, &slot, &seen) || !slot)
        explore_fail("it has stayed behind");
}

static void run_displaced(const char *test, void (*body)(int me))
{
    static const struct scenario one = {.algorithm = WEIR_TOKEN_BUCKET, .unit = 1};
    const char *only = getenv("WEIR_TEST_SEED");
    int64_t moved = 0, total = only ? 1 : test_scaled(100000, 50);
    uint64_t first = only ? strtoull(only, NULL, 0) : 1;
    scenario = &one;
    explore.trace = only;
    for (uint64_t seed = first; seed < first + (uint64_t)total && !test_failures; seed++) {
        explore.random = seed;
        explore.why[0] = 0;
        clocks[0] = clocks[1] = BASE;
        do {
            make_world(0, true);
        } while (keys[0].where.primary == keys[0].where.alternate);
        empty_lines();
        world.bucket[keys[0].where.primary].slot[explore_random(WEIR__BUCKET_SLOTS)] =
            weir__cell_pack((struct weir__slot_fields){.tag = keys[0].where.tag,
                                                       .version = (unsigned)explore_random(WEIR__VERSIONS),
                                                       .expiry = weir__expiry_encode(HOUR),
                                                       .used = 5,
                                                       .anchor = BASE});
        explore_run(2 + explore_random(EXPLORE_MAX - 1), body);
        moved += (int64_t)world.stats.displaced;
        if (explore.why[0])
            printf("  %s: WEIR_TEST_SEED=%" PRIu64 " test_interleavings %s\n", explore.why, seed, test);
        CHECK(!explore.why[0]);
    }
    CHECK(only || moved > total);
}

TEST(entry_is_found_while_it_is_displaced)
{
    run_displaced("entry_is_found_while_it_is_displaced", displace_or_look_up);
}

TEST(entry_is_moved_while_it_is_displaced)
{
    run_displaced("entry_is_moved_while_it_is_displaced", displace_or_resize);
}

TEST(packed_counter)
{
    RUN(25000, {PACKED, .edge = true});
}

TEST(pair_of_slots)
{
    RUN(25000, {PAIR}, {PAIR, .edge = true});
}

/*
 * Both slots have windows of long ago. While one process reads them, others may use the previous window and enter this
 * one: read in the wrong order, the previous one seems to weigh nothing.
 */
static void prepare_long_ago(int64_t units)
{
    struct weir__bucket *line = &world.bucket[keys[0].where.primary];
    (void)units;
    empty_lines();
    line->slot[0] = weir__cell_pack((struct weir__slot_fields){.tag = keys[0].where.tag,
                                                               .expiry = weir__expiry_encode(2 * HOUR),
                                                               .used = (uint64_t)scenario->unit,
                                                               .anchor = BASE - 2 * HOUR});
    line->slot[1] = weir__cell_pack((struct weir__slot_fields){.tag = keys[0].where.tag ^ 1,
                                                               .expiry = weir__expiry_encode(2 * HOUR),
                                                               .used = (uint64_t)scenario->unit | PAIR_SEALED,
                                                               .anchor = BASE - 3 * HOUR});
}

TEST(pair_of_long_ago)
{
    RUN(25000, {PAIR, .edge = true, .prepare = prepare_long_ago});
}

/* The slot of this window still has the one before the previous, sealed, and the previous is full but for a unit. */
static void prepare_rollover(int64_t units)
{
    struct weir__bucket *line = &world.bucket[keys[0].where.primary];
    int64_t counted = units > 1 ? units - 1 : 1;
    empty_lines();
    line->slot[0] = weir__cell_pack((struct weir__slot_fields){.tag = keys[0].where.tag,
                                                               .expiry = weir__expiry_encode(2 * HOUR),
                                                               .used = 1 | PAIR_SEALED,
                                                               .anchor = BASE - 2 * HOUR});
    line->slot[1] = weir__cell_pack((struct weir__slot_fields){.tag = keys[0].where.tag ^ 1,
                                                               .expiry = weir__expiry_encode(2 * HOUR),
                                                               .used = (uint64_t)(counted * scenario->unit),
                                                               .anchor = BASE - HOUR});
    keys[0].given = keys[0].requested = counted;
}

TEST(pair_at_rollover)
{
    RUN(25000, {PAIR, .prepare = prepare_rollover});
}

TEST(wide_counter)
{
    RUN(25000, {WIDE, ROOMY}, {WIDE, ROOMY, .edge = true});
}

TEST(log_in_the_slab)
{
    RUN(25000, {LOG, ROOMY});
}

static void prepare_growing(int64_t units)
{
    (void)units;
    if (explore_random(2))
        empty_lines();
    take(-1, 0, 8, clocks[0]);
    take(-1, 0, 3, clocks[0]);
}

#define GROWING                                                                                                        \
    .algorithm = WEIR_SLIDING_WINDOW_LOG, .unit = 1, .cap_least = 20, .cap_range = 21, .cost_most = 17,                \
    .counts_us = HOUR / 3, .prepare = prepare_growing

TEST(log_growing)
{
    RUN(25000, {GROWING, ROOMY}, {GROWING, .chunks_min = 5, .chunks_range = 8, .tight = true});
}

TEST(full_slab)
{
    RUN(25000, {LOG, .chunks_min = 3, .chunks_range = 8, .tight = true},
        {WIDE, .chunks_min = 4, .chunks_range = 9, .tight = true, .edge = true});
}

TEST(refunds)
{
    RUN(25000, {SLOT, .also = REFUNDS}, {PACKED, .also = REFUNDS}, {PACKED, .also = REFUNDS, .edge = true},
        {PAIR, .also = REFUNDS}, {PAIR, .also = REFUNDS, .edge = true}, {WIDE, ROOMY, .also = REFUNDS},
        {LOG, ROOMY, .also = REFUNDS});
}

TEST(resets)
{
    RUN(25000, {SLOT, .also = RESETS}, {PACKED, .also = RESETS, .edge = true}, {PAIR, .also = RESETS, .edge = true},
        {WIDE, ROOMY, .also = RESETS}, {LOG, ROOMY, .also = RESETS});
}

TEST(blocks)
{
    RUN(25000, {SLOT, .also = BLOCKS}, {PAIR, .also = BLOCKS}, {LOG, ROOMY, .also = BLOCKS});
}

/* Regions of buckets are added and removed meanwhile, by several processes, which die in the middle. */
TEST(resizes)
{
    resizes = finished = 0;
    RUN(50000, {SLOT, .also = RESIZES}, {SLOT, .also = RESIZES | REFUNDS}, {PACKED, .also = RESIZES, .edge = true},
        {PAIR, .also = RESIZES}, {PAIR, .also = RESIZES, .edge = true}, {WIDE, ROOMY, .also = RESIZES},
        {LOG, ROOMY, .also = RESIZES}, {SLOT, .also = RESIZES | BLOCKS}, {SLOT, .also = RESIZES | RESETS},
        {PAIR, .also = RESIZES, .prepare = prepare_rollover});
    CHECK(resizes > 10 && finished > 10);
}

TEST(all_at_once)
{
    RUN(25000, {SLOT, .also = REFUNDS | RESETS | BLOCKS}, {PAIR, .also = REFUNDS | RESETS | BLOCKS, .edge = true},
        {WIDE, ROOMY, .also = REFUNDS | RESETS | BLOCKS, .edge = true},
        {LOG, ROOMY, .also = REFUNDS | RESETS | BLOCKS});
}

TEST_MAIN
