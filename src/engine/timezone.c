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
#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Years for which the rule is written out. The first one matters only to files that are nothing but a rule. */
#define RULE_YEAR_FIRST  1900
#define RULE_YEAR_LAST   2200
#define RULE_TRANSITIONS (2 * (RULE_YEAR_LAST - RULE_YEAR_FIRST + 1))
#define RULE_LEN_MAX     255

#define HOUR_S       3600
#define DAY_S        INT64_C(86400)
#define FILE_MAX     (1 << 20)
#define NAME_LEN_MAX 255

/* Offsets are smaller than this either way. RFC 8536 allows -24:59:59 to 25:59:59; calendar.c relies on the bound. */
#define OFFSET_BOUND_S (26 * HOUR_S)

/*
 * Transitions earlier than this only decide the offset before the first one, later ones are dropped: 30,000 years ago
 * and 130,000 years ahead is further than the clock goes, and sums of such numbers cannot overflow.
 */
#define TRANSITION_MIN_S (-(INT64_C(1) << 40))
#define TRANSITION_MAX_S (INT64_C(1) << 42)

/* When summer time starts or ends, in every year. */
struct date {
    char form; /* 'J': day 1 to 365, never 29 February; 'N': day 0 to 365; 'M': month, week, day of the week */
    int32_t day, month, week;
    int32_t time_s; /* local time, in the offset that ends here; may be before or after the day */
};

struct zone_rule {
    int32_t std_s, dst_s; /* offsets: east of UTC is positive here, not as in the text */
    bool given, has_dst;
    struct date start, end; /* of dst */
};

/* ---- The text of a rule: STD offset [DST [offset] , date [/time] , date [/time]] ---- */

static bool eat(const char **at, char c)
{
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

/* Reads a decimal number from min to max. */
static bool read_number(const char **at, int32_t min, int32_t max, int32_t *number)
{
    char *end;
    if (!weir__is_digit(**at))
        return false;
    long value = strtol(*at, &end, 10);
    *at = end;
    *number = value > max ? max : (int32_t)value;
    return value >= min && value <= max;
}

/* Reads [+-]hh[:mm[:ss]]. */
static bool read_time(const char **at, int32_t hours_max, int32_t *seconds)
{
    bool minus = eat(at, '-');
    int32_t h, m = 0, s = 0;
    if (!minus)
        eat(at, '+');
    if (!read_number(at, 0, hours_max, &h) ||
        (eat(at, ':') && (!read_number(at, 0, 59, &m) || (eat(at, ':') && !read_number(at, 0, 59, &s)))))
        return false;
    *seconds = (minus ? -1 : 1) * (h * HOUR_S + m * 60 + s);
    return true;
}

/* Skips the name of a zone: three letters or more, or <quoted> with digits and signs. */
static bool skip_name(const char **at)
{
    bool quoted = eat(at, '<');
    const char *begin = *at;
    while (weir__is_letter(**at) || (quoted && (weir__is_digit(**at) || **at == '+' || **at == '-')))
        (*at)++;
    return *at - begin >= 3 && (!quoted || eat(at, '>'));
}

static bool read_date(const char **at, struct date *date)
{
    bool good;
    *date = (struct date){.form = eat(at, 'M') ? 'M' : eat(at, 'J') ? 'J' : 'N', .time_s = 2 * HOUR_S};
    if (date->form == 'M')
        good = read_number(at, 1, 12, &date->month) && eat(at, '.') && read_number(at, 1, 5, &date->week) &&
               eat(at, '.') && read_number(at, 0, 6, &date->day);
    else
        good = read_number(at, date->form == 'J', 365, &date->day);
    return good && (!eat(at, '/') || read_time(at, 167, &date->time_s));
}

/*
 * Reads a rule, which may be hostile. False if it is malformed. A name for summer time without dates is refused: any
 * dates would be a guess.
 */
static bool read_rule(const char *text, struct zone_rule *rule)
{
    *rule = (struct zone_rule){.given = true};
    if (!skip_name(&text) || !read_time(&text, 24, &rule->std_s))
        return false;
    rule->std_s = -rule->std_s;
    if (!*text)
        return true;
    rule->has_dst = true;
    rule->dst_s = -rule->std_s - HOUR_S;
    if (!skip_name(&text) || (*text != ',' && !read_time(&text, 24, &rule->dst_s)))
        return false;
    rule->dst_s = -rule->dst_s;
    return eat(&text, ',') && read_date(&text, &rule->start) && eat(&text, ',') && read_date(&text, &rule->end) &&
           !*text;
}

/* ---- The rule as transitions ---- */

static bool is_leap(int32_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* The local time of `date` in a year, as seconds since 1970 if it were UTC. */
static int64_t date_time(const struct date *date, int32_t year)
{
    struct tm day = {.tm_year = year - 1900, .tm_mday = 1 + date->day};
    if (date->form == 'J')
        day.tm_mday -= !(is_leap(year) && date->day > 31 + 28);
    if (date->form != 'M')
        return timegm(&day) + date->time_s; /* which normalises days beyond January */
    day.tm_mon = date->month - 1;
    day.tm_mday = 1;
    timegm(&day); /* sets tm_wday */
    day.tm_mday += (date->day - day.tm_wday + 7) % 7 + 7 * (date->week - 1);
    int64_t at_s = timegm(&day);
    /* Week 5 means the last one, and some months have only four of a day. */
    return at_s - (day.tm_mon == date->month - 1 ? 0 : 7 * DAY_S) + date->time_s;
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
    for (int32_t year = RULE_YEAR_FIRST; year <= RULE_YEAR_LAST && rule->has_dst; year++) {
        int64_t start_s = date_time(&rule->start, year) - rule->std_s;
        int64_t end_s = date_time(&rule->end, year) - rule->dst_s;
        add_rule_transition(zone, after_s, start_s, rule->dst_s);
        /* RFC 8536 writes summer time all year round as one that ends when, or after, the next one starts. */
        if (end_s - start_s < DAY_S * (365 + is_leap(year)))
            add_rule_transition(zone, after_s, end_s, rule->std_s);
    }
}

/* ---- The file: a block with 32-bit times and, from version 2 on, one with 64-bit times and the footer ---- */

#define HEADER_LEN 44

struct block {
    uint32_t transition_count, type_count;
    size_t time_len; /* of one moment: 4 or 8 bytes */
    /* transition_count moments, transition_count indexes, type_count of 6 bytes */
    const unsigned char *times, *kinds, *types;
};

static uint64_t big_endian(const unsigned char *at, size_t len)
{
    uint64_t number = 0;
    while (len--)
        number = number << 8 | *at++;
    return number;
}

static int64_t block_time(const struct block *block, uint32_t i)
{
    uint64_t time = big_endian(block->times + i * block->time_len, block->time_len);
    return block->time_len == 4 ? (int32_t)time : (int64_t)time;
}

static int32_t block_offset(const struct block *block, uint32_t type)
{
    return (int32_t)big_endian(block->types + (size_t)type * 6, 4);
}

/*
 * Reads a block and moves *bytes and *len behind it. False if it is not all there, its counts contradict, or it has
 * leap seconds.
 */
static bool read_block(const unsigned char **bytes, size_t *len, size_t time_len, struct block *block)
{
    enum { IS_UT, IS_STD, LEAPS, TRANSITIONS, TYPES, NAME_BYTES, COUNTS };
    const unsigned char *head = *bytes;
    uint64_t n[COUNTS]; /* 64 bits wide, so that no counts can overflow the sum */
    if (*len < HEADER_LEN || memcmp(head, "TZif", 4) != 0)
        return false;
    for (int i = 0; i < COUNTS; i++)
        n[i] = big_endian(head + 20 + 4 * i, 4);
    uint64_t data_len = n[TRANSITIONS] * (time_len + 1) + n[TYPES] * 6 + n[NAME_BYTES] + n[IS_STD] + n[IS_UT];
    if (data_len > *len - HEADER_LEN || n[LEAPS] != 0 || n[TYPES] == 0 || n[NAME_BYTES] == 0 ||
        (n[IS_STD] != 0 && n[IS_STD] != n[TYPES]) || (n[IS_UT] != 0 && n[IS_UT] != n[TYPES]))
        return false;
    *block = (struct block){(uint32_t)n[TRANSITIONS], (uint32_t)n[TYPES], time_len, .times = head + HEADER_LEN};
    block->kinds = block->times + block->transition_count * time_len;
    block->types = block->kinds + block->transition_count;
    *bytes += HEADER_LEN + (size_t)data_len;
    *len -= HEADER_LEN + (size_t)data_len;
    return true;
}

/* Are the offsets in range, the types there and the times rising? */
static bool check_block(const struct block *block)
{
    for (uint32_t i = 0; i < block->type_count; i++)
        if (block_offset(block, i) <= -OFFSET_BOUND_S || block_offset(block, i) >= OFFSET_BOUND_S)
            return false;
    for (uint32_t i = 0; i < block->transition_count; i++)
        if (block->kinds[i] >= block->type_count || (i > 0 && block_time(block, i) <= block_time(block, i - 1)))
            return false;
    return true;
}

/* Reads newline, rule, newline; the rule may be empty. */
static bool read_footer(const unsigned char *bytes, size_t len, struct zone_rule *rule)
{
    char text[RULE_LEN_MAX + 1];
    const unsigned char *end = len && bytes[0] == '\n' ? memchr(bytes + 1, '\n', len - 1) : NULL;
    size_t rule_len = end ? (size_t)(end - bytes - 1) : 0;
    if (!end || rule_len > RULE_LEN_MAX || memchr(bytes, 0, rule_len + 1))
        return false;
    memcpy(text, bytes + 1, rule_len);
    text[rule_len] = 0;
    return !rule_len || read_rule(text, rule);
}

/* Reads the block to use, and the rule if there is one; false if anything is malformed. */
static bool read_bytes(const unsigned char *bytes, size_t len, struct block *block, struct zone_rule *rule)
{
    const unsigned char *head = bytes;
    if (!read_block(&bytes, &len, 4, block))
        return false;
    unsigned char version = head[4];
    if (version == '\0')
        return check_block(block);
    head = bytes;
    return version >= '2' && version <= '4' && read_block(&bytes, &len, 8, block) && head[4] == version &&
           check_block(block) && read_footer(bytes, len, rule);
}

/* Drops transitions that change nothing, and of two at the same moment the first. */
static void drop_idle(weir_zone *zone)
{
    int32_t count = 0;
    for (int32_t i = 0; i < zone->count; i++) {
        if (i + 1 < zone->count && zone->transition[i + 1].at_s == zone->transition[i].at_s)
            continue;
        if (zone->transition[i].offset_s != (count ? zone->transition[count - 1].offset_s : zone->offset_s))
            zone->transition[count++] = zone->transition[i];
    }
    zone->count = count;
}

/* Fills a zone that has room for all transitions of the block and RULE_TRANSITIONS more. */
static void fill(weir_zone *zone, const struct block *block, const struct zone_rule *rule)
{
    /* Without transitions the rule applies to all times; otherwise to those after the last one. */
    bool only_rule = rule->given && block->transition_count == 0;
    zone->offset_s = only_rule ? rule->std_s : block_offset(block, 0);
    for (uint32_t i = 0; i < block->transition_count; i++) {
        int64_t at_s = block_time(block, i);
        int32_t offset_s = block_offset(block, block->kinds[i]);
        if (at_s < TRANSITION_MIN_S)
            zone->offset_s = offset_s;
        else if (at_s <= TRANSITION_MAX_S)
            zone->transition[zone->count++] = (struct weir__zone_transition){at_s, offset_s};
    }
    if (rule->given)
        add_rule(zone, rule, only_rule ? INT64_MIN : block_time(block, block->transition_count - 1));
    drop_idle(zone);
}

/* A zone with room for so many transitions and none in it. WEIR_ENOMEM. */
static int make_zone(size_t transitions, weir_zone **out)
{
    weir_zone *zone = malloc(sizeof *zone + transitions * sizeof zone->transition[0]);
    if (!zone)
        return WEIR_ENOMEM;
    *zone = (weir_zone){.offset_s = 0, .count = 0};
    *out = zone;
    return 0;
}

int weir__zone_parse(const unsigned char *bytes, size_t len, weir_zone **out)
{
    struct block block;
    struct zone_rule rule = {.given = false};
    /* The bound on the length is what keeps the number of transitions in an int32_t. */
    if (len > FILE_MAX || !read_bytes(bytes, len, &block, &rule))
        return WEIR_EZONE;
    int error = make_zone(block.transition_count + RULE_TRANSITIONS, out);
    if (!error)
        fill(*out, &block, &rule);
    return error;
}

/* ---- The database ---- */

/* Writes the path of a zone's file. False: the name is not that of a zone. */
static bool find_file(const char *name, char path[PATH_MAX])
{
    const char *dir = getenv("TZDIR");
    /* Only names inside the database: the name of a zone must not select any other file of the system. */
    size_t name_len = name ? strnlen(name, NAME_LEN_MAX + 1) : 0;
    if (!name_len || name_len > NAME_LEN_MAX || name[0] == '/' || strstr(name, ".."))
        return false;
    return snprintf(path, PATH_MAX, "%s/%s", dir && dir[0] ? dir : "/usr/share/zoneinfo", name) < PATH_MAX;
}

/*
 * Returns 0; or, with *zone untouched, WEIR_EINVAL without a place to put it, WEIR_EZONE if there is no such zone or
 * its file is unreadable, malformed or over 1 MiB, or WEIR_ENOMEM. "UTC" needs no file.
 */
int weir_zone_open(const char *name, weir_zone **zone)
{
    if (!zone)
        return WEIR_EINVAL;
    if (name && strcmp(name, "UTC") == 0)
        return make_zone(0, zone);
    char path[PATH_MAX];
    size_t len;
    errno = 0; /* stays so if the file is too long or not regular */
    char *bytes = find_file(name, path) ? weir__file_read_short(path, FILE_MAX, &len) : NULL;
    if (!bytes)
        return errno == ENOMEM ? WEIR_ENOMEM : WEIR_EZONE;
    int error = weir__zone_parse((const unsigned char *)bytes, len, zone);
    free(bytes);
    return error;
}

/* NULL is allowed. */
void weir_zone_close(weir_zone *zone)
{
    free(zone);
}
