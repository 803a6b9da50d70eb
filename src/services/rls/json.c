/*
 * Messages from JSON and to JSON, by protobuf-c's descriptors and protobuf's JSON mapping: names in lowerCamelCase or
 * as in the .proto file, enum values by name or number, numbers also as strings, null for absent fields. An unknown
 * name is an error, as in envoyproxy/ratelimit. Only the types that rls.proto uses are mapped.
 */
#include "services/rls/rls_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 40 /* of a field, with its zero byte */

/* The name of a field in lowerCamelCase. */
static const char *json_name(const ProtobufCFieldDescriptor *field, char to[NAME_MAX_BYTES])
{
    char *at = to;
    for (const char *from = field->name; *from && at < to + NAME_MAX_BYTES - 1; from++)
        *at++ = *from == '_' ? (char)(*++from - 'a' + 'A') : *from;
    *at = 0;
    return to;
}

/* ---- Reading ---- */

struct json_reader {
    struct weir__arena *arena;
    struct weir__rls_reply *reply;
    char where[64]; /* prefix of names in error messages, such as "descriptors[3]." */
};

static bool fail(struct json_reader *reader, const char *name, const char *what)
{
    return weir__rls_fail(reader->reply, WEIR__GRPC_INVALID_ARGUMENT, "%s%.40s %s", reader->where, name, what);
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

static bool read_unit(struct json_reader *reader, const json_t *json, void *member)
{
    const char *name = json_string_value(json);
    json_int_t number = json_is_integer(json) ? json_integer_value(json) : -1;
    const ProtobufCEnumValue *value = name ? protobuf_c_enum_descriptor_get_value_by_name(&rls__unit__descriptor, name)
                                      : number >= 0 && number <= INT_MAX
                                          ? protobuf_c_enum_descriptor_get_value(&rls__unit__descriptor, (int)number)
                                          : NULL;
    if (!value)
        return fail(reader, "unit", "must be one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR");
    *(Rls__Unit *)member = (Rls__Unit)value->value;
    return true;
}

static bool read_message(struct json_reader *reader, const json_t *json, ProtobufCMessage *message);

static ProtobufCMessage *new_message(struct json_reader *reader, const ProtobufCMessageDescriptor *kind)
{
    ProtobufCMessage *made = weir__arena_take(reader->arena, kind->sizeof_message);
    if (made)
        kind->message_init(made);
    else
        weir__rls_fail_memory(reader->reply);
    return made;
}

static bool read_list(struct json_reader *reader, const json_t *json, const ProtobufCFieldDescriptor *field,
                      ProtobufCMessage *message)
{
    size_t before = strlen(reader->where), count = json_array_size(json);
    const ProtobufCMessageDescriptor *kind = field->descriptor;
    if (!json_is_array(json))
        return fail(reader, field->name, "must be a list");
    char *messages = weir__arena_array(reader->arena, count, kind->sizeof_message);
    ProtobufCMessage **list = weir__arena_array(reader->arena, count, sizeof(ProtobufCMessage *));
    if (!messages || !list)
        return weir__rls_fail_memory(reader->reply);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(reader->where + before, sizeof reader->where - before, "%s[%zu].", field->name, i);
        list[i] = (void *)(messages + i * kind->sizeof_message);
        kind->message_init(list[i]);
        if (!read_message(reader, json_array_get(json, i), list[i]))
            return false;
    }
    reader->where[before] = 0;
    memcpy((char *)message + field->offset, &list, sizeof list);
    *(size_t *)(void *)((char *)message + field->quantifier_offset) = count;
    return true;
}

/* Reads a value into a field of the message. False without a message in the reply: "has a wrong value". */
static bool read_field(struct json_reader *reader, const json_t *json, const ProtobufCFieldDescriptor *field,
                       ProtobufCMessage *message)
{
    void *member = (char *)message + field->offset;
    uint64_t number = 0;
    bool good;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return read_list(reader, json, field, message);
    switch (field->type) {
    case PROTOBUF_C_TYPE_BYTES:
        *(ProtobufCBinaryData *)member =
            (ProtobufCBinaryData){json_string_length(json), (uint8_t *)json_string_value(json)};
        return json_is_string(json);
    case PROTOBUF_C_TYPE_UINT32:
        good = read_number(json, UINT32_MAX, &number);
        *(uint32_t *)member = (uint32_t)number;
        return good;
    case PROTOBUF_C_TYPE_UINT64:
        return read_number(json, UINT64_MAX, member);
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)member = json_is_true(json);
        return json_is_boolean(json);
    case PROTOBUF_C_TYPE_ENUM:
        return read_unit(reader, json, member);
    case PROTOBUF_C_TYPE_MESSAGE: {
        ProtobufCMessage *made = new_message(reader, field->descriptor);
        memcpy(member, &made, sizeof(ProtobufCMessage *));
        if (made && made->descriptor == &google__protobuf__uint64_value__descriptor)
            return read_field(reader, json, &made->descriptor->fields[0], made); /* a wrapper is written as its value */
        return made && read_message(reader, json, made);
    }
    default:
        return false;
    }
}

/* The descriptors have at most 32 fields. */
static bool read_message(struct json_reader *reader, const json_t *json, ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *kind = message->descriptor;
    const char *name;
    json_t *value;
    unsigned seen = 0;
    if (!json_is_object(json))
        return fail(reader, "", "must be an object");
    json_object_foreach((json_t *)json, name, value)
    {
        char camel[NAME_MAX_BYTES];
        unsigned i = 0;
        while (i < kind->n_fields && strcmp(name, kind->fields[i].name) != 0 &&
               strcmp(name, json_name(&kind->fields[i], camel)) != 0)
            i++;
        if (i == kind->n_fields)
            return fail(reader, name, "is not a field");
        if (seen & 1U << i)
            return fail(reader, name, "is there twice");
        seen |= 1U << i;
        if (!json_is_null(value) && !read_field(reader, value, &kind->fields[i], message))
            return reader->reply->message[0] ? false : fail(reader, name, "has a wrong value");
    }
    return true;
}

Rls__RateLimitRequest *weir__rls_read_json(struct weir__arena *arena, const json_t *json, struct weir__rls_reply *reply)
{
    struct json_reader reader = {.arena = arena, .reply = reply, .where = ""};
    ProtobufCMessage *request = new_message(&reader, &rls__rate_limit_request__descriptor);
    return request && read_message(&reader, json, request) ? (Rls__RateLimitRequest *)request : NULL;
}

/* ---- Writing: fields with their default value are left out ---- */

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

/* A field with its default value has a zero number, pointer or length, and a list a zero count. */
static bool is_set(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
    static const char zeros[sizeof(size_t)];
    unsigned offset = field->label == PROTOBUF_C_LABEL_REPEATED ? field->quantifier_offset : field->offset;
    bool is_number = field->type == PROTOBUF_C_TYPE_UINT32 || field->type == PROTOBUF_C_TYPE_ENUM;
    return memcmp((const char *)message + offset, zeros, is_number ? sizeof(uint32_t) : sizeof zeros) != 0;
}

static json_t *value_json(const ProtobufCFieldDescriptor *field, const void *member)
{
    const ProtobufCBinaryData *bytes = member;
    const void *pointer;
    switch (field->type) {
    case PROTOBUF_C_TYPE_BYTES:
        return json_stringn((const char *)bytes->data, bytes->len);
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&pointer, member, sizeof pointer);
        return json_string(pointer);
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&pointer, member, sizeof pointer);
        return weir__rls_write_json(pointer);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_json(field->descriptor, *(const int *)member);
    default:
        return json_integer(*(const uint32_t *)member);
    }
}

static json_t *list_json(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
    size_t count = *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
    const char *list;
    json_t *made = json_array();
    int failed = 0;
    memcpy(&list, (const char *)message + field->offset, sizeof list);
    for (size_t i = 0; i < count; i++)
        failed |= json_array_append_new(made, value_json(field, list + i * sizeof(void *)));
    return weir__rls_made(made, failed);
}

json_t *weir__rls_write_json(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *kind = message->descriptor;
    if (kind == &google__protobuf__duration__descriptor)
        return json_sprintf("%llds", (long long)((const Google__Protobuf__Duration *)message)->seconds);
    json_t *made = json_object();
    int failed = 0;
    for (unsigned i = 0; i < kind->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &kind->fields[i];
        char name[NAME_MAX_BYTES];
        if (is_set(field, message))
            failed |= json_object_set_new(made, json_name(field, name),
                                          field->label == PROTOBUF_C_LABEL_REPEATED
                                              ? list_json(field, message)
                                              : value_json(field, (const char *)message + field->offset));
    }
    return weir__rls_made(made, failed);
}
