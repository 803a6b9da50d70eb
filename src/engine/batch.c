/*
 * Batches. What a decision waits for is memory, and a wrong guess of the processor. So requests go in groups, and a
 * group in steps, each a short loop over all of it without a branch that depends on a key:
 *
 *     set_out      hashes, and asks for the home lines
 *     look_home    looks there, and asks for the other lines of those that are not at home
 *     look_other   looks there
 *     decide       reads, decides and swaps, one request after the other: requests of one key stay in their order
 *
 * set_out of the next group comes before look_other of the present one: whatever was asked for has had the time of two
 * steps to come. Of a key that is a pair of slots both are looked for (look_pairs, look_siblings). One that has a
 * record goes the long way, and what that will touch is asked for (ask_records) before the first of a group is decided.
 * Where a key was seen is only a hint; deciding reads the slots by itself, and all that is not the usual case
 * (table/usual.h, table/pair.h) goes the long way, which looks by itself, too.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/batch.h"
#include "table/prefetch.h"
#include "table/hash.h"
#include "table/slot_pair.h"
#include "table/fast_path.h"

enum {
    GROUP = 32,    /* requests in flight at once; more only push each other out of the cache */
    STRETCH = 4096 /* after so many it is looked again whether there are keys that are blocked */
};

struct flight {
    uint64_t wanted; /* its tag; see weir__tag_bits_of */
    struct weir__bucket *primary;
    weir__cell *slot; /* in which it was seen, or a place like any other */
};

struct group {
    weir_request *request;
    size_t count, away;
    bool usual;   /* no request of it is faulty, and each may have the usual case */
    bool records; /* one of it may have a record in the slab */
    size_t apart; /* slots of pairs that are not at home */
    struct flight flight[GROUP];
    struct away {
        struct flight *flight;
        struct weir__bucket *bucket;
    } alternate[GROUP];         /* of which `away` are not at home */
    weir__cell *pair[GROUP][2]; /* of those that are pairs, in which they were seen, or places like any other */
    struct sibling {
        uint16_t flight, parity;
        struct weir__bucket *bucket;
    } sibling[2 * GROUP]; /* of which `apart` are not at home */
};

/* One function a step, as written: merged into one, they run out of registers. */
#define STEP static __attribute__((noinline))

/* The next group, of the requests that are left. */
STEP void set_out(struct weir__batch *b, struct group *g)
{
    const struct weir__table *table = b->op.table;
    const uint8_t *secret = table->header->secret;
    struct weir__bucket *line = table->bucket;
    const uint64_t lines = table->buckets;
    /* Limit and cost of the request before, which need not be looked at again. Not NULL at first: that may be theirs.
     */
    static const weir_limit nobodys;
    const weir_limit *known = &nobodys;
    int64_t known_cost = 0;
    struct flight *f = g->flight;
    bool usual = b->usual;

    g->request = b->request;
    g->count = b->left < GROUP ? b->left : GROUP;
    b->request += g->count;
    b->left -= g->count;
    for (weir_request *r = g->request, *end = b->request; r < end; r++, f++) {
        const weir_limit *limit = r->limit;
        r->error = 0;
        if (limit != known || r->cost != known_cost || !r->key || r->key_len - 1 >= WEIR__KEY_MAX) {
            r->error = weir__request_check(limit, r->key, r->key_len, r->cost, b->now);
            usual &= !r->error && weir__may_take_fast(limit, r->cost);
            if (r->error) {
                *f = (struct flight){0, line, line->slot}; /* a place like any other: the next steps need not ask */
                continue;
            }
            known = limit;
            known_cost = r->cost;
        }
        uint64_t hash = weir__hash(r->key, r->key_len, secret) ^ limit->spread;
        f->wanted = weir__tag_bits_of(hash);
        if (__builtin_expect(weir__with_tag(hash) != hash, 0))
            f->wanted = weir__tag_bits_of(weir__with_tag(hash));
        f->primary = &line[weir__scale(hash, lines)];
        weir__prefetch(f->primary);
        weir__fast_decision_init(limit, &r->decision); /* if it is to be kept, this is half of the answer */
    }
    g->usual = usual;
}

/* True if it was in vain. */
static inline bool look(struct flight *f, struct weir__bucket *line)
{
    uint64_t found = weir__bucket_match(line->slot, weir__tag_high(weir__cell_tag(f->wanted)));
    f->slot = weir__bucket_first(line->slot, found);
    return !found;
}

STEP void look_home(const struct weir__batch *b, struct group *g)
{
    const struct weir__table *table = b->op.table;
    size_t count = 0;
    for (struct flight *f = g->flight, *end = f + g->count; f < end; f++) {
        g->alternate[count].flight = f;
        count += look(f, f->primary); /* NOLINT(clang-analyzer-core.CallAndMessage): set_out has filled as many */
    }
    g->away = count;
    for (struct away *a = g->alternate, *end = a + count; a < end; a++) {
        const struct flight *f = a->flight;
        uint64_t home = (uint64_t)(f->primary - table->bucket);
        a->bucket = &table->bucket[weir__alternate_bucket(weir__cell_tag(f->wanted), home, table->buckets)];
        weir__prefetch(a->bucket);
    }
}

STEP void look_other(struct group *g)
{
    for (struct away *a = g->alternate, *end = a + g->away; a < end; a++)
        (void)look(a->flight, a->bucket);
}

/* The present window of the limit asked for last: one division for all that have the same. */
struct windows {
    const weir_limit *limit;
    struct weir__window present;
};

static inline struct weir__window present_window(struct windows *w, const weir_limit *limit, int64_t mono_us)
{
    if (limit != w->limit)
        *w = (struct windows){limit, weir__window_of(limit, mono_us)};
    return w->present;
}

/*
 * Looks for both slots of pairs, and asks for the other line of a slot that is not at home; and of one that will have
 * to be taken over for the present window, as for that both its lines are looked through. Here, not in set_out, it is
 * seen whether there are records, too: that has no register to spare.
 */
STEP void look_pairs(const struct weir__batch *b, struct group *g)
{
    const struct weir__table *table = b->op.table;
    struct windows windows = {0};
    struct weir__bucket *ask[2 * GROUP];
    size_t apart = 0, asked = 0;
    g->records = false;
    for (size_t i = 0; i < g->count; i++) {
        const weir_request *r = &g->request[i];
        const struct flight *f = &g->flight[i];
        enum weir__beyond beyond = r->error ? WEIR__NOTHING : weir__beyond(r->limit);
        g->records |= beyond == WEIR__RECORD;
        if (beyond != WEIR__SIBLING)
            continue;
        const struct weir__window window = present_window(&windows, r->limit, b->op.mono_us);
        const uint64_t home = (uint64_t)(f->primary - table->bucket), tag = weir__cell_tag(f->wanted) & ~UINT64_C(1);
        const unsigned there = weir__pair_at(f->primary, tag, g->pair[i]);
        const weir__cell present = weir__cell_peek(g->pair[i][window.parity]);
        const bool over = weir__anchor_expand(weir__cell_unpack(present).anchor, b->op.mono_us) < window.start_us;
        const unsigned stays = there & ~((unsigned)over << window.parity);
        for (unsigned parity = 0; parity < 2; parity++) {
            g->sibling[apart] =
                (struct sibling){(uint16_t)i, (uint16_t)parity,
                                 &table->bucket[weir__alternate_bucket(tag | parity, home, table->buckets)]};
            ask[asked] = g->sibling[apart].bucket;
            asked += !(stays >> parity & 1);
            apart += !(there >> parity & 1);
        }
    }
    /* All together: between them there is no time for the processor to look up more than a few pages at once. */
    for (size_t i = 0; i < asked; i++)
        weir__prefetch(ask[i]);
    g->apart = apart;
}

STEP void look_siblings(struct group *g)
{
    for (size_t i = 0; i < g->apart; i++) {
        const struct sibling *s = &g->sibling[i];
        weir__cell *slot[2];
        (void)weir__pair_at(s->bucket, weir__cell_tag(g->flight[s->flight].wanted), slot);
        g->pair[s->flight][s->parity] = slot[s->parity];
    }
}

STEP void ask_records(const struct weir__batch *b, const struct group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        const weir_request *r = &g->request[i];
        const struct flight *f = &g->flight[i];
        if (!r->error && weir__beyond(r->limit) == WEIR__RECORD)
            weir__record_ahead(b->op.table, f->slot, weir__cell_tag(f->wanted));
    }
}

static void add_up(struct weir__batch *b, const weir_request *r)
{
    b->sum.verdict[r->decision.verdict]++;
    b->sum.soft += r->decision.flags & WEIR_OVER_SOFT;
}

/* One request the long way, unless it was refused already. */
STEP void decide_long(struct weir__batch *b, weir_request *r, const struct flight *f)
{
    struct weir__key_location where = {.tag = weir__cell_tag(f->wanted),
                                       .primary = (uint64_t)(f->primary - b->op.table->bucket)};
    weir_decision made;
    if (!r->error)
        r->error = weir__long_way(&b->op, r->limit, &where, r->cost, &made);
    if (r->error) {
        b->sum.errors++;
        b->failed++;
        return;
    }
    r->decision = made;
    add_up(b, r);
}

STEP void decide_usual(struct weir__batch *b, const struct group *g)
{
    const int64_t mono_us = b->op.mono_us;
    const struct flight *f = g->flight;
    uint64_t longer = 0;
    for (weir_request *r = g->request, *end = r + g->count; r < end; r++, f++) {
        if (__builtin_expect(!weir__fast_swap(mono_us, r->limit, f->slot, f->wanted, r->cost, &r->decision), 0)) {
            decide_long(b, r, f);
            longer++;
        }
    }
    b->sum.verdict[WEIR_ALLOW] += g->count - longer;
}

void weir__batch_decide(struct weir__batch *b, weir_request *r, weir__cell *slot, uint64_t wanted,
                        struct weir__bucket *home)
{
    const struct flight f = {wanted, home, slot};
    r->error = 0;
    if (weir__fast_take(b->op.mono_us, r->limit, slot, weir__cell_tag(wanted), r->cost, &r->decision))
        b->sum.verdict[WEIR_ALLOW]++;
    else
        decide_long(b, r, &f);
}

STEP void decide_mixed(struct weir__batch *b, const struct group *g)
{
    struct windows windows = {0};
    for (size_t i = 0; i < g->count; i++) {
        weir_request *r = &g->request[i];
        const struct flight *f = &g->flight[i];
        const int64_t mono_us = b->op.mono_us;
        bool shortly = b->usual && !r->error && r->cost > 0;
        if (shortly && r->limit->usual && weir__fast_swap(mono_us, r->limit, f->slot, f->wanted, r->cost, &r->decision))
            b->sum.verdict[WEIR_ALLOW]++;
        else if (shortly && weir__beyond(r->limit) == WEIR__SIBLING &&
                 weir__pair_swap(mono_us, r->limit, present_window(&windows, r->limit, mono_us), g->pair[i],
                                 weir__cell_tag(f->wanted), r->cost, &r->decision))
            add_up(b, r);
        else
            decide_long(b, r, f);
    }
}

/* Adds to the shared counters what the batch came to. */
static void add_counts(const struct weir__batch *b)
{
    struct weir__stats_shard *to = b->op.stats;
    for (int i = 0; i < 5; i++)
        if (b->sum.verdict[i])
            weir__count(&to->verdict[i], b->sum.verdict[i]);
    if (b->sum.soft)
        weir__count(&to->soft, b->sum.soft);
    if (b->sum.errors)
        weir__count(&to->errors, b->sum.errors);
}

static int refuse_all(struct weir__batch *b, weir_request *requests, size_t count, weir_time now)
{
    for (size_t i = 0; i < count; i++)
        requests[i].error =
            weir__request_fault(requests[i].limit, requests[i].key, requests[i].key_len, requests[i].cost, now);
    b->sum.errors = count;
    add_counts(b);
    return (int)count;
}

/* Those that are left, group by group. */
static void take_groups(struct weir__batch *b)
{
    struct group group[2], *present = &group[0], *next = &group[1];
    set_out(b, present);
    while (present->count) {
        look_home(b, present);
        if (!present->usual)
            look_pairs(b, present);
        set_out(b, next);
        look_other(present);
        if (!present->usual)
            look_siblings(present);
        if (!present->usual && present->records)
            ask_records(b, present);
        if (present->usual)
            decide_usual(b, present);
        else
            decide_mixed(b, present);
        struct group *done = present;
        present = next;
        next = done;
    }
}

int weir_take_batch(weir_segment *segment, weir_request *requests, size_t count, weir_time now)
{
    if (!segment || (!requests && count) || count > INT32_MAX)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    struct weir__batch b = {
        .op = weir__operation(segment, weir__stripe_here(segment), now), .now = now, .request = requests};

    if (now.mono_ns < 0 || now.wall_ns < 0)
        return refuse_all(&b, requests, count, now);
    while (count) {
        b.left = count < STRETCH ? count : STRETCH;
        count -= b.left;
        b.usual = !weir__any_blocked(&b.op);
        weir__wide_take(&b);
        take_groups(&b);
    }
    if (weir__lost(segment))
        return WEIR_ELOST;
    add_counts(&b);
    return b.failed;
}
