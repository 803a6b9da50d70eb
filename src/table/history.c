/* History of rules: see history.h. */
#include "table/history.h"

#include <string.h>

const struct weir__row_format weir__history_format = {.magic = UINT64_C(0x0a545349485245f7),
                                                      .layout = 3,
                                                      .rows_min = 1,
                                                      .header_bytes = sizeof(struct weir__history_header),
                                                      .row_bytes = sizeof(struct weir__history_row)};

bool weir__history_attach(void *memory, size_t bytes, struct weir__history *history)
{
    struct weir__history_header *header = memory;
    uint32_t rows = weir__row_file_rows(memory, bytes, &weir__history_format);
    if (!rows)
        return false;
    *history =
        (struct weir__history){.header = header, .row = (struct weir__history_row *)(void *)(header + 1), .rows = rows};
    return true;
}

/* ---- Writing: one process ---- */

static void clear(struct weir__history_second *second)
{
    weir__store32(&second->allowed, 0);
    weir__store32(&second->delayed, 0);
    weir__store32(&second->denied, 0);
    weir__store32(&second->shed, 0);
}

void weir__history_begin(struct weir__history *history, uint64_t second)
{
    uint64_t last = weir__load64(&history->header->last);
    if (second <= last)
        return;
    uint64_t gap = second - last < WEIR__HISTORY_SECONDS ? second - last : WEIR__HISTORY_SECONDS;
    for (uint32_t i = 0; i < history->rows; i++)
        for (uint64_t back = 0; weir__load64(&history->row[i].rule) && back < gap; back++)
            clear(&history->row[i].second[(second - back) % WEIR__HISTORY_SECONDS]);
}

/* The rule's row, or the least recently written one, reset for the rule. */
static struct weir__history_row *row_for(struct weir__history *history, uint64_t second, uint64_t rule,
                                         const uint64_t now[4])
{
    struct weir__history_row *oldest = &history->row[0];
    for (uint32_t i = 0; i < history->rows; i++) {
        struct weir__history_row *row = &history->row[i];
        uint64_t known = weir__load64(&row->rule);
        if (known == rule)
            return row;
        if (oldest->rule && (!known || row->used < oldest->used))
            oldest = row;
    }
    if (oldest->rule && oldest->used + 1 >= second)
        return NULL; /* all rows are in use */
    weir__store64(&oldest->rule, 0);
    for (size_t i = 0; i < WEIR__HISTORY_SECONDS; i++)
        clear(&oldest->second[i]);
    for (size_t i = 0; i < WEIR__HISTORY_HOURS; i++)
        weir__store64(&oldest->hour[i].hour, 0);
    memcpy(oldest->seen, now, sizeof oldest->seen);
    weir__store64(&oldest->first, second);
    weir__store64(&oldest->used, second);
    weir__store64(&oldest->rule, rule);
    return oldest;
}

/* Increase since the last write; a sum that has become smaller belongs to a new segment. */
static uint32_t since(uint64_t *seen, uint64_t now)
{
    uint64_t more = now >= *seen ? now - *seen : now;
    *seen = now;
    return more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
}

/* A new hour replaces the one of eight days ago. */
static void add_to_hour(struct weir__history_row *row, uint64_t second, const struct weir__history_second *added,
                        uint32_t most)
{
    uint64_t number = second / 3600;
    struct weir__history_hour *hour = &row->hour[number % WEIR__HISTORY_HOURS];
    if (weir__load64(&hour->hour) != number) {
        weir__store64(&hour->hour, 0);
        weir__store64(&hour->allowed, 0);
        weir__store64(&hour->denied, 0);
        weir__store32(&hour->looked, 0);
        weir__store32(&hour->most, WEIR__HISTORY_UNSEEN);
        weir__store64(&hour->hour, number);
    }
    weir__store64(&hour->allowed, hour->allowed + added->allowed + added->delayed);
    weir__store64(&hour->denied, hour->denied + added->denied);
    weir__store32(&hour->looked, hour->looked + 1);
    if (most != WEIR__HISTORY_UNSEEN && (hour->most == WEIR__HISTORY_UNSEEN || most > hour->most))
        weir__store32(&hour->most, most);
}

void weir__history_add(struct weir__history *history, uint64_t second, uint64_t rule,
                       const struct weir__rule_stats_shard *sums, uint32_t most)
{
    const uint64_t now[4] = {sums->allowed, sums->delayed, sums->denied, sums->shed};
    struct weir__history_row *row = rule ? row_for(history, second, rule, now) : NULL;
    if (!row)
        return;
    struct weir__history_second *at = &row->second[second % WEIR__HISTORY_SECONDS];
    weir__store32(&at->allowed, since(&row->seen[0], now[0]));
    weir__store32(&at->delayed, since(&row->seen[1], now[1]));
    weir__store32(&at->denied, since(&row->seen[2], now[2]));
    weir__store32(&at->shed, since(&row->seen[3], now[3]));
    add_to_hour(row, second, at, most);
    weir__store64(&row->used, second);
}

void weir__history_end(struct weir__history *history, uint64_t second)
{
    if (second > weir__load64(&history->header->last))
        weir__store64(&history->header->last, second);
}

/* ---- Reading ---- */

/* The rule's row, or NULL. */
static const struct weir__history_row *row_of(const struct weir__history *history, uint64_t rule)
{
    for (uint32_t i = 0; rule && i < history->rows; i++)
        if (weir__load64(&history->row[i].rule) == rule)
            return &history->row[i];
    return NULL;
}

size_t weir__history_read(const struct weir__history *history, uint64_t rule, struct weir__history_second *seconds,
                          size_t count)
{
    uint64_t last = weir__load64(&history->header->last);
    const struct weir__history_row *row = last ? row_of(history, rule) : NULL;
    if (!row)
        return 0;
    /* The oldest second is being overwritten. */
    if (count > WEIR__HISTORY_SECONDS - 1)
        count = WEIR__HISTORY_SECONDS - 1;
    uint64_t first = weir__load64(&row->first), known = last >= first ? last - first + 1 : 0;
    if (known < count)
        count = (size_t)known;
    for (size_t at = 0; at < count; at++) {
        const struct weir__history_second *from = &row->second[(last - count + 1 + at) % WEIR__HISTORY_SECONDS];
        seconds[at] = (struct weir__history_second){weir__load32(&from->allowed), weir__load32(&from->delayed),
                                                    weir__load32(&from->denied), weir__load32(&from->shed)};
    }
    return count;
}

size_t weir__history_hours(const struct weir__history *history, uint64_t rule,
                           struct weir__history_hour hours[WEIR__HISTORY_HOURS])
{
    uint64_t last = weir__load64(&history->header->last) / 3600;
    const struct weir__history_row *row = row_of(history, rule);
    size_t count = 0;
    for (uint64_t back = WEIR__HISTORY_HOURS; row && back-- > 0;) {
        const struct weir__history_hour *from = &row->hour[(last - back) % WEIR__HISTORY_HOURS];
        uint64_t number = weir__load64(&from->hour);
        if (back > last || !number || number != last - back)
            continue;
        hours[count++] = (struct weir__history_hour){.hour = number,
                                                     .allowed = weir__load64(&from->allowed),
                                                     .denied = weir__load64(&from->denied),
                                                     .looked = weir__load32(&from->looked),
                                                     .most = weir__load32(&from->most)};
    }
    return count;
}
