/* The ring of recent denials: see denial_ring.h. */
#include "table/denial_ring.h"
#include "base/atomic.h"
#include "base/hash.h"

#include <string.h>

#define FORMAT_LAYOUT 3
#define WORD(field)   (offsetof(struct weir__denial, field) / sizeof(uint64_t))
#define ROW_LENGTH    (sizeof(struct weir__denial_row) / sizeof(uint64_t))
#define TORN_READS    4                                       /* of a warning, after which it is given up */
#define CHECKED       offsetof(struct weir__denial, first_ms) /* from here on, under the checksum */

const struct weir__row_format weir__denial_format = {
    .magic = UINT64_C(0x0a594e45445245f7),
    .layout = FORMAT_LAYOUT,
    .rows_min = 16,
    .header_bytes = sizeof(struct weir__denial_header),
    .row_bytes = sizeof(struct weir__denial_row),
};

bool weir__denial_attach(void *memory, size_t bytes, struct weir__denial_ring *ring)
{
    *ring =
        (struct weir__denial_ring){.header = memory, .rows = weir__row_file_rows(memory, bytes, &weir__denial_format)};
    ring->row = (struct weir__denial_row *)(void *)(ring->header + 1);
    return ring->rows > 0;
}

/* ---- Writing ---- */

/* The bucket of the index that may have an identity. */
static uint64_t *bucket_of(const struct weir__denial_ring *ring, uint64_t identity)
{
    return ring->header->index[identity % WEIR__DENIAL_BUCKETS];
}

/* The row that a word of the index names; NULL: none. */
static struct weir__denial_row *row_of(const struct weir__denial_ring *ring, uint64_t way)
{
    uint32_t row = (uint32_t)way;
    return row - 1 < ring->rows ? &ring->row[row - 1] : NULL;
}

/* True if a time is less than `bound` from now; the clocks of two processors may differ a little. */
static bool is_within(uint64_t ms, uint64_t now_ms, uint64_t bound)
{
    return (ms < now_ms ? now_ms - ms : ms - now_ms) < bound;
}

bool weir__denial_repeat(const struct weir__denial_ring *ring, uint64_t identity, uint64_t now_ms,
                         const struct weir__denied_request *request)
{
    const uint64_t *bucket = bucket_of(ring, identity);
    for (int i = 0; i < WEIR__DENIAL_WAYS; i++) {
        uint64_t way = weir__load64(&bucket[i]);
        struct weir__denial_row *row = way >> 32 == identity >> 32 ? row_of(ring, way) : NULL;
        if (!row || weir__load64(&row->word[WORD(identity)]) != identity ||
            !is_within(weir__load64(&row->word[WORD(last_ms)]), now_ms, WEIR__DENIAL_GAP_MS) ||
            !is_within(weir__load64(&row->word[WORD(first_ms)]), now_ms, WEIR__DENIAL_SPAN_MS))
            continue;
        uint64_t *recent =
            &row->word[WORD(recent) + weir__fetch_add64(&row->word[WORD(count)], 1) % WEIR__DENIAL_RECENT * 2];
        weir__store64(&row->word[WORD(last_ms)], now_ms);
        weir__store64(&recent[0], request->client);
        weir__store64(&recent[1], request->id);
        return true;
    }
    return false;
}

/*
 * The place for a new entry in the index: that of the entry of its bucket whose last denial was the longest time ago.
 * NULL: all of them were denied a moment ago. Without that bound, keys that share a bucket and are denied all the time
 * would take a row with each denial, and replace all other entries.
 */
static uint64_t *place_of(const struct weir__denial_ring *ring, uint64_t identity, uint64_t now_ms)
{
    uint64_t *bucket = bucket_of(ring, identity), *oldest = bucket, oldest_ms = UINT64_MAX;
    for (int i = 0; i < WEIR__DENIAL_WAYS; i++) {
        uint64_t way = weir__load64(&bucket[i]);
        const struct weir__denial_row *row = row_of(ring, way);
        bool used = row && weir__load64(&row->word[WORD(identity)]) >> 32 == way >> 32;
        uint64_t ms = used ? weir__load64(&row->word[WORD(last_ms)]) : 0;
        if (ms < oldest_ms) {
            oldest_ms = ms;
            oldest = &bucket[i];
        }
    }
    return is_within(oldest_ms, now_ms, WEIR__DENIAL_BUSY_MS) ? NULL : oldest;
}

static uint64_t checksum_of(const struct weir__denial *entry)
{
    return weir__hash_text((weir_text){(const char *)entry + CHECKED, sizeof *entry - CHECKED}, entry->identity);
}

static uint64_t word_at(const struct weir__denial *entry, size_t i)
{
    uint64_t word;
    memcpy(&word, (const char *)entry + i * sizeof word, sizeof word);
    return word;
}

/* The rows of warnings are the last ones. */
static uint32_t warning_rows(const struct weir__denial_ring *ring)
{
    return ring->rows / 4;
}

static uint32_t warning_row(const struct weir__denial_ring *ring, uint64_t ticket)
{
    return ring->rows - 1 - (uint32_t)(ticket % warning_rows(ring));
}

void weir__denial_add(const struct weir__denial_ring *ring, struct weir__denial *entry)
{
    bool warning = entry->flags & WEIR__DENIAL_WARNING;
    entry->identity = entry->identity ? entry->identity : 1;
    uint64_t *place = place_of(ring, entry->identity, entry->first_ms);
    if (!place && !warning) /* a key is warned once a window: that is bound enough */
        return;
    entry->ticket = weir__fetch_add64(warning ? &ring->header->warnings : &ring->header->tickets, 1) + 1;
    entry->count = 1;
    entry->last_ms = entry->first_ms;
    entry->checksum = checksum_of(entry);
    uint32_t at =
        warning ? warning_row(ring, entry->ticket) : (uint32_t)(entry->ticket % (ring->rows - warning_rows(ring)));
    struct weir__denial_row *row = &ring->row[at];
    weir__store64(&row->word[WORD(identity)], 0); /* weir__denial_repeat does not find a row that is being written */
    for (size_t i = WORD(checksum); i < ROW_LENGTH; i++)
        weir__store64(&row->word[i], word_at(entry, i));
    weir__store64(&row->word[WORD(identity)], entry->identity);
    if (place)
        weir__store64(place, entry->identity >> 32 << 32 | (at + 1));
}

/* ---- Texts ---- */

static size_t text_begin(const struct weir__denial *entry, enum weir__denial_text which)
{
    size_t at = 0;
    for (int i = 0; i < (int)which; i++)
        at += entry->len[i];
    return at;
}

size_t weir__denial_put(struct weir__denial *entry, enum weir__denial_text which, const void *text, size_t len,
                        size_t max)
{
    size_t at = text_begin(entry, which), left = WEIR__DENIAL_TEXT - at;
    max = max < left ? max : left;
    len = len < max ? len : max;
    if (len)
        memcpy(entry->text + at, text, len);
    entry->len[which] = (uint16_t)len;
    return len;
}

void weir__denial_put_other(struct weir__denial *entry, const struct weir__denial_other *other, const void *name,
                            size_t len)
{
    size_t at = text_begin(entry, WEIR__DENIAL_TEXTS);
    struct weir__denial_other head = *other;
    if (len > UINT8_MAX || WEIR__DENIAL_OTHER_BYTES + len > WEIR__DENIAL_TEXT - at)
        return;
    head.name_len = (uint8_t)len;
    memcpy(entry->text + at, &head, WEIR__DENIAL_OTHER_BYTES);
    memcpy(entry->text + at + WEIR__DENIAL_OTHER_BYTES, name, len);
    entry->len[WEIR__DENIAL_OTHERS] = (uint16_t)(entry->len[WEIR__DENIAL_OTHERS] + WEIR__DENIAL_OTHER_BYTES + len);
}

/* ---- Reading ---- */

bool weir__denial_read(const struct weir__denial_ring *ring, uint32_t row, struct weir__denial *entry)
{
    for (size_t i = 0; i < ROW_LENGTH; i++) {
        uint64_t word = weir__load64(&ring->row[row].word[i]);
        memcpy((char *)entry + i * sizeof word, &word, sizeof word);
    }
    if (!entry->identity || entry->checksum != checksum_of(entry) ||
        text_begin(entry, WEIR__DENIAL_TEXTS) > WEIR__DENIAL_TEXT)
        return false;
    /* The words outside the checksum may be those of the entry that replaces this one. */
    entry->count = entry->count ? entry->count : 1;
    entry->last_ms = entry->last_ms > entry->first_ms ? entry->last_ms : entry->first_ms;
    return true;
}

void weir__warning_resume(const struct weir__denial_ring *ring, const uint64_t *kept,
                          struct weir__warning_cursor *cursor)
{
    uint64_t next = weir__load64(kept);
    cursor->next = next ? next : weir__load64(&ring->header->warnings) + 1;
}

bool weir__warning_next(const struct weir__denial_ring *ring, struct weir__warning_cursor *cursor,
                        struct weir__denial *entry)
{
    uint64_t last = weir__load64(&ring->header->warnings), rows = warning_rows(ring);
    if (last + 1 < cursor->next) /* the file was replaced by a new one, or is damaged */
        cursor->next = last + 1;
    if (last >= rows && cursor->next <= last - rows) {
        cursor->missed += last - rows + 1 - cursor->next;
        cursor->next = last - rows + 1;
    }
    for (uint64_t i = 0; i < rows && cursor->next <= last; i++) {
        bool readable = weir__denial_read(ring, warning_row(ring, cursor->next), entry) &&
                        entry->flags & WEIR__DENIAL_WARNING && entry->ticket >= cursor->next;
        if (!readable && ++cursor->waiting < TORN_READS)
            break;
        cursor->waiting = 0;
        bool found = readable && entry->ticket == cursor->next;
        cursor->next++;
        if (found)
            return true;
        cursor->missed++;
    }
    return false;
}

weir_text weir__denial_text(const struct weir__denial *entry, enum weir__denial_text which)
{
    return (weir_text){entry->text + text_begin(entry, which), entry->len[which]};
}

bool weir__denial_next_other(const struct weir__denial *entry, size_t *at, struct weir__denial_other *other,
                             weir_text *name)
{
    weir_text all = weir__denial_text(entry, WEIR__DENIAL_OTHERS);
    if (*at > all.len || all.len - *at < WEIR__DENIAL_OTHER_BYTES)
        return false;
    memcpy(other, all.data + *at, WEIR__DENIAL_OTHER_BYTES);
    *name = (weir_text){all.data + *at + WEIR__DENIAL_OTHER_BYTES, other->name_len};
    *at += WEIR__DENIAL_OTHER_BYTES + name->len;
    return *at <= all.len;
}
