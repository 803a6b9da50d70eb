/* The only clock reads of the library. */
#include "engine/segment.h"
#include "base/clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

weir_time weir__clocks(void)
{
    return (weir_time){.mono_ns = weir__clock_ns(CLOCK_BOOTTIME), .wall_ns = weir__clock_ns(CLOCK_REALTIME)};
}

void weir__boot_id(uint64_t boot[2])
{
    char text[64] = {0}, digits[33] = {0};
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    boot[0] = boot[1] = 0;
    if (file < 0)
        return; /* no /proc: all boots have the same id; a reboot empties /dev/shm anyway */
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);

    size_t count = 0;
    for (ssize_t i = 0; i < length && count < 32; i++)
        if (strchr("0123456789abcdef", text[i]))
            digits[count++] = text[i];
    boot[1] = strtoull(digits + 16, NULL, 16);
    digits[16] = 0;
    boot[0] = strtoull(digits, NULL, 16);
}

void weir__clock_adopt(weir_segment *segment)
{
    struct weir__header *header = segment->table.header;
    uint64_t boot[2];
    weir__boot_id(boot);
    if (weir__load64(&header->boot[0]) == boot[0] && weir__load64(&header->boot[1]) == boot[1])
        return;
    /* Segment time was wall time when the segment was made, so after a reboot it continues at the wall time. Two
     * processes that attach at once write nearly the same. */
    weir_time now = weir__clocks();
    segment->offset_ns = now.wall_ns - now.mono_ns;
    segment->own_offset = segment->mapped.read_only;
    if (segment->mapped.read_only)
        return;
    weir__store64((uint64_t *)&header->clock_offset_ns, (uint64_t)segment->offset_ns);
    weir__store64(&header->boot[0], boot[0]);
    weir__store64(&header->boot[1], boot[1]);
}

static int64_t offset_of(const weir_segment *segment)
{
    return segment->own_offset ? segment->offset_ns
                               : (int64_t)weir__load64((const uint64_t *)&segment->table.header->clock_offset_ns);
}

weir_time weir_clock(const weir_segment *segment)
{
    weir_time now = weir__clocks();
    now.mono_ns += offset_of(segment);
    return now;
}

__attribute__((hot)) weir_time weir__clock_fast(const weir_segment *segment)
{
    return (weir_time){.mono_ns = weir__clock_ns(CLOCK_BOOTTIME) + offset_of(segment),
                       .wall_ns = weir__clock_ns(CLOCK_REALTIME_COARSE)};
}
