/* Shared by the tests of time zones: checking a zone, and making the bytes of one. */
#ifndef WEIR_TEST_ZONES_H
#define WEIR_TEST_ZONES_H

#include "../../test.h"

#include "algo/algo.h"
#include "engine/rule_files.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline int32_t offset_at(const weir_zone *zone, int64_t at_s)
{
    int32_t offset = zone->offset_s;

    for (int32_t i = 0; i < zone->count && zone->transition[i].at_s <= at_s; i++)
        offset = zone->transition[i].offset_s;
    return offset;
}

/* The guarantees of weir__zone_parse for every zone, hostile bytes or not. */
static inline void check_sound(const weir_zone *zone)
{
    int32_t offset = zone->offset_s;

    CHECK(offset > -26 * 3600 && offset < 26 * 3600);
    CHECK(zone->count >= 0);
    for (int32_t i = 0; i < zone->count; i++) {
        CHECK(i == 0 || zone->transition[i].at_s > zone->transition[i - 1].at_s);
        CHECK(zone->transition[i].offset_s != offset);
        offset = zone->transition[i].offset_s;
        CHECK(offset > -26 * 3600 && offset < 26 * 3600);
    }
}

/* A TZif file under construction. */
struct file {
    size_t len;
    unsigned char bytes[2048];
};

static inline void put(struct file *file, const void *bytes, size_t len)
{
    memcpy(file->bytes + file->len, bytes, len);
    file->len += len;
}

static inline void put_number(struct file *file, int64_t number, int width)
{
    for (int i = width - 1; i >= 0; i--)
        file->bytes[file->len++] = (unsigned char)((uint64_t)number >> (8 * i));
}

/* A block with `count` transitions; transition i is to type i, which has the transition's offset. At least one type,
 * UTC. */
static inline void put_block(struct file *file, char version, int width,
                             const struct weir__zone_transition *transitions, int count)
{
    char reserved[15] = {0};

    put(file, "TZif", 4);
    put(file, &version, 1);
    put(file, reserved, 15);
    put_number(file, 0, 4);
    put_number(file, 0, 4);
    put_number(file, 0, 4);
    put_number(file, count, 4);
    put_number(file, count ? count : 1, 4);
    put_number(file, 4, 4);
    for (int i = 0; i < count; i++)
        put_number(file, transitions[i].at_s, width);
    for (int i = 0; i < count; i++)
        put_number(file, i, 1);
    for (int i = 0; i < (count ? count : 1); i++) {
        put_number(file, count ? transitions[i].offset_s : 0, 4);
        put_number(file, 0, 2);
    }
    put(file, "XXX", 4);
}

static inline struct file make_file(char version, const struct weir__zone_transition *transitions, int count,
                                    const char *footer)
{
    struct file file = {0};

    if (version == '\0') {
        put_block(&file, version, 4, transitions, count);
    } else {
        put_block(&file, version, 4, NULL, 0);
        put_block(&file, version, 8, transitions, count);
        put(&file, footer, strlen(footer));
    }
    return file;
}

static inline int parse_rule(const char *rule, weir_zone **zone)
{
    char footer[256];
    struct file file;

    snprintf(footer, sizeof footer, "\n%s\n", rule);
    file = make_file('3', NULL, 0, footer);
    return weir__zone_parse(file.bytes, file.len, zone);
}

/* Parses a copy of exactly `len` bytes, so that a sanitizer detects a read beyond them. */
static inline int parse_copy(const unsigned char *bytes, size_t len, weir_zone **zone)
{
    unsigned char *copy = malloc(len ? len : 1);
    int error;

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    error = weir__zone_parse(copy, len, zone);
    free(copy);
    return error;
}

#endif
