/* Heartbeats: one host's status as JSON, for the store, the rules service and the .hosts file. See membership.h. */
#include "stats/membership.h"
#include "base/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MAX     1e12
#define EVERY_MIN_MS 100
#define EVERY_MAX_MS INT64_C(86400000)
#define SILENT_TIMES 3 /* heartbeats that may be missing before a host counts as silent */
#define SILENT_MORE  4000
#define RULES_MAX    INT64_C(1000000000)
#define PRINT_DIGITS 16

static const char *const store_names[] = {"none", "unknown", "up", "away"};
const char *const weir__host_via_names[3] = {"here", "store", "rules"};

const char *weir__host_store_name(enum weir__host_store store)
{
    return store_names[store];
}

/* The number of the name that is a member of an object; `otherwise`: it is not one. */
static int index_of(const json_t *object, const char *member, const char *const *names, int count, int otherwise)
{
    const char *text = json_string_value(json_object_get(object, member));
    for (int i = 0; text && i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return otherwise;
}

enum weir__host_store weir__host_store_of(const json_t *object)
{
    return (enum weir__host_store)index_of(object, "store", store_names, 4, WEIR__HOST_STORE_UNKNOWN);
}

enum weir__host_via weir__host_via_of(const json_t *object)
{
    return (enum weir__host_via)index_of(object, "via", weir__host_via_names, 3, WEIR__HOST_VIA_STORE);
}

int64_t weir__heartbeat_timeout_ms(const struct weir__heartbeat *heartbeat)
{
    return SILENT_TIMES * heartbeat->every_ms + SILENT_MORE;
}

/* ---- Writing ---- */

static json_t *hundredths(double value)
{
    return json_real(round(value * 100) / 100);
}

json_t *weir__rates_json(const struct weir__rates *rates)
{
    json_t *object = rates->known ? json_object() : json_null();
    for (int i = 0; i < 4 && rates->known; i++)
        (void)json_object_set_new(object, weir__rate_names[i], hundredths(rates->of[i]));
    return object;
}

json_t *weir__heartbeat_to_json(const struct weir__heartbeat *heartbeat)
{
    char print[PRINT_DIGITS + 1];
    snprintf(print, sizeof print, "%016" PRIx64, heartbeat->rules);
    return json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:s*,s:o*,s:o*}", "id", heartbeat->id, "name", heartbeat->name,
                     "version", heartbeat->version, "store", store_names[heartbeat->store], "rule_count",
                     (json_int_t)heartbeat->rule_count, "every_ms", (json_int_t)heartbeat->every_ms, "rules",
                     heartbeat->rules ? print : NULL, "level",
                     heartbeat->level >= 0 ? hundredths(heartbeat->level) : NULL, "rates",
                     heartbeat->rates.known ? weir__rates_json(&heartbeat->rates) : NULL);
}

size_t weir__heartbeat_format(const struct weir__heartbeat *heartbeat, char *to, size_t size)
{
    json_t *object = weir__heartbeat_to_json(heartbeat);
    size_t len = object ? json_dumpb(object, to, size, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12)) : 0;
    json_decref(object);
    if (!len || len >= size)
        return 0;
    to[len] = 0;
    return len;
}

/* ---- Reading ---- */

void weir__heartbeat_truncate(const char *text, char *to, size_t size)
{
    size_t len = strlen(text);
    if (len >= size)
        for (len = size - 1; len && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--;
    memcpy(to, text, len);
    to[len] = 0;
}

static void text_of(const json_t *object, const char *name, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    weir__heartbeat_truncate(text ? text : "", to, size);
}

static double number_of(const json_t *object, const char *name, double most, double without)
{
    const json_t *value = json_object_get(object, name);
    double number = json_number_value(value);
    return json_is_number(value) && isfinite(number) && number >= 0 ? fmin(number, most) : without;
}

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static void rates_of(const json_t *rates, struct weir__rates *to)
{
    if (!json_is_object(rates))
        return;
    to->known = true;
    for (int i = 0; i < 4; i++)
        to->of[i] = number_of(rates, weir__rate_names[i], RATE_MAX, 0);
}

bool weir__heartbeat_from_json(const json_t *object, struct weir__heartbeat *heartbeat)
{
    char print[PRINT_DIGITS + 2], id[WEIR__HOST_ID + 2];
    text_of(object, "id", id, sizeof id);
    if (!json_is_object(object) || !is_hex(id, WEIR__HOST_ID))
        return false;
    *heartbeat = (struct weir__heartbeat){.level = number_of(object, "level", 100, -1),
                                          .store = weir__host_store_of(object),
                                          .rule_count = (int64_t)number_of(object, "rule_count", (double)RULES_MAX, 0)};
    memcpy(heartbeat->id, id, sizeof heartbeat->id);
    text_of(object, "name", heartbeat->name, sizeof heartbeat->name);
    text_of(object, "version", heartbeat->version, sizeof heartbeat->version);
    text_of(object, "rules", print, sizeof print);
    if (is_hex(print, PRINT_DIGITS))
        heartbeat->rules = strtoull(print, NULL, 16);
    rates_of(json_object_get(object, "rates"), &heartbeat->rates);
    heartbeat->every_ms = (int64_t)number_of(object, "every_ms", (double)EVERY_MAX_MS, WEIR__HEARTBEAT_EVERY_MS);
    if (heartbeat->every_ms < EVERY_MIN_MS)
        heartbeat->every_ms = EVERY_MIN_MS;
    return true;
}

bool weir__heartbeat_parse(const char *text, size_t len, struct weir__heartbeat *heartbeat)
{
    json_t *object = len <= WEIR__HEARTBEAT_MAX ? json_loadb(text, len, 0, NULL) : NULL;
    bool good = object && weir__heartbeat_from_json(object, heartbeat);
    json_decref(object);
    return good;
}

/* ---- This host ---- */

#define SPAN_S 10 /* seconds over which rates are averaged */

/* The id is derived from the segment's secret: two hosts with one name keep different ids. */
static void id_make(const weir_segment *segment, char id[WEIR__HOST_ID + 1])
{
    uint8_t secret[WEIR_SECRET_BYTES];
    uint64_t hash = 0;
    if (weir_segment_secret(segment, "who this host is", secret) == 0)
        hash = weir__hash_text((weir_text){(const char *)secret, sizeof secret}, 0);
    snprintf(id, WEIR__HOST_ID + 1, "%016" PRIx64, hash);
}

static enum weir__host_store store_of(const struct weir__snapshot *snapshot, bool has_store)
{
    weir_ledger_stats stats;
    if (!weir__snapshot_has_ledger(snapshot))
        return has_store ? WEIR__HOST_STORE_UNKNOWN : WEIR__HOST_STORE_NONE;
    weir__delta_ledger_stats(&snapshot->deltas, &stats);
    return stats.store == WEIR_STORE_DOWN || !stats.agent ? WEIR__HOST_STORE_UNAVAILABLE
           : stats.store == WEIR_STORE_UP                 ? WEIR__HOST_STORE_UP
                                                          : WEIR__HOST_STORE_UNKNOWN;
}

void weir__heartbeat_of_self(struct weir__heartbeat *heartbeat, const struct weir__snapshot *snapshot, bool has_store)
{
    struct weir__load_view view;
    struct weir__upstream_sums sums;
    char name[WEIR__HOST_NAME];
    *heartbeat = (struct weir__heartbeat){
        .level = -1, .every_ms = WEIR__HEARTBEAT_EVERY_MS, .store = store_of(snapshot, has_store)};
    weir__snapshot_host_name(snapshot, name);
    weir__printable((weir_text){name, strlen(name)}, heartbeat->name, sizeof heartbeat->name);
    snprintf(heartbeat->version, sizeof heartbeat->version, "%s", weir_version());
    id_make(snapshot->engine->segment, heartbeat->id);
    heartbeat->rule_count = (int64_t)snapshot->rules.count;
    for (const struct weir__rule_snapshot *rule = snapshot->rules.first; rule; rule = rule->next) {
        struct weir__rates rates = weir__snapshot_rates(snapshot, rule, SPAN_S);
        if (!rule->info.shadow)
            weir__rates_add(&heartbeat->rates, &rates);
    }
    if (!snapshot->unnamed)
        heartbeat->rules = weir__rules_checksum(snapshot->engine);
    if (weir__snapshot_load(snapshot, &view, &sums))
        heartbeat->level = 100.0 * view.level / WEIR__LOAD_FULL;
}
