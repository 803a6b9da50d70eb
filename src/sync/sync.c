/* Rounds, slices and batches of the synchronization. The protocol is described in sync.h. */
#include "sync/sync_internal.h"
#include "base/clock.h"
#include "engine/segment.h"

#include <stdlib.h>
#include <time.h>

#define TIMEOUT_FACTOR_MAX 8     /* of the configured timeout, for a batch that was late before */
#define BATCH_FLOOR        64    /* entries: a batch limit is not halved below this, one run of the script */
#define LATE_ROUNDS        4     /* without a reply, after which deltas are sent with their age */
#define DOWN_AFTER         3     /* failed rounds in a row, and the ledger's state is DOWN */
#define PING_MS            1000  /* without an exchange: the store is pinged */
#define SLICES_MAX         16    /* of a round */
#define MANY               128   /* entries of a slice: more than the store handles in about a millisecond */
#define FEW                16    /* entries of a slice: not worth a request */
#define SWEEP_MS           10000 /* duration of one pass */
#define ORPHAN_TIMES       6     /* passes after which an unknown counter's delta is dropped */

/* ---- Creation ---- */

void weir__sync_free(struct weir__sync *sync)
{
    if (!sync)
        return;
    free(sync->acked);
    free(sync->tracked);
    free(sync->scheduled);
    free(sync->ops);
    free(sync->targets);
    free(sync->groups);
    free(sync->by_id);
    free(sync);
}

void weir__sync_schedule_all(struct weir__sync *sync)
{
    for (uint64_t i = 0; i < sync->ledger->entries; i++)
        if (weir__load64(&sync->ledger->cell[i].lo)) {
            weir__sync_schedule(sync, i, 1);
            sync->tracked[i].repolls =
                WEIR__SYNC_REPOLLS; /* other hosts may send theirs again as well, each at its own time */
        }
}

struct weir__sync *weir__sync_new(const struct weir__sync_options *options)
{
    if (!options->engine->deltas.ledger.entries)
        return NULL;
    struct weir__sync *sync = calloc(1, sizeof *sync);
    if (!sync)
        return NULL;
    sync->with = *options;
    sync->with.now = options->now ? options->now : weir_clock;
    sync->with.timeout_us = options->timeout_us ? options->timeout_us : WEIR__SYNC_TIMEOUT_US;
    sync->timeout_us = sync->with.timeout_us;
    sync->batch_max = WEIR__LEDGER_BATCH_MAX;
    sync->slices = 1;
    sync->begun_ms = weir__coarse_ms();
    sync->machine = weir__sync_machine();
    sync->segment = options->engine->segment;
    sync->ledger = &options->engine->deltas.ledger;
    sync->tracked = calloc(sync->ledger->entries, sizeof *sync->tracked);
    sync->scheduled = calloc(sync->ledger->entries / 64, sizeof *sync->scheduled);
    sync->ops = calloc(WEIR__LEDGER_BATCH_MAX, sizeof *sync->ops);
    sync->targets = calloc(WEIR__LEDGER_BATCH_MAX, sizeof *sync->targets);
    sync->groups = calloc(WEIR__LEDGER_BATCH_MAX, sizeof *sync->groups);
    sync->acked = calloc(WEIR__SYNC_ACKED_MAX, sizeof *sync->acked);
    sync->evicted_batch = sync->ledger->header->batch;
    if (!sync->tracked || !sync->scheduled || !sync->ops || !sync->targets || !sync->groups || !sync->acked) {
        weir__sync_free(sync);
        return NULL;
    }
    for (uint32_t i = 0; i < WEIR__LEDGER_BATCH_MAX; i++)
        sync->groups[i] = (struct weir__group){.first = i, .count = 1};
    weir__sync_schedule_all(sync); /* the previous agent may have been killed */
    return sync;
}

/* ---- Scheduled polls ---- */

void weir__sync_schedule(struct weir__sync *sync, uint64_t index, uint32_t rounds)
{
    sync->scheduled[index / 64] |= UINT64_C(1) << index % 64;
    sync->tracked[index].due = sync->round + rounds;
    sync->tracked[index].idle = false;
}

void weir__sync_unschedule(struct weir__sync *sync, uint64_t index)
{
    sync->scheduled[index / 64] &= ~(UINT64_C(1) << index % 64);
}

/* Scheduled entries of a word of the bitmap that are due. */
static uint64_t due(const struct weir__sync *sync, uint64_t word)
{
    uint64_t bits = 0;
    for (uint64_t left = sync->scheduled[word]; left; left &= left - 1) {
        uint64_t bit = left & -left, index = word * 64 + (uint64_t)__builtin_ctzll(left);
        bits |= (int32_t)(sync->round - sync->tracked[index].due) >= 0 ? bit : 0;
    }
    return bits;
}

/* ---- State and statistics, in the ledger's header ---- */

void weir__sync_beat(struct weir__sync *sync)
{
    weir__store64(&sync->ledger->header->heartbeat_ms, weir__coarse_ms());
}

static void publish_state(struct weir__sync *sync, int error)
{
    struct weir__ledger_header *header = sync->ledger->header;
    uint64_t state = error ? WEIR__LEDGER_DOWN : WEIR__LEDGER_UP;
    sync->failed = error ? sync->failed + 1 : 0;
    if (error && error != WEIR_ESTOREBREAKER) /* that error means only that an earlier one opened the breaker */
        weir__store64(&header->last_error, (uint64_t)-error);
    if ((error && sync->failed < DOWN_AFTER) || weir__load64(&header->state) == state)
        return;
    weir__store64(&header->state_since_ms, weir__coarse_ms());
    weir__store64(&header->state, state);
}

/* ---- Time ---- */

/*
 * For how long deltas have been unsent, if for more than LATE_ROUNDS; else 0. After a reboot the ledger has times of
 * another clock.
 */
static int64_t late_by(const struct weir__sync *sync)
{
    uint64_t acked = weir__load64(&sync->ledger->header->acked_ms), since = acked ? acked : sync->begun_ms;
    uint64_t now_ms = weir__coarse_ms();
    uint64_t late = now_ms > since ? now_ms - since : 0;
    return late > LATE_ROUNDS * sync->with.interval_ms + WEIR__SYNC_LATE_MS ? (int64_t)late * 1000 : 0;
}

void weir__sync_clock(struct weir__sync *sync)
{
    sync->now = sync->with.now(sync->segment);
    sync->late_us = late_by(sync);
}

/* ---- Batches ---- */

/*
 * A late batch must be repeated unchanged, so it gets a longer timeout; the next batches are smaller until they are
 * fast again.
 */
static void learn(struct weir__sync *sync, int error, int64_t took_us)
{
    int64_t configured_us = sync->with.timeout_us;
    if (error == WEIR_ESTORESLOW) {
        sync->timeout_us =
            sync->timeout_us < TIMEOUT_FACTOR_MAX * configured_us ? 2 * sync->timeout_us : sync->timeout_us;
        sync->batch_max = sync->batch_max > BATCH_FLOOR ? sync->batch_max / 2 : sync->batch_max;
    } else if (!error) {
        sync->timeout_us = configured_us;
        sync->batch_max = took_us < configured_us / 4 && sync->batch_max < WEIR__LEDGER_BATCH_MAX ? 2 * sync->batch_max
                                                                                                  : sync->batch_max;
    }
}

/* Applies the replies, prefetching the entries and counters ahead. */
static void apply_all(struct weir__sync *sync, uint64_t count, int64_t took_us)
{
    for (uint64_t i = 0; i < count + WEIR__SYNC_PREFETCH; i++) {
        if (i < count && sync->targets[i].rule) {
            weir__ledger_prefetch_cell(sync->ledger, sync->ledger->note[i].index);
            weir__prefetch(&sync->tracked[sync->ledger->note[i].index]);
            weir__counter_expect(sync->segment, sync->targets[i].hash);
        }
        if (i % WEIR__SYNC_PREFETCH == 0)
            weir__sync_clock(sync);
        if (i >= WEIR__SYNC_PREFETCH)
            weir__sync_apply(sync, i - WEIR__SYNC_PREFETCH, took_us);
    }
}

/*
 * Sends the `count` entries that are in flight, whose ops are filled, and applies the replies. 0, or an error: the
 * batch is still in flight.
 */
static int exchange(struct weir__sync *sync, uint64_t count)
{
    const struct weir__ledger *ledger = sync->ledger;
    struct weir__ledger_header *header = ledger->header;
    sync->request = (struct weir__store_request){.ops = sync->ops,
                                                 .op_count = (uint32_t)count,
                                                 .groups = sync->groups,
                                                 .group_count = (uint32_t)count,
                                                 .sender = header->sender,
                                                 .batch = header->batch};
    int64_t began_ns = sync->with.now(sync->segment).mono_ns;
    sync->sent_us = began_ns / 1000;
    sync->request.deadline_us = weir__monotonic_us() + sync->timeout_us;
    int error = sync->with.send_request(sync->with.send_context, &sync->request);
    int64_t took = (sync->with.now(sync->segment).mono_ns - began_ns) / 1000;
    learn(sync, error, took);
    weir__sync_beat(sync);
    weir__count(&header->exchanges, 1);
    if (error) {
        weir__count(&header->failures, 1);
        /*
         * The server that replaces a failed one reports by the first command which batches it lacks, and each host
         * re-sends its own. Counters of that command must not be re-seeded as well, or their deltas count twice.
         */
        for (uint64_t i = sync->with.cluster ? 0 : WEIR__BATCH_GROUPS; i < count; i++)
            weir__sync_reseed(sync, ledger->note[i].index);
        return error;
    }
    weir__sync_detect_reset(sync, count);
    sync->counters += count;
    sync->contact_ms = weir__coarse_ms();
    weir__count(&header->ops, count);
    apply_all(sync, count, took);
    weir__store64(&header->in_flight, 0);
    return 0;
}

/* Entries to be added to the batch, being prefetched. */
struct gathered {
    uint64_t index[WEIR__SYNC_PREFETCH];
    unsigned count;
    uint64_t in_flight; /* entries of the batch so far */
};

static void gather(const struct weir__sync *sync, struct gathered *g, uint64_t index)
{
    weir__ledger_prefetch(sync->ledger, index);
    weir__prefetch(&sync->tracked[index]);
    g->index[g->count++] = index;
}

static void note_gathered(struct weir__sync *sync, struct gathered *g)
{
    struct weir__ledger_entry entry[WEIR__SYNC_PREFETCH];
    struct weir__sync_counter counter[WEIR__SYNC_PREFETCH];
    for (unsigned i = 0; i < g->count; i++) {
        weir__ledger_read(sync->ledger, g->index[i], &entry[i]);
        if (weir__sync_find_counter(sync, &entry[i], &counter[i]))
            weir__counter_expect(sync->segment, counter[i].hash);
    }
    weir__sync_clock(sync);
    for (unsigned i = 0; i < g->count; i++)
        g->in_flight += weir__sync_fill(sync, g->index[i], &entry[i], &counter[i], g->in_flight);
    g->count = 0;
}

/* Adds the gathered entries, and sends the batch if it is full or `now`. */
static int note_and_send(struct weir__sync *sync, struct gathered *g, bool now)
{
    note_gathered(sync, g);
    uint64_t count = g->in_flight;
    if (!count || (!now && count + WEIR__SYNC_PREFETCH <= sync->batch_max))
        return 0;
    g->in_flight = 0;
    weir__store64(&sync->ledger->header->batch, sync->ledger->header->batch + 1);
    weir__store64(&sync->ledger->header->in_flight, count);
    return exchange(sync, count);
}

/*
 * Exchanges the changed and due entries of these word_count of the bitmap. On an error, entries that were not sent
 * keep their dirty bits.
 */
static int collect(struct weir__sync *sync, uint64_t first, uint64_t end)
{
    struct gathered g = {.count = 0};
    int error = 0;
    for (uint64_t word = first; word < end && !error; word++) {
        uint64_t bits = weir__ledger_dirty(sync->ledger, word) | due(sync, word);
        for (; bits && !error; bits &= bits - 1) {
            gather(sync, &g, word * 64 + (uint64_t)__builtin_ctzll(bits));
            if (g.count == WEIR__SYNC_PREFETCH)
                error = note_and_send(sync, &g, false);
        }
        if (error)
            sync->from = bits ? word : word + 1;
        for (; bits; bits &= bits - 1)
            weir__ledger_mark(sync->ledger, word * 64 + (uint64_t)__builtin_ctzll(bits));
    }
    return error ? error : note_and_send(sync, &g, true);
}

/*
 * Exchanges the next `count` slices. After a failure it starts where that left off: otherwise a store that fails now
 * and then would never get the last entries.
 */
static int collect_slices(struct weir__sync *sync, unsigned count)
{
    uint64_t word_count = sync->ledger->entries / 64, from = sync->from;
    uint64_t first = word_count * sync->slice / sync->slices, end = word_count * (sync->slice + count) / sync->slices;
    sync->from = 0;
    if (from <= first || from >= end)
        return collect(sync, first, end);
    int error = collect(sync, from, end);
    return error ? error : collect(sync, first, from);
}

/* Sends a request without effect, to find out whether the store is available. */
static int ping(struct weir__sync *sync)
{
    weir__sync_fill_nothing(sync, &sync->ops[0]);
    sync->request =
        (struct weir__store_request){.ops = sync->ops, .op_count = 1, .groups = sync->groups, .group_count = 1};
    int error = sync->with.send_request(sync->with.send_context, &sync->request);
    if (!error)
        sync->contact_ms = weir__coarse_ms();
    return error;
}

/* ---- The sweep: frees idle entries, and gives up deltas whose counter stays unknown ---- */

/*
 * A delta whose counter is unknown: its rule or the entry's text is gone. Kept for ORPHAN_TIMES passes, as the rule may
 * come back.
 */
static void wait_for_owner(struct weir__sync *sync, uint64_t index)
{
    struct weir__ledger_entry entry;
    struct weir__sync_counter counter;
    struct weir__sync_entry *f = &sync->tracked[index];
    weir__ledger_read(sync->ledger, index, &entry);
    if (weir__sync_find_counter(sync, &entry, &counter)) {
        weir__sync_schedule(sync, index, 1);
        return;
    }
    if (++f->orphan < ORPHAN_TIMES)
        return;
    weir__ledger_discard(sync->ledger, index, entry.identity, entry.amount);
    weir__count(&sync->ledger->header->dropped, (uint64_t)(entry.amount > 0 ? entry.amount : 0));
    f->orphan = 0;
}

static void sweep(struct weir__sync *sync, unsigned slices)
{
    uint64_t entries = sync->ledger->entries, rounds = SWEEP_MS / (sync->with.interval_ms ? sync->with.interval_ms : 1);
    uint64_t count = entries * slices / ((rounds ? rounds : 1) * sync->slices) + 1;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = sync->swept;
        struct weir__ledger_cell cell = weir__ledger_read_cell(sync->ledger, index);
        sync->filled += cell.identity != 0;
        bool tracked = sync->scheduled[index / 64] >> index % 64 & 1;
        if (cell.identity && !tracked && cell.amount) {
            wait_for_owner(sync, index);
        } else if (cell.identity && !tracked) {
            if (sync->tracked[index].idle && weir__ledger_free(sync->ledger, index, cell.identity))
                sync->tracked[index].failed_ms = 0;
            sync->tracked[index].idle = !sync->tracked[index].idle;
        }
        sync->swept = index + 1 < entries ? index + 1 : 0;
        if (!sync->swept) {
            weir__store64(&sync->ledger->header->filled, sync->filled);
            sync->filled = 0;
        }
    }
}

/* ---- Rounds ---- */

/* Sends the batch again that an earlier step or an earlier agent left in flight. */
static int finish_in_flight(struct weir__sync *sync)
{
    struct weir__ledger_header *header = sync->ledger->header;
    uint64_t in_flight = weir__load64(&header->in_flight);
    if (in_flight > WEIR__LEDGER_BATCH_MAX) { /* invalid: not written by an agent */
        weir__store64(&header->in_flight, 0);
        return 0;
    }
    for (uint64_t i = 0; i < in_flight; i++)
        weir__sync_fill_again(sync, i);
    return in_flight ? exchange(sync, in_flight) : 0;
}

/*
 * Number of slices of the next round. Doubled only if all of them fit into the interval even if each takes as long as
 * one does now, so that a distant store does not get more requests.
 */
static unsigned next_slices(const struct weir__sync *sync, int error)
{
    if (error || sync->behind || sync->counters < (uint64_t)FEW * sync->slices)
        return 1;
    bool many = sync->counters > (uint64_t)MANY * sync->slices && sync->slices < SLICES_MAX;
    bool fast = sync->busy_us * 2 <= (int64_t)sync->with.interval_ms * 1000 * 3 / 4;
    return many && fast ? 2 * sync->slices : sync->slices;
}

/* Runs the next `count` slices. An error ends the round; entries that were not sent keep their dirty bits. */
static int run(struct weir__sync *sync, unsigned count)
{
    int at;
    struct weir__ledger_header *header = sync->ledger->header;
    uint64_t now_ms = weir__coarse_ms();
    int64_t began = weir__monotonic_us();
    weir__sync_beat(sync);
    if (!weir__sync_acquire_rules(sync, &at))
        return WEIR_ENOMEM;
    if (!sync->slice) {
        sync->round++;
        sync->round_ms = now_ms;
        sync->counters = 0;
        sync->busy_us = 0;
    }
    int error = finish_in_flight(sync);
    if (!error)
        error = collect_slices(sync, count);
    sync->slice += count;
    bool all = sync->slice == sync->slices;
    if (!error && all) {
        weir__store64(&header->acked_ms, sync->round_ms);
        if (!sync->counters && now_ms - sync->contact_ms >= PING_MS)
            error = ping(sync);
    }
    if (!weir__load64(&header->in_flight))
        sweep(sync, count);
    weir__hazard_release(&sync->with.engine->hazards, at);
    sync->busy_us += weir__monotonic_us() - began;
    if (error || all) {
        sync->behind = sync->busy_us > (int64_t)sync->with.interval_ms * 1000;
        sync->slices = next_slices(sync, error);
        sync->slice = 0;
        publish_state(sync, error);
    }
    weir__sync_beat(sync);
    return error;
}

int weir__sync_round(struct weir__sync *sync)
{
    sync->slices = 1;
    sync->slice = 0;
    return run(sync, 1);
}

unsigned weir__sync_slices(const struct weir__sync *sync)
{
    return sync->slices;
}

int weir__sync_step(struct weir__sync *sync, unsigned count)
{
    /* This process was stopped for long: the deltas that it finds now are not all as old. */
    if (late_by(sync))
        return weir__sync_round(sync);
    unsigned before = sync->slices, left = sync->slices - sync->slice;
    int error = run(sync, count < left ? count : left);
    /* the first entries of this round would wait until the end of the next */
    return !error && sync->slices < before ? run(sync, 1) : error;
}
