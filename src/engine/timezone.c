/*
 * Time zones, read from the system's database.
 *
 * A TZif file (RFC 8536) lists the transitions up to some year and ends with a rule for the time after it, in the form
 * of the TZ variable of POSIX, which timezone_rule.c writes out as further transitions.
 */
#include "engine/timezone.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX     (1 << 20)
#define NAME_LEN_MAX 255

/* Offsets are smaller than this either way. RFC 8536 allows -24:59:59 to 25:59:59; calendar.c relies on the bound. */
#define OFFSET_BOUND_S (26 * 3600)

/*
 * Turns earlier than this only decide the offset before the first one, later ones are dropped: 30,000 years ago and
 * 130,000 years ahead is further than the clock goes, and sums of such numbers cannot overflow.
 */
#define TRANSITION_MIN_S (-(INT64_C(1) << 40))
#define TRANSITION_MAX_S (INT64_C(1) << 42)

/* ---- The file: a block with 32-bit times and, from version 2 on, one with 64-bit times and the footer ---- */

#define HEADER_LEN 44

struct block {
    uint32_t transition_count, type_count;
    size_t time_len;                            /* of one moment: 4 or 8 bytes */
    const unsigned char *times, *kinds, *types; /* turn_count moments, turn_count indexes, type_count of 6 bytes */
};

static uint32_t big_endian_32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t block_time(const struct block *block, uint32_t i)
{
    const unsigned char *at = block->times + i * block->time_len;

    if (block->time_len == 4)
        return (int32_t)big_endian_32(at);
    return (int64_t)((uint64_t)big_endian_32(at) << 32 | big_endian_32(at + 4));
}

static int32_t block_offset(const struct block *block, uint32_t type)
{
    return (int32_t)big_endian_32(block->types + (size_t)type * 6);
}

/*
 * Reads a block and moves *bytes and *len behind it. False if it is not all there, its counts contradict, or it has
 * leap seconds.
 */
static bool read_block(const unsigned char **bytes, size_t *len, size_t time_len, struct block *block)
{
    enum { IS_UT, IS_STD, LEAPS, TURNS, TYPES, NAME_BYTES, COUNTS };
    const unsigned char *head = *bytes;
    uint64_t n[COUNTS], data_len; /* 64 bits wide, so that no counts can overflow the sum */

    if (*len < HEADER_LEN || memcmp(head, "TZif", 4) != 0)
        return false;
    for (int i = 0; i < COUNTS; i++)
        n[i] = big_endian_32(head + 20 + 4 * i);
    data_len = n[TURNS] * (time_len + 1) + n[TYPES] * 6 + n[NAME_BYTES] + n[IS_STD] + n[IS_UT];
    if (data_len > *len - HEADER_LEN || n[LEAPS] != 0 || n[TYPES] == 0 || n[NAME_BYTES] == 0 ||
        (n[IS_STD] != 0 && n[IS_STD] != n[TYPES]) || (n[IS_UT] != 0 && n[IS_UT] != n[TYPES]))
        return false;

    block->transition_count = (uint32_t)n[TURNS];
    block->type_count = (uint32_t)n[TYPES];
    block->time_len = time_len;
    block->times = head + HEADER_LEN;
    block->kinds = block->times + block->transition_count * time_len;
    block->types = block->kinds + block->transition_count;
    *bytes += HEADER_LEN + (size_t)data_len;
    *len -= HEADER_LEN + (size_t)data_len;
    return true;
}

/* Are the offsets in range, the types there and the times rising? */
static bool check_block(const struct block *block)
{
    for (uint32_t i = 0; i < block->type_count; i++) {
        int32_t offset_s = block_offset(block, i);
        if (offset_s <= -OFFSET_BOUND_S || offset_s >= OFFSET_BOUND_S)
            return false;
    }
    for (uint32_t i = 0; i < block->transition_count; i++) {
        if (block->kinds[i] >= block->type_count)
            return false;
        if (i > 0 && block_time(block, i) <= block_time(block, i - 1))
            return false;
    }
    return true;
}

/* Reads newline, rule, newline; *found is false if the rule is empty. */
static bool read_footer(const unsigned char *bytes, size_t len, struct weir__zone_rule *rule, bool *found)
{
    const unsigned char *end;

    if (len == 0 || bytes[0] != '\n')
        return false;
    end = memchr(bytes + 1, '\n', len - 1);
    if (!end)
        return false;
    *found = end > bytes + 1;
    return !*found || weir__zone_read_rule(bytes + 1, end, rule);
}

/* Reads the block to use, and the rule if there is one; false if anything is malformed. */
static bool read_bytes(const unsigned char *bytes, size_t len, struct block *block, struct weir__zone_rule *rule,
                       bool *has_rule)
{
    const unsigned char *head = bytes;
    unsigned char version;

    *has_rule = false;
    if (!read_block(&bytes, &len, 4, block))
        return false;
    version = head[4];
    if (version == '\0')
        return check_block(block);
    if (version < '2' || version > '4')
        return false;

    head = bytes;
    return read_block(&bytes, &len, 8, block) && head[4] == version && check_block(block) &&
           read_footer(bytes, len, rule, has_rule);
}

static void add_transition(weir_zone *zone, int64_t at_s, int32_t offset_s)
{
    zone->transition[zone->count++] = (struct weir__zone_transition){at_s, offset_s};
}

/* Drops transitions that change nothing, and of two at the same moment the first. */
static void drop_idle_turns(weir_zone *zone)
{
    int32_t kept = 0;

    for (int32_t i = 0; i < zone->count; i++) {
        if (i + 1 < zone->count && zone->transition[i + 1].at_s == zone->transition[i].at_s)
            continue;
        if (zone->transition[i].offset_s != (kept ? zone->transition[kept - 1].offset_s : zone->offset_s))
            zone->transition[kept++] = zone->transition[i];
    }
    zone->count = kept;
}

/* Fills a zone that has room for all transitions of the block and WEIR__RULE_TURNS more. A NULL rule is none. */
static void fill(weir_zone *zone, const struct block *block, const struct weir__zone_rule *rule)
{
    /* Without transitions the rule is good for all times; otherwise for those after the last one. */
    bool only_rule = rule && block->transition_count == 0;

    zone->offset_s = only_rule ? rule->std_s : block_offset(block, 0);
    zone->count = 0;
    for (uint32_t i = 0; i < block->transition_count; i++) {
        int64_t at_s = block_time(block, i);
        if (at_s < TRANSITION_MIN_S)
            zone->offset_s = block_offset(block, block->kinds[i]);
        else if (at_s <= TRANSITION_MAX_S)
            add_transition(zone, at_s, block_offset(block, block->kinds[i]));
    }
    if (rule)
        weir__zone_add_rule(zone, rule, only_rule ? INT64_MIN : block_time(block, block->transition_count - 1));
    drop_idle_turns(zone);
}

/* A zone with room for so many transitions and none in it, or NULL. */
static weir_zone *make_zone(size_t transitions)
{
    weir_zone *zone = malloc(sizeof *zone + transitions * sizeof zone->transition[0]);

    if (zone)
        *zone = (weir_zone){.offset_s = 0, .count = 0};
    return zone;
}

int weir__zone_parse(const unsigned char *bytes, size_t len, weir_zone **out)
{
    struct block block;
    struct weir__zone_rule rule;
    bool has_rule;
    weir_zone *zone;

    /* The bound on the length is what keeps the number of transitions in an int32_t. */
    if (len > FILE_MAX || !read_bytes(bytes, len, &block, &rule, &has_rule))
        return WEIR_EZONE;
    zone = make_zone(block.transition_count + WEIR__RULE_TURNS);
    if (!zone)
        return WEIR_ENOMEM;
    fill(zone, &block, has_rule ? &rule : NULL);
    *out = zone;
    return 0;
}

/* ---- The database ---- */

/* Only names inside the database: whoever may choose a zone's name must not choose any file of the system with it. */
static bool is_name(const char *name)
{
    size_t len = name ? strnlen(name, NAME_LEN_MAX + 1) : 0;

    return len > 0 && len <= NAME_LEN_MAX && name[0] != '/' && !strstr(name, "..");
}

/* Opens the file of a zone. Returns its descriptor, or -1. */
static int open_file(const char *name)
{
    const char *dir = getenv("TZDIR");
    char path[PATH_MAX];
    int len, fd;

    if (!dir || !dir[0])
        dir = "/usr/share/zoneinfo";
    len = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (len < 0 || (size_t)len >= sizeof path)
        return -1;
    do {
        /* Not blocking, because it may transition out to be a pipe. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* Reads `len` bytes. Returns how many there were (fewer if the file has been cut meanwhile), or -1. */
static ssize_t read_all(int fd, unsigned char *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t got = read(fd, bytes + done, len - done);
        if (got == 0)
            break;
        if (got > 0)
            done += (size_t)got;
        else if (errno != EINTR)
            return -1;
    }
    return (ssize_t)done;
}

/* Makes a zone of an open file. Returns as weir__zone_parse does. */
static int parse_file(int fd, weir_zone **zone)
{
    struct stat about;
    unsigned char *bytes;
    ssize_t len;
    int error;

    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < HEADER_LEN || about.st_size > FILE_MAX)
        return WEIR_EZONE;
    bytes = malloc((size_t)about.st_size);
    if (!bytes)
        return WEIR_ENOMEM;
    len = read_all(fd, bytes, (size_t)about.st_size);
    error = len < 0 ? WEIR_EZONE : weir__zone_parse(bytes, (size_t)len, zone);
    free(bytes);
    return error;
}

/*
 * Returns 0; or, with *zone untouched, WEIR_EINVAL without a place to put it, WEIR_EZONE if there is no such zone or
 * its file is unreadable, malformed or over 1 MiB, or WEIR_ENOMEM. "UTC" needs no file.
 */
int weir_zone_open(const char *name, weir_zone **zone)
{
    int fd, error;

    if (!zone)
        return WEIR_EINVAL;
    if (!is_name(name))
        return WEIR_EZONE;
    if (strcmp(name, "UTC") == 0) {
        weir_zone *utc = make_zone(0);
        if (!utc)
            return WEIR_ENOMEM;
        *zone = utc;
        return 0;
    }
    fd = open_file(name);
    if (fd < 0)
        return WEIR_EZONE;
    error = parse_file(fd, zone);
    close(fd);
    return error;
}

/* NULL is allowed. */
void weir_zone_close(weir_zone *zone)
{
    free(zone);
}
