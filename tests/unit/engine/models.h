/*
 * Naive models of the algorithms, written from their definitions: slow, plain and with 128 bits wherever a product
 * might not fit. None of them shares code or formulas with src/algo.
 *
 * A model only has the level of a key at a moment (model_level), when its queue is empty (model_wait) and the changes
 * (model_add). Waiting times are not computed but checked: a retry_after is right if the request fits then and did
 * not a microsecond before; see fits_after in models_driver.h.
 *
 * Time that goes backward is not part of the definitions. The models do what the library promises in src/algo:
 * - No time passes (algo.h, weir__elapsed): the level never falls because the clock went back. Only written state is
 *   kept, so a peek at a later moment has no effect.
 * - Buckets: back to the last full period (of window : limit in lowest terms) before the last write.
 * - Counters stay in the latest part in which something was counted.
 * - A log never logs a time before its newest entry; once it has dropped expired units, while others had not expired,
 *   not before the latest time at which it has dropped or logged anything.
 * - Fixed windows on the wall clock: see model_level_fixed.
 *
 * Refunds: only units taken at that moment that have not been refilled or expired are refunded: see model_add_bucket,
 * model_add_fixed, model_add_counter and model_add_log.
 */
#ifndef WEIR_TEST_MODELS_H
#define WEIR_TEST_MODELS_H

#include <weir/weir.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

__extension__ typedef __int128 wide;

#define SECOND_US INT64_C(1000000)
#define DAY_US    (86400 * SECOND_US)
#define UNITS_MAX INT64_C(0xffffffff)

struct logged {
    int64_t at_us;
    int64_t units;
};

struct part {
    int64_t number;
    int64_t units;
};

struct model {
    weir_params p;
    int64_t hard, cap, window_us, part_us, quantum_us, period_us;
    int buckets;

    /* Buckets: `used` units since the busy period began, all of them kept until it ends. */
    int64_t start_us, least_us; /* least_us: as early as time can go back to */
    wide used;

    /* Fixed window: the units counted in the window that begins at start_us. */
    int64_t counted, end_us;
    int64_t seen_start_us, seen_end_us; /* the calendar window that was computed last: the C library is slow */

    /* Sliding window counter: the units counted in each part, and the latest part. */
    struct part part_counts[64];
    int part_count;
    int64_t reached;

    /* Sliding window log, oldest first. */
    struct logged *log;
    int log_count, log_room;
    int64_t log_least_us; /* nothing is logged before it; -1: no unit has expired yet */
};

static inline int64_t model_ceil_div(wide a, wide b)
{
    return (int64_t)((a + b - 1) / b);
}

static void model_init(struct model *m, const weir_params *p, const weir_limit *limit)
{
    int64_t a, b;

    memset(m, 0, sizeof *m);
    m->p = *p;
    m->hard = p->burst ? p->burst : p->limit;
    m->cap = m->hard + (int64_t)((wide)m->hard * p->soft_percent / 100);
    m->window_us = p->window_ns / 1000;
    m->buckets = p->buckets ? p->buckets : 2;
    m->part_us = m->buckets == 2 ? m->window_us : model_ceil_div(m->window_us, m->buckets);
    m->quantum_us = limit->quantum_us;
    m->reached = -1;
    m->log_least_us = -1;
    for (a = m->window_us, b = p->limit; b;) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    m->period_us = a ? m->window_us / a : 0;
}

/* As if the key had never been used. */
static inline void model_clear(struct model *m)
{
    m->used = 0;
    m->counted = 0;
    m->part_count = 0;
    m->reached = -1;
    m->log_count = 0;
    m->log_least_us = -1;
}

static void model_free(struct model *m)
{
    free(m->log);
    m->log = NULL;
    m->log_room = 0;
}

static void model_log_push(struct model *m, int64_t at_us, int64_t units)
{
    if (m->log_count == m->log_room) {
        m->log_room = m->log_room ? 2 * m->log_room : 64;
        m->log = realloc(m->log, (size_t)m->log_room * sizeof *m->log);
        if (!m->log)
            abort();
    }
    m->log[m->log_count++] = (struct logged){at_us, units};
}

/* Drops the oldest so many entries. */
static void model_log_drop(struct model *m, int count)
{
    if (!count)
        return;
    if (count < 0 || count > m->log_count)
        abort();
    m->log_count -= count;
    memmove(m->log, m->log + count, (size_t)m->log_count * sizeof *m->log);
}

/* `to` must have been initialised or be all zero. */
static inline void model_copy(struct model *to, const struct model *from)
{
    struct logged *log = to->log;
    int room = to->log_room;

    *to = *from;
    to->log = log;
    to->log_room = room;
    to->log_count = 0;
    for (int i = 0; i < from->log_count; i++)
        model_log_push(to, from->log[i].at_us, from->log[i].units);
}

/* ---- Token and leaky bucket ---- */

static int64_t model_returned(const struct model *m, int64_t now)
{
    int64_t passed = (now > m->least_us ? now : m->least_us) - m->start_us;
    wide returned = m->p.refill == WEIR_REFILL_INTERVAL ? (wide)(passed / m->window_us) * m->p.limit
                                                        : (wide)passed * m->p.limit / m->window_us;
    return (int64_t)(returned > m->used ? m->used : returned);
}

static int64_t model_level_bucket(const struct model *m, int64_t now)
{
    return m->used ? (int64_t)(m->used - model_returned(m, now)) : 0;
}

static void model_add_bucket(struct model *m, int64_t now, int64_t units)
{
    int64_t level = model_level_bucket(m, now);
    int64_t step = m->p.refill == WEIR_REFILL_INTERVAL ? m->window_us : m->period_us;

    if (units < 0 && level && now < m->least_us) {
        /* Taken before the bucket was last written: refilled units are not refunded. */
        wide since = m->least_us - now;
        wide returned = m->p.refill == WEIR_REFILL_INTERVAL ? (wide)model_ceil_div(since, m->window_us) * m->p.limit
                                                            : since * m->p.limit / m->window_us;
        if (returned >= -units)
            return;
        units += (int64_t)returned;
    }
    if (level + units <= 0) {
        m->used = 0; /* full again: the busy period ends */
        return;
    }
    if (!level) {
        m->start_us = m->least_us = now;
        m->used = 0;
    }
    m->used += units;
    if (now > m->least_us)
        m->least_us = now - (now - m->start_us) % step;
}

/* A queue: unit i of the busy period leaves at its start + i * window / limit. The wait until the last of them has
 * left. */
static int64_t model_wait(const struct model *m, int64_t now)
{
    if (m->p.algorithm != WEIR_LEAKY_BUCKET || !model_level_bucket(m, now))
        return 0;
    return m->start_us + model_ceil_div(m->used * m->window_us, m->p.limit) - now;
}

/* ---- Fixed window ---- */

/* The calendar window by the C library, in local time if the limit has a zone, to which the test has set TZ. */
static void model_calendar(struct model *m, int64_t now, int64_t *start, int64_t *end)
{
    time_t at = (time_t)(now / SECOND_US);
    struct tm first;

    if (now < m->seen_start_us || now >= m->seen_end_us) {
        if (m->p.zone)
            localtime_r(&at, &first);
        else
            gmtime_r(&at, &first);
        first.tm_hour = first.tm_min = first.tm_sec = 0;
        if (m->p.calendar == WEIR_CALENDAR_WEEK)
            first.tm_mday -= (first.tm_wday + 6) % 7; /* Monday */
        if (m->p.calendar >= WEIR_CALENDAR_MONTH)
            first.tm_mday = 1;
        if (m->p.calendar == WEIR_CALENDAR_YEAR)
            first.tm_mon = 0;
        first.tm_isdst = -1;
        struct tm next = first;
        next.tm_mday += m->p.calendar == WEIR_CALENDAR_DAY ? 1 : m->p.calendar == WEIR_CALENDAR_WEEK ? 7 : 0;
        next.tm_mon += m->p.calendar == WEIR_CALENDAR_MONTH;
        next.tm_year += m->p.calendar == WEIR_CALENDAR_YEAR;
        m->seen_start_us = (int64_t)(m->p.zone ? mktime(&first) : timegm(&first)) * SECOND_US;
        m->seen_end_us = (int64_t)(m->p.zone ? mktime(&next) : timegm(&next)) * SECOND_US;
    }
    *start = m->seen_start_us;
    *end = m->seen_end_us;
}

/* The window that a request at `now` counts in, if there was none before it. */
static void model_window(struct model *m, int64_t now, int64_t *start, int64_t *end)
{
    if (m->p.align == WEIR_ALIGN_CALENDAR) {
        model_calendar(m, now, start, end);
        return;
    }
    *start = m->p.align == WEIR_ALIGN_CLOCK ? now / m->window_us * m->window_us : now;
    *end = *start + m->window_us;
}

/*
 * The window that was reached lasts until its end. When the clock goes back before its start, it stays if that is at
 * most one window (of the one that contains `now`) back: its units are not granted again. Further back it was reached
 * by mistake and is dropped. On the monotonic clock (first request) it always stays.
 */
static int64_t model_level_fixed(struct model *m, int64_t now)
{
    int64_t start, end;

    if (!m->counted || now >= m->end_us)
        return 0;
    if (now >= m->start_us || m->p.align == WEIR_ALIGN_FIRST_REQUEST)
        return m->counted;
    model_window(m, now, &start, &end);
    return m->start_us - now <= end - start ? m->counted : 0;
}

static void model_add_fixed(struct model *m, int64_t now, int64_t units)
{
    int64_t level = model_level_fixed(m, now);

    if (units < 0 && (!level || now < m->start_us))
        return; /* not taken in this window: nothing to refund */
    if (!level)
        model_window(m, now, &m->start_us, &m->end_us);
    m->counted = level + units > 0 ? level + units : 0;
}

/* ---- Sliding window counter ---- */

static int64_t model_part_units(const struct model *m, int64_t number)
{
    for (int i = 0; i < m->part_count; i++)
        if (m->part_counts[i].number == number)
            return m->part_counts[i].units;
    return 0;
}

static int64_t model_part(const struct model *m, int64_t now)
{
    int64_t number = now / m->part_us;
    return number > m->reached ? number : m->reached;
}

static int64_t model_level_counter(const struct model *m, int64_t now)
{
    int64_t number = model_part(m, now), level = 0;

    if (m->buckets > 2) {
        for (int i = 0; i < m->part_count; i++)
            if (m->part_counts[i].number > number - m->buckets && m->part_counts[i].number <= number)
                level += m->part_counts[i].units;
        return level;
    }
    int64_t covered = m->window_us - (now > number * m->window_us ? now - number * m->window_us : 0);
    wide weighed = (wide)model_part_units(m, number - 1) * covered;
    level = m->p.round == WEIR_ROUND_UP ? model_ceil_div(weighed, m->window_us) : (int64_t)(weighed / m->window_us);
    return model_part_units(m, number) + level;
}

/* Only the current part is refunded, and only units taken in it: those of earlier parts stay taken. */
static void model_add_counter(struct model *m, int64_t now, int64_t units)
{
    int64_t number = model_part(m, now);
    int kept = 0, i;

    if (units < 0 && (!model_part_units(m, number) || now / m->part_us != number))
        return; /* changes nothing */
    for (i = 0; i < m->part_count; i++)
        if (m->part_counts[i].number > number - m->buckets)
            m->part_counts[kept++] = m->part_counts[i];
    m->part_count = kept;
    for (i = 0; i < kept && m->part_counts[i].number != number; i++)
        ;
    if (i == kept)
        m->part_counts[m->part_count++] = (struct part){number, 0};
    m->reached = number;
    m->part_counts[i].units += units;
    if (m->part_counts[i].units < 0)
        m->part_counts[i].units = 0;
    if (m->buckets == 2 && m->cap <= 0x7fff && m->part_counts[i].units > 0xffff)
        m->part_counts[i].units = 0xffff; /* the maximum of one slot: a debt beyond that is cut off */
    /* In one slot (small limits), a counter without units in either window equals no entry: it has reached no window.
     */
    if (m->buckets == 2 && m->cap <= 0x7fff && !m->part_counts[i].units && !model_part_units(m, number - 1)) {
        m->part_count = 0;
        m->reached = -1;
    }
}

/* ---- Sliding window log ---- */

static int64_t model_level_log(const struct model *m, int64_t now)
{
    int64_t level = 0;

    for (int i = m->log_count - 1; i >= 0 && m->log[i].at_us > now - m->window_us; i--)
        level += m->log[i].units;
    return level;
}

/* Drops so many units: the newest if they are of exactly that time, or the oldest if of no later one. */
static int64_t model_log_forget(struct model *m, int64_t units, int64_t at_us, bool newest)
{
    while (units && m->log_count) {
        struct logged *one = &m->log[newest ? m->log_count - 1 : 0];
        if (newest ? one->at_us != at_us : one->at_us > at_us)
            break;
        int64_t back = units < one->units ? units : one->units;
        units -= back;
        one->units -= back;
        if (one->units)
            break;
        if (newest)
            m->log_count--;
        else
            model_log_drop(m, 1);
    }
    return units;
}

/*
 * Logged times are rounded up to the limit's resolution: units may leave late, never early. More units than `cap`
 * are never kept: the newest `cap` alone decide what fits.
 *
 * A refund forgets units of its own time while they are the newest; else the oldest, if they are of no later time: no
 * moment will see fewer units than if the right ones had been forgotten.
 */
static void model_add_log(struct model *m, int64_t now, int64_t units)
{
    int first = 0;
    int64_t level = 0, at = (now + m->quantum_us - 1) / m->quantum_us * m->quantum_us;

    while (first < m->log_count && m->log[first].at_us <= now - m->window_us)
        first++;
    if (units < 0 && (first == m->log_count || m->log[first].at_us > at))
        return; /* changes nothing */
    int64_t newest = m->log_count ? m->log[m->log_count - 1].at_us : 0;
    model_log_drop(m, first);
    if (first && !m->log_count) {
        m->log_least_us = -1; /* all have expired: it is a new log */
    } else if (first || m->log_least_us >= 0) {
        if (newest > m->log_least_us)
            m->log_least_us = newest;
        if (first && at > m->log_least_us)
            m->log_least_us = at;
    }

    if (units > 0) {
        bool empty = !m->log_count;
        int64_t stamp = at > newest ? at : newest;
        model_log_push(m, stamp > m->log_least_us ? stamp : m->log_least_us, units);
        if (empty)
            m->log_least_us = -1;
    }
    if (units < 0)
        model_log_forget(m, model_log_forget(m, -units, at, true), at, false);
    for (first = m->log_count; first > 0 && level < m->cap; first--) {
        struct logged *one = &m->log[first - 1];
        if (one->units > m->cap - level)
            one->units = m->cap - level;
        level += one->units;
    }
    model_log_drop(m, first);
}

/* ---- All of them ---- */

static int64_t model_level(struct model *m, int64_t now)
{
    switch (m->p.algorithm) {
    case WEIR_FIXED_WINDOW:
        return model_level_fixed(m, now);
    case WEIR_SLIDING_WINDOW_LOG:
        return model_level_log(m, now);
    case WEIR_SLIDING_WINDOW_COUNTER:
        return model_level_counter(m, now);
    case WEIR_CONCURRENCY: /* has a model of its own, in test_permit_calls.c */
    case WEIR_TOKEN_BUCKET:
    case WEIR_LEAKY_BUCKET:
        break;
    }
    return model_level_bucket(m, now);
}

static void model_add(struct model *m, int64_t now, int64_t units)
{
    if (!units)
        return;
    switch (m->p.algorithm) {
    case WEIR_FIXED_WINDOW:
        model_add_fixed(m, now, units);
        break;
    case WEIR_SLIDING_WINDOW_LOG:
        model_add_log(m, now, units);
        break;
    case WEIR_SLIDING_WINDOW_COUNTER:
        model_add_counter(m, now, units);
        break;
    case WEIR_CONCURRENCY: /* has a model of its own, in test_permit_calls.c */
    case WEIR_TOKEN_BUCKET:
    case WEIR_LEAKY_BUCKET:
        model_add_bucket(m, now, units);
        break;
    }
}

/* Whether a take of `cost` would pass. */
static bool model_fits(struct model *m, int64_t now, int64_t cost)
{
    if (cost < 0)
        return true;
    if (model_level(m, now) + cost > m->cap)
        return false;
    return !m->p.delay || !m->p.max_delay_ns || (wide)model_wait(m, now) * 1000 <= m->p.max_delay_ns;
}

/* The expected decision, without retry_after and reset_after. */
struct expected {
    enum weir_verdict verdict;
    uint32_t flags;
    int64_t remaining, delay_ns;
};

/* Decides and takes. A charge is taken whether it fits or not. */
static inline struct expected model_step(struct model *m, int64_t now, int64_t cost, bool charge)
{
    struct expected a = {WEIR_ALLOW, 0, 0, 0};
    bool taken = charge || model_fits(m, now, cost);

    if (taken && cost > 0 && model_level(m, now) + cost > m->hard)
        a.flags = WEIR_OVER_SOFT;
    if (!taken)
        a.verdict = cost > m->cap ? WEIR_NEVER_FITS : WEIR_DENY;
    if (taken && !charge && cost >= 0 && m->p.delay && model_wait(m, now)) {
        a.verdict = WEIR_DELAY;
        a.delay_ns = model_wait(m, now) * 1000;
    }
    if (taken || (m->p.count_rejected && cost > 0))
        model_add(m, now, cost);
    a.remaining = m->hard - model_level(m, now);
    return a;
}

#endif
