/* What a segment handle is, for the files of the engine. */
#ifndef WEIR_ENGINE_SEGMENT_H
#define WEIR_ENGINE_SEGMENT_H

#include "table/table.h"

struct weir_segment {
    struct weir__table table;
    void *memory;
    uint64_t bytes; /* mapped */
    bool read_only;
    unsigned owner;  /* user id of the file's owner: files beside it may be that user's, too */
    uint32_t lost;   /* set by the handler of sigbus_guard.c: what is mapped is not the file any more */
    bool own_offset; /* read-only, from an earlier boot: the header's offset cannot be set right, so this one counts */
    int64_t offset_ns;
};

static inline bool weir__lost(const weir_segment *segment)
{
    return weir__load32(&segment->lost) != 0;
}

/* Before a segment that may be guarded is unmapped. */
void weir__unguard(const weir_segment *segment);

/* The boot the machine is in, so that a segment can tell whether its monotonic clock has started anew. */
void weir__boot_id(uint64_t boot[2]);

/* CLOCK_BOOTTIME and CLOCK_REALTIME in nanoseconds. */
weir_time weir__clocks(void);

/*
 * weir_clock at half the price, which is a tenth of a check: the wall clock as of the kernel's last tick, a few
 * milliseconds ago at the most: a request that comes so soon after a window has begun may still fall into the one
 * before.
 */
weir_time weir__clock_fast(const weir_segment *segment);

/* Puts a segment that comes from an earlier boot onto the present one's clock. */
void weir__clock_adopt(weir_segment *segment);

/* weir_take on a segment that may be written to, for those who know their processor already. */
int weir__take_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                  int64_t cost, weir_time now, weir_decision *decision);
/* Marks a key that was looked at and is denied: weir__table_deny. */
void weir__deny_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                   weir_time now);

#endif
