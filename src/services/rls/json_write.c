/* A response as JSON, by protocol buffers' mapping: what has its default value is left out. */
#include "services/rls/rls_internal.h"

#include <stdio.h>

/* Sets a field; what could not be made makes the whole fail. */
static int set(json_t *to, const char *name, json_t *value)
{
    return json_object_set_new(to, name, value);
}

static json_t *whole(json_t *made, int failed)
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

/* As deep as it was made: metadata.c bounds that. */
static json_t *struct_json(const Google__Protobuf__Struct *from)
{
    json_t *made = json_object();
    int failed = 0;
    for (size_t i = 0; i < from->n_fields; i++)
        failed |= set(made, from->fields[i]->key, value_json(from->fields[i]->value));
    return whole(made, failed);
}

static json_t *list_json(const Google__Protobuf__ListValue *from)
{
    json_t *made = json_array();
    int failed = 0;
    for (size_t i = 0; i < from->n_values; i++)
        failed |= json_array_append_new(made, value_json(from->values[i]));
    return whole(made, failed);
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
    return whole(made, failed);
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
    return whole(made, failed);
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
    return whole(made, failed);
}
