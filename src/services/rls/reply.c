/* The response: statuses of the descriptors, headers, overall code. */
#include "services/rls/rls_internal.h"

#include <stdio.h>

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
    to->status.duration_until_reset = &to->reset;
}

static bool add_statuses(const struct weir__rls_evaluation *evaluation, Rls__RateLimitResponse *response)
{
    size_t count = evaluation->request->n_descriptors;
    struct status *statuses = weir__rls_take(evaluation->memory, count * sizeof *statuses);
    response->statuses = weir__rls_take(evaluation->memory, count * sizeof(void *));
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
    struct header_list *to = weir__rls_take(evaluation->memory, sizeof *to);
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
    Rls__RateLimitResponse *response = weir__rls_take(evaluation->memory, sizeof *response);
    if (!response)
        return NULL;
    rls__rate_limit_response__init(response);
    response->overall_code = weir_passes(&evaluation->result.decision) ? RLS__RATE_LIMIT_RESPONSE__CODE__OK
                                                                       : RLS__RATE_LIMIT_RESPONSE__CODE__OVER_LIMIT;
    if (!add_statuses(evaluation, response) || (service->headers && !add_headers(evaluation, response)) ||
        (service->metadata && !weir__rls_add_metadata(evaluation, response)))
        return NULL;
    return response;
}
