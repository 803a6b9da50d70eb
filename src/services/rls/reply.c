/* The response: statuses of the descriptors, headers, metadata, overall code. */
#include "services/rls/rls_internal.h"

#include <stdio.h>
#include <string.h>

/*
 * ---- dynamic_metadata ----
 *
 * The request, and the metadata of the rules that it passed. Assembled as JSON, as rules' metadata are, then converted
 * to a protobuf Struct.
 */

#define DEPTH_MAX 64 /* rules' metadata are at most half as deep */

static Google__Protobuf__Value *make_value(struct weir__arena *arena, const json_t *json, int depth);

Google__Protobuf__Struct *weir__rls_struct(struct weir__arena *arena, const json_t *json, int depth)
{
    size_t count = json_object_size(json);
    Google__Protobuf__Struct *made = weir__arena_take(arena, sizeof *made);
    Google__Protobuf__Struct__FieldsEntry *entries = weir__arena_take(arena, count * sizeof *entries);
    Google__Protobuf__Struct__FieldsEntry **list = weir__arena_take(arena, count * sizeof(void *));
    const char *name;
    json_t *value;
    size_t i = 0;
    if (!made || !entries || !list)
        return NULL;
    google__protobuf__struct__init(made);
    json_object_foreach((json_t *)json, name, value)
    {
        google__protobuf__struct__fields_entry__init(&entries[i]);
        entries[i].key = (char *)name;
        entries[i].value = make_value(arena, value, depth);
        if (!entries[i].value)
            return NULL;
        list[i] = &entries[i];
        i++;
    }
    made->fields = list;
    made->n_fields = i;
    return made;
}

static Google__Protobuf__ListValue *make_list(struct weir__arena *arena, const json_t *json, int depth)
{
    size_t count = json_array_size(json);
    Google__Protobuf__ListValue *made = weir__arena_take(arena, sizeof *made);
    Google__Protobuf__Value **list = weir__arena_take(arena, count * sizeof(void *));
    if (!made || !list)
        return NULL;
    google__protobuf__list_value__init(made);
    for (size_t i = 0; i < count; i++)
        if (!(list[i] = make_value(arena, json_array_get(json, i), depth)))
            return NULL;
    made->values = list;
    made->n_values = count;
    return made;
}

static Google__Protobuf__Value *make_value(struct weir__arena *arena, const json_t *json, int depth)
{
    Google__Protobuf__Value *made = weir__arena_take(arena, sizeof *made);
    if (!made || depth == DEPTH_MAX)
        return NULL;
    google__protobuf__value__init(made);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        made->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRUCT_VALUE;
        made->struct_value = weir__rls_struct(arena, json, depth + 1);
        return made->struct_value ? made : NULL;
    case JSON_ARRAY:
        made->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_LIST_VALUE;
        made->list_value = make_list(arena, json, depth + 1);
        return made->list_value ? made : NULL;
    case JSON_STRING:
        made->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRING_VALUE;
        made->string_value = (char *)json_string_value(json);
        return made;
    case JSON_INTEGER:
    case JSON_REAL:
        made->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_NUMBER_VALUE;
        made->number_value = json_number_value(json);
        return made;
    case JSON_TRUE:
    case JSON_FALSE:
        made->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_BOOL_VALUE;
        made->bool_value = json_is_true(json);
        return made;
    case JSON_NULL:
        break;
    }
    made->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_NULL_VALUE;
    return made;
}

/* "key=value" */
static json_t *entry_json(const Rls__RateLimitDescriptor__Entry *entry)
{
    return json_pack("s%++%", entry->key.len ? (const char *)entry->key.data : "", entry->key.len, "=",
                     entry->value.len ? (const char *)entry->value.data : "", entry->value.len);
}

/* In protobuf's text format; 0 is left out. */
static json_t *limit_json(const Rls__RateLimitDescriptor__Limit *limit)
{
    const ProtobufCEnumValue *unit = protobuf_c_enum_descriptor_get_value(&rls__unit__descriptor, (int)limit->unit);
    const char *name = unit ? unit->name : "";
    return limit->requests_per_unit ? json_sprintf("requests_per_unit:%u unit:%s", limit->requests_per_unit, name)
                                    : json_sprintf("unit:%s", name);
}

/* As in a Struct, whose numbers are doubles. */
static json_t *number_json(uint64_t number)
{
    return number <= UINT64_C(1) << 53 ? json_integer((json_int_t)number) : json_real((double)number);
}

static json_t *descriptor_json(const Rls__RateLimitDescriptor *descriptor)
{
    json_t *entries = json_array();
    int failed = 0;
    for (size_t i = 0; i < descriptor->n_entries; i++)
        failed |= json_array_append_new(entries, entry_json(descriptor->entries[i]));
    json_t *made = json_pack("{s:o,s:o*,s:o*}", "entries", entries, "limit",
                             descriptor->limit ? limit_json(descriptor->limit) : NULL, "hitsAddend",
                             descriptor->hits_addend ? number_json(descriptor->hits_addend->value) : NULL);
    return weir__rls_made(made, failed);
}

/* Adds missing members, recursively for objects. */
static int merge(json_t *to, json_t *from, int depth)
{
    const char *name;
    json_t *value;
    int failed = 0;
    json_object_foreach(from, name, value)
    {
        json_t *there = json_object_get(to, name);
        if (!there)
            failed |= json_object_set(to, name, value);
        else if (json_is_object(there) && json_is_object(value) && depth < DEPTH_MAX)
            failed |= merge(there, value, depth + 1);
    }
    return failed;
}

/* The metadata of the rules that the request passed; the first rule with a name wins. */
static json_t *passed_json(const struct weir__rls_evaluation *evaluation)
{
    json_t *made = json_object();
    for (size_t i = 0; made && i < evaluation->request->n_descriptors; i++) {
        const weir_outcome *outcome = &evaluation->outcomes[i];
        weir_text metadata = evaluation->matches[i].metadata;
        if (!metadata.len || outcome->reason == WEIR_BY_UNLIMITED || outcome->reason == WEIR_BY_NOTHING ||
            (!outcome->shadow && !weir_passes(&outcome->decision)))
            continue;
        json_t *one = json_loadb(metadata.data, metadata.len, JSON_ALLOW_NUL, NULL);
        if (one)
            (void)merge(made, one, 0);
        json_decref(one);
    }
    return made;
}

json_t *weir__rls_metadata(const struct weir__rls_evaluation *evaluation)
{
    const Rls__RateLimitRequest *request = evaluation->request;
    json_t *descriptors = json_array(), *passed = passed_json(evaluation);
    int failed = 0;
    for (size_t i = 0; i < request->n_descriptors; i++)
        failed |= json_array_append_new(descriptors, descriptor_json(request->descriptors[i]));
    json_t *made =
        json_pack("{s:s%,s:o,s:o*,s:O*}", "domain", request->domain.data, request->domain.len, "descriptors",
                  descriptors, "hitsAddend", request->hits_addend ? json_integer(request->hits_addend) : NULL,
                  "metadata", json_object_size(passed) ? passed : NULL);
    json_decref(passed);
    return weir__rls_made(made, failed);
}

static uint32_t bounded(int64_t number)
{
    return number < 0 ? 0 : number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

/*
 * Whole seconds, rounded up, so that a client that waits so long is not early. An untouched clock-aligned window has an
 * end, too.
 */
static int64_t seconds_until_reset(const weir_outcome *outcome, const weir_descriptor_match *match, weir_time now)
{
    int64_t ns = outcome->decision.reset_after_ns;
    if (ns <= 0 && match->by_clock && match->window_ns)
        ns = match->window_ns - now.wall_ns % match->window_ns;
    return ns <= 0 ? 0 : (ns - 1) / WEIR_SECOND + 1;
}

/* ---- Statuses ---- */

struct status {
    Rls__RateLimitResponse__DescriptorStatus status;
    Rls__RateLimitResponse__RateLimit limit;
    Google__Protobuf__Duration reset;
};

static bool is_over(const weir_outcome *outcome)
{
    return !outcome->shadow && !weir_passes(&outcome->decision);
}

static void make_status(struct status *to, const struct weir__rls_evaluation *evaluation, size_t index)
{
    const weir_outcome *outcome = &evaluation->outcomes[index];
    const weir_descriptor_match *match = &evaluation->matches[index];
    rls__rate_limit_response__descriptor_status__init(&to->status);
    to->status.code =
        is_over(outcome) ? RLS__RATE_LIMIT_RESPONSE__CODE__OVER_LIMIT : RLS__RATE_LIMIT_RESPONSE__CODE__OK;
    if (outcome->reason == WEIR_BY_UNLIMITED)
        to->status.limit_remaining = UINT32_MAX;
    if (outcome->reason == WEIR_BY_UNLIMITED || outcome->reason == WEIR_BY_NOTHING)
        return;
    rls__rate_limit_response__rate_limit__init(&to->limit);
    google__protobuf__duration__init(&to->reset);
    to->limit.requests_per_unit = bounded(match->limit);
    to->limit.unit = weir__rls_unit(match->window_ns);
    to->limit.name.data = (uint8_t *)match->limit_name.data;
    to->limit.name.len = match->limit_name.len;
    to->reset.seconds = seconds_until_reset(outcome, match, evaluation->result.now);
    to->status.current_limit = &to->limit;
    to->status.limit_remaining = weir_passes(&outcome->decision) ? bounded(outcome->decision.remaining) : 0;
    if (to->status.limit_remaining > to->limit.requests_per_unit) /* a burst, which the protocol cannot express */
        to->status.limit_remaining = to->limit.requests_per_unit;
    to->status.duration_until_reset = &to->reset;
}

static bool add_statuses(const struct weir__rls_evaluation *evaluation, Rls__RateLimitResponse *response)
{
    size_t count = evaluation->request->n_descriptors;
    struct status *statuses = weir__arena_take(evaluation->arena, count * sizeof *statuses);
    response->statuses = weir__arena_take(evaluation->arena, count * sizeof(void *));
    if (!statuses || !response->statuses)
        return false;
    for (size_t i = 0; i < count; i++) {
        make_status(&statuses[i], evaluation, i);
        response->statuses[i] = &statuses[i].status;
    }
    response->n_statuses = count;
    return true;
}

/* ---- Headers ---- */

/* The status that the headers report: the last one over its limit, else the one with the least remaining. */
static const Rls__RateLimitResponse__DescriptorStatus *header_status(const struct weir__rls_evaluation *evaluation,
                                                                     const Rls__RateLimitResponse *response)
{
    const Rls__RateLimitResponse__DescriptorStatus *best = NULL;
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < response->n_statuses; i++) {
        const Rls__RateLimitResponse__DescriptorStatus *status = response->statuses[i];
        bool against = status->code == RLS__RATE_LIMIT_RESPONSE__CODE__OVER_LIMIT && !evaluation->matches[i].quota_mode;
        if (!status->current_limit || (!against && status->limit_remaining >= least))
            continue;
        best = status;
        least = against ? 0 : status->limit_remaining;
    }
    return best;
}

enum { HEADERS = 3, NUMBER_MAX = 24 };

struct header_list {
    Rls__HeaderValue *list[HEADERS];
    Rls__HeaderValue header_list[HEADERS];
    char values[HEADERS][NUMBER_MAX];
};

static bool add_headers(const struct weir__rls_evaluation *evaluation, Rls__RateLimitResponse *response)
{
    static char names[HEADERS][24] = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"};
    const Rls__RateLimitResponse__DescriptorStatus *status = header_status(evaluation, response);
    if (!status)
        return true;
    struct header_list *to = weir__arena_take(evaluation->arena, sizeof *to);
    if (!to)
        return false;
    long long numbers[HEADERS] = {status->current_limit->requests_per_unit, status->limit_remaining,
                                  status->duration_until_reset->seconds};
    for (size_t i = 0; i < HEADERS; i++) {
        rls__header_value__init(&to->header_list[i]);
        (void)snprintf(to->values[i], NUMBER_MAX, "%lld", numbers[i]);
        to->header_list[i].key = names[i];
        to->header_list[i].value = to->values[i];
        to->list[i] = &to->header_list[i];
    }
    response->response_headers_to_add = to->list;
    response->n_response_headers_to_add = HEADERS;
    return true;
}

Rls__RateLimitResponse *weir__rls_response(const struct weir__rls *service,
                                           const struct weir__rls_evaluation *evaluation)
{
    Rls__RateLimitResponse *response = weir__arena_take(evaluation->arena, sizeof *response);
    if (!response)
        return NULL;
    rls__rate_limit_response__init(response);
    response->overall_code = weir_passes(&evaluation->result.decision) ? RLS__RATE_LIMIT_RESPONSE__CODE__OK
                                                                       : RLS__RATE_LIMIT_RESPONSE__CODE__OVER_LIMIT;
    if (!add_statuses(evaluation, response) || (service->headers && !add_headers(evaluation, response)))
        return NULL;
    return response;
}
