/*
 * POST reserve, commit, cancel: for costs that are known only afterwards. An estimate is refunded at most once, and a
 * reservation that is not settled expires; docs/internals/services.md describes what a crash in between does.
 */
#include "base/json_writer.h"
#include "services/http/api.h"

#include <string.h>
#include <sys/random.h>

#define MARKER_MORE_NS (60 * WEIR_SECOND) /* a marker outlives its token by this */
#define AT_ONCE_MAX    1000               /* reservations that one weir__api_expire refunds */

/* ---- The marker: a counter with one unit, named by the token's id; the caller that takes it settles the token ---- */

static int take_marker(struct weir__api *api, const struct weir__reservation_token *token, weir_time now, bool *first)
{
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW,
                          .align = WEIR_ALIGN_FIRST_REQUEST,
                          .limit = 1,
                          .window_ns = token->due_ns - token->taken.mono_ns + MARKER_MORE_NS,
                          .id = UINT64_C(0x7469636b65747321)}; /* of no rule: a counter of its own */
    weir_limit limit;
    weir_decision decision;
    int error = weir_limit_init(&limit, &params);
    if (!error)
        error = weir_take(segment, &limit, token->id, sizeof token->id, 1, now, &decision);
    *first = !error && weir_passes(&decision);
    return error;
}

/* ---- Settling ---- */

/*
 * Corrects one counter to the actual cost. If `decision` is NULL, only collects the request to the store, and returns 1
 * if there is one.
 */
static int settle_charge(struct weir__api *api, const struct weir__reservation_token *token,
                         const struct weir__reservation_charge *charge, int64_t actual, weir_time now,
                         weir_decision *decision)
{
    int64_t amount = actual - charge->cost;
    weir_time when = amount < 0 ? token->taken : now;
    char rule[WEIR_NAME_MAX + 1];
    if (charge->direct) {
        weir_segment *segment = weir_engine_segment(api->engine);
        weir_params params = charge->params;
        weir_limit limit;
        int error = decision ? weir__api_direct_limit(&params, &limit) : 0;
        if (error || !decision)
            return error;
        return amount < 0 ? weir_refund(segment, &limit, charge->key.data, charge->key.len, -amount, when, decision)
                          : weir_charge(segment, &limit, charge->key.data, charge->key.len, amount, when, decision);
    }
    if (charge->rule.len > WEIR_NAME_MAX)
        return WEIR_ENORULE;
    memcpy(rule, charge->rule.data, charge->rule.len);
    rule[charge->rule.len] = 0;
    weir_taken taken = {.rule = rule,
                        .shadow = charge->shadow,
                        .key = charge->key.data,
                        .key_len = charge->key.len,
                        .quota = charge->quota,
                        .window_ns = charge->window_ns};
    if (!decision)
        return weir_key_settle_begin(api->engine, &taken, amount, when, api->async);
    return weir_key_settle_finish(api->engine, &taken, amount, when, api->async, decision);
}

/* True if the store must reply first; the request is in api->async. An error counts as no request. */
static bool charge_needs_store(struct weir__api *api, const struct weir__reservation_token *token,
                               const struct weir__reservation_charge *charge, int64_t actual, weir_time now)
{
    return weir__api_collects(api) && settle_charge(api, token, charge, actual, now, NULL) == 1;
}

static void write_charge(struct weir__buffer *out, const struct weir__reservation_charge *charge, int64_t actual,
                         int error, const weir_decision *decision)
{
    weir__json_add(out, charge->direct ? "{\"rule\":null" : "{\"rule\":%t", charge->rule);
    weir__json_add(out, ",\"key\":%t,\"reserved\":%d,\"cost\":%d", charge->key, charge->cost, actual);
    if (error)
        weir__buffer_add_literal(out, ",\"limit\":null,\"remaining\":null}");
    else
        weir__json_add(out, ",\"limit\":%d,\"remaining\":%d}", decision->limit, decision->remaining);
}

/*
 * The caller has the marker. Frees the slot first: a crash here leaves the estimate consumed rather than refunded
 * twice.
 */
static void settle_all(struct weir__api *api, const struct weir__reservation_token *token, int64_t actual,
                       weir_time now, struct weir__buffer *out)
{
    if (api->reservations)
        weir__reservations_release(api->reservations, token->slot, token->due_ns / 1000);
    for (size_t i = 0; i < token->count; i++) {
        weir_decision decision;
        if (!out && charge_needs_store(api, token, &token->charges[i], actual, now))
            continue; /* sent to the store without waiting for its reply */
        int error = settle_charge(api, token, &token->charges[i], actual, now, &decision);
        if (!out)
            continue;
        if (i)
            weir__buffer_add_literal(out, ",");
        write_charge(out, &token->charges[i], actual, error, &decision);
    }
}

/*
 * Takes the marker, before the store is involved, so that only one of several callers sends the request to it; the same
 * caller continues after the store's reply. False: the reply has the error.
 */
static bool begin_settling(struct weir__api *api, const struct weir__reservation_token *token, weir_time now,
                           struct weir__api_reply *reply)
{
    bool first = false;
    if (now.mono_ns >= token->due_ns)
        return weir__api_fail(reply, 410, "expired", "the reservation has expired: its estimate is refunded",
                              "reservation");
    int error = take_marker(api, token, now, &first);
    if (error)
        return weir__api_fail(reply, 503, "failed", weir_strerror(error), NULL);
    return first || weir__api_fail(reply, 409, "already_settled", "the reservation was committed or cancelled before",
                                   "reservation");
}

void weir__api_settle(struct weir__api *api, struct weir__api_reply *reply)
{
    bool cancel = api->route->action == WEIR__API_CANCEL;
    struct weir__reservation_token token;
    struct weir__api_item item;
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    if (!weir__api_read(api->body, cancel ? WEIR__API_TO_CANCEL : WEIR__API_TO_COMMIT, &item, reply))
        return;
    int64_t actual = cancel ? 0 : item.cost;
    weir_time now = weir_clock(weir_engine_segment(api->engine));
    size_t len = weir__read_base64url(item.text, bytes, sizeof bytes);
    if (!len || !weir__reservation_token_unpack(bytes, len, api->token_key, &token)) {
        weir__api_fail(reply, 400, "bad_reservation", "not a reservation token of this segment", "reservation");
        return;
    }
    if (!api->store_replied && !begin_settling(api, &token, now, reply))
        return;
    for (size_t i = 0; i < token.count; i++)
        reply->needs_store |= charge_needs_store(api, &token, &token.charges[i], actual, now);
    if (reply->needs_store)
        return;
    weir__json_add(&reply->out, "{\"settled\":true,\"cost\":%d,\"rules\":[", actual);
    settle_all(api, &token, actual, now, &reply->out);
    weir__buffer_add_literal(&reply->out, "]}\n");
}

size_t weir__api_expire(struct weir__api *api)
{
    weir_time now = weir_clock(weir_engine_segment(api->engine));
    struct weir__reservation_token token;
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    uint32_t at = 0;
    int64_t due_us = 0;
    size_t refunded = 0, len;
    for (size_t i = 0; i < AT_ONCE_MAX; i++) {
        len = weir__reservations_next_due(api->reservations, &at, now.mono_ns / 1000, bytes, &due_us);
        if (!len)
            break;
        bool first = false, ours = weir__reservation_token_unpack(bytes, len, api->token_key, &token) &&
                                   token.due_ns / 1000 == due_us && token.slot == at - 1;
        if (!ours || (take_marker(api, &token, now, &first) == 0 && !first))
            weir__reservations_release(api->reservations, at - 1, due_us); /* of another segment, or settled */
        if (!first)
            continue;
        settle_all(api, &token, 0, now, NULL);
        refunded++;
    }
    return refunded;
}

/* ---- Reserving ---- */

/* Adds what the rules took, or would take. False: it does not fit into a token. */
static bool add_outcomes(const weir_outcome *outcomes, size_t count, struct weir__reservation_token *token)
{
    for (size_t i = 0; i < count; i++) {
        const weir_outcome *outcome = &outcomes[i];
        if (outcome->reason != WEIR_BY_LIMIT || !weir_passes(&outcome->decision))
            continue;
        if (outcome->key_cut || token->count == WEIR__RESERVATION_CHARGES_MAX)
            return false;
        token->charges[token->count++] =
            (struct weir__reservation_charge){.cost = outcome->cost,
                                              .rule = {outcome->rule, strlen(outcome->rule)},
                                              .key = {outcome->key, outcome->key_len},
                                              .shadow = outcome->shadow,
                                              .quota = outcome->quota,
                                              .window_ns = outcome->window_ns};
    }
    return true;
}

/* The length of the token, or 0 if it does not fit. */
static size_t make_token(struct weir__api *api, const struct weir__api_item *item, const weir_result *result,
                         struct weir__reservation_token *token, uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX])
{
    token->count = 0;
    if (item->kind != WEIR__API_DIRECT) {
        if (!add_outcomes(api->scratch->outcomes, result->outcomes, token))
            return 0;
    } else {
        token->charges[0] = (struct weir__reservation_charge){.cost = item->cost,
                                                              .direct = true,
                                                              .key = item->text,
                                                              .quota = item->params.limit,
                                                              .window_ns = item->params.window_ns,
                                                              .params = item->params};
        token->count = 1;
    }
    return weir__reservation_token_pack(token, api->token_key, bytes);
}

/*
 * Decides, with a claimed slot: first as a dry run, to verify that the token can be packed, because what was taken must
 * be refundable. The length of the token; 0: denied, or the reply has the error.
 */
static size_t take_estimate(struct weir__api *api, struct weir__api_item *item, struct weir__reservation_token *token,
                            uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX], weir_result *result,
                            struct weir__api_reply *reply)
{
    size_t len = 0;
    for (int round = 0; round < 2; round++) {
        item->dry_run = round == 0;
        int error = weir__api_decide(api, item, token->taken, result);
        if (error)
            return (size_t)weir__api_fail(reply, 503, "undecided", weir_strerror(error), NULL);
        len = make_token(api, item, result, token, bytes);
        if (!len)
            return (size_t)weir__api_fail(
                reply, 422, "too_large",
                "the rules' names and keys do not fit into a reservation token (keys of at most 191 bytes, about 1000 "
                "bytes in all)",
                NULL);
    }
    return weir_passes(&result->decision) ? len : 0;
}

/* Collects the requests to the store of both rounds. */
static bool needs_store(struct weir__api *api, struct weir__api_item *item)
{
    bool needs = false;
    for (int round = 0; round < 2; round++) {
        item->dry_run = round == 0;
        needs |= weir__api_needs_store(api, item);
    }
    return needs;
}

static void reserve_item(struct weir__api *api, struct weir__api_item *item, struct weir__api_reply *reply)
{
    struct weir__reservation_token token = {.taken = weir_clock(weir_engine_segment(api->engine))};
    weir_result result;
    uint64_t first_slot;
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    char text[WEIR__BASE64URL_MAX(WEIR__RESERVATION_TOKEN_MAX) + 1];
    token.due_ns = token.taken.mono_ns + item->expires_s * WEIR_SECOND;
    if (getrandom(token.id, sizeof token.id, 0) != (ssize_t)sizeof token.id) {
        weir__api_fail(reply, 503, "failed", "no random bytes are to be had", NULL);
        return;
    }
    memcpy(&first_slot, token.id, sizeof first_slot);
    int64_t slot = weir__reservations_claim(api->reservations, first_slot, token.due_ns / 1000);
    if (slot < 0) {
        weir__api_fail(reply, 503, "too_many_reservations", "too many reservations are pending; settle some, or wait",
                       NULL);
        return;
    }
    token.slot = (uint32_t)slot;
    size_t len = take_estimate(api, item, &token, bytes, &result, reply);
    if (len)
        weir__reservations_publish(api->reservations, token.slot, token.due_ns / 1000, bytes, len);
    else
        weir__reservations_release(api->reservations, token.slot, token.due_ns / 1000);
    if (reply->status != 200)
        return;
    weir__api_write_result(api, &reply->out, &result);
    if (len)
        weir__json_add(&reply->out, ",\"reservation\":%t,\"expires_s\":%d}\n",
                       (weir_text){text, weir__write_base64url(text, bytes, len)}, item->expires_s);
    else
        weir__buffer_add_literal(&reply->out, ",\"reservation\":null,\"expires_s\":null}\n");
    if (item->http)
        weir__api_set_http(api, &result, reply);
}

void weir__api_reserve(struct weir__api *api, struct weir__api_reply *reply)
{
    struct weir__api_item *item = &api->scratch->items[0];
    if (!api->reservations) {
        weir__api_fail(reply, 503, "no_reservations", "reservations are switched off (weir_api_reservations)", NULL);
        return;
    }
    if (!weir__api_read_item(api->body, WEIR__API_TO_RESERVE, item, reply))
        return;
    if (item->dry_run) {
        weir__api_wrong(reply, "dry_run", "has no meaning for a reservation");
    } else if (item->cost < 1) {
        weir__api_wrong(reply, item->kind == WEIR__API_DESCRIPTORS ? "hits" : "cost",
                        "must be at least 1: an estimate");
    } else if (needs_store(api, item)) {
        reply->needs_store = true;
    } else {
        item->http |= api->status_wanted;
        reserve_item(api, item, reply);
    }
}
