/*
 * A RateLimitRequest from JSON and a RateLimitResponse to JSON, by protobuf's JSON mapping: names in lowerCamelCase or
 * as in the .proto file, enum values by name or number, numbers also as strings, null for absent fields. An unknown
 * name is an error, as in envoyproxy/ratelimit.
 */
#include "services/rls/rls_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Fields ---- */

struct json_reader {
    struct weir__arena *arena;
    struct weir__rls_reply *reply;
    char where[64]; /* prefix of names in error messages, such as "descriptors[3]." */
};

/* Reads a value into the member of a message. False without a message in the reply: "has a wrong value". */
typedef bool read_field(struct json_reader *reader, const json_t *json, void *member);

struct json_field {
    const char *name, *other; /* lowerCamelCase, and as in the .proto file */
    read_field *read;
    size_t offset; /* of the member */
};

static bool fail(struct json_reader *reader, const char *name, const char *what)
{
    return weir__rls_fail(reader->reply, WEIR__GRPC_INVALID_ARGUMENT, "%s%.40s %s", reader->where, name, what);
}

/* Reads an object into a message. `fields` ends with a NULL name; at most 32. */
static bool read_object(struct json_reader *reader, const json_t *json, const struct json_field *fields, void *message)
{
    const char *name;
    json_t *value;
    unsigned seen = 0;
    if (!json_is_object(json))
        return fail(reader, "", "must be an object");
    json_object_foreach((json_t *)json, name, value)
    {
        size_t i = 0;
        while (fields[i].name && strcmp(name, fields[i].name) != 0 && strcmp(name, fields[i].other) != 0)
            i++;
        if (!fields[i].name)
            return fail(reader, name, "is not a field");
        if (seen & 1U << i)
            return fail(reader, name, "is there twice");
        seen |= 1U << i;
        if (!json_is_null(value) && !fields[i].read(reader, value, (char *)message + fields[i].offset))
            return reader->reply->message[0] ? false : fail(reader, name, "has a wrong value");
    }
    return true;
}

/* Digits, or a whole number written as 3.0 or 3e2. */
static bool read_number(const json_t *json, uint64_t max, uint64_t *number)
{
    if (json_is_integer(json)) {
        *number = (uint64_t)json_integer_value(json);
        return json_integer_value(json) >= 0 && *number <= max;
    }
    if (json_is_real(json)) {
        double real = json_real_value(json);
        if (!(real >= 0 && real < 0x1p53))
            return false;
        *number = (uint64_t)real;
        return (double)*number == real && *number <= max;
    }
    const char *text = json_string_value(json);
    if (!text || strspn(text, "0123456789") != json_string_length(json) || !*text)
        return false;
    errno = 0;
    *number = strtoull(text, NULL, 10);
    return errno == 0 && *number <= max;
}

static bool read_text(struct json_reader *reader, const json_t *json, void *member)
{
    (void)reader;
    *(ProtobufCBinaryData *)member =
        (ProtobufCBinaryData){json_string_length(json), (uint8_t *)json_string_value(json)};
    return json_is_string(json);
}

static bool read_uint32(struct json_reader *reader, const json_t *json, void *member)
{
    uint64_t number = 0;
    bool valid = read_number(json, UINT32_MAX, &number);
    (void)reader;
    *(uint32_t *)member = (uint32_t)number;
    return valid;
}

static bool read_bool(struct json_reader *reader, const json_t *json, void *member)
{
    (void)reader;
    *(protobuf_c_boolean *)member = json_is_true(json);
    return json_is_boolean(json);
}

/* Reads a list of messages, each of `size` bytes and initialized by `init`. NULL: the reply has the error. */
static void *read_list(struct json_reader *reader, const json_t *json, const char *name, size_t size,
                       void (*init)(void *message), const struct json_field *fields)
{
    size_t before = strlen(reader->where), count = json_array_size(json);
    char *messages = weir__arena_array(reader->arena, count, size);
    if (!json_is_array(json) || !messages) {
        (void)(messages ? fail(reader, name, "must be a list") : weir__rls_fail_memory(reader->reply));
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        init(messages + i * size);
        (void)snprintf(reader->where + before, sizeof reader->where - before, "%s[%zu].", name, i);
        if (!read_object(reader, json_array_get(json, i), fields, messages + i * size))
            return NULL;
    }
    reader->where[before] = 0;
    return messages;
}

/* ---- Messages ---- */

static bool limit_unit(struct json_reader *reader, const json_t *json, void *unit)
{
    const char *name = json_string_value(json);
    const ProtobufCEnumValue *value =
        name ? protobuf_c_enum_descriptor_get_value_by_name(&rls__unit__descriptor, name)
        : json_is_integer(json) && json_integer_value(json) >= 0 && json_integer_value(json) < 8
            ? protobuf_c_enum_descriptor_get_value(&rls__unit__descriptor, (int)json_integer_value(json))
            : NULL;
    if (!value)
        return fail(reader, "unit", "must be one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR");
    *(Rls__Unit *)unit = (Rls__Unit)value->value;
    return true;
}

static void init_entry(void *message)
{
    rls__rate_limit_descriptor__entry__init(message);
}

static bool descriptor_entries(struct json_reader *reader, const json_t *json, void *message)
{
    static const struct json_field fields[] = {
        {"key", "key", read_text, offsetof(Rls__RateLimitDescriptor__Entry, key)},
        {"value", "value", read_text, offsetof(Rls__RateLimitDescriptor__Entry, value)},
        {NULL, NULL, NULL, 0}};
    Rls__RateLimitDescriptor *descriptor = message;
    Rls__RateLimitDescriptor__Entry *each = read_list(reader, json, "entries", sizeof *each, init_entry, fields);
    if (!each)
        return false;
    descriptor->n_entries = json_array_size(json);
    descriptor->entries = weir__arena_array(reader->arena, descriptor->n_entries, sizeof(void *));
    for (size_t i = 0; descriptor->entries && i < descriptor->n_entries; i++)
        descriptor->entries[i] = &each[i];
    return descriptor->entries || weir__rls_fail_memory(reader->reply);
}

static bool descriptor_limit(struct json_reader *reader, const json_t *json, void *message)
{
    static const struct json_field fields[] = {
        {"requestsPerUnit", "requests_per_unit", read_uint32,
         offsetof(Rls__RateLimitDescriptor__Limit, requests_per_unit)},
        {"unit", "unit", limit_unit, offsetof(Rls__RateLimitDescriptor__Limit, unit)},
        {NULL, NULL, NULL, 0}};
    Rls__RateLimitDescriptor *descriptor = message;
    descriptor->limit = weir__arena_take(reader->arena, sizeof *descriptor->limit);
    if (!descriptor->limit)
        return weir__rls_fail_memory(reader->reply);
    rls__rate_limit_descriptor__limit__init(descriptor->limit);
    return read_object(reader, json, fields, descriptor->limit);
}

static bool descriptor_hits(struct json_reader *reader, const json_t *json, void *message)
{
    Rls__RateLimitDescriptor *descriptor = message;
    uint64_t number;
    if (!read_number(json, UINT64_MAX, &number))
        return false;
    descriptor->hits_addend = weir__arena_take(reader->arena, sizeof *descriptor->hits_addend);
    if (!descriptor->hits_addend)
        return weir__rls_fail_memory(reader->reply);
    google__protobuf__uint64_value__init(descriptor->hits_addend);
    descriptor->hits_addend->value = number;
    return true;
}

static void init_descriptor(void *message)
{
    rls__rate_limit_descriptor__init(message);
}

static bool request_descriptors(struct json_reader *reader, const json_t *json, void *message)
{
    static const struct json_field fields[] = {
        {"entries", "entries", descriptor_entries, 0},
        {"limit", "limit", descriptor_limit, 0},
        {"hitsAddend", "hits_addend", descriptor_hits, 0},
        {"isNegativeHits", "is_negative_hits", read_bool, offsetof(Rls__RateLimitDescriptor, is_negative_hits)},
        {NULL, NULL, NULL, 0}};
    Rls__RateLimitRequest *request = message;
    Rls__RateLimitDescriptor *each = read_list(reader, json, "descriptors", sizeof *each, init_descriptor, fields);
    if (!each)
        return false;
    request->n_descriptors = json_array_size(json);
    request->descriptors = weir__arena_array(reader->arena, request->n_descriptors, sizeof(void *));
    for (size_t i = 0; request->descriptors && i < request->n_descriptors; i++)
        request->descriptors[i] = &each[i];
    return request->descriptors || weir__rls_fail_memory(reader->reply);
}

Rls__RateLimitRequest *weir__rls_read_json(struct weir__arena *arena, const json_t *json, struct weir__rls_reply *reply)
{
    static const struct json_field fields[] = {
        {"domain", "domain", read_text, offsetof(Rls__RateLimitRequest, domain)},
        {"descriptors", "descriptors", request_descriptors, 0},
        {"hitsAddend", "hits_addend", read_uint32, offsetof(Rls__RateLimitRequest, hits_addend)},
        {NULL, NULL, NULL, 0}};
    struct json_reader reader = {.arena = arena, .reply = reply, .where = ""};
    Rls__RateLimitRequest *request = weir__arena_take(arena, sizeof *request);
    if (!request) {
        weir__rls_fail_memory(reply);
        return NULL;
    }
    rls__rate_limit_request__init(request);
    return read_object(&reader, json, fields, request) ? request : NULL;
}

/* ---- Writing a response: fields with their default value are left out ---- */

json_t *weir__rls_made(json_t *made, int failed)
{
    if (!failed)
        return made;
    json_decref(made);
    return NULL;
}

static json_t *enum_json(const ProtobufCEnumDescriptor *descriptor, int number)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(descriptor, number);
    return value ? json_string(value->name) : json_integer(number);
}

/* ---- Struct ---- */

static json_t *value_json(const Google__Protobuf__Value *value);

/* reply.c bounds the depth */
static json_t *struct_json(const Google__Protobuf__Struct *from)
{
    json_t *made = json_object();
    int failed = 0;
    for (size_t i = 0; i < from->n_fields; i++)
        failed |= json_object_set_new(made, from->fields[i]->key, value_json(from->fields[i]->value));
    return weir__rls_made(made, failed);
}

static json_t *list_json(const Google__Protobuf__ListValue *from)
{
    json_t *made = json_array();
    int failed = 0;
    for (size_t i = 0; i < from->n_values; i++)
        failed |= json_array_append_new(made, value_json(from->values[i]));
    return weir__rls_made(made, failed);
}

static json_t *number_json(double number)
{
    long long integer = number >= -0x1p53 && number <= 0x1p53 ? (long long)number : 0;
    return (double)integer == number ? json_integer(integer) : json_real(number);
}

static json_t *value_json(const Google__Protobuf__Value *value)
{
    switch (value->kind_case) {
    case GOOGLE__PROTOBUF__VALUE__KIND_STRUCT_VALUE:
        return struct_json(value->struct_value);
    case GOOGLE__PROTOBUF__VALUE__KIND_LIST_VALUE:
        return list_json(value->list_value);
    case GOOGLE__PROTOBUF__VALUE__KIND_STRING_VALUE:
        return json_string(value->string_value);
    case GOOGLE__PROTOBUF__VALUE__KIND_NUMBER_VALUE:
        return number_json(value->number_value);
    case GOOGLE__PROTOBUF__VALUE__KIND_BOOL_VALUE:
        return json_boolean(value->bool_value);
    default:
        return json_null();
    }
}

/* ---- The response ---- */

static json_t *limit_json(const Rls__RateLimitResponse__RateLimit *limit)
{
    json_t *made = json_object();
    int failed = 0;
    if (limit->requests_per_unit)
        failed |= json_object_set_new(made, "requestsPerUnit", json_integer(limit->requests_per_unit));
    if (limit->unit)
        failed |= json_object_set_new(made, "unit", enum_json(&rls__unit__descriptor, (int)limit->unit));
    if (limit->name.len)
        failed |= json_object_set_new(made, "name", json_stringn((const char *)limit->name.data, limit->name.len));
    return weir__rls_made(made, failed);
}

static json_t *status_json(const Rls__RateLimitResponse__DescriptorStatus *status)
{
    json_t *made = json_object();
    char seconds[32];
    int failed =
        json_object_set_new(made, "code", enum_json(&rls__rate_limit_response__code__descriptor, (int)status->code));
    if (status->current_limit)
        failed |= json_object_set_new(made, "currentLimit", limit_json(status->current_limit));
    if (status->limit_remaining)
        failed |= json_object_set_new(made, "limitRemaining", json_integer(status->limit_remaining));
    if (status->duration_until_reset) {
        (void)snprintf(seconds, sizeof seconds, "%llds", (long long)status->duration_until_reset->seconds);
        failed |= json_object_set_new(made, "durationUntilReset", json_string(seconds));
    }
    return weir__rls_made(made, failed);
}

static json_t *header_json(const Rls__HeaderValue *header)
{
    return json_pack("{s:s,s:s}", "key", header->key, "value", header->value);
}

json_t *weir__rls_write_json(const Rls__RateLimitResponse *response)
{
    json_t *made = json_object(), *statuses = json_array(), *headers = json_array();
    int failed = json_object_set_new(
        made, "overallCode", enum_json(&rls__rate_limit_response__code__descriptor, (int)response->overall_code));
    for (size_t i = 0; i < response->n_statuses; i++)
        failed |= json_array_append_new(statuses, status_json(response->statuses[i]));
    failed |= json_object_set_new(made, "statuses", statuses);
    for (size_t i = 0; i < response->n_response_headers_to_add; i++)
        failed |= json_array_append_new(headers, header_json(response->response_headers_to_add[i]));
    if (json_array_size(headers))
        failed |= json_object_set(made, "responseHeadersToAdd", headers);
    json_decref(headers);
    if (response->dynamic_metadata)
        failed |= json_object_set_new(made, "dynamicMetadata", struct_json(response->dynamic_metadata));
    return weir__rls_made(made, failed);
}
