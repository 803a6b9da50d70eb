/* Time zones: from the bytes of a TZif file (RFC 8536) to the transitions that calendar windows need. */
#ifndef WEIR_ENGINE_TIMEZONE_H
#define WEIR_ENGINE_TIMEZONE_H

#include <stddef.h>

#include <weir/weir.h>

#include "algo/calendar.h"

/* Years for which the rule is written out. The first one matters only to files that are nothing but a rule. */
#define WEIR__RULE_YEAR_FIRST 1900
#define WEIR__RULE_YEAR_LAST  2200
#define WEIR__RULE_TURNS      (2 * (WEIR__RULE_YEAR_LAST - WEIR__RULE_YEAR_FIRST + 1))

/* When summer time starts or ends, in every year. */
struct weir__date {
    char form; /* 'J': day 1 to 365, never 29 February; 'N': day 0 to 365; 'M': month, week, day of the week */
    int32_t day, month, week;
    int32_t time_s; /* local time, in the offset that ends here; may be before or after the day */
};

struct weir__zone_rule {
    int32_t std_s, dst_s; /* offsets: east of UTC is positive here, not as in the text */
    bool has_dst;
    struct weir__date start, end; /* of dst */
};

/*
 * Makes a zone of the `len` bytes of a TZif file, which may be hostile. The zone's transitions are strictly rising,
 * each changes the offset, and no offset is 26 hours or more; those that follow from the rule in the footer are written
 * out up to the end of the year 2200. Returns 0; or, with *out untouched, WEIR_EZONE if the bytes are malformed or
 * count leap seconds (as the "right" zones do, but weir's clock does not), or WEIR_ENOMEM. The zone is to be freed
 * with weir_zone_close.
 */
WEIR_MUST_CHECK int weir__zone_parse(const unsigned char *bytes, size_t len, weir_zone **out);

/* Reads all of the text from `begin` up to `end`, which may be hostile, as a rule. False if it is not one. */
WEIR_MUST_CHECK bool weir__zone_read_rule(const unsigned char *begin, const unsigned char *end,
                                          struct weir__zone_rule *rule);

/* Adds at most WEIR__RULE_TURNS transitions to the zone, which has room for them, all of them after `after_s`. */
void weir__zone_add_rule(weir_zone *zone, const struct weir__zone_rule *rule, int64_t after_s);

#endif
