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

const char *const weir__host_store_names[4] = {"none", "unknown", "up", "unavailable"};
const char *const weir__host_via_names[3] = {"here", "store", "rules"};

/* The number of the name that is a member of an object; `otherwise`: it is not one. */
static int index_of(const json_t *object, const char *member, const char *const *names, int count, int otherwise)
{
    const char *text = json_string_value(json_object_get(object, member));
    for (int i = 0; text && i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return otherwise;
}

static enum weir__host_store store_from(const json_t *object)
{
    return (enum weir__host_store)index_of(object, "store", weir__host_store_names, 4, WEIR__HOST_STORE_UNKNOWN);
}

int64_t weir__heartbeat_timeout_ms(const struct weir__heartbeat *heartbeat)
{
    return SILENT_TIMES * heartbeat->every_ms + SILENT_MORE;
}

/* ---- Writing ---- */

json_t *weir__hundredths(double value)
{
    return json_real(round(value * 100) / 100);
}

json_t *weir__rates_json(const struct weir__rates *rates)
{
    json_t *object = rates->known ? json_object() : json_null();
    for (int i = 0; i < 4 && rates->known; i++)
        (void)json_object_set_new(object, weir__rate_names[i], weir__hundredths(rates->of[i]));
    return object;
}

/* NULL: no memory. */
static json_t *heartbeat_to_json(const struct weir__heartbeat *heartbeat)
{
    char print[PRINT_DIGITS + 1];
    snprintf(print, sizeof print, "%016" PRIx64, heartbeat->rules);
    return json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:s*,s:o*,s:o*}", "id", heartbeat->id, "name", heartbeat->name,
                     "version", heartbeat->version, "store", weir__host_store_names[heartbeat->store], "rule_count",
                     (json_int_t)heartbeat->rule_count, "every_ms", (json_int_t)heartbeat->every_ms, "rules",
                     heartbeat->rules ? print : NULL, "level",
                     heartbeat->level >= 0 ? weir__hundredths(heartbeat->level) : NULL, "rates",
                     heartbeat->rates.known ? weir__rates_json(&heartbeat->rates) : NULL);
}

size_t weir__heartbeat_format(const struct weir__heartbeat *heartbeat, char *to, size_t size)
{
    json_t *object = heartbeat_to_json(heartbeat);
    size_t len = object ? json_dumpb(object, to, size, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12)) : 0;
    json_decref(object);
    if (!len || len >= size)
        return 0;
    to[len] = 0;
    return len;
}

/* ---- Reading ---- */

/* A member's text, truncated between characters of UTF-8; "": it has none. */
static void text_of(const json_t *object, const char *name, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    size_t len = text ? strlen(text) : 0;
    if (len >= size)
        for (len = size - 1; len && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--;
    memcpy(to, text ? text : "", len);
    to[len] = 0;
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

/* False: it is no such object. */
static bool heartbeat_from_json(const json_t *object, struct weir__heartbeat *heartbeat)
{
    char print[PRINT_DIGITS + 2], id[WEIR__HOST_ID + 2];
    text_of(object, "id", id, sizeof id);
    if (!json_is_object(object) || !is_hex(id, WEIR__HOST_ID))
        return false;
    *heartbeat = (struct weir__heartbeat){.level = number_of(object, "level", 100, -1),
                                          .store = store_from(object),
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
    bool good = object && heartbeat_from_json(object, heartbeat);
    json_decref(object);
    return good;
}

/* ---- The .hosts file, in JSON ---- */

void weir__host_list_free(struct weir__host_list *list)
{
    free(list->hosts);
    *list = (struct weir__host_list){0};
}

char *weir__host_list_format(const struct weir__host_list *list, size_t *len)
{
    json_t *hosts = json_array();
    bool good = hosts != NULL;
    for (size_t i = 0; i < list->count && good; i++) {
        const struct weir__host_status *received = &list->hosts[i];
        json_t *heartbeat = heartbeat_to_json(&received->heartbeat);
        good = heartbeat && json_object_set_new(heartbeat, "ago_ms", json_integer(received->ago_ms)) == 0 &&
               json_object_set_new(heartbeat, "via", json_string(weir__host_via_names[received->via])) == 0;
        good = json_array_append_new(hosts, heartbeat) == 0 && good;
    }
    json_t *root = json_pack("{s:I,s:s,s:s,s:I,s:o}", "written_ms", (json_int_t)list->written_ms, "store",
                             weir__host_store_names[list->store], "why", list->why, "left_out",
                             (json_int_t)list->left_out, "hosts", hosts);
    char *text = root && good ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(root);
    *len = text ? strlen(text) : 0;
    return text;
}

/* A non-negative integer up to 2^53; else 0. */
static int64_t integer_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    json_int_t number = json_integer_value(value);
    return number < 0 || number > INT64_C(1) << 53 ? 0 : number;
}

static bool host_from(const json_t *object, struct weir__host_status *received)
{
    received->ago_ms = integer_of(object, "ago_ms");
    received->via = (enum weir__host_via)index_of(object, "via", weir__host_via_names, 3, WEIR__HOST_VIA_STORE);
    return heartbeat_from_json(object, &received->heartbeat);
}

static bool list_from(const json_t *root, struct weir__host_list *list)
{
    const json_t *hosts = json_object_get(root, "hosts"), *host;
    size_t count = json_array_size(hosts), i;
    if (!json_is_array(hosts))
        return false;
    list->hosts = calloc(count < WEIR__HOSTS_MAX ? count + 1 : WEIR__HOSTS_MAX, sizeof *list->hosts);
    if (!list->hosts)
        return false;
    list->written_ms = integer_of(root, "written_ms");
    list->left_out = integer_of(root, "left_out");
    list->store = store_from(root);
    text_of(root, "why", list->why, sizeof list->why);
    json_array_foreach(hosts, i, host)
    {
        if (list->count < WEIR__HOSTS_MAX && host_from(host, &list->hosts[list->count]))
            list->count++;
    }
    return true;
}

bool weir__host_list_parse(const char *text, size_t len, struct weir__host_list *list)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    *list = (struct weir__host_list){0};
    bool good = json_is_object(root) && list_from(root, list);
    json_decref(root);
    return good;
}

/* ---- This host ---- */

#define SPAN_S 10 /* seconds over which rates are averaged */

/* The id is derived from the segment's secret: two hosts with one name keep different ids. */
void weir__host_id(const weir_segment *segment, char id[WEIR__HOST_ID + 1])
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
    weir__host_id(snapshot->engine->segment, heartbeat->id);
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
