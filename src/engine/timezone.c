/*
 * Time zones, read from the system's database.
 *
 * A TZif file (RFC 8536) lists the transitions up to some year and ends with a rule for the time after it, in the form
 * of the TZ variable of POSIX. The rule is written out as further transitions, so that users of a zone only look up
 * transitions.
 */
#include "engine/rule_files.h"
#include "algo/algo.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Years for which the rule is written out. The first one matters only to files that are nothing but a rule. */
#define RULE_YEAR_FIRST  1900
#define RULE_YEAR_LAST   2200
#define RULE_TRANSITIONS (2 * (RULE_YEAR_LAST - RULE_YEAR_FIRST + 1))

/* When summer time starts or ends, in every year. */
struct date {
    char form; /* 'J': day 1 to 365, never 29 February; 'N': day 0 to 365; 'M': month, week, day of the week */
    int32_t day, month, week;
    int32_t time_s; /* local time, in the offset that ends here; may be before or after the day */
};

struct zone_rule {
    int32_t std_s, dst_s; /* offsets: east of UTC is positive here, not as in the text */
    bool has_dst;
    struct date start, end; /* of dst */
};

#define HOUR_S 3600
#define DAY_S  INT64_C(86400)

#define FIRST_DAY (-25567) /* of RULE_YEAR_FIRST, in days since 1970 */

/* ---- The text: STD offset [DST [offset] , date [/time] , date [/time]] ---- */

struct text {
    const unsigned char *at, *end;
};

static int peek(const struct text *text)
{
    return text->at < text->end ? *text->at : -1;
}

static bool eat(struct text *text, int c)
{
    if (peek(text) != c)
        return false;
    text->at++;
    return true;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(int c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Reads a decimal number from min to max (at most 999). */
static bool read_number(struct text *text, int32_t min, int32_t max, int32_t *number)
{
    int32_t value = 0;

    if (!is_digit(peek(text)))
        return false;
    while (is_digit(peek(text))) {
        value = value * 10 + (*text->at++ - '0');
        if (value > max)
            return false;
    }
    *number = value;
    return value >= min;
}

/* Reads [+-]hh[:mm[:ss]]. */
static bool read_time(struct text *text, int32_t hours_max, int32_t *seconds)
{
    bool minus = eat(text, '-');
    int32_t h, m = 0, s = 0;

    if (!minus)
        eat(text, '+');
    if (!read_number(text, 0, hours_max, &h))
        return false;
    if (eat(text, ':')) {
        if (!read_number(text, 0, 59, &m))
            return false;
        if (eat(text, ':') && !read_number(text, 0, 59, &s))
            return false;
    }
    *seconds = h * HOUR_S + m * 60 + s;
    if (minus)
        *seconds = -*seconds;
    return true;
}

/* Skips the name of a zone: three letters or more, or <quoted> with digits and signs. */
static bool skip_name(struct text *text)
{
    bool quoted = eat(text, '<');
    int len = 0;

    while (is_letter(peek(text)) || (quoted && (is_digit(peek(text)) || peek(text) == '+' || peek(text) == '-'))) {
        text->at++;
        len++;
    }
    return len >= 3 && (!quoted || eat(text, '>'));
}

static bool read_date(struct text *text, struct date *date)
{
    bool good;

    *date = (struct date){.form = 'N', .time_s = 2 * HOUR_S};
    if (eat(text, 'M')) {
        date->form = 'M';
        good = read_number(text, 1, 12, &date->month) && eat(text, '.') && read_number(text, 1, 5, &date->week) &&
               eat(text, '.') && read_number(text, 0, 6, &date->day);
    } else if (eat(text, 'J')) {
        date->form = 'J';
        good = read_number(text, 1, 365, &date->day);
    } else {
        good = read_number(text, 0, 365, &date->day);
    }
    if (good && eat(text, '/'))
        good = read_time(text, 167, &date->time_s);
    return good;
}

/*
 * Reads all of the text from `begin` up to `end`, which may be hostile, as a rule. False if it is not one. A name for
 * summer time without dates is refused: any dates would be a guess.
 */
static bool read_rule(const unsigned char *begin, const unsigned char *end, struct zone_rule *rule)
{
    struct text text = {begin, end};

    *rule = (struct zone_rule){.has_dst = false};
    if (!skip_name(&text) || !read_time(&text, 24, &rule->std_s))
        return false;
    rule->std_s = -rule->std_s;
    if (text.at == text.end)
        return true;

    rule->has_dst = true;
    rule->dst_s = rule->std_s + HOUR_S;
    if (!skip_name(&text))
        return false;
    if (peek(&text) != ',') {
        if (!read_time(&text, 24, &rule->dst_s))
            return false;
        rule->dst_s = -rule->dst_s;
    }
    return eat(&text, ',') && read_date(&text, &rule->start) && eat(&text, ',') && read_date(&text, &rule->end) &&
           text.at == text.end;
}

/* ---- The rule as transitions ---- */

static bool is_leap(int32_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* The day of `date` in the year that begins on day new_year, both in days since 1970. */
static int32_t date_day(const struct date *date, int32_t new_year, bool leap)
{
    static const int16_t before[13] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    int32_t first, next, day;

    if (date->form == 'N')
        return new_year + date->day;
    if (date->form == 'J')
        return new_year + date->day - 1 + (leap && date->day > before[2]);

    first = new_year + before[date->month - 1] + (leap && date->month > 2);
    next = new_year + before[date->month] + (leap && date->month >= 2);
    /* Day 0 was a Thursday, day 4 of its week; + 11 is + 4 and keeps a negative remainder from mattering. */
    day = first + (date->day - (first % 7 + 11) % 7 + 7) % 7 + 7 * (date->week - 1);
    /* Week 5 means the last one, and some months have only four of a day. */
    return day < next ? day : day - 7;
}

/* Adds a transition after `after_s` that the rule demands, in order; of two at the same moment, the one added later
 * wins. */
static void add_rule_transition(weir_zone *zone, int64_t after_s, int64_t at_s, int32_t offset_s)
{
    int32_t i;

    if (at_s <= after_s)
        return;
    /* Nearly always in order already: only transitions within days of a new year can change places. */
    for (i = zone->count++; i > 0 && zone->transition[i - 1].at_s > at_s; i--)
        zone->transition[i] = zone->transition[i - 1];
    zone->transition[i] = (struct weir__zone_transition){at_s, offset_s};
}

/* Adds at most RULE_TRANSITIONS transitions to the zone, which has room for them, all of them after `after_s`. */
static void add_rule(weir_zone *zone, const struct zone_rule *rule, int64_t after_s)
{
    int32_t new_year = FIRST_DAY;

    if (!rule->has_dst)
        return;
    for (int32_t year = RULE_YEAR_FIRST; year <= RULE_YEAR_LAST; year++) {
        bool leap = is_leap(year);
        int32_t days = leap ? 366 : 365;
        int64_t start_s = DAY_S * date_day(&rule->start, new_year, leap) + rule->start.time_s - rule->std_s;
        int64_t end_s = DAY_S * date_day(&rule->end, new_year, leap) + rule->end.time_s - rule->dst_s;

        add_rule_transition(zone, after_s, start_s, rule->dst_s);
        /* RFC 8536 writes summer time all year round as one that ends when, or after, the next one starts. */
        if (end_s - start_s < DAY_S * days)
            add_rule_transition(zone, after_s, end_s, rule->std_s);
        new_year += days;
    }
}

#define FILE_MAX     (1 << 20)
#define NAME_LEN_MAX 255

/* Offsets are smaller than this either way. RFC 8536 allows -24:59:59 to 25:59:59; calendar.c relies on the bound. */
#define OFFSET_BOUND_S (26 * 3600)

/*
 * Transitions earlier than this only decide the offset before the first one, later ones are dropped: 30,000 years ago
 * and 130,000 years ahead is further than the clock goes, and sums of such numbers cannot overflow.
 */
#define TRANSITION_MIN_S (-(INT64_C(1) << 40))
#define TRANSITION_MAX_S (INT64_C(1) << 42)

/* ---- The file: a block with 32-bit times and, from version 2 on, one with 64-bit times and the footer ---- */

#define HEADER_LEN 44

struct block {
    uint32_t transition_count, type_count;
    size_t time_len; /* of one moment: 4 or 8 bytes */
    const unsigned char *times, *kinds,
        *types; /* transition_count moments, transition_count indexes, type_count of 6 bytes */
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
    enum { IS_UT, IS_STD, LEAPS, TRANSITIONS, TYPES, NAME_BYTES, COUNTS };
    const unsigned char *head = *bytes;
    uint64_t n[COUNTS], data_len; /* 64 bits wide, so that no counts can overflow the sum */

    if (*len < HEADER_LEN || memcmp(head, "TZif", 4) != 0)
        return false;
    for (int i = 0; i < COUNTS; i++)
        n[i] = big_endian_32(head + 20 + 4 * i);
    data_len = n[TRANSITIONS] * (time_len + 1) + n[TYPES] * 6 + n[NAME_BYTES] + n[IS_STD] + n[IS_UT];
    if (data_len > *len - HEADER_LEN || n[LEAPS] != 0 || n[TYPES] == 0 || n[NAME_BYTES] == 0 ||
        (n[IS_STD] != 0 && n[IS_STD] != n[TYPES]) || (n[IS_UT] != 0 && n[IS_UT] != n[TYPES]))
        return false;

    block->transition_count = (uint32_t)n[TRANSITIONS];
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
static bool read_footer(const unsigned char *bytes, size_t len, struct zone_rule *rule, bool *found)
{
    const unsigned char *end;

    if (len == 0 || bytes[0] != '\n')
        return false;
    end = memchr(bytes + 1, '\n', len - 1);
    if (!end)
        return false;
    *found = end > bytes + 1;
    return !*found || read_rule(bytes + 1, end, rule);
}

/* Reads the block to use, and the rule if there is one; false if anything is malformed. */
static bool read_bytes(const unsigned char *bytes, size_t len, struct block *block, struct zone_rule *rule,
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
static void drop_idle(weir_zone *zone)
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

/* Fills a zone that has room for all transitions of the block and RULE_TRANSITIONS more. A NULL rule is none. */
static void fill(weir_zone *zone, const struct block *block, const struct zone_rule *rule)
{
    /* Without transitions the rule applies to all times; otherwise to those after the last one. */
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
        add_rule(zone, rule, only_rule ? INT64_MIN : block_time(block, block->transition_count - 1));
    drop_idle(zone);
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
    struct zone_rule rule;
    bool has_rule;
    weir_zone *zone;

    /* The bound on the length is what keeps the number of transitions in an int32_t. */
    if (len > FILE_MAX || !read_bytes(bytes, len, &block, &rule, &has_rule))
        return WEIR_EZONE;
    zone = make_zone(block.transition_count + RULE_TRANSITIONS);
    if (!zone)
        return WEIR_ENOMEM;
    fill(zone, &block, has_rule ? &rule : NULL);
    *out = zone;
    return 0;
}

/* ---- The database ---- */

/* Only names inside the database: the name of a zone must not select any other file of the system. */
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
        /* Non-blocking: it may be a pipe. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    } while (fd < 0 && errno == EINTR);
    return fd;
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
    len = weir__read_fully(fd, bytes, (size_t)about.st_size);
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
