/* Parses the JSON of requests: see api.h. */
#include "services/http/api.h"

#include "base/duration.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_DAYS_MAX 400
#define HEADER_NAME_MAX   1024 /* nginx accepts no header line beyond 8 KiB by default */

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

bool weir__api_wrong(struct weir__api_fault *fault, int index, const char *field, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->message, sizeof fault->message, format, arguments);
    va_end(arguments);
    fault->code = "bad_request";
    if (index >= 0)
        snprintf(fault->field, sizeof fault->field, "batch[%d]%s%s", index, *field ? "." : "", field);
    else
        snprintf(fault->field, sizeof fault->field, "%s", field);
    return false;
}

json_t *weir__api_parse(weir_text body, struct weir__api_fault *fault)
{
    json_error_t error;
    json_t *root = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(root))
        return root;
    if (root)
        weir__api_wrong(fault, -1, "", "the body must be a JSON object");
    else
        weir__api_wrong(fault, -1, "", "line %d, column %d: %.120s", error.line, error.column, error.text);
    fault->code = root ? fault->code : "bad_json";
    json_decref(root);
    return NULL;
}

/* ---- Fields ---- */

static bool is_among(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

bool weir__api_only(const json_t *object, const char *const *known, const char *const *more, int index,
                    struct weir__api_fault *fault)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!is_among(name, known) && !is_among(name, more))
            return weir__api_wrong(fault, index, name, "there is no such field here");
    }
    return true;
}

bool weir__api_read_int(const json_t *object, const char *name, int64_t min, int64_t max, int index, int64_t *value,
                        struct weir__api_fault *fault)
{
    const json_t *number = json_object_get(object, name);
    if (!number)
        return true;
    if (!json_is_integer(number) || json_integer_value(number) < min || json_integer_value(number) > max)
        return weir__api_wrong(fault, index, name, "must be a whole number from %lld to %lld", (long long)min,
                               (long long)max);
    *value = json_integer_value(number);
    return true;
}

static bool read_bool(const json_t *object, const char *name, int index, bool *value, struct weir__api_fault *fault)
{
    const json_t *given = json_object_get(object, name);
    if (given && !json_is_boolean(given))
        return weir__api_wrong(fault, index, name, "must be true or false");
    *value = given ? json_is_true(given) : *value;
    return true;
}

static weir_text text_of(const json_t *string)
{
    return (weir_text){json_string_value(string), json_string_length(string)};
}

bool weir__api_read_duration(const json_t *object, const char *name, int index, int64_t *ns,
                             struct weir__api_fault *fault)
{
    const json_t *given = json_object_get(object, name);
    int64_t read_ns = 0;
    if (!given)
        return true;
    if (json_is_integer(given) && json_integer_value(given) > 0 &&
        json_integer_value(given) <= DURATION_DAYS_MAX * INT64_C(86400))
        read_ns = json_integer_value(given) * WEIR_SECOND;
    else if (!json_is_string(given) ||
             !weir__parse_duration(text_of(given), DURATION_DAYS_MAX * 86400 * WEIR_SECOND, &read_ns) || read_ns <= 0)
        return weir__api_wrong(fault, index, name,
                               "must be seconds, or a text such as \"30s\", \"1m\" or \"1h30m\", up to %d days",
                               DURATION_DAYS_MAX);
    *ns = read_ns;
    return true;
}

/* ---- Attributes ---- */

/* An integer becomes its decimal text: user ids are often numbers. */
static bool read_attribute(json_t *attributes, const char *name, json_t *value, void *at, int index,
                           struct weir__api_fault *fault)
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
    return weir__api_wrong(fault, index, field, "must be a string");
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
static bool read_headers(json_t *attributes, void *at, int index, struct weir__api_fault *fault)
{
    const json_t *headers = json_object_iter_value(at);
    const char *name;
    json_t *value;
    if (!json_is_object(headers))
        return weir__api_wrong(fault, index, "attributes.headers", "must be an object of strings");
    json_t *lower = json_object();
    json_object_foreach((json_t *)(uintptr_t)headers, name, value)
    {
        const char *wrong = add_header(lower, name, value);
        if (wrong) {
            char field[96];
            snprintf(field, sizeof field, "attributes.headers.%.60s", name);
            json_decref(lower);
            return weir__api_wrong(fault, index, field, "%s", wrong);
        }
    }
    return json_object_iter_set_new(attributes, at, lower) == 0 ||
           weir__api_wrong(fault, index, "attributes.headers", "no memory");
}

static bool read_ip(const json_t *ip, int index, struct weir__api_item *item, struct weir__api_fault *fault)
{
    if (!ip)
        return true;
    item->peer_len = inet_pton(AF_INET, json_string_value(ip), item->peer) == 1    ? 4
                     : inet_pton(AF_INET6, json_string_value(ip), item->peer) == 1 ? 16
                                                                                   : 0;
    return item->peer_len || weir__api_wrong(fault, index, "attributes.ip", "must be an IPv4 or IPv6 address");
}

static bool read_attributes(json_t *attributes, int index, struct weir__api_item *item, struct weir__api_fault *fault)
{
    if (!attributes)
        return true;
    if (!json_is_object(attributes))
        return weir__api_wrong(fault, index, "attributes", "must be an object");
    for (void *at = json_object_iter(attributes); at; at = json_object_iter_next(attributes, at)) {
        const char *name = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        if (strcmp(name, "client_ip") == 0)
            return weir__api_wrong(fault, index, "attributes.client_ip",
                                   "is found out from ip and headers by the rules; give ip");
        if (strcmp(name, "headers") == 0 ? !read_headers(attributes, at, index, fault)
                                         : !read_attribute(attributes, name, value, at, index, fault))
            return false;
    }
    item->attributes = attributes;
    item->headers = json_object_get(attributes, "headers");
    return read_ip(json_object_get(attributes, "ip"), index, item, fault);
}

bool weir__api_lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    static const char *const own[] = {[WEIR_ATTR_PATH] = "path",
                                      [WEIR_ATTR_TARGET] = "target",
                                      [WEIR_ATTR_QUERY] = "query",
                                      [WEIR_ATTR_METHOD] = "method",
                                      [WEIR_ATTR_HOST] = "host"};
    const struct weir__api_item *item = context;
    const json_t *found = NULL;
    switch (kind) {
    case WEIR_ATTR_PATH:
    case WEIR_ATTR_TARGET:
    case WEIR_ATTR_QUERY:
    case WEIR_ATTR_METHOD:
    case WEIR_ATTR_HOST:
        found = json_object_get(item->attributes, own[kind]);
        break;
    case WEIR_ATTR_HEADER:
        found = json_object_getn(item->headers, name.data, name.len);
        break;
    case WEIR_ATTR_NAMED:
        found = json_object_getn(item->attributes, name.data, name.len);
        break;
    case WEIR_ATTR_PEER: /* in item->peer, if at all */
        break;
    }
    if (!json_is_string(found) || json_string_length(found) == 0)
        return false;
    *value = text_of(found);
    return true;
}

/* ---- Descriptors ---- */

static bool read_entry(const json_t *entry, int index, size_t at, struct weir__api_fault *fault)
{
    static const char *const known[] = {"key", "value", NULL};
    char field[48];
    const json_t *key = json_object_get(entry, "key"), *value = json_object_get(entry, "value");
    snprintf(field, sizeof field, "descriptors[%zu]", at);
    if (!json_is_object(entry) || !json_is_string(key) || (value && !json_is_string(value)))
        return weir__api_wrong(fault, index, field, "must be a list of objects with a key and a value, both strings");
    if (!weir__api_only(entry, known, NULL, index, fault))
        return weir__api_wrong(fault, index, field, "has an entry with other fields than key and value");
    return true;
}

static bool read_descriptors(const json_t *list, int index, struct weir__api_fault *fault)
{
    size_t i, j, entries = 0;
    json_t *descriptor, *entry;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > WEIR__API_DESCRIPTORS_MAX)
        return weir__api_wrong(fault, index, "descriptors", "must be a list of 1 to %d descriptors",
                               WEIR__API_DESCRIPTORS_MAX);
    json_array_foreach(list, i, descriptor)
    {
        if (!json_is_array(descriptor) || json_array_size(descriptor) == 0)
            return read_entry(NULL, index, i, fault);
        entries += json_array_size(descriptor);
        json_array_foreach(descriptor, j, entry)
        {
            if (!read_entry(entry, index, i, fault))
                return false;
        }
    }
    return entries <= WEIR__API_ENTRIES_MAX ||
           weir__api_wrong(fault, index, "descriptors", "have more than %d entries", WEIR__API_ENTRIES_MAX);
}

size_t weir__api_descriptors(const struct weir__api_item *item, weir_descriptor *descriptors,
                             weir_descriptor_entry *entries)
{
    size_t i, j;
    json_t *descriptor, *entry;
    json_array_foreach(item->descriptors, i, descriptor)
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
    return json_array_size(item->descriptors);
}

/* ---- Key and limit ---- */

int weir__api_direct_limit(weir_params *params, weir_limit *limit)
{
    /* An id of its own, distinct from rules' and by window; weir_limit_init adds the algorithm. */
    params->id = UINT64_C(0x7765697220617069) ^ (uint64_t)params->window_ns;
    return weir_limit_init(limit, params);
}

static bool read_algorithm(const json_t *object, int index, weir_params *params, struct weir__api_fault *fault)
{
    static const char *const names[] = {"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log",
                                        "sliding_window_counter"};
    const json_t *given = json_object_get(object, "algorithm");
    if (!given)
        return true;
    for (size_t i = 0; json_is_string(given) && i < COUNT(names); i++)
        if (strcmp(names[i], json_string_value(given)) == 0) {
            params->algorithm = (enum weir_algorithm)i;
            return true;
        }
    return weir__api_wrong(fault, index, "algorithm",
                           "must be token_bucket, leaky_bucket, fixed_window, sliding_window_log or "
                           "sliding_window_counter");
}

static bool read_direct(const json_t *object, int index, struct weir__api_item *item, struct weir__api_fault *fault)
{
    const json_t *key = json_object_get(object, "key");
    weir_params *params = &item->params;
    if (!json_is_string(key) || json_string_length(key) == 0 || json_string_length(key) > WEIR__API_KEY_MAX)
        return weir__api_wrong(fault, index, "key", "must be a string of 1 to %d bytes", WEIR__API_KEY_MAX);
    item->key = text_of(key);
    if (!weir__api_read_int(object, "limit", 1, WEIR__API_COST_MAX, index, &params->limit, fault) ||
        !weir__api_read_int(object, "burst", 1, WEIR__API_COST_MAX, index, &params->burst, fault) ||
        !weir__api_read_duration(object, "window", index, &params->window_ns, fault) ||
        !read_algorithm(object, index, params, fault))
        return false;
    if (!params->limit || !params->window_ns)
        return weir__api_wrong(fault, index, params->limit ? "window" : "limit", "is needed beside key");
    int error = weir__api_direct_limit(params, &item->limit);
    return !error || weir__api_wrong(fault, index, params->burst ? "burst" : "limit", "%s", weir_strerror(error));
}

/* ---- Items ---- */

/* Fields of every kind of item. */
static bool read_common(const json_t *object, int index, struct weir__api_item *item, struct weir__api_fault *fault)
{
    const char *word = item->kind == WEIR__API_DESCRIPTORS ? "hits" : "cost";
    item->has_cost = json_object_get(object, word) != NULL;
    return weir__api_read_int(object, word, 0, WEIR__API_COST_MAX, index, &item->cost, fault) &&
           read_bool(object, "dry_run", index, &item->dry_run, fault) &&
           read_bool(object, "http", index, &item->http, fault);
}

bool weir__api_read_item(json_t *object, int index, const char *const *more, struct weir__api_item *item,
                         struct weir__api_fault *fault)
{
    static const char *const of_rules[] = {"attributes", "cost", "dry_run", "http", NULL};
    static const char *const of_descriptors[] = {"domain", "descriptors", "hits", "dry_run", "http", NULL};
    static const char *const of_direct[] = {"key",  "limit",   "window", "burst", "algorithm",
                                            "cost", "dry_run", "http",   NULL};
    if (!json_is_object(object))
        return weir__api_wrong(fault, index, "", "must be an object");
    json_t *key = json_object_get(object, "key"), *domain = json_object_get(object, "domain");
    *item = (struct weir__api_item){.cost = 1};
    item->kind = key ? WEIR__API_DIRECT : domain ? WEIR__API_DESCRIPTORS : WEIR__API_RULES;
    if (!key && !domain && !json_object_get(object, "attributes"))
        return weir__api_wrong(fault, index, "attributes",
                               "one of attributes, domain with descriptors, or key with limit and window is needed");
    if (!weir__api_only(object,
                        key      ? of_direct
                        : domain ? of_descriptors
                                 : of_rules,
                        more, index, fault) ||
        !read_common(object, index, item, fault))
        return false;
    if (key)
        return read_direct(object, index, item, fault);
    if (!domain)
        return read_attributes(json_object_get(object, "attributes"), index, item, fault);
    if (!json_is_string(domain) || json_string_length(domain) == 0)
        return weir__api_wrong(fault, index, "domain", "must be a string that is not empty");
    item->domain = text_of(domain);
    item->descriptors = json_object_get(object, "descriptors");
    return read_descriptors(item->descriptors, index, fault);
}
