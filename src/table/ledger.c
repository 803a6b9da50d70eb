/*
 * The delta ledger: see ledger.h. A cell is
 *
 *     lo:  identity 64
 *     hi:  amount 40, signed | number of the last acknowledged batch 23 | ready 1
 *
 * A writer swaps the amount, then sets the dirty bit. The agent clears the dirty bit, then reads the amount. All are
 * sequentially consistent, so a change that the agent does not see sets its bit afterwards.
 */
#include "table/ledger.h"
#include "table/hash.h"

#include <weir/weir.h>

#include <string.h>

#define BUCKET     8 /* cells of a bucket: two cache lines */
#define ROUNDS     1024
#define READY      UINT64_C(1)
#define BATCH_BITS 23
#define BATCH_MASK ((UINT64_C(1) << BATCH_BITS) - 1)
#define AMOUNT_MAX ((INT64_C(1) << 39) - 1)

/* ---- Format and attach ---- */

static uint64_t header_check(const struct weir__ledger_header *header)
{
    return weir__header_sum(header, offsetof(struct weir__ledger_header, check));
}

static int lay_out(struct weir__ledger_header *h, uint64_t bytes)
{
    enum { ENTRY_BITS = 8 * (sizeof(weir__cell) + sizeof(struct weir__ledger_text)) + 1 };
    if (bytes < WEIR__LEDGER_BYTES_MIN || bytes > UINT64_C(1) << 40)
        return WEIR_ESIZE;
    h->bytes = bytes;
    h->notes_at = WEIR__LEDGER_HEADER_BYTES;
    h->dirty_at = h->notes_at + WEIR__LEDGER_BATCH_MAX * sizeof(struct weir__ledger_in_flight);
    /* Reserves what the alignment of three areas may need. */
    h->entries = (bytes - h->dirty_at - UINT64_C(256)) * 8 / ENTRY_BITS & ~UINT64_C(63);
    h->cells_at = (h->dirty_at + h->entries / 8 + 127) & ~UINT64_C(127);
    h->texts_at = (h->cells_at + h->entries * sizeof(weir__cell) + 127) & ~UINT64_C(127);
    return 0;
}

int weir__ledger_format(void *memory, uint64_t bytes, const void *sender)
{
    struct weir__ledger_header *h = memory;
    int error = lay_out(h, bytes);
    if (error)
        return error;
    h->layout = WEIR__LEDGER_LAYOUT;
    h->header_bytes = sizeof *h;
    strncpy(h->sender, sender, WEIR__LEDGER_SENDER); /* the byte after it is 0 */
    h->magic = WEIR__LEDGER_MAGIC;
    h->check = header_check(h);
    return 0;
}

int weir__ledger_attach(void *memory, uint64_t bytes, struct weir__ledger *ledger)
{
    struct weir__ledger_header copy, expected;
    if (bytes < sizeof copy) { /* truncated, if it begins like a ledger */
        const uint64_t magic = WEIR__LEDGER_MAGIC;
        return memcmp(memory, &magic, bytes < sizeof magic ? bytes : sizeof magic) == 0 ? WEIR_ETRUNCATED
                                                                                        : WEIR_ENOTSEG;
    }
    /* Copied first: the memory may change between check and use. */
    memcpy(&copy, memory, offsetof(struct weir__ledger_header, batch));
    if (copy.magic != WEIR__LEDGER_MAGIC)
        return WEIR_ENOTSEG;
    if (copy.layout != WEIR__LEDGER_LAYOUT)
        return WEIR_EVERSION;
    if (copy.check != header_check(&copy) || copy.header_bytes != sizeof copy)
        return WEIR_EDAMAGED;
    if (bytes < copy.bytes)
        return WEIR_ETRUNCATED;
    memcpy(&expected, &copy, offsetof(struct weir__ledger_header, batch));
    if (lay_out(&expected, copy.bytes) || header_check(&expected) != copy.check ||
        copy.sender[WEIR__LEDGER_SENDER] != 0)
        return WEIR_EDAMAGED;

    unsigned char *base = memory;
    *ledger = (struct weir__ledger){
        .header = memory,
        .note = (struct weir__ledger_in_flight *)(void *)(base + copy.notes_at),
        .dirty = (uint64_t *)(void *)(base + copy.dirty_at),
        .cell = (weir__cell *)(void *)(base + copy.cells_at),
        .text = (struct weir__ledger_text *)(void *)(base + copy.texts_at),
        .entries = copy.entries,
    };
    return 0;
}

/* ---- Cells ---- */

static int64_t amount_of(weir__cell cell)
{
    return (int64_t)cell.hi >> 24;
}

static weir__cell with_amount(weir__cell cell, int64_t amount)
{
    cell.hi = (uint64_t)amount << 24 | (cell.hi & ((UINT64_C(1) << 24) - 1));
    return cell;
}

static uint64_t batch_of(weir__cell cell)
{
    return cell.hi >> 1 & BATCH_MASK;
}

static weir__cell with_batch(weir__cell cell, uint64_t batch)
{
    cell.hi = (cell.hi & ~(BATCH_MASK << 1)) | (batch & BATCH_MASK) << 1;
    return cell;
}

/* The two candidate buckets of a counter. */
static void buckets(const struct weir__ledger *ledger, uint64_t identity, weir__cell *bucket[2])
{
    uint64_t count = ledger->entries / BUCKET, other = identity * UINT64_C(0x9e3779b97f4a7c15);
    bucket[0] = &ledger->cell[weir__scale(identity, count) * BUCKET];
    bucket[1] = &ledger->cell[weir__scale(other ^ other >> 29, count) * BUCKET];
    /* Prefetched, so that the search does not wait for one cache line after the other. */
    for (int b = 0; b < 2; b++) {
        weir__prefetch_read(bucket[b]);
        weir__prefetch_read(bucket[b] + BUCKET / 2);
    }
}

static weir__cell *find(weir__cell *const bucket[2], uint64_t identity)
{
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < BUCKET; i++)
            if (weir__load64(&bucket[b][i].lo) == identity)
                return &bucket[b][i];
    return NULL;
}

/* A free cell in the emptier bucket, which balances the load (two choices). */
static weir__cell *find_free(weir__cell *const bucket[2])
{
    weir__cell *free[2] = {NULL, NULL};
    int count[2] = {0, 0};
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < BUCKET; i++)
            if (!weir__load64(&bucket[b][i].lo)) {
                free[b] = free[b] ? free[b] : &bucket[b][i];
                count[b]++;
            }
    return count[1] > count[0] ? free[1] : free[0];
}

void weir__ledger_mark(const struct weir__ledger *ledger, uint64_t index)
{
    uint64_t *word = &ledger->dirty[index / 64], bit = UINT64_C(1) << index % 64;
    if (!(weir__load64_ordered(word) & bit))
        weir__or64(word, bit);
}

enum added { ADDED, MOVED_ON, NOT_READY, TOO_MUCH };

/* Retries while only the amount changed. `ready`: the text has been written. */
static enum added add(const struct weir__ledger *ledger, weir__cell *cell, uint64_t identity, int64_t amount,
                      bool ready)
{
    weir__cell seen = weir__cell_peek(cell);
    for (int round = 0; round < ROUNDS; round++) {
        if (seen.lo != identity)
            return MOVED_ON;
        if (!(seen.hi & READY) && !ready)
            return NOT_READY;
        int64_t sum = amount_of(seen) + amount;
        if (sum > AMOUNT_MAX || sum < -AMOUNT_MAX)
            return TOO_MUCH;
        weir__cell next = with_amount(seen, sum);
        next.hi |= READY;
        if (weir__cell_cas(cell, &seen, next)) {
            weir__ledger_mark(ledger, (uint64_t)(cell - ledger->cell));
            return ADDED;
        }
    }
    return TOO_MUCH;
}

bool weir__ledger_add(const struct weir__ledger *ledger, uint64_t identity, int64_t amount)
{
    weir__cell *bucket[2];
    buckets(ledger, identity, bucket);
    weir__cell *cell = find(bucket, identity);
    return cell && add(ledger, cell, identity, amount, false) == ADDED;
}

/* ---- Texts: word by word, as others may read or write them concurrently ---- */

enum {
    TEXT_LEN = sizeof(struct weir__ledger_text) / sizeof(uint64_t),
    FRONT_LEN = offsetof(struct weir__ledger_text, key) / sizeof(uint64_t),
};

union text_view {
    struct weir__ledger_text text;
    uint64_t word[TEXT_LEN];
};

_Static_assert(offsetof(struct weir__ledger_text, key) % sizeof(uint64_t) == 0, "a key begins with a word");

/* Number of significant words of a text. */
static unsigned word_count(const struct weir__ledger_text *text)
{
    size_t key = text->key_len <= sizeof text->key ? text->key_len : sizeof text->key;
    return FRONT_LEN + (unsigned)((key + sizeof(uint64_t) - 1) / sizeof(uint64_t));
}

/* Checksum of the words, with the identity in place of the checksum. */
static uint64_t text_check(uint64_t identity, const union text_view *word_array)
{
    union text_view copy = *word_array;
    copy.text.check = identity;
    return XXH3_64bits(copy.word, word_count(&word_array->text) * sizeof(uint64_t));
}

static void write_text(struct weir__ledger_text *to, uint64_t identity, const struct weir__ledger_text *text)
{
    union text_view from = {.text = *text};
    from.text.check = text_check(identity, &from);
    uint64_t *word = (uint64_t *)(void *)to;
    for (unsigned i = 0; i < word_count(text); i++)
        weir__store64(&word[i], from.word[i]);
}

/* False: torn. */
static bool read_text(const struct weir__ledger_text *from, uint64_t identity, struct weir__ledger_text *text)
{
    const uint64_t *word = (const uint64_t *)(const void *)from;
    union text_view seen = {.word = {0}};
    for (unsigned i = 0; i < FRONT_LEN; i++)
        seen.word[i] = weir__load64(&word[i]);
    for (unsigned i = FRONT_LEN; i < word_count(&seen.text); i++)
        seen.word[i] = weir__load64(&word[i]);
    *text = seen.text;
    return text_check(identity, &seen) == text->check && text->key_len <= sizeof text->key;
}

bool weir__ledger_add_entry(const struct weir__ledger *ledger, uint64_t identity, const struct weir__ledger_text *text,
                            int64_t amount)
{
    weir__cell *bucket[2];
    buckets(ledger, identity, bucket);
    for (int round = 0; round < ROUNDS; round++) {
        weir__cell *cell = find(bucket, identity);
        if (!cell) {
            cell = find_free(bucket);
            if (!cell)
                break;
            weir__cell seen = weir__cell_peek(cell), claimed = {identity, 0};
            if (seen.lo || !weir__cell_cas(cell, &seen, claimed))
                continue;
        }
        enum added how = add(ledger, cell, identity, amount, false);
        if (how == NOT_READY) {
            write_text(&ledger->text[cell - ledger->cell], identity, text);
            how = add(ledger, cell, identity, amount, true);
        }
        if (how == ADDED)
            return true;
        if (how == TOO_MUCH)
            break;
    }
    weir__count(&ledger->header->full, 1);
    return false;
}

/* ---- For the agent ---- */

uint64_t weir__ledger_dirty(const struct weir__ledger *ledger, uint64_t word)
{
    return weir__load64(&ledger->dirty[word]) ? weir__take64(&ledger->dirty[word]) : 0;
}

enum cell_change {
    UNREADY,     /* its text is torn */
    OTHER_BATCH, /* a cell whose last batch has the same number modulo 2^23 would look acknowledged */
    ACK,
    DISCARD,
    FREE
};

/* Computes the new content of a cell; false: no change. */
static bool changed(weir__cell *cell, enum cell_change what, int64_t amount, uint64_t batch)
{
    switch (what) {
    case UNREADY:
        cell->hi &= ~READY;
        return true;
    case OTHER_BATCH:
        *cell = with_batch(*cell, batch - 1);
        return true;
    case ACK:
        if (batch_of(*cell) == (batch & BATCH_MASK))
            return false;
        *cell = with_batch(with_amount(*cell, amount_of(*cell) - amount), batch);
        return true;
    case DISCARD:
        *cell = with_amount(*cell, amount_of(*cell) - amount);
        return true;
    case FREE:
    default:
        if (amount_of(*cell))
            return false;
        *cell = (weir__cell){0, 0};
        return true;
    }
}

static bool change(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, enum cell_change what,
                   int64_t amount, uint64_t batch)
{
    weir__cell *cell = &ledger->cell[index], seen = weir__cell_read(cell);
    /* Lock-free: each failed round means that another process's addition succeeded. */
    for (int round = 0; round < ROUNDS * ROUNDS && seen.lo == identity; round++) {
        weir__cell next = seen;
        if (!changed(&next, what, amount, batch))
            return false;
        if (weir__cell_cas(cell, &seen, next))
            return true;
    }
    return false;
}

void weir__ledger_read(const struct weir__ledger *ledger, uint64_t index, struct weir__ledger_entry *entry)
{
    weir__cell seen = weir__cell_read(&ledger->cell[index]);
    entry->identity = seen.lo;
    entry->amount = amount_of(seen);
    entry->batch = batch_of(seen);
    entry->ready = false;
    if (!seen.lo || !(seen.hi & READY))
        return;
    entry->ready = read_text(&ledger->text[index], seen.lo, &entry->text);
    if (!entry->ready) {
        weir__count(&ledger->header->torn, 1);
        change(ledger, index, seen.lo, UNREADY, 0, 0);
    }
}

struct weir__ledger_cell weir__ledger_read_cell(const struct weir__ledger *ledger, uint64_t index)
{
    weir__cell seen = weir__cell_read(&ledger->cell[index]);
    return (struct weir__ledger_cell){seen.lo, amount_of(seen)};
}

void weir__ledger_prefetch_cell(const struct weir__ledger *ledger, uint64_t index)
{
    weir__prefetch(&ledger->cell[index]);
}

void weir__ledger_prefetch(const struct weir__ledger *ledger, uint64_t index)
{
    const char *text = (const char *)&ledger->text[index];
    weir__ledger_prefetch_cell(ledger, index);
    weir__prefetch_read(text);
    weir__prefetch_read(text + 64); /* it may begin anywhere in a cache line */
}

bool weir__ledger_begin_batch(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, uint64_t batch)
{
    weir__cell seen = weir__cell_read(&ledger->cell[index]);
    if (seen.lo != identity || batch_of(seen) != (batch & BATCH_MASK))
        return seen.lo == identity; /* almost always: only the agent writes batch numbers and frees entries */
    return change(ledger, index, identity, OTHER_BATCH, 0, batch);
}

bool weir__ledger_ack(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, int64_t amount,
                      uint64_t batch)
{
    return change(ledger, index, identity, ACK, amount, batch);
}

void weir__ledger_discard(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, int64_t amount)
{
    change(ledger, index, identity, DISCARD, amount, 0);
}

bool weir__ledger_free(const struct weir__ledger *ledger, uint64_t index, uint64_t identity)
{
    return change(ledger, index, identity, FREE, 0, 0);
}
