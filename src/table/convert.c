/*
 * Conversion of a segment of an older layout. Sizes and offsets are the same since layout 2.
 *
 *     2 to 3   heads of records: the owner has 22 bits instead of 24, and `use` 2 (slab.h)
 *     3 to 4   codes of expiry above that of the longest duration mark entries of denied keys (slot.h)
 */
#include "table/slab.h"
#include "table/table.h"

#include <stddef.h>

#define OLDEST           2
#define RECORD_USES      3 /* the layout that gave heads their `use` */
#define OLD_OWNER_SHIFT  40
#define EXPIRY_SHIFT     15
#define EXPIRY_CODE_MASK (UINT64_C(0xff) << EXPIRY_SHIFT)

static uint64_t sum_of(const struct weir__header *header)
{
    return weir__header_sum(header, offsetof(struct weir__header, check));
}

static weir__cell converted_slot(weir__cell cell)
{
    uint64_t longest = (uint64_t)(WEIR__EXPIRY_DENIED - 1) << EXPIRY_SHIFT;
    if (weir__cell_tag(cell.lo) && (cell.lo & EXPIRY_CODE_MASK) > longest)
        cell.lo = (cell.lo & ~EXPIRY_CODE_MASK) | longest;
    return cell;
}

/* The owner loses its upper bits, the sequence number moves up, and the use is low until the next request. */
static uint64_t converted_head(uint64_t lo)
{
    uint64_t owner = lo >> OLD_OWNER_SHIFT & ((UINT64_C(1) << WEIR__OWNER_BITS) - 1);
    uint64_t sequence = lo >> WEIR__USE_SHIFT & ((1U << WEIR__OWNER_SEQUENCE_BITS) - 1);
    return owner << (64 - WEIR__OWNER_BITS) | sequence << WEIR__HEAD_SHIFT |
           (lo & ((UINT64_C(1) << WEIR__USE_SHIFT) - 1));
}

bool weir__layout_is_older(unsigned layout)
{
    return layout >= OLDEST && layout < WEIR__LAYOUT;
}

int weir__segment_convert(void *memory, uint64_t bytes)
{
    struct weir__header *header = memory;
    struct weir__table table;
    if (bytes < WEIR__SIZE_MIN || header->magic != WEIR__MAGIC)
        return WEIR_ENOTSEG;
    unsigned layout = header->layout;
    if (!weir__layout_is_older(layout))
        return WEIR_EVERSION;
    if (header->check != sum_of(header))
        return WEIR_EDAMAGED;
    header->layout = WEIR__LAYOUT;
    header->check = sum_of(header);
    header->geometry = header->slab_searched = 0;
    int error = weir__segment_attach(memory, bytes, &table);
    if (error)
        return error;
    for (uint64_t i = 0; i < table.buckets * WEIR__BUCKET_SLOTS; i++) {
        weir__cell *slot = &table.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
        *slot = converted_slot(*slot);
    }
    for (uint64_t i = 0; i < table.chunks && layout < RECORD_USES; i++)
        if (table.lease[i] & WEIR__LEASE_FIRST) {
            weir__cell *head = (weir__cell *)(void *)(table.chunk + i * WEIR__CHUNK);
            head->lo = converted_head(head->lo);
        }
    return 0;
}
