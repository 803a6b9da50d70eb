/* Leased units of a counter: see leased.h. */
#include "table/leased.h"

/* ---- `used` of the slot: units left, and a float of what the store had left in its pool ---- */

#define MANTISSA_BITS 7

/* 12 bits: below 128 exact, else 7 bits after the leading one and an exponent; rounded down. */
static uint64_t pool_encode(int64_t units)
{
    uint64_t n = units < 0 ? 0 : units > WEIR__USED_MAX ? (uint64_t)WEIR__USED_MAX : (uint64_t)units;
    if (n < UINT64_C(1) << MANTISSA_BITS)
        return n;
    unsigned shift = ((unsigned)__builtin_clzll(n) ^ 63) - MANTISSA_BITS;
    return (uint64_t)(shift + 1) << MANTISSA_BITS | ((n >> shift) & ((1U << MANTISSA_BITS) - 1));
}

static int64_t pool_decode(uint64_t code)
{
    uint64_t exponent = code >> MANTISSA_BITS, mantissa = code & ((1U << MANTISSA_BITS) - 1);
    return (int64_t)(exponent ? (mantissa | UINT64_C(1) << MANTISSA_BITS) << (exponent - 1) : mantissa);
}

static struct weir__leased unpack(const struct weir__op *op, weir__cell cell)
{
    struct weir__slot_fields fields = weir__cell_unpack(cell);
    if (fields.state != WEIR__NORMAL || fields.wall || weir__cell_life(cell, op->mono_us, op->wall_us) <= 0)
        return (struct weir__leased){0, 0, 0};
    return (struct weir__leased){.units = (int64_t)(fields.used & (uint64_t)WEIR__LEASED_MAX),
                                 .pool = pool_decode(fields.used >> WEIR__LEASED_BITS),
                                 .end_us = weir__anchor_expand(fields.anchor, op->mono_us)};
}

static weir__cell pack(const struct weir__leased *leased, uint64_t tag, weir__cell seen)
{
    struct weir__slot_fields fields = {.tag = tag,
                                       .version = weir__version_kept(seen),
                                       .used = pool_encode(leased->pool) << WEIR__LEASED_BITS | (uint64_t)leased->units,
                                       .anchor = (uint64_t)leased->end_us & WEIR__TIME_MASK};
    return weir__cell_pack(fields);
}

void weir__leased_locate(const struct weir__op *op, uint64_t hash, struct weir__key_location *where)
{
    weir__locate_primary(op->table, weir__leased_hash(op->table, hash), where);
    weir__locate_alternate(op->table, where);
    where->salt = 0;
}

bool weir__leased_look(const struct weir__op *op, const weir__cell *slot, uint64_t tag, int64_t cost,
                       struct weir__step *step, struct weir__leased *after)
{
    step->seen = weir__cell_peek(slot);
    if (!weir__is_entry_of(step->seen.lo, tag))
        return false;
    *after = unpack(op, step->seen);
    if (after->units < cost)
        return false;
    after->units -= cost;
    step->next = pack(after, tag, step->seen);
    return true;
}

/* ---- Changes ---- */

enum change_kind { READ, SPEND, ROLL_BACK, REPORT, PUT };

struct lease_change {
    enum change_kind kind;
    int64_t units;  /* to spend, to put back, to leave at most, or to put */
    int64_t end_us; /* of the spend that is rolled back, or of the grant */
    int64_t pool;   /* PUT */
    bool known;     /* PUT */
    int64_t given;  /* REPORT, out */
    bool done;      /* SPEND, out */
};

/*
 * The low bits of an end are a generation, which every report and grant changes: a spend before one of them is not
 * rolled back after it, even if the ends are those of the same window. The end is never later than that of the grant.
 */
#define GENERATIONS INT64_C(256)

static int64_t generation(int64_t end_us, int64_t number)
{
    return (end_us & -GENERATIONS) | (number & (GENERATIONS - 1));
}

static int64_t at_most(int64_t units)
{
    return units < WEIR__LEASED_MAX ? units : WEIR__LEASED_MAX;
}

/* Computes the lease after a change. False: it is unchanged. */
static bool apply(const struct weir__op *op, struct lease_change *change, struct weir__leased *leased)
{
    int64_t end_us;
    switch (change->kind) {
    case SPEND:
        change->done = leased->units >= change->units;
        leased->units -= change->done ? change->units : 0;
        return change->done;
    case ROLL_BACK:
        if (!leased->end_us || leased->end_us != change->end_us)
            return false;
        leased->units = at_most(leased->units + change->units);
        return true;
    case REPORT:
        change->given = leased->units > change->units ? leased->units - change->units : 0;
        leased->units -= change->given;
        leased->end_us = leased->end_us ? generation(leased->end_us, leased->end_us + 1) : 0;
        return leased->end_us != 0;
    case PUT:
        /* Without a lease there may have been one that was evicted: any number but a fixed one. */
        end_us = generation(change->end_us - GENERATIONS, leased->end_us ? leased->end_us + 1 : op->mono_us);
        if (end_us <= op->mono_us && change->known)
            return false;
        if (end_us <= op->mono_us) {
            *leased = (struct weir__leased){0, 0, 0};
            return true;
        }
        leased->units = at_most((change->known ? leased->units : 0) + change->units);
        leased->pool = change->pool;
        leased->end_us = end_us;
        return true;
    case READ:
    default:
        return false;
    }
}

static int run(const struct weir__op *op, const struct weir__key_location *where, struct lease_change *change,
               struct weir__leased *leased)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell seen, *slot = weir__lookup(op->table, where, &seen);
        if (!slot) {
            int error = weir__lookup_helping(op, where, &slot, &seen);
            if (error)
                return error;
        }
        *leased = slot ? unpack(op, seen) : (struct weir__leased){0, 0, 0};
        if (!apply(op, change, leased)) {
            /* No swap verifies this read: it may be torn. */
            if (slot && !weir__cell_equal(weir__cell_peek(slot), seen))
                continue;
            return 0;
        }
        if (!leased->end_us && !slot)
            return 0;
        if (!slot) {
            int error = weir__slot_claim(op, where, weir__cell_tentative(op, where->tag), &slot, &seen);
            if (error)
                return error;
            if (weir__cell_state(seen.lo) != WEIR__TENTATIVE)
                continue;
        }
        if (weir__cell_cas(slot, &seen, leased->end_us ? pack(leased, where->tag, seen) : weir__cell_empty(seen)))
            return 0;
        weir__count(&op->stats->retries, 1);
    }
    return WEIR_EBUSY;
}

int weir__leased_read(const struct weir__op *op, const struct weir__key_location *where, struct weir__leased *leased)
{
    return run(op, where, &(struct lease_change){.kind = READ}, leased);
}

int weir__leased_spend(const struct weir__op *op, const struct weir__key_location *where, int64_t cost, bool *spent,
                       struct weir__leased *leased)
{
    struct lease_change change = {.kind = SPEND, .units = cost};
    int error = run(op, where, &change, leased);
    *spent = !error && change.done;
    return error;
}

int weir__leased_roll_back(const struct weir__op *op, const struct weir__key_location *where, int64_t cost,
                           int64_t end_us, struct weir__leased *leased)
{
    return run(op, where, &(struct lease_change){.kind = ROLL_BACK, .units = cost, .end_us = end_us}, leased);
}

int weir__leased_report(const struct weir__op *op, const struct weir__key_location *where, int64_t most, int64_t *given,
                        struct weir__leased *leased)
{
    struct lease_change change = {.kind = REPORT, .units = most};
    int error = run(op, where, &change, leased);
    *given = error ? 0 : change.given;
    return error;
}

int weir__leased_put(const struct weir__op *op, const struct weir__key_location *where,
                     const struct weir__leased *grant, bool known, struct weir__leased *leased)
{
    struct lease_change change = {
        .kind = PUT, .units = grant->units, .pool = grant->pool, .end_us = grant->end_us, .known = known};
    return run(op, where, &change, leased);
}
