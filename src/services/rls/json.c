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
    struct weir__rls_memory *memory;
    struct weir__rls_reply *reply;
    char where[64]; /* prefix of names in error messages, such as "descriptors[3]." */
};

typedef bool read_field(struct json_reader *json_reader, const json_t *json, void *message);

struct json_field {
    const char *name, *other; /* lowerCamelCase, and as in the .proto file */
    read_field *read;
};

static bool fail(struct json_reader *json_reader, const char *name, const char *what)
{
    return weir__rls_fail(json_reader->reply, WEIR__GRPC_INVALID_ARGUMENT, "%s%.40s %s", json_reader->where, name,
                          what);
}

/* Reads an object into a message. `fields` ends with a NULL name; at most 32. */
static bool read_object(struct json_reader *json_reader, const json_t *json, const struct json_field *fields,
                        void *message)
{
    const char *name;
    json_t *value;
    unsigned seen = 0;
    if (!json_is_object(json))
        return fail(json_reader, "", "must be an object");
    json_object_foreach((json_t *)json, name, value)
    {
        size_t i = 0;
        while (fields[i].name && strcmp(name, fields[i].name) != 0 && strcmp(name, fields[i].other) != 0)
            i++;
        if (!fields[i].name)
            return fail(json_reader, name, "is not a field");
        if (seen & 1U << i)
            return fail(json_reader, name, "is there twice");
        seen |= 1U << i;
        if (!json_is_null(value) && !fields[i].read(json_reader, value, message))
            return json_reader->reply->message[0] ? false : fail(json_reader, name, "has a wrong value");
    }
    return true;
}

static bool read_text(const json_t *json, ProtobufCBinaryData *text)
{
    if (!json_is_string(json))
        return false;
    text->data = (uint8_t *)json_string_value(json);
    text->len = json_string_length(json);
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

static bool read_uint32(const json_t *json, uint32_t *to)
{
    uint64_t number;
    if (!read_number(json, UINT32_MAX, &number))
        return false;
    *to = (uint32_t)number;
    return true;
}

/* Extends the prefix by "list[index]."; *before: its old length, to restore. */
static void enter(struct json_reader *json_reader, const char *list, size_t index, size_t *before)
{
    *before = strlen(json_reader->where);
    (void)snprintf(json_reader->where + *before, sizeof json_reader->where - *before, "%s[%zu].", list, index);
}

/* ---- Messages ---- */

static bool entry_key(struct json_reader *json_reader, const json_t *json, void *message)
{
    (void)json_reader;
    return read_text(json, &((Rls__RateLimitDescriptor__Entry *)message)->key);
}

static bool entry_value(struct json_reader *json_reader, const json_t *json, void *message)
{
    (void)json_reader;
    return read_text(json, &((Rls__RateLimitDescriptor__Entry *)message)->value);
}

static bool read_entry(struct json_reader *json_reader, const json_t *json, Rls__RateLimitDescriptor__Entry *message)
{
    static const struct json_field fields[] = {
        {"key", "key", entry_key}, {"value", "value", entry_value}, {NULL, NULL, NULL}};
    rls__rate_limit_descriptor__entry__init(message);
    return read_object(json_reader, json, fields, message);
}

static bool limit_requests(struct json_reader *json_reader, const json_t *json, void *message)
{
    (void)json_reader;
    return read_uint32(json, &((Rls__RateLimitDescriptor__Limit *)message)->requests_per_unit);
}

static bool limit_unit(struct json_reader *json_reader, const json_t *json, void *message)
{
    Rls__RateLimitDescriptor__Limit *limit = message;
    const char *name = json_string_value(json);
    const ProtobufCEnumValue *value =
        name ? protobuf_c_enum_descriptor_get_value_by_name(&rls__unit__descriptor, name)
        : json_is_integer(json) && json_integer_value(json) >= 0 && json_integer_value(json) < 8
            ? protobuf_c_enum_descriptor_get_value(&rls__unit__descriptor, (int)json_integer_value(json))
            : NULL;
    if (!value)
        return fail(json_reader, "unit", "must be one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR");
    limit->unit = (Rls__Unit)value->value;
    return true;
}

static bool descriptor_entries(struct json_reader *json_reader, const json_t *json, void *message)
{
    Rls__RateLimitDescriptor *descriptor = message;
    size_t count = json_array_size(json), before;
    if (!json_is_array(json))
        return fail(json_reader, "entries", "must be a list");
    Rls__RateLimitDescriptor__Entry *each = weir__rls_array(json_reader->memory, count, sizeof *each);
    descriptor->entries = weir__rls_array(json_reader->memory, count, sizeof(void *));
    if (!each || !descriptor->entries)
        return weir__rls_fail_memory(json_reader->reply);
    for (size_t i = 0; i < count; i++) {
        enter(json_reader, "entries", i, &before);
        if (!read_entry(json_reader, json_array_get(json, i), &each[i]))
            return false;
        json_reader->where[before] = 0;
        descriptor->entries[i] = &each[i];
    }
    descriptor->n_entries = count;
    return true;
}

static bool descriptor_limit(struct json_reader *json_reader, const json_t *json, void *message)
{
    static const struct json_field fields[] = {
        {"requestsPerUnit", "requests_per_unit", limit_requests}, {"unit", "unit", limit_unit}, {NULL, NULL, NULL}};
    Rls__RateLimitDescriptor *descriptor = message;
    descriptor->limit = weir__rls_take(json_reader->memory, sizeof *descriptor->limit);
    if (!descriptor->limit)
        return weir__rls_fail_memory(json_reader->reply);
    rls__rate_limit_descriptor__limit__init(descriptor->limit);
    return read_object(json_reader, json, fields, descriptor->limit);
}

static bool descriptor_hits(struct json_reader *json_reader, const json_t *json, void *message)
{
    Rls__RateLimitDescriptor *descriptor = message;
    uint64_t number;
    if (!read_number(json, UINT64_MAX, &number))
        return false;
    descriptor->hits_addend = weir__rls_take(json_reader->memory, sizeof *descriptor->hits_addend);
    if (!descriptor->hits_addend)
        return weir__rls_fail_memory(json_reader->reply);
    google__protobuf__uint64_value__init(descriptor->hits_addend);
    descriptor->hits_addend->value = number;
    return true;
}

static bool descriptor_negative(struct json_reader *json_reader, const json_t *json, void *message)
{
    (void)json_reader;
    ((Rls__RateLimitDescriptor *)message)->is_negative_hits = json_is_true(json);
    return json_is_boolean(json);
}

static bool read_descriptor(struct json_reader *json_reader, const json_t *json, Rls__RateLimitDescriptor *message)
{
    static const struct json_field fields[] = {{"entries", "entries", descriptor_entries},
                                               {"limit", "limit", descriptor_limit},
                                               {"hitsAddend", "hits_addend", descriptor_hits},
                                               {"isNegativeHits", "is_negative_hits", descriptor_negative},
                                               {NULL, NULL, NULL}};
    rls__rate_limit_descriptor__init(message);
    return read_object(json_reader, json, fields, message);
}

static bool request_domain(struct json_reader *json_reader, const json_t *json, void *message)
{
    (void)json_reader;
    return read_text(json, &((Rls__RateLimitRequest *)message)->domain);
}

static bool request_descriptors(struct json_reader *json_reader, const json_t *json, void *message)
{
    Rls__RateLimitRequest *request = message;
    size_t count = json_array_size(json), before;
    if (!json_is_array(json))
        return fail(json_reader, "descriptors", "must be a list");
    Rls__RateLimitDescriptor *each = weir__rls_array(json_reader->memory, count, sizeof *each);
    request->descriptors = weir__rls_array(json_reader->memory, count, sizeof(void *));
    if (!each || !request->descriptors)
        return weir__rls_fail_memory(json_reader->reply);
    for (size_t i = 0; i < count; i++) {
        enter(json_reader, "descriptors", i, &before);
        if (!read_descriptor(json_reader, json_array_get(json, i), &each[i]))
            return false;
        json_reader->where[before] = 0;
        request->descriptors[i] = &each[i];
    }
    request->n_descriptors = count;
    return true;
}

static bool request_hits(struct json_reader *json_reader, const json_t *json, void *message)
{
    (void)json_reader;
    return read_uint32(json, &((Rls__RateLimitRequest *)message)->hits_addend);
}

Rls__RateLimitRequest *weir__rls_read_json(struct weir__rls_memory *memory, const json_t *json,
                                           struct weir__rls_reply *reply)
{
    static const struct json_field fields[] = {{"domain", "domain", request_domain},
                                               {"descriptors", "descriptors", request_descriptors},
                                               {"hitsAddend", "hits_addend", request_hits},
                                               {NULL, NULL, NULL}};
    struct json_reader json_reader = {.memory = memory, .reply = reply, .where = ""};
    Rls__RateLimitRequest *request = weir__rls_take(memory, sizeof *request);
    if (!request) {
        weir__rls_fail_memory(reply);
        return NULL;
    }
    rls__rate_limit_request__init(request);
    return read_object(&json_reader, json, fields, request) ? request : NULL;
}

/* ---- Writing a response: fields with their default value are left out ---- */

/* Sets a field; non-zero on failure. */
static int set(json_t *to, const char *name, json_t *value)
{
    return json_object_set_new(to, name, value);
}

static json_t *made_or_null(json_t *made, int failed)
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

/* metadata.c bounds the depth */
static json_t *struct_json(const Google__Protobuf__Struct *from)
{
    json_t *made = json_object();
    int failed = 0;
    for (size_t i = 0; i < from->n_fields; i++)
        failed |= set(made, from->fields[i]->key, value_json(from->fields[i]->value));
    return made_or_null(made, failed);
}

static json_t *list_json(const Google__Protobuf__ListValue *from)
{
    json_t *made = json_array();
    int failed = 0;
    for (size_t i = 0; i < from->n_values; i++)
        failed |= json_array_append_new(made, value_json(from->values[i]));
    return made_or_null(made, failed);
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
        failed |= set(made, "requestsPerUnit", json_integer(limit->requests_per_unit));
    if (limit->unit)
        failed |= set(made, "unit", enum_json(&rls__unit__descriptor, (int)limit->unit));
    if (limit->name.len)
        failed |= set(made, "name", json_stringn((const char *)limit->name.data, limit->name.len));
    return made_or_null(made, failed);
}

static json_t *status_json(const Rls__RateLimitResponse__DescriptorStatus *status)
{
    json_t *made = json_object();
    char seconds[32];
    int failed = set(made, "code", enum_json(&rls__rate_limit_response__code__descriptor, (int)status->code));
    if (status->current_limit)
        failed |= set(made, "currentLimit", limit_json(status->current_limit));
    if (status->limit_remaining)
        failed |= set(made, "limitRemaining", json_integer(status->limit_remaining));
    if (status->duration_until_reset) {
        (void)snprintf(seconds, sizeof seconds, "%llds", (long long)status->duration_until_reset->seconds);
        failed |= set(made, "durationUntilReset", json_string(seconds));
    }
    return made_or_null(made, failed);
}

static json_t *header_json(const Rls__HeaderValue *header)
{
    return json_pack("{s:s,s:s}", "key", header->key, "value", header->value);
}

json_t *weir__rls_write_json(const Rls__RateLimitResponse *response)
{
    json_t *made = json_object(), *statuses = json_array(), *headers = json_array();
    int failed =
        set(made, "overallCode", enum_json(&rls__rate_limit_response__code__descriptor, (int)response->overall_code));
    for (size_t i = 0; i < response->n_statuses; i++)
        failed |= json_array_append_new(statuses, status_json(response->statuses[i]));
    failed |= set(made, "statuses", statuses);
    for (size_t i = 0; i < response->n_response_headers_to_add; i++)
        failed |= json_array_append_new(headers, header_json(response->response_headers_to_add[i]));
    if (json_array_size(headers))
        failed |= json_object_set(made, "responseHeadersToAdd", headers);
    json_decref(headers);
    if (response->dynamic_metadata)
        failed |= set(made, "dynamicMetadata", struct_json(response->dynamic_metadata));
    return made_or_null(made, failed);
}
