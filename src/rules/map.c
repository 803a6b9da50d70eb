/*
 * A hash table with linear probing, at most half full: slots of 8 bytes refer to records in one block of memory, each
 * the length of its key (0: a SHA-256 of 32 bytes), the key, the length of the value, the value.
 */
#include "rules/map.h"
#include "base/hash.h"
#include "base/sha256.h"
#include "rules/yaml.h"

#include <stdlib.h>

struct slot {
    uint32_t tag; /* upper half of the hash */
    uint32_t at;  /* offset of the record, plus 1; 0: empty */
};

struct weir__map {
    uint32_t holders;
    uint32_t mask; /* number of slots, a power of 2, minus 1 */
    size_t plain, digests;
    size_t used; /* bytes of records */
    uint64_t seed;
    struct slot *slots;
    unsigned char *records;
};

#define NO_VALUE ((weir_text){"", 0})

/* ---- Searching ---- */

/* The slot of a key, or the empty one where it would be. */
static struct slot *seek(const struct weir__map *map, bool digest, weir_text key)
{
    uint64_t hash = weir__hash_text(key, map->seed + digest);
    unsigned len = digest ? 0 : (unsigned)key.len;
    for (uint32_t i = (uint32_t)hash & map->mask;; i = (i + 1) & map->mask) {
        struct slot *slot = &map->slots[i];
        if (!slot->at)
            return slot;
        const unsigned char *record = map->records + (slot->at - 1);
        if (slot->tag == hash >> 32 && *record == len && memcmp(record + 1, key.data, key.len) == 0)
            return slot;
    }
}

static weir_text value_in(const struct weir__map *map, const struct slot *slot, size_t key_len)
{
    if (!slot->at)
        return NO_VALUE;
    const unsigned char *value = map->records + slot->at + key_len;
    return (weir_text){(const char *)value + 1, *value};
}

weir_text weir__map_find(const struct weir__map *map, weir_text key)
{
    uint8_t digest[WEIR__SHA256_BYTES];
    weir_text value = NO_VALUE;
    if (map->plain && key.len > 0 && key.len <= WEIR__MAP_TEXT_MAX)
        value = value_in(map, seek(map, false, key), key.len);
    if (value.len || !map->digests || !key.len)
        return value;
    weir__sha256(key.data, key.len, digest);
    return value_in(map, seek(map, true, (weir_text){(const char *)digest, sizeof digest}), sizeof digest);
}

size_t weir__map_count(const struct weir__map *map)
{
    return map->plain + map->digests;
}

size_t weir__map_bytes(const struct weir__map *map)
{
    return sizeof *map + ((size_t)map->mask + 1) * sizeof *map->slots + map->used;
}

/* ---- Holders ---- */

struct weir__map *weir__map_hold(struct weir__map *map)
{
    map->holders++;
    return map;
}

void weir__map_release(struct weir__map *map)
{
    if (!map || --map->holders)
        return;
    free(map->slots);
    free(map->records);
    free(map);
}

/* With room for entries whose records have this many bytes. NULL: no memory. */
static struct weir__map *map_new(size_t entries, size_t bytes)
{
    struct weir__map *map = calloc(1, sizeof *map);
    size_t slots = 2;
    while (slots < 2 * entries)
        slots *= 2;
    if (!map)
        return NULL;
    map->holders = 1;
    map->mask = (uint32_t)slots - 1;
    map->slots = calloc(slots, sizeof *map->slots);
    map->records = malloc(bytes + 1);
    if (map->slots && map->records) {
        map->seed = (uintptr_t)map->slots; /* so that keys that collide in one process do not in another */
        return map;
    }
    weir__map_release(map);
    return NULL;
}

struct weir__map *weir__map_none(void)
{
    return map_new(0, 0);
}

/* ---- Entries ---- */

struct map_reader {
    struct weir__map *map;
    struct weir__diagnostics *report;
    uint32_t *lines; /* of the entries, by slot */
    bool full;       /* WEIR__MAP_ENTRIES_MAX was reported */
};

/* UTF-8 without control characters. Fast path: printable ASCII. */
static bool is_sound(weir_text text)
{
    unsigned odd = 0;
    for (size_t i = 0; i < text.len; i++)
        odd |= (unsigned char)(text.data[i] - ' ') > '~' - ' ';
    return !odd || weir__text_sound(text);
}

static bool check_text(const struct map_reader *r, struct weir__place place, weir_text text, const char *what)
{
    if (!text.len)
        return weir__report_error(r->report, place, "the %s is empty: expected 1 to %d bytes", what,
                                  WEIR__MAP_TEXT_MAX);
    if (text.len > WEIR__MAP_TEXT_MAX)
        return weir__report_error(r->report, place, "the %s has more than %d bytes%s", what, WEIR__MAP_TEXT_MAX,
                                  *what == 'k' ? ": write sha256: and the SHA-256 of such a key" : "");
    if (!is_sound(text))
        return weir__report_error(r->report, place, "the %s has a control character, or bytes that are not UTF-8",
                                  what);
    return true;
}

/* Decodes "sha256:HEX". False after an error. */
static bool read_digest(const struct map_reader *r, struct weir__place place, weir_text hex,
                        uint8_t digest[WEIR__SHA256_BYTES])
{
    bool good = hex.len == 2 * WEIR__SHA256_BYTES;
    for (size_t i = 0; good && i < hex.len; i += 2) {
        int high = weir__hex_value(hex.data[i]), low = weir__hex_value(hex.data[i + 1]);
        good = high >= 0 && low >= 0;
        digest[i / 2] = (uint8_t)(high * 16 + low);
    }
    return good || weir__report_error(r->report, place,
                                      "expected %d hexadecimal digits behind sha256:", 2 * WEIR__SHA256_BYTES);
}

static void append(struct weir__map *map, unsigned len, weir_text text)
{
    map->records[map->used] = (unsigned char)len;
    memcpy(map->records + map->used + 1, text.data, text.len);
    map->used += 1 + text.len;
}

static void add_entry(struct map_reader *r, struct weir__place place, weir_text key, weir_text value)
{
    struct weir__map *map = r->map;
    uint8_t bytes[WEIR__SHA256_BYTES];
    if (!check_text(r, place, key, "key") || !check_text(r, place, value, "value"))
        return;
    bool digest = weir__text_skip(&key, "sha256:");
    if (digest && !read_digest(r, place, key, bytes))
        return;
    if (digest)
        key = (weir_text){(const char *)bytes, sizeof bytes};
    struct slot *slot = seek(map, digest, key);
    if (slot->at) {
        weir__report_error(r->report, place, "this key is here a second time: it is already on line %u",
                           r->lines[slot - map->slots]);
        return;
    }
    if (weir__map_count(map) == WEIR__MAP_ENTRIES_MAX) {
        if (!r->full)
            weir__report_error(r->report, place, "there are more than %d entries", WEIR__MAP_ENTRIES_MAX);
        r->full = true;
        return;
    }
    *slot = (struct slot){(uint32_t)(weir__hash_text(key, map->seed + digest) >> 32), (uint32_t)map->used + 1};
    r->lines[slot - map->slots] = place.line;
    append(map, digest ? 0 : (unsigned)key.len, key);
    append(map, (unsigned)value.len, value);
    *(digest ? &map->digests : &map->plain) += 1;
}

/* Reports keys that are there both as they are and as their SHA-256. */
static void check_both(const struct map_reader *r)
{
    const struct weir__map *map = r->map;
    uint8_t digest[WEIR__SHA256_BYTES];
    for (size_t i = 0; map->plain && map->digests && i <= map->mask; i++) {
        const unsigned char *record = map->slots[i].at ? map->records + (map->slots[i].at - 1) : NULL;
        if (!record || !*record)
            continue;
        weir__sha256(record + 1, *record, digest);
        const struct slot *other = seek(map, true, (weir_text){(const char *)digest, sizeof digest});
        struct weir__place place = {0, r->lines[i], 1};
        if (other->at)
            weir__report_error(r->report, place, "this key is here a second time: its SHA-256 is on line %u",
                               r->lines[other - map->slots]);
    }
}

/* ---- CSV ---- */

/*
 * Reads a field of a line, up to a comma or the end, which *line becomes the rest from. Quoted, it is unquoted into
 * `room`, of which one byte more than a field may have is used. False after an error.
 */
static bool read_field(const struct map_reader *r, struct weir__place place, weir_text *line,
                       char room[WEIR__MAP_TEXT_MAX + 1], weir_text *field)
{
    weir_text rest = weir__text_trim(*line);
    if (!rest.len || *rest.data != '"') {
        const char *comma = rest.len ? memchr(rest.data, ',', rest.len) : NULL;
        size_t len = comma ? (size_t)(comma - rest.data) : rest.len;
        *field = weir__text_trim((weir_text){rest.data, len});
        *line = (weir_text){rest.data + len, rest.len - len};
        return true;
    }
    size_t len = 0, i = 1;
    for (; i < rest.len; i++) {
        if (rest.data[i] == '"' && (i + 1 == rest.len || rest.data[++i] != '"'))
            break;
        if (len <= WEIR__MAP_TEXT_MAX)
            room[len++] = rest.data[i];
    }
    bool closed = i < rest.len;
    i += closed && rest.data[i] == '"';
    *field = (weir_text){room, len};
    *line = weir__text_trim((weir_text){rest.data + i, rest.len - i});
    if (!closed)
        return weir__report_error(r->report, place, "this quote is not closed in its line");
    return true;
}

static bool is_pair(weir_text a, weir_text b, weir_text from, weir_text to)
{
    return weir__text_equal_nocase(a, from) && weir__text_equal_nocase(b, to);
}

/* Returns whether the file is more than nothing: has entries, or a header. */
static bool read_csv(struct map_reader *r, weir_text text, weir_text from, weir_text to)
{
    char rooms[2][WEIR__MAP_TEXT_MAX + 1];
    struct weir__place place = {0, 0, 1};
    bool any = false;
    if (weir__has_byte_order_mark(text))
        text = (weir_text){text.data + 3, text.len - 3};
    while (text.len && !r->full) {
        weir_text line = weir__text_cut(&text, '\n'), key, value;
        place.line++;
        if (line.len && line.data[line.len - 1] == '\r')
            line.len--;
        line = weir__text_trim(line);
        if (!line.len || *line.data == '#')
            continue;
        bool first = !any;
        any = true;
        if (!read_field(r, place, &line, rooms[0], &key))
            continue;
        bool two = line.len && *line.data == ',';
        if (two) {
            line = (weir_text){line.data + 1, line.len - 1};
            if (!read_field(r, place, &line, rooms[1], &value))
                continue;
        }
        if (!two || line.len)
            weir__report_error(r->report, place, "expected a key and a value with a comma between them");
        else if (!first ||
                 !(is_pair(key, value, from, to) || is_pair(key, value, WEIR__TEXT("key"), WEIR__TEXT("value"))))
            add_entry(r, place, key, value);
    }
    return any;
}

static size_t lines_in(weir_text text)
{
    size_t lines = 1;
    while (text.len) {
        (void)weir__text_cut(&text, '\n');
        lines++;
    }
    return lines;
}

/* ---- YAML ---- */

static void read_yaml(struct map_reader *r, const struct weir__node *root)
{
    for (const struct weir__node *member = root->first; member; member = member->next) {
        if (member->kind != WEIR__SCALAR || weir__node_is_null(member))
            weir__node_error(member, "expected a text, not %s", weir__node_is(member));
        else
            add_entry(r, member->name->place, member->name->text, member->text);
    }
}

static size_t bytes_in(const struct weir__node *root)
{
    size_t bytes = 0;
    for (const struct weir__node *member = root->first; member; member = member->next)
        bytes += member->name->text.len + member->text.len + 2;
    return bytes;
}

/* ---- Reading ---- */

bool weir__map_is_yaml(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* Reads a file whose YAML tree is `root`; NULL: CSV. */
static struct weir__map *read_entries(struct weir__diagnostics *report, const struct weir__node *root, weir_text from,
                                      weir_text to)
{
    weir_text text = report->sources->text;
    struct weir__place file = {0, 0, 0};
    size_t entries = root ? root->count : lines_in(text);
    if (entries > WEIR__MAP_ENTRIES_MAX)
        entries = WEIR__MAP_ENTRIES_MAX;
    /* A line of CSV is not shorter than its record. */
    struct map_reader r = {.map = map_new(entries, root ? bytes_in(root) : text.len + 1), .report = report};
    r.lines = r.map ? calloc((size_t)r.map->mask + 1, sizeof *r.lines) : NULL;
    if (!r.lines) {
        weir__map_release(r.map);
        return NULL;
    }
    if (root)
        read_yaml(&r, root);
    else if (!read_csv(&r, text, from, to))
        weir__report_error(report, file, "the file is empty: without entries it needs the line key,value");
    check_both(&r);
    free(r.lines);
    if (report->errors) {
        weir__map_release(r.map);
        return NULL;
    }
    unsigned char *fitting = realloc(r.map->records, r.map->used + 1);
    r.map->records = fitting ? fitting : r.map->records;
    return r.map;
}

struct weir__map *weir__map_read(struct weir__diagnostics *report, weir_text from, weir_text to)
{
    struct weir__arena arena = {.bytes_max = WEIR__MAP_BYTES_MAX * 4};
    const struct weir__node *root = NULL;
    report->secret = true;
    bool good = true;
    if (weir__map_is_yaml(report->sources->name)) {
        int errors = report->errors;
        root = weir__yaml_read(0, &arena, report);
        if (arena.failed && !arena.full) /* no error of the file: reading it may succeed later */
            report->errors = errors;
        good = root && (root->kind == WEIR__MAP ||
                        weir__node_error(root, "expected a map of keys to values, not %s", weir__node_is(root)));
    }
    struct weir__map *map = good ? read_entries(report, root, from, to) : NULL;
    weir__arena_free(&arena);
    return map;
}
