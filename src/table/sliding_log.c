/*
 * The sliding window log: a record with one 32-bit time a unit, in a ring.
 *
 *     head  mark 26 | use 2 | frozen 1 | aged 1 | tail 17 | pending 17    newest 47 | span 17
 *     body  times, in quanta of the limit, modulo 2^32
 *
 * The ring holds `span` units that end before position `tail`. The newest `pending` units are in the head only (all
 * have the time `newest`): one compare-and-swap of the head logs a request of any cost. The next request writes the
 * pending times into the ring first; concurrent writers write the same. A late writer expects an older time than the
 * one written since, so its swap fails; after a refund the expectation may match, and then the unit leaves late, never
 * early (write_time, span_time).
 *
 * A log that outgrows its record is FROZEN, copied into a larger record and linked anew; any process that finds it
 * frozen does the same. It is never unfrozen: a copy may be in progress.
 *
 * Units leave when they are older than the window; units in `span` are at most two windows old when they are read, so
 * 32 bits suffice. Once a process has dropped a unit, the log is AGED: a process whose clock is behind would still
 * count that unit. So from then on no unit is logged with a time before `newest`, which never decreases, not even when
 * the newest unit is refunded. A log from which no unit was dropped forgets refunded units completely.
 */
#include "algo/algo.h"
#include "table/slab.h"

#define FROZEN     (UINT64_C(1) << 35)
#define AGED       (UINT64_C(1) << 34)
#define FIELD_MASK ((UINT64_C(1) << 17) - 1)

struct log_head {
    bool frozen, aged;
    int64_t tail, pending, span;
    int64_t newest_us;
    uint64_t use; /* its position in a head */
};

/* One log as it was read. */
struct view {
    const weir_limit *limit;
    const uint32_t *time;
    int64_t capacity;
    struct log_head head;
    int64_t live;
};

static struct log_head unpack(weir__cell cell, int64_t now_us)
{
    return (struct log_head){.frozen = cell.lo & FROZEN,
                             .aged = cell.lo & AGED,
                             .tail = (int64_t)(cell.lo >> 17 & FIELD_MASK),
                             .pending = (int64_t)(cell.lo & FIELD_MASK),
                             .span = (int64_t)(cell.hi & FIELD_MASK),
                             .newest_us = weir__anchor_expand(cell.hi >> 17, now_us),
                             .use = cell.lo & WEIR__USE_MASK};
}

/* `mark`: the bits of the head that belong to the slab. */
static weir__cell pack(uint64_t mark, struct log_head h)
{
    return (weir__cell){mark | h.use | (h.frozen ? FROZEN : 0) | (h.aged ? AGED : 0) | (uint64_t)h.tail << 17 |
                            (uint64_t)h.pending,
                        ((uint64_t)h.newest_us & WEIR__TIME_MASK) << 17 | (uint64_t)h.span};
}

static int64_t place(const struct view *view, int64_t unit)
{
    int64_t at = (view->head.tail - view->head.span + unit) % view->capacity;
    return at < 0 ? at + view->capacity : at;
}

/*
 * The time at which unit `unit` of the span was logged. After a refund, a late writer may have left a time that is
 * later than the newest one (see write_time). Such a unit leaves late; treated as older than any, it would leave at
 * once.
 */
static int64_t span_time(const struct view *view, int64_t unit)
{
    const struct log_head *h = &view->head;
    if (unit >= h->span - h->pending)
        return h->newest_us;
    int64_t newest = h->newest_us / view->limit->quantum_us;
    int32_t age = (int32_t)((uint32_t)newest - weir__load32(&view->time[place(view, unit)]));
    return (newest - age) * view->limit->quantum_us;
}

/* The time of live unit `unit`, for the algorithm. */
static int64_t live_time(const void *context, int64_t unit)
{
    const struct view *view = context;
    return span_time(view, view->head.span - view->live + unit);
}

/* Number of units later than now - window; times ascend, so by binary search. */
static int64_t count_live(const struct view *view, int64_t now_us)
{
    int64_t edge = now_us - view->limit->window_us, low = 0, high = view->head.span;
    if (view->head.newest_us <= edge)
        return 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (span_time(view, middle) > edge)
            high = middle;
        else
            low = middle + 1;
    }
    return view->head.span - low;
}

static struct view look(const struct weir__op *op, const weir_limit *limit, const struct weir__key_record *key)
{
    struct view view = {.limit = limit, .capacity = 1};
    if (!key->found)
        return view;
    view.time = weir__record_body(op, key->record);
    view.capacity = (int64_t)(weir__record_body_bytes(key->record) / sizeof(uint32_t));
    view.head = unpack(key->head, op->mono_us);
    /* Damaged: counts as empty. */
    if (view.head.span > view.capacity || view.head.pending > view.head.span || view.head.span > WEIR__LOG_MAX ||
        view.head.tail >= view.capacity)
        view.head = (struct log_head){.newest_us = view.head.newest_us, .frozen = view.head.frozen, .aged = true};
    view.live = count_live(&view, op->mono_us);
    return view;
}

/* The earliest time at which a unit may be logged. */
static int64_t least_time(const struct view *view)
{
    return view->head.span || view->head.aged ? view->head.newest_us : 0;
}

/* The head after all expired units are dropped at now_us; pending units must be in the ring. */
static struct log_head drop_left(const struct view *view, int64_t now_us)
{
    struct log_head next = view->head;
    int64_t now = weir__log_round(view->limit, now_us);
    if (next.span > view->live) {
        next.aged = true;
        next.newest_us = now > next.newest_us ? now : next.newest_us;
    }
    next.span = view->live;
    next.pending = 0;
    return next;
}

/*
 * Writes the time of one pending unit. The old time there is usually earlier. It is later if that unit was refunded and
 * the new one was logged by a clock that is behind; then the expectation may match again after another refund. If the
 * head has changed, that may have happened: the unit gets its time again, or leaves slightly late.
 */
static bool write_time(const struct weir__key_record *key, const weir__cell *at, int64_t span_max, uint32_t *to,
                       uint32_t want)
{
    uint32_t known = weir__load32(to);
    for (int round = 0; known != want; round++) {
        if (round == WEIR__ROUNDS || !weir__cell_equal(weir__cell_read(at), key->head))
            return false;
        uint32_t was = known;
        if (!weir__cas32(to, &known, want))
            continue;
        if (was - want > span_max || weir__cell_equal(weir__cell_read(at), key->head))
            return true;
        known = want;
        weir__cas32(to, &known, was);
        return false;
    }
    return true;
}

/* Writes the pending times into the ring. False: the head has changed, retry. */
static bool flush(const struct weir__op *op, const struct weir__key_record *key, const struct view *view)
{
    const weir__cell *at = weir__record_head(op, key->record);
    uint32_t *time = weir__record_body(op, key->record);
    int64_t quantum = view->limit->quantum_us, span_max = view->limit->window_us / quantum;
    uint32_t want = (uint32_t)(view->head.newest_us / quantum);

    for (int64_t unit = view->head.span - view->head.pending; unit < view->head.span; unit++)
        if (!write_time(key, at, span_max, &time[place(view, unit)], want))
            return false;
    return true;
}

/* Time until the newest unit has left, which slot and record must last, also after a clock step. */
static int64_t lease_for(const struct weir__op *op, const struct view *view)
{
    return view->limit->window_us + (view->live ? weir__elapsed(view->head.newest_us, op->mono_us) : 0);
}

/*
 * Takes a record for `units`, fills it with the live units of `view` and links it. An existing record is frozen only
 * after the new one was taken. 0: retry.
 */
static int make(const struct weir__op *op, const struct weir__key_location *where, struct weir__key_record *key,
                const struct view *view, int64_t units)
{
    const weir_limit *limit = view->limit;
    struct weir__record record;
    int64_t lease = lease_for(op, view), room = units < limit->most ? units : limit->most;
    unsigned size_class = weir__class_for(sizeof(weir__cell) + sizeof(uint32_t) * (uint64_t)room);
    const struct weir__record *own = key->found ? &key->record : NULL;
    int error = weir__record_take(op, size_class, lease + lease / 4 + lease / 2, own, true, &record);
    if (error)
        return error;
    if (key->found && !view->head.frozen) {
        struct log_head frozen = view->head;
        frozen.frozen = true;
        if (!weir__cell_cas(weir__record_head(op, key->record), &key->head, pack(weir__head_mark(key->head), frozen))) {
            weir__record_release(op, record);
            return 0;
        }
    }

    uint32_t *time = weir__record_body(op, record);
    int64_t capacity = (int64_t)(weir__record_body_bytes(record) / sizeof(uint32_t));
    int64_t keep = view->live < capacity ? view->live : capacity;
    struct log_head head = drop_left(view, op->mono_us);
    head.frozen = false;
    head.tail = keep == capacity ? 0 : keep;
    head.span = keep;
    if (!weir__record_publish(op, where, &record, pack(0, head)))
        return 0; /* the lease ended meanwhile: retry */
    for (int64_t i = 0; i < keep; i++)
        weir__store32(&time[i], (uint32_t)(live_time(view, view->live - keep + i) / limit->quantum_us));
    /* Checks that the old record was ours during the copy: in a full slab it may have been evicted. */
    if (key->found && !weir__record_is_current(op, key->record)) {
        weir__record_release(op, record);
        return 0;
    }

    error = weir__key_record_link(op, where, key, record, lease);
    return error < 0 ? error : 0;
}

/* The head after the change; `denied`: a request that is logged although it was denied. */
static struct log_head advance(const struct view *view, int64_t now_us, struct weir__log_change change, bool denied)
{
    const weir_limit *limit = view->limit;
    int64_t least = least_time(view), units = change.logged;
    struct log_head next = drop_left(view, now_us);

    if (units) {
        next.pending = units < limit->most ? units : limit->most;
        next.span = view->live + units < limit->most ? view->live + units : limit->most; /* only the newest decides */
        next.tail = (next.tail + next.pending) % view->capacity;
        next.newest_us = weir__log_round(limit, now_us > least ? now_us : least);
        next.aged &= view->live > 0; /* when all units have left it is a new log */
    } else {
        next.span -= change.newest + change.oldest;
        next.tail = (next.tail - change.newest % view->capacity + view->capacity) % view->capacity;
        if (!next.aged && next.span)
            next.newest_us = live_time(view, view->live - 1 - change.newest);
    }
    denied |= next.use >> WEIR__USE_SHIFT == WEIR__USE_DENIED;
    next.use = weir__use_bits(next.span, limit->cap, denied);
    return next;
}

int weir__log_attempt(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    struct weir__key_record key;
    int error = weir__key_record_find(op, where, &key);
    if (error)
        return error;

    struct view view = look(op, limit, &key);
    struct weir__log log = {view.live, least_time(&view), live_time, &view};
    struct weir__log_change change = weir__log_take(limit, &log, op->mono_us, cost, mode, decision);
    bool back = change.newest || change.oldest;

    if (!(change.logged || back) || !op->stats) {
        return !key.found || weir__key_record_leave(op, &key, decision->verdict == WEIR_DENY);
    }
    if (!key.found)
        return make(op, where, &key, &view, change.logged); /* nothing to refund */

    /* Capacity needed: the live units and the new ones. */
    int64_t most = view.live + change.logged;
    int64_t after = most < limit->most ? most : limit->most;
    if (after > view.capacity || view.head.frozen)
        return make(op, where, &key, &view, after + after / 2);
    if (!weir__key_record_renew(op, &key, lease_for(op, &view)))
        return 0;
    if (!flush(op, &key, &view))
        return 0;
    struct log_head advanced = advance(&view, op->mono_us, change, decision->verdict == WEIR_DENY);
    weir__cell next = pack(weir__head_mark(key.head), advanced);
    if (weir__cell_cas(weir__record_head(op, key.record), &key.head, next))
        return 1;
    weir__count(&op->stats->retries, 1);
    return 0;
}
