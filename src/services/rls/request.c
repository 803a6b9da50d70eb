/* From a RateLimitRequest to the library's descriptor query, and its decision. */
#include "base/text.h"
#include "services/rls/rls_internal.h"

#include <string.h>

static const struct {
    Rls__Unit unit;
    int64_t seconds;
} units[] = {{RLS__UNIT__SECOND, 1},         {RLS__UNIT__MINUTE, 60},        {RLS__UNIT__HOUR, 3600},
             {RLS__UNIT__DAY, 86400},        {RLS__UNIT__WEEK, 7 * 86400},   {RLS__UNIT__MONTH, 30 * 86400},
             {RLS__UNIT__YEAR, 365 * 86400}, {RLS__UNIT__MONTH, 31 * 86400}, /* these two: calendar units */
             {RLS__UNIT__YEAR, 366 * 86400}};
#define UNITS (sizeof units / sizeof *units)

int64_t weir__rls_unit_ns(Rls__Unit unit)
{
    for (size_t i = 0; i < UNITS; i++)
        if (units[i].unit == unit)
            return units[i].seconds * WEIR_SECOND;
    return 0;
}

Rls__Unit weir__rls_unit(int64_t window_ns)
{
    for (size_t i = 0; i < UNITS; i++)
        if (units[i].seconds * WEIR_SECOND == window_ns)
            return units[i].unit;
    return RLS__UNIT__UNKNOWN;
}

/* ---- Texts ---- */

static weir_text text_of(ProtobufCBinaryData text)
{
    return (weir_text){(const char *)text.data, text.len};
}

/* proto3 strings are UTF-8; other bytes could not be sent back to a client. */
static bool is_text(ProtobufCBinaryData text)
{
    return weir__utf8_valid(text_of(text));
}

/* ---- Descriptors ---- */

static bool convert_entries(const Rls__RateLimitDescriptor *from, weir_descriptor *to, size_t index,
                            struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply)
{
    weir_descriptor_entry *entries = weir__arena_array(evaluation->arena, from->n_entries, sizeof *entries);
    if (!entries)
        return weir__rls_fail_memory(reply);
    for (size_t i = 0; i < from->n_entries; i++) {
        const Rls__RateLimitDescriptor__Entry *entry = from->entries[i];
        if (!is_text(entry->key) || !is_text(entry->value))
            return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "descriptors[%zu].entries[%zu] is not UTF-8",
                                  index, i);
        entries[i] = (weir_descriptor_entry){text_of(entry->key), text_of(entry->value)};
    }
    to->entries = entries;
    to->entry_count = from->n_entries;
    return true;
}

/* clamped: more never fits either */
static int64_t hits_of(uint64_t hits, bool negative)
{
    int64_t bounded = hits > UINT32_MAX ? UINT32_MAX : (int64_t)hits;
    return negative ? -bounded : bounded;
}

static bool convert(size_t index, struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply)
{
    const Rls__RateLimitDescriptor *from = evaluation->request->descriptors[index];
    weir_descriptor *to = &evaluation->descriptors[index];
    weir_descriptor_match *match = &evaluation->matches[index];
    if (!convert_entries(from, to, index, evaluation, reply))
        return false;
    to->has_hits = from->hits_addend || from->is_negative_hits;
    if (from->hits_addend)
        to->hits = hits_of(from->hits_addend->value, from->is_negative_hits);
    else if (from->is_negative_hits)
        to->hits = hits_of(evaluation->request->hits_addend ? evaluation->request->hits_addend : 1, true);
    if (!from->limit)
        return true;
    to->override_limit = from->limit->requests_per_unit;
    to->override_window_ns = weir__rls_unit_ns(from->limit->unit);
    if (!to->override_window_ns)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "descriptors[%zu].limit has no unit", index);
    match->limit = to->override_limit;
    match->window_ns = to->override_window_ns;
    match->by_clock = true;
    return true;
}

/* ---- Decision ---- */

/* Copies the texts: they outlive the call. */
static void keep_match(void *context, size_t descriptor, const weir_descriptor_match *match)
{
    struct weir__rls_evaluation *evaluation = context;
    weir_descriptor_match *kept = &evaluation->matches[descriptor];
    *kept = *match;
    kept->limit_name.data = kept->metadata.data = NULL;
    char *texts = weir__arena_take(evaluation->arena, match->limit_name.len + match->metadata.len);
    if (!texts) {
        kept->limit_name.len = kept->metadata.len = 0;
        return;
    }
    if (match->limit_name.len)
        kept->limit_name.data = memcpy(texts, match->limit_name.data, match->limit_name.len);
    if (match->metadata.len)
        kept->metadata.data = memcpy(texts + match->limit_name.len, match->metadata.data, match->metadata.len);
}

/* UNKNOWN in the first two cases, as in envoyproxy/ratelimit, for clients that distinguish the codes. */
static bool is_sound(const Rls__RateLimitRequest *request, struct weir__rls_reply *reply)
{
    if (request->domain.len == 0)
        return weir__rls_fail(reply, WEIR__GRPC_UNKNOWN, "the request names no domain");
    if (request->n_descriptors == 0)
        return weir__rls_fail(reply, WEIR__GRPC_UNKNOWN, "the request has no descriptors");
    return is_text(request->domain) || weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the domain is not UTF-8");
}

static bool prepare(struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply)
{
    size_t count = evaluation->request->n_descriptors;
    if (count > 256)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the request has %zu descriptors; at most 256",
                              count);
    evaluation->descriptors = weir__arena_array(evaluation->arena, count, sizeof *evaluation->descriptors);
    evaluation->matches = weir__arena_array(evaluation->arena, count, sizeof *evaluation->matches);
    evaluation->outcomes = weir__arena_take(evaluation->arena, count * sizeof *evaluation->outcomes);
    if (!evaluation->descriptors || !evaluation->matches || !evaluation->outcomes)
        return weir__rls_fail_memory(reply);
    for (size_t i = 0; i < count; i++)
        if (!convert(i, evaluation, reply))
            return false;
    return true;
}

/* Reports rules whose counter is unavailable, for the log. */
static void report_failures(const struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply)
{
    for (size_t i = 0; i < evaluation->result.outcomes; i++) {
        if (evaluation->outcomes[i].reason != WEIR_BY_FAILURE && evaluation->outcomes[i].error != WEIR_EFULL)
            continue;
        reply->error = evaluation->outcomes[i].error;
        reply->rule = evaluation->outcomes[i].rule;
    }
}

bool weir__rls_decide(const struct weir__rls *service, const Rls__RateLimitRequest *request,
                      struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply)
{
    evaluation->request = request;
    if (!is_sound(request, reply) || !prepare(evaluation, reply))
        return false;
    weir_descriptor_query query = {.domain = text_of(request->domain),
                                   .descriptors = evaluation->descriptors,
                                   .descriptor_count = request->n_descriptors,
                                   .hits = request->hits_addend,
                                   .charge_denied = service->charge_denied,
                                   .async = service->async,
                                   .outcomes = evaluation->outcomes,
                                   .matched = keep_match,
                                   .matched_context = evaluation};
    /* the check reports the error */
    reply->needs_store =
        service->async && !service->store_replied && weir_check_descriptors_begin(service->engine, &query) == 1;
    if (reply->needs_store)
        return false;
    int error = weir_check_descriptors(service->engine, &query, &evaluation->result);
    if (error == WEIR_ETOOMANY)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the request has more than 64 limits of its own");
    if (error) {
        reply->error = error;
        return weir__rls_fail(reply, WEIR__GRPC_INTERNAL, "%s", weir_strerror(error));
    }
    report_failures(evaluation, reply);
    reply->over_limit = !weir_passes(&evaluation->result.decision);
    return true;
}
