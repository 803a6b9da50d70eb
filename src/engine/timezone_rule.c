/*
 * The rule that a TZif file ends with, in the form of the TZ variable of POSIX: read, and written out as transitions,
 * once, so that whoever uses a zone later only has to look transitions up.
 */
#include "engine/timezone.h"

#define HOUR_S 3600
#define DAY_S  INT64_C(86400)

#define FIRST_DAY (-25567) /* of WEIR__RULE_YEAR_FIRST, in days since 1970 */

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

static bool read_date(struct text *text, struct weir__date *date)
{
    bool good;

    *date = (struct weir__date){.form = 'N', .time_s = 2 * HOUR_S};
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

/* A name for summer time without dates is refused: any dates would be a guess. */
bool weir__zone_read_rule(const unsigned char *begin, const unsigned char *end, struct weir__zone_rule *rule)
{
    struct text text = {begin, end};

    *rule = (struct weir__zone_rule){.has_dst = false};
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
static int32_t date_day(const struct weir__date *date, int32_t new_year, bool leap)
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

void weir__zone_add_rule(weir_zone *zone, const struct weir__zone_rule *rule, int64_t after_s)
{
    int32_t new_year = FIRST_DAY;

    if (!rule->has_dst)
        return;
    for (int32_t year = WEIR__RULE_YEAR_FIRST; year <= WEIR__RULE_YEAR_LAST; year++) {
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
