/*
 * Time zones: agreement with the C library, the rule in the footer, and the file format. Hostile input:
 * test_timezone_hostile.c.
 */
#include <time.h>
#include <unistd.h>

#include "timezones.h"

#define DAY INT64_C(86400)

/* ---- Helpers ---- */

static long libc_offset_at(int64_t at_s)
{
    time_t at = (time_t)at_s;
    struct tm tm;

    localtime_r(&at, &tm);
    return tm.tm_gmtoff;
}

static void libc_zone(const char *name)
{
    if (name)
        setenv("TZ", name, 1);
    else
        unsetenv("TZ");
    tzset();
}

/* Random moments from 1971 to 2150, and the seconds around each transition in between. */
static void check_against_libc(const char *libc_name, const weir_zone *zone, uint64_t seed)
{
    int64_t from = 365 * DAY, to = 180 * 36525 * DAY / 100;

    check_sound(zone);
    libc_zone(libc_name);
    for (int i = 0; i < 4000; i++) {
        int64_t at = from + (int64_t)(test_random(&seed) % (uint64_t)(to - from));
        CHECK_EQ(offset_at(zone, at), libc_offset_at(at));
    }
    for (int32_t i = 0; i < zone->count; i++) {
        int64_t at = zone->transition[i].at_s;
        if (at > from && at < to) {
            CHECK_EQ(offset_at(zone, at), libc_offset_at(at));
            CHECK_EQ(offset_at(zone, at - 1), libc_offset_at(at - 1));
        }
    }
    libc_zone(NULL);
}

/* ---- Against the C library ---- */

TEST(zones_agree_with_the_c_library)
{
    static const char *const names[] = {"Europe/Berlin",
                                        "America/New_York",
                                        "Australia/Lord_Howe",
                                        "Asia/Kolkata",
                                        "Pacific/Apia",
                                        "America/Sao_Paulo",
                                        "Asia/Beirut",
                                        "Africa/Casablanca",
                                        "America/Havana",
                                        "Antarctica/Troll",
                                        "UTC",
                                        "Asia/Kathmandu",
                                        "Europe/Dublin",
                                        "America/Nuuk",
                                        "Asia/Gaza",
                                        "Africa/Cairo",
                                        "America/St_Johns",
                                        "Pacific/Chatham"};

    for (size_t i = 0; i < COUNT(names); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(weir_zone_open(names[i], &zone), 0); /* needs tzdata */
        if (zone)
            check_against_libc(names[i], zone, i);
        weir_zone_close(zone);
    }
}

TEST(rules_agree_with_the_c_library)
{
    static const char *const rules[] = {"CET-1CEST,M3.5.0,M10.5.0/3",
                                        "EST5EDT,M3.2.0,M11.1.0",
                                        "AEST-10AEDT,M10.1.0,M4.1.0/3",
                                        "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
                                        "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1",
                                        "IST-1GMT0,M10.5.0,M3.5.0/1",
                                        "EET-2EEST,M3.4.4/50,M10.4.4/50",
                                        "XYZ3ABC,J60,J300/4:30:15",
                                        "XYZ3ABC,59,299/4:30",
                                        "<+0545>-5:45",
                                        "UTC0",
                                        "AAA-14:59:59BBB-15:30,M2.5.1/24,M9.4.6/0",
                                        "ABC+8DEF7:00,J59/-30,J61/100",
                                        "<+00>0<+02>-2,M3.5.0/1,M10.5.0/3"};

    for (size_t i = 0; i < COUNT(rules); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(parse_rule(rules[i], &zone), 0);
        if (zone)
            check_against_libc(rules[i], zone, i);
        weir_zone_close(zone);
    }
}

/* ---- The rule in the footer ---- */

TEST(rule_is_written_out_to_2200)
{
    weir_zone *zone = NULL;
    int64_t last = 0;

    CHECK_EQ(parse_rule("CET-1CEST,M3.5.0,M10.5.0/3", &zone), 0);
    if (zone && zone->count)
        last = zone->transition[zone->count - 1].at_s;
    CHECK_EQ(last, INT64_C(7283869200)); /* 2200-10-26 01:00 UTC */
    weir_zone_close(zone);
}

/* Summer time that ends when, or after, it starts again; and the same of winter time. */
TEST(same_time_all_year_is_one_offset)
{
    static const struct {
        const char *rule;
        int32_t offset_s;
    } cases[] = {
        {"EST5EDT,0/0,J365/25", -4 * 3600}, {"EST5EDT,0/0,J365/100", -4 * 3600}, {"EST5EDT,J365/25,0/2", -5 * 3600}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(parse_rule(cases[i].rule, &zone), 0);
        CHECK(zone && zone->count <= 1);
        for (int64_t at = 0; zone && at < 200 * 365 * DAY; at += DAY / 2)
            CHECK_EQ(offset_at(zone, at), cases[i].offset_s);
        weir_zone_close(zone);
    }
}

TEST(rule_applies_after_the_last_transition)
{
    /* New York as if it had kept UTC-3 up to 1 July 2040. */
    struct weir__zone_transition transitions[] = {{0, -3 * 3600}, {INT64_C(2224713600), -4 * 3600}};
    struct file file = make_file('2', transitions, 2, "\nEST5EDT,M3.2.0,M11.1.0\n");
    weir_zone *zone = NULL;

    CHECK_EQ(parse_copy(file.bytes, file.len, &zone), 0);
    if (zone) {
        CHECK_EQ(zone->count, 1 + 1 + 2 * (2200 - 2040));
        CHECK_EQ(offset_at(zone, transitions[1].at_s - 1), -3 * 3600);
        CHECK_EQ(offset_at(zone, transitions[1].at_s), -4 * 3600);
        CHECK_EQ(offset_at(zone, transitions[1].at_s + 180 * DAY), -5 * 3600);
    }
    weir_zone_close(zone);
}

/* ---- The file format ---- */

TEST(all_versions_are_read)
{
    struct weir__zone_transition transitions[] = {{-100, 60}, {1000, 3600}, {2000, 3600}, {3000, -3600}};
    static const char versions[] = {'\0', '2', '3', '4'};

    for (size_t i = 0; i < COUNT(versions); i++) {
        struct file file = make_file(versions[i], transitions, 4, "\n\n");
        weir_zone *zone = NULL;
        CHECK_EQ(parse_copy(file.bytes, file.len, &zone), 0);
        if (!zone)
            continue;
        CHECK_EQ(zone->count, 2); /* the others change nothing */
        CHECK_EQ(offset_at(zone, 999), 60);
        CHECK_EQ(offset_at(zone, 1000), 3600);
        CHECK_EQ(offset_at(zone, 2999), 3600);
        CHECK_EQ(offset_at(zone, 3000), -3600);
        weir_zone_close(zone);
    }
}

TEST(transitions_at_the_limits_of_time_are_dropped)
{
    struct weir__zone_transition transitions[] = {{INT64_MIN, 1}, {-(INT64_C(1) << 59), 2}, {0, 3}, {INT64_MAX, 4}};
    struct file file = make_file('2', transitions, 4, "\nEST5EDT,M3.2.0,M11.1.0\n");
    weir_zone *zone = NULL;

    CHECK_EQ(parse_copy(file.bytes, file.len, &zone), 0);
    if (zone) {
        CHECK_EQ(zone->offset_s, 2);
        CHECK_EQ(zone->count, 1);
        CHECK_EQ(offset_at(zone, 0), 3);
    }
    weir_zone_close(zone);
}

/* ---- The database ---- */

TEST(utc_needs_no_database)
{
    weir_zone *zone = NULL;

    setenv("TZDIR", "/nonexistent", 1);
    CHECK_EQ(weir_zone_open("UTC", &zone), 0);
    CHECK(zone && zone->count == 0 && zone->offset_s == 0);
    weir_zone_close(zone);
    zone = NULL;
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), WEIR_EZONE);
    setenv("TZDIR", "", 1); /* like unset */
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), 0);
    weir_zone_close(zone);
    unsetenv("TZDIR");
}

TEST(files_are_closed_again)
{
    int before = dup(0), after;
    weir_zone *zone = NULL;

    close(before);
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), 0);
    weir_zone_close(zone);
    CHECK_EQ(weir_zone_open("Europe", &zone), WEIR_EZONE);
    CHECK_EQ(weir_zone_open("zone.tab", &zone), WEIR_EZONE);
    after = dup(0);
    close(after);
    CHECK_EQ(after, before);
}

TEST_MAIN
