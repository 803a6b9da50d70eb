/* The exchange with the store, round by round. */
#include "sync/sync_internal.h"
#include "base/clock.h"
#include "engine/counter_by_hash.h"

#include <stdlib.h>
#include <time.h>

#define TIMEOUT_FACTOR_MAX 8  /* times that, with a batch that came too late before */
#define NOTES_MIN          64 /* counters of a batch: one run of the script */
#define LATE_ROUNDS        4  /* without an answer, and the store was away */
#define DOWN_AFTER         3  /* rounds in a row that failed, and the data plane is acked */
#define LOOK_MS            1000 /* without anything to tell, the store is asked for nothing, to know whether it is there */
#define SLICES_MAX         16  /* of a round */
#define MANY               128 /* counters of a slice are more than the store can do in about a millisecond */
#define FEW                16  /* are not worth a slice */

/* ---- Making one ---- */

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
            sync->tracked[i].repolls = WEIR__SYNC_REPOLLS; /* others may do the same, one after the other */
        }
}

struct weir__sync *weir__sync_new(const struct weir__sync_options *options)
{
    if (!options->engine->deltas)
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
    sync->segment = options->engine->segment;
    sync->ledger = &options->engine->deltas->ledger;
    sync->tracked = calloc(sync->ledger->entries, sizeof *sync->tracked);
    sync->scheduled = calloc(sync->ledger->entries / 64, sizeof *sync->scheduled);
    sync->ops = calloc(WEIR__LEDGER_BATCH_MAX, sizeof *sync->ops);
    sync->targets = calloc(WEIR__LEDGER_BATCH_MAX, sizeof *sync->targets);
    sync->groups = calloc(WEIR__LEDGER_BATCH_MAX, sizeof *sync->groups);
    if (!sync->tracked || !sync->scheduled || !sync->ops || !sync->targets || !sync->groups ||
        !weir__sync_memory(sync)) {
        weir__sync_free(sync);
        return NULL;
    }
    for (uint32_t i = 0; i < WEIR__LEDGER_BATCH_MAX; i++)
        sync->groups[i] = (struct weir__group){.first = i, .count = 1};
    weir__sync_schedule_all(sync); /* an agent before us may have been killed in the middle */
    return sync;
}

/* ---- What is tracked ---- */

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

/* Those of a word whose time has come. */
static uint64_t due(const struct weir__sync *sync, uint64_t word)
{
    uint64_t bits = 0;
    for (uint64_t left = sync->scheduled[word]; left; left &= left - 1) {
        uint64_t bit = left & -left, index = word * 64 + (uint64_t)__builtin_ctzll(left);
        bits |= (int32_t)(sync->round - sync->tracked[index].due) >= 0 ? bit : 0;
    }
    return bits;
}

/* ---- What the data plane and the figures are acked ---- */

void weir__sync_beat(struct weir__sync *sync)
{
    weir__store64(&sync->ledger->header->beat_ms, weir__coarse_ms());
}

void weir__sync_bytes(struct weir__sync *sync, uint64_t out, uint64_t in)
{
    weir__store64(&sync->ledger->header->bytes_out, out);
    weir__store64(&sync->ledger->header->bytes_in, in);
}

static void publish_state(struct weir__sync *sync, int error)
{
    struct weir__ledger_header *header = sync->ledger->header;
    uint64_t state = error ? WEIR__LEDGER_DOWN : WEIR__LEDGER_UP;
    sync->failed = error ? sync->failed + 1 : 0;
    if (error && error != WEIR_ESTOREAWAY) /* that says only that it failed before */
        weir__store64(&header->last_error, (uint64_t)-error);
    if ((error && sync->failed < DOWN_AFTER) || weir__load64(&header->state) == state)
        return;
    weir__store64(&header->state_since_ms, weir__coarse_ms());
    weir__store64(&header->state, state);
}

/* ---- Time ---- */

/* Since when there is something that was not acked. A ledger that was kept across a reboot has times of another clock.
 */
static int64_t late_by(const struct weir__sync *sync)
{
    uint64_t acked = weir__load64(&sync->ledger->header->told_ms), since = acked ? acked : sync->begun_ms;
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
 * A batch that came too late must be repeated as it was: then it gets more time, or it would come too late for ever.
 * The next ones are smaller, until they are fast repolls.
 */
static void learn(struct weir__sync *sync, int error, int64_t took_us)
{
    int64_t usual_us = sync->with.timeout_us;
    if (error == WEIR_ESTORESLOW) {
        sync->timeout_us = sync->timeout_us < TIMEOUT_FACTOR_MAX * usual_us ? 2 * sync->timeout_us : sync->timeout_us;
        sync->batch_max = sync->batch_max > NOTES_MIN ? sync->batch_max / 2 : sync->batch_max;
    } else if (!error) {
        sync->timeout_us = usual_us;
        sync->batch_max =
            took_us < usual_us / 4 && sync->batch_max < WEIR__LEDGER_BATCH_MAX ? 2 * sync->batch_max : sync->batch_max;
    }
}

/* Does what the answers say. The lines of those that come next are asked for meanwhile. */
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
 * Asks for the `count` counters that are noted, from ops that are filled, and does what the answers say. 0, or an
 * error, and the batch is still noted.
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
    sync->request.deadline_us = weir__monotonic_us() + sync->timeout_us;
    int error = sync->with.send_request(sync->with.send_context, &sync->request);
    int64_t took = (sync->with.now(sync->segment).mono_ns - began_ns) / 1000;
    learn(sync, error, took);
    weir__sync_beat(sync);
    weir__count(&header->exchanges, 1);
    if (error) {
        weir__count(&header->failures, 1);
        /* Whoever takes its place says which batches it has, by the first command; what it lacks is acked repolls, by
         * each host its own. To send_request it back, too, would be to count it twice. */
        for (uint64_t i = sync->with.cluster ? 0 : WEIR__BATCH_GROUPS; i < count; i++)
            weir__sync_reseed(sync, ledger->note[i].index);
        return error;
    }
    weir__sync_detect_reset(sync, count);
    sync->counters += count;
    sync->contact_ms = weir__coarse_ms();
    weir__count(&header->asks, count);
    apply_all(sync, count, took);
    weir__store64(&header->noted, 0);
    return 0;
}

/* The batch that is noted since an earlier round, or by an agent before us. */
static int exchange_again(struct weir__sync *sync, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        weir__sync_fill_again(sync, i);
    return exchange(sync, count);
}

/* A new batch of `count` notes, which are written already, as are their ops. */
static int send(struct weir__sync *sync, uint64_t count)
{
    struct weir__ledger_header *header = sync->ledger->header;
    weir__store64(&header->batch, header->batch + 1);
    weir__store64(&header->noted, count);
    return exchange(sync, count);
}

/*
 * What is to be acked, after the counter was looked at: who comes between is acked of now, and the store does not learn
 * of it twice, from what is left and from what is acked next. In fixed windows, what was let pass before the present
 * one has nothing left to limit. It cannot be more than the counter has, with which it was read: what is beyond that is
 * of a window that is over. Nor is it read repolls after the counter: that might be of the next window, and lost with
 * this one's end; so who comes between counts twice there, if the store does not know the counter yet.
 */
static int64_t delta_of(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                        const weir_limit *limit, const weir_decision *here)
{
    int64_t used = here->limit - here->remaining;
    if (limit->algorithm != WEIR_FIXED_WINDOW) {
        struct weir__ledger_cell held = weir__ledger_read_cell(sync->ledger, index);
        return held.identity == entry->identity ? held.amount : 0;
    }
    if (entry->amount <= used)
        return entry->amount;
    weir__ledger_discard(sync->ledger, index, entry->identity, entry->amount - used);
    weir__count(&sync->ledger->header->dropped, (uint64_t)(entry->amount - used));
    return used;
}

/* Writes note and op `place` for an entry. False: there is nothing to op for. */
static bool note(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                 const struct weir__sync_counter *counter, uint64_t place)
{
    struct weir__quota room;
    weir_decision here;
    const weir_limit *limit = counter->rule ? weir__sync_limit(sync, counter, &room) : NULL;
    sync->tracked[index].idle = false;
    if (!limit || weir__sync_peek(sync, counter, limit, &here) != 0) {
        weir__sync_unschedule(sync, index); /* the sweep tries repolls */
        return false;
    }
    sync->tracked[index].orphan = 0;
    sync->ledger->note[place] =
        (struct weir__ledger_in_flight){.identity = entry->identity,
                                        .amount = delta_of(sync, index, entry, limit, &here),
                                        .window_end_us = weir__sync_window_end(sync, limit, &here),
                                        .index = index};
    sync->targets[place] = *counter;
    weir__sync_fill(sync, place, &(struct weir__sync_observed){&entry->text, limit, &here, 0});
    return weir__ledger_begin_batch(sync->ledger, index, entry->identity, sync->ledger->header->batch + 1);
}

/* Entries that wait to be noted, whose lines are on their way. */
struct gathered {
    uint64_t index[WEIR__SYNC_PREFETCH];
    unsigned count;
    uint64_t noted; /* before them */
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
        g->noted += note(sync, g->index[i], &entry[i], &counter[i], g->noted);
    g->count = 0;
}

/* Notes what is gathered, and sends it if there is no room for as many repolls, or `now`. */
static int note_and_send(struct weir__sync *sync, struct gathered *g, bool now)
{
    note_gathered(sync, g);
    uint64_t count = g->noted;
    if (!count || (!now && count + WEIR__SYNC_PREFETCH <= sync->batch_max))
        return 0;
    g->noted = 0;
    return send(sync, count);
}

/* All of these words that was used or is due. What does not get its turn keeps its dirty bit, and comes first then. */
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
 * The next `count` slices. After a failure they begin with what it left out: if every time began with the same, a store
 * that fails now and then would never hear of the last.
 */
static int collect_slices(struct weir__sync *sync, unsigned count)
{
    uint64_t words = sync->ledger->entries / 64, from = sync->from;
    uint64_t first = words * sync->slice / sync->slices, end = words * (sync->slice + count) / sync->slices;
    sync->from = 0;
    if (from <= first || from >= end)
        return collect(sync, first, end);
    int error = collect(sync, from, end);
    return error ? error : collect(sync, first, from);
}

/* Asks for nothing, to see whether the store is there. */
static int look(struct weir__sync *sync)
{
    weir__sync_fill_nothing(sync, &sync->ops[0]);
    sync->request =
        (struct weir__store_request){.ops = sync->ops, .op_count = 1, .groups = sync->groups, .group_count = 1};
    int error = sync->with.send_request(sync->with.send_context, &sync->request);
    if (!error)
        sync->contact_ms = weir__coarse_ms();
    return error;
}

/* ---- All of it ---- */

/* The batch that an earlier step, or an agent before us, has left. */
static int finish_in_flight(struct weir__sync *sync)
{
    struct weir__ledger_header *header = sync->ledger->header;
    uint64_t noted = weir__load64(&header->noted);
    if (noted <= WEIR__LEDGER_BATCH_MAX)
        return noted ? exchange_again(sync, noted) : 0;
    weir__store64(&header->noted, 0); /* whoever noted more than there is room for was not us */
    return 0;
}

/*
 * How many slices the next round has. Twice as many only if they are done in time even if each takes as long as one
 * does now: a store that is far away is not asked the more often for it. Each is halved, or all become one.
 */
static unsigned next_slices(const struct weir__sync *sync, int error)
{
    if (error || sync->behind || sync->counters < (uint64_t)FEW * sync->slices)
        return 1;
    bool many = sync->counters > (uint64_t)MANY * sync->slices && sync->slices < SLICES_MAX;
    bool fast = sync->busy_us * 2 <= (int64_t)sync->with.interval_ms * 1000 * 3 / 4;
    return many && fast ? 2 * sync->slices : sync->slices;
}

static void begin_round(struct weir__sync *sync, uint64_t now_ms)
{
    sync->round++;
    sync->round_ms = now_ms;
    sync->counters = 0;
    sync->busy_us = 0;
}

static void end_round(struct weir__sync *sync, int error)
{
    sync->behind = sync->busy_us > (int64_t)sync->with.interval_ms * 1000;
    sync->slices = next_slices(sync, error);
    sync->slice = 0;
    publish_state(sync, error);
}

/* The next `count` slices of the round. An error ends it: what was left out keeps its marks for the next. */
static int run(struct weir__sync *sync, unsigned count)
{
    int at;
    struct weir__ledger_header *header = sync->ledger->header;
    uint64_t now_ms = weir__coarse_ms();
    int64_t began = weir__monotonic_us();
    weir__sync_beat(sync);
    if (!weir__sync_acquire_rules(sync, &at))
        return WEIR_ENOMEM;
    if (!sync->slice)
        begin_round(sync, now_ms);
    int error = finish_in_flight(sync);
    if (!error)
        error = collect_slices(sync, count);
    sync->slice += count;
    bool all = sync->slice == sync->slices;
    if (!error && all) {
        weir__store64(&header->told_ms, sync->round_ms);
        if (!sync->counters && now_ms - sync->contact_ms >= LOOK_MS)
            error = look(sync);
    }
    if (!weir__load64(&header->noted))
        weir__sync_sweep(sync, count);
    weir__sync_release_rules(sync, at);
    sync->busy_us += weir__monotonic_us() - began;
    if (error || all)
        end_round(sync, error);
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
    /* This process was stopped for long: what comes after it is not to be taken for as old. */
    if (late_by(sync))
        return weir__sync_round(sync);
    unsigned before = sync->slices, left = sync->slices - sync->slice;
    int error = run(sync, count < left ? count : left);
    /* What was acked first in this round would wait until the end of the next. */
    return !error && sync->slices < before ? run(sync, 1) : error;
}
