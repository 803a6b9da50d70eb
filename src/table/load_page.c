/* The load page: see load_page.h. */
#include "table/load_page.h"

#define BITS     10 /* per packed number: 0 to 1000, or NONE */
#define NONE     ((UINT64_C(1) << BITS) - 1)
#define OWNED_NS (5 * WEIR__LOAD_STALE_NS) /* a shard without heartbeat for this time is free */
#define SHED_POS 2                         /* position of the shares in the word, after level and throttle */

const struct weir__row_format weir__load_format = {.magic = UINT64_C(0x0a44414f4c5245f7),
                                                   .layout = 1,
                                                   .rows_min = WEIR__LOAD_SHARDS,
                                                   .header_bytes = offsetof(struct weir__load_page, shard),
                                                   .row_bytes = sizeof(struct weir__load_shard)};

/* ---- The level ---- */

static uint64_t packed(uint32_t value, unsigned place)
{
    uint64_t bits = value == WEIR__SIGNAL_NONE ? NONE : value > WEIR__LOAD_FULL ? WEIR__LOAD_FULL : value;
    return bits << place * BITS;
}

/* Clamps: the file may be damaged. */
static uint32_t unpacked(uint64_t word, unsigned place)
{
    uint64_t bits = word >> place * BITS & NONE;
    return bits > WEIR__LOAD_FULL ? WEIR__LOAD_FULL : (uint32_t)bits;
}

/* True if the two times are at most `for_ns` apart. Either may be the later one: processes read the clock before they
 * use it. */
static bool is_recent(uint64_t then, int64_t mono_ns, int64_t for_ns)
{
    uint64_t apart = (uint64_t)mono_ns - then;
    return then && (apart <= (uint64_t)for_ns || -apart <= (uint64_t)for_ns);
}

struct weir__load_view weir__load_view_neutral(void)
{
    struct weir__load_view view = {.throttle = WEIR__LOAD_FULL};
    for (int i = 0; i < WEIR__SIGNALS; i++)
        view.signal[i] = WEIR__SIGNAL_NONE;
    return view;
}

void weir__load_page_read(const struct weir__load_page *load, int64_t mono_ns, struct weir__load_view *view)
{
    *view = weir__load_view_neutral();
    /* Acquire, pairs with the writer's last store: a fresh time must not come with stale values. */
    if (!is_recent(weir__load64(&load->written), mono_ns, WEIR__LOAD_STALE_NS))
        return;
    uint64_t state = weir__load64(&load->state), signals = weir__load64(&load->signals);
    view->known = true;
    view->level = unpacked(state, 0);
    view->throttle = unpacked(state, 1);
    view->elastic_level = unpacked(weir__load64(&load->elastic_level), 0);
    if (view->elastic_level < view->level) /* of another write, or of an older agent */
        view->elastic_level = view->level;
    for (unsigned i = 1; i < WEIR__LOAD_CLASSES; i++) /* critical requests are never shed, whatever is in the file */
        view->shed[i] = unpacked(state, SHED_POS + i);
    for (unsigned i = 0; i < WEIR__SIGNALS; i++)
        if ((signals >> i * BITS & NONE) != NONE)
            view->signal[i] = unpacked(signals, i);
}

void weir__load_page_write(struct weir__load_page *load, int64_t mono_ns, const struct weir__load_view *view)
{
    uint64_t state = packed(view->level, 0) | packed(view->throttle, 1), signals = 0;
    for (unsigned i = 0; i < WEIR__LOAD_CLASSES; i++)
        state |= packed(view->shed[i], SHED_POS + i);
    for (unsigned i = 0; i < WEIR__SIGNALS; i++)
        signals |= packed(view->signal[i], i);
    weir__store64(&load->elastic_level, packed(view->elastic_level, 0));
    weir__store64(&load->state, state);
    weir__store64(&load->signals, signals);
    weir__store64(&load->written, mono_ns ? (uint64_t)mono_ns : 1);
}

uint64_t weir__load_page_baseline(const struct weir__load_page *load, int64_t mono_ns)
{
    return is_recent(weir__load64(&load->written), mono_ns, WEIR__LOAD_BASELINE_NS) ? weir__load64(&load->baseline_us)
                                                                                    : 0;
}

void weir__load_page_set_baseline(struct weir__load_page *load, uint64_t baseline_us)
{
    weir__store64(&load->baseline_us, baseline_us);
}

/* ---- The workers ---- */

unsigned weir__load_page_join(struct weir__load_page *load, uint64_t owner, int64_t mono_ns)
{
    for (unsigned i = 0; i < WEIR__LOAD_SHARDS; i++) {
        struct weir__load_shard *shard = &load->shard[i];
        uint64_t previous = weir__load64(&shard->owner);
        if (previous && is_recent(weir__load64(&shard->beat), mono_ns, OWNED_NS))
            continue;
        if (!weir__cas64(&shard->owner, &previous, owner))
            continue; /* another worker has acquired it */
        weir__store64(&shard->in_flight, 0);
        weir__store64(&shard->beat, (uint64_t)mono_ns);
        return i;
    }
    return WEIR__LOAD_NO_SHARD;
}

bool weir__load_page_heartbeat(struct weir__load_page *load, unsigned shard, uint64_t owner, int64_t mono_ns,
                               uint64_t in_flight)
{
    if (shard >= WEIR__LOAD_SHARDS || weir__load64(&load->shard[shard].owner) != owner)
        return false;
    weir__store64(&load->shard[shard].in_flight, in_flight);
    weir__store64(&load->shard[shard].beat, (uint64_t)mono_ns);
    return true;
}

void weir__load_page_leave(struct weir__load_page *load, unsigned shard, uint64_t owner)
{
    if (shard < WEIR__LOAD_SHARDS) /* fails if another worker has acquired it; the next owner resets it */
        weir__cas64(&load->shard[shard].owner, &owner, 0);
}

void weir__load_page_upstream(struct weir__load_page *load, unsigned shard, int64_t took_us, bool error)
{
    struct weir__load_shard *to = &load->shard[shard % WEIR__LOAD_SHARDS];
    weir__count(error ? &to->failed_us : &to->took_us, took_us > 0 ? (uint64_t)took_us : 0);
    if (error)
        weir__count(&to->errors, 1);
    weir__count(&to->done, 1);
}

void weir__load_page_in_flight(struct weir__load_page *load, unsigned shard, int more)
{
    if (shard < WEIR__LOAD_SHARDS)
        weir__count(&load->shard[shard].in_flight, (uint64_t)more);
}

void weir__load_page_sum(const struct weir__load_page *load, int64_t mono_ns, struct weir__upstream_sums *sums)
{
    *sums = (struct weir__upstream_sums){0};
    for (unsigned i = 0; i < WEIR__LOAD_SHARDS; i++) {
        const struct weir__load_shard *shard = &load->shard[i];
        sums->done += weir__load64(&shard->done);
        sums->took_us += weir__load64(&shard->took_us);
        sums->errors += weir__load64(&shard->errors);
        sums->failed_us += weir__load64(&shard->failed_us);
        if (!weir__load64(&shard->owner) || !is_recent(weir__load64(&shard->beat), mono_ns, WEIR__LOAD_STALE_NS))
            continue;
        int64_t in_flight = (int64_t)weir__load64(&shard->in_flight);
        sums->in_flight += in_flight > 0 ? (uint64_t)in_flight : 0; /* may be negative until the next heartbeat */
        sums->workers++;
    }
}
