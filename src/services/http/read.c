/* Parses the JSON of requests: see api.h. */
#include "services/http/api.h"

#include "base/duration.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_MAX_S    (400 * INT64_C(86400))
#define HEADER_NAME_MAX   1024 /* nginx accepts no header line beyond 8 KiB by default */
#define EXPIRES_DEFAULT_S 60
#define EXPIRES_MAX_S     3600
#define NOT_GIVEN         (-1) /* as a cost */

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- The arena of JSON ---- */

#define ARENA_BYTES (64 * 1024)
#define ALIGNMENT   _Alignof(max_align_t)

static _Alignas(max_align_t) char arena[ARENA_BYTES];
static size_t left; /* bytes left in the arena; 0 outside of begin and end */

static void *arena_take(size_t size)
{
    if (size >= left) /* >= so that no piece begins at the arena's end */
        return malloc(size);
    char *piece = arena + (ARENA_BYTES - left);
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    left -= rounded < left ? rounded : left;
    return piece;
}

static void arena_free(void *piece)
{
    if ((uintptr_t)piece - (uintptr_t)arena >= ARENA_BYTES)
        free(piece);
}

void weir__api_memory_use(void)
{
    json_set_alloc_funcs(arena_take, arena_free);
}

void weir__api_memory_begin(void)
{
#ifndef WEIR__SANITIZED /* sanitizers should see each piece's bounds and lifetime */
    left = ARENA_BYTES;
#endif
}

void weir__api_memory_end(void)
{
    left = 0;
}

/* ---- Errors ---- */

bool weir__api_wrong(struct weir__api_reply *reply, const char *field, const char *format, ...)
{
    char message[160], place[96] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (reply->index >= 0)
        snprintf(place, sizeof place, "batch[%d]%s%s", reply->index, *field ? "." : "", field);
    else
        snprintf(place, sizeof place, "%s", field);
    return weir__api_fail(reply, 400, "bad_request", message, place);
}

json_t *weir__api_parse(weir_text body, struct weir__api_reply *reply)
{
    json_error_t error;
    char message[160];
    json_t *root = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(root))
        return root;
    snprintf(message, sizeof message, "line %d, column %d: %.120s", error.line, error.column, error.text);
    if (root)
        weir__api_wrong(reply, "", "the body must be a JSON object");
    else
        weir__api_fail(reply, 400, "bad_json", message, NULL);
    json_decref(root);
    return NULL;
}

/* ---- Fields ---- */

enum form { INTEGER, BOOLEAN, DURATION, ALGORITHM, TEXT, JSON };

/* All fields of bodies and items, in the order in which they are checked. */
static const struct field {
    const char *name;
    unsigned kinds; /* enum weir__api_kind */
    enum form form;
    size_t offset;      /* in struct weir__api_item */
    int64_t min, max;   /* of an INTEGER; of a TEXT, in bytes */
    const char *needed; /* message where it is missing, or no such text; NULL: it may be missing */
} fields[] = {
#define AT(member) offsetof(struct weir__api_item, member)
    {"attributes", WEIR__API_RULES, JSON, AT(attributes), 0, 0, NULL},
    {"batch", WEIR__API_BATCH, JSON, AT(list), 0, 0, NULL},
    {"descriptors", WEIR__API_DESCRIPTORS, JSON, AT(list), 0, 0, NULL},
    {"lease", WEIR__API_LEASE, TEXT, AT(text), 0, INT64_MAX, "is needed: the text that check returned"},
    {"reservation", WEIR__API_TO_COMMIT | WEIR__API_TO_CANCEL, TEXT, AT(text), 0, INT64_MAX,
     "is needed: the text that reserve returned"},
    {"cost", WEIR__API_TO_COMMIT, INTEGER, AT(cost), 0, WEIR__API_COST_MAX, "is needed: what it cost in the end"},
    {"for", WEIR__API_TO_BLOCK, DURATION, AT(for_ns), 0, 0, "is needed: how long to block, such as \"10m\""},
    {"cost", WEIR__API_RULES | WEIR__API_DIRECT, INTEGER, AT(cost), 0, WEIR__API_COST_MAX, NULL},
    {"hits", WEIR__API_DESCRIPTORS, INTEGER, AT(cost), 0, WEIR__API_COST_MAX, NULL},
    {"dry_run", WEIR__API_ANY_ITEM, BOOLEAN, AT(dry_run), 0, 0, NULL},
    {"http", WEIR__API_ANY_ITEM, BOOLEAN, AT(http), 0, 0, NULL},
    {"domain", WEIR__API_DESCRIPTORS, TEXT, AT(domain), 1, INT64_MAX, "must be a string that is not empty"},
    {"key", WEIR__API_DIRECT, TEXT, AT(text), 1, WEIR__API_KEY_MAX, "must be a string of 1 to 1024 bytes"},
    {"limit", WEIR__API_DIRECT, INTEGER, AT(params.limit), 1, WEIR__API_COST_MAX, NULL},
    {"burst", WEIR__API_DIRECT, INTEGER, AT(params.burst), 1, WEIR__API_COST_MAX, NULL},
    {"window", WEIR__API_DIRECT, DURATION, AT(params.window_ns), 0, 0, NULL},
    {"algorithm", WEIR__API_DIRECT, ALGORITHM, AT(params.algorithm), 0, 0, NULL},
    {"expires_s", WEIR__API_TO_RESERVE, INTEGER, AT(expires_s), 1, EXPIRES_MAX_S, NULL},
#undef AT
};

static weir_text text_of(const json_t *string)
{
    return (weir_text){json_string_value(string), json_string_length(string)};
}

/* Seconds, or a text such as "10m". */
static bool read_duration(const json_t *value, int64_t *ns)
{
    if (json_is_string(value))
        return weir__parse_duration(text_of(value), DURATION_MAX_S * WEIR_SECOND, ns) && *ns > 0;
    int64_t seconds = json_integer_value(value);
    *ns = seconds > 0 && seconds <= DURATION_MAX_S ? seconds * WEIR_SECOND : 0;
    return *ns > 0;
}

static bool read_algorithm(const json_t *value, enum weir_algorithm *algorithm)
{
    static const char *const names[] = {"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log",
                                        "sliding_window_counter"};
    for (size_t i = 0; json_is_string(value) && i < COUNT(names); i++)
        if (strcmp(names[i], json_string_value(value)) == 0) {
            *algorithm = (enum weir_algorithm)i;
            return true;
        }
    return false;
}

/* Stores a value in `to`. False: it is no value of this field; nor is NULL. */
static bool store(const struct field *field, json_t *value, void *to)
{
    switch (field->form) {
    case INTEGER:
        *(int64_t *)to = json_integer_value(value);
        return json_is_integer(value) && *(int64_t *)to >= field->min && *(int64_t *)to <= field->max;
    case BOOLEAN:
        *(bool *)to = json_is_true(value);
        return json_is_boolean(value);
    case DURATION:
        return read_duration(value, to);
    case ALGORITHM:
        return read_algorithm(value, to);
    case TEXT:
        *(weir_text *)to = text_of(value);
        return json_is_string(value) && (int64_t)json_string_length(value) >= field->min &&
               (int64_t)json_string_length(value) <= field->max;
    case JSON:
        *(json_t **)to = value;
        return true;
    }
    return false;
}

static bool wrong_value(const struct field *field, const json_t *value, struct weir__api_reply *reply)
{
    static const char *const expected[] = {
        [BOOLEAN] = "must be true or false",
        [DURATION] = "must be seconds, or a text such as \"30s\", \"1m\" or \"1h30m\", up to 400 days",
        [ALGORITHM] = "must be token_bucket, leaky_bucket, fixed_window, sliding_window_log or sliding_window_counter",
        [TEXT] = "must be a string",
        [JSON] = ""}; /* any value fits */
    if (field->needed && (!value || field->form == TEXT))
        return weir__api_wrong(reply, field->name, "%s", field->needed);
    if (field->form == INTEGER)
        return weir__api_wrong(reply, field->name, "must be a whole number from %lld to %lld", (long long)field->min,
                               (long long)field->max);
    return weir__api_wrong(reply, field->name, "%s", expected[field->form]);
}

bool weir__api_read(json_t *object, unsigned kinds, struct weir__api_item *item, struct weir__api_reply *reply)
{
    json_t *given[COUNT(fields)] = {NULL}, *value;
    const char *name;
    *item = (struct weir__api_item){.cost = NOT_GIVEN, .expires_s = EXPIRES_DEFAULT_S};
    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < COUNT(fields) && (!(fields[i].kinds & kinds) || strcmp(fields[i].name, name) != 0))
            i++;
        if (i == COUNT(fields))
            return weir__api_wrong(reply, name, "there is no such field here");
        given[i] = value;
    }
    for (size_t i = 0; i < COUNT(fields); i++) {
        bool needed = fields[i].needed && fields[i].kinds & kinds;
        if ((given[i] || needed) && !store(&fields[i], given[i], (char *)item + fields[i].offset))
            return wrong_value(&fields[i], given[i], reply);
    }
    item->has_cost = item->cost != NOT_GIVEN;
    item->cost = item->has_cost ? item->cost : 1;
    return true;
}

/* ---- Attributes ---- */

/* An integer becomes its decimal text: user ids are often numbers. */
static bool read_attribute(json_t *attributes, const char *name, json_t *value, void *at, struct weir__api_reply *reply)
{
    char field[80], digits[24];
    if (json_is_string(value))
        return true;
    if (json_is_integer(value)) {
        snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(value));
        if (json_object_iter_set_new(attributes, at, json_string(digits)) == 0)
            return true;
    }
    snprintf(field, sizeof field, "attributes.%.60s", name);
    return weir__api_wrong(reply, field, "must be a string");
}

/* Adds a header under its lower-case name. Returns the error, or NULL. */
static const char *add_header(json_t *headers, const char *name, json_t *value)
{
    char lower[HEADER_NAME_MAX];
    size_t len = strlen(name);
    if (!json_is_string(value))
        return "must be a string";
    if (len > sizeof lower)
        return "has a name that is too long";
    for (size_t i = 0; i < len; i++)
        lower[i] = (char)weir__lower(name[i]);
    if (json_object_getn(headers, lower, len))
        return "is given twice; the case of a header's name does not count";
    return json_object_setn_nocheck(headers, lower, len, value) == 0 ? NULL : "no memory";
}

/*
 * Lower-cases the names of the headers at `at`. Two headers that differ only in case are an error: the rules would use
 * one value and the caller's server perhaps the other.
 */
static bool read_headers(json_t *attributes, void *at, struct weir__api_reply *reply)
{
    const json_t *headers = json_object_iter_value(at);
    const char *name;
    json_t *value;
    if (!json_is_object(headers))
        return weir__api_wrong(reply, "attributes.headers", "must be an object of strings");
    json_t *lower = json_object();
    json_object_foreach((json_t *)(uintptr_t)headers, name, value)
    {
        const char *wrong = add_header(lower, name, value);
        if (wrong) {
            char field[96];
            snprintf(field, sizeof field, "attributes.headers.%.60s", name);
            json_decref(lower);
            return weir__api_wrong(reply, field, "%s", wrong);
        }
    }
    return json_object_iter_set_new(attributes, at, lower) == 0 ||
           weir__api_wrong(reply, "attributes.headers", "no memory");
}

static bool read_ip(const json_t *ip, struct weir__api_item *item, struct weir__api_reply *reply)
{
    if (!ip)
        return true;
    item->peer_len = inet_pton(AF_INET, json_string_value(ip), item->peer) == 1    ? 4
                     : inet_pton(AF_INET6, json_string_value(ip), item->peer) == 1 ? 16
                                                                                   : 0;
    return item->peer_len || weir__api_wrong(reply, "attributes.ip", "must be an IPv4 or IPv6 address");
}

static bool read_attributes(struct weir__api_item *item, struct weir__api_reply *reply)
{
    json_t *attributes = item->attributes;
    if (!json_is_object(attributes))
        return weir__api_wrong(reply, "attributes", "must be an object");
    for (void *at = json_object_iter(attributes); at; at = json_object_iter_next(attributes, at)) {
        const char *name = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        if (strcmp(name, "client_ip") == 0)
            return weir__api_wrong(reply, "attributes.client_ip",
                                   "is found out from ip and headers by the rules; give ip");
        if (strcmp(name, "headers") == 0 ? !read_headers(attributes, at, reply)
                                         : !read_attribute(attributes, name, value, at, reply))
            return false;
    }
    item->headers = json_object_get(attributes, "headers");
    return read_ip(json_object_get(attributes, "ip"), item, reply);
}

bool weir__api_lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    static const char *const own[] = {[WEIR_ATTR_PATH] = "path",
                                      [WEIR_ATTR_TARGET] = "target",
                                      [WEIR_ATTR_QUERY] = "query",
                                      [WEIR_ATTR_METHOD] = "method",
                                      [WEIR_ATTR_HOST] = "host"};
    const struct weir__api_item *item = context;
    const json_t *found = NULL; /* the peer is in item->peer, if at all */
    if (kind == WEIR_ATTR_HEADER)
        found = json_object_getn(item->headers, name.data, name.len);
    else if (kind == WEIR_ATTR_NAMED)
        found = json_object_getn(item->attributes, name.data, name.len);
    else if ((size_t)kind < COUNT(own) && own[kind])
        found = json_object_get(item->attributes, own[kind]);
    if (!json_is_string(found) || json_string_length(found) == 0)
        return false;
    *value = text_of(found);
    return true;
}

/* ---- Descriptors ---- */

static bool read_entry(const json_t *entry, size_t at, struct weir__api_reply *reply)
{
    char field[48];
    const json_t *key = json_object_get(entry, "key"), *value = json_object_get(entry, "value");
    snprintf(field, sizeof field, "descriptors[%zu]", at);
    if (!json_is_object(entry) || !json_is_string(key) || (value && !json_is_string(value)))
        return weir__api_wrong(reply, field, "must be a list of objects with a key and a value, both strings");
    return json_object_size(entry) == 1 + (size_t)(value != NULL) ||
           weir__api_wrong(reply, field, "has an entry with other fields than key and value");
}

static bool read_descriptors(const json_t *list, struct weir__api_reply *reply)
{
    size_t i, j, entries = 0;
    json_t *descriptor, *entry;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > WEIR__API_DESCRIPTORS_MAX)
        return weir__api_wrong(reply, "descriptors", "must be a list of 1 to %d descriptors",
                               WEIR__API_DESCRIPTORS_MAX);
    json_array_foreach(list, i, descriptor)
    {
        if (!json_is_array(descriptor) || json_array_size(descriptor) == 0)
            return read_entry(NULL, i, reply);
        entries += json_array_size(descriptor);
        json_array_foreach(descriptor, j, entry)
        {
            if (!read_entry(entry, i, reply))
                return false;
        }
    }
    return entries <= WEIR__API_ENTRIES_MAX ||
           weir__api_wrong(reply, "descriptors", "have more than %d entries", WEIR__API_ENTRIES_MAX);
}

size_t weir__api_descriptors(const struct weir__api_item *item, weir_descriptor *descriptors,
                             weir_descriptor_entry *entries)
{
    size_t i, j;
    json_t *descriptor, *entry;
    json_array_foreach(item->list, i, descriptor)
    {
        descriptors[i] = (weir_descriptor){.entries = entries, .entry_count = json_array_size(descriptor)};
        json_array_foreach(descriptor, j, entry)
        {
            const json_t *value = json_object_get(entry, "value");
            entries->key = text_of(json_object_get(entry, "key"));
            entries->value = value ? text_of(value) : (weir_text){"", 0};
            entries++;
        }
    }
    return json_array_size(item->list);
}

/* ---- Key and limit ---- */

int weir__api_direct_limit(weir_params *params, weir_limit *limit)
{
    /* An id of its own, distinct from rules' and by window; weir_limit_init adds the algorithm. */
    params->id = UINT64_C(0x7765697220617069) ^ (uint64_t)params->window_ns;
    return weir_limit_init(limit, params);
}

static bool read_direct(struct weir__api_item *item, struct weir__api_reply *reply)
{
    weir_params *params = &item->params;
    if (!params->limit || !params->window_ns)
        return weir__api_wrong(reply, params->limit ? "window" : "limit", "is needed beside key");
    int error = weir__api_direct_limit(params, &item->limit);
    return !error || weir__api_wrong(reply, params->burst ? "burst" : "limit", "%s", weir_strerror(error));
}

/* ---- Items ---- */

bool weir__api_read_item(json_t *object, unsigned more, struct weir__api_item *item, struct weir__api_reply *reply)
{
    if (!json_is_object(object))
        return weir__api_wrong(reply, "", "must be an object");
    enum weir__api_kind kind = json_object_get(object, "key")      ? WEIR__API_DIRECT
                               : json_object_get(object, "domain") ? WEIR__API_DESCRIPTORS
                                                                   : WEIR__API_RULES;
    if (kind == WEIR__API_RULES && !json_object_get(object, "attributes"))
        return weir__api_wrong(reply, "attributes",
                               "one of attributes, domain with descriptors, or key with limit and window is needed");
    if (!weir__api_read(object, kind | more, item, reply))
        return false;
    item->kind = kind;
    return kind == WEIR__API_DIRECT        ? read_direct(item, reply)
           : kind == WEIR__API_DESCRIPTORS ? read_descriptors(item->list, reply)
                                           : read_attributes(item, reply);
}
