/*
 * POST reserve, commit, cancel: for costs that are known only afterwards. An estimate is refunded at most once, and a
 * reservation that is not settled expires; docs/service-http.md describes what a crash in between does.
 */
#include "base/json_writer.h"
#include "services/http/api.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define EXPIRES_DEFAULT_S 60
#define EXPIRES_MAX_S     3600
#define MARKER_MORE_NS    (60 * WEIR_SECOND) /* a marker outlives its token by this */
#define AT_ONCE_MAX       1000               /* reservations that one weir__api_expire refunds */

/* ---- The marker: a counter with one unit, named by the token's id; the caller that takes it settles the token ---- */

static int take_marker(struct weir__api *api, const struct weir__reservation_token *token, weir_time now, bool *first)
{
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW,
                          .align = WEIR_ALIGN_FIRST_REQUEST,
                          .limit = 1,
                          .window_ns = token->due_ns - token->taken.mono_ns + MARKER_MORE_NS,
                          .id = UINT64_C(0x7469636b65747321)};
    weir_limit limit;
    weir_decision decision;
    int error = weir_limit_init(&limit, &params);
    if (!error)
        error = weir_take(segment, &limit, token->id, sizeof token->id, 1, now, &decision);
    *first = !error && weir_passes(&decision);
    return error;
}

/* ---- Settling ---- */

/* Settles under a rule. `decision` NULL: only collects the request to the store; 1: there is one. */
static int settle_rule(struct weir__api *api, const struct weir__reservation_charge *charge, int64_t amount,
                       weir_time when, weir_decision *decision)
{
    char rule[WEIR_NAME_MAX + 1];
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
    return api->async ? weir_key_settle_finish(api->engine, &taken, amount, when, api->async, decision)
                      : weir_key_settle(api->engine, &taken, amount, when, decision);
}

/* True if the store must reply first; the request is in api->async. An error counts as no request. */
static bool charge_needs_store(struct weir__api *api, const struct weir__reservation_token *token,
                               const struct weir__reservation_charge *charge, int64_t actual, weir_time now)
{
    int64_t amount = actual - charge->cost;
    return api->async && !api->store_replied && !charge->direct &&
           settle_rule(api, charge, amount, amount < 0 ? token->taken : now, NULL) == 1;
}

/* Corrects one counter to the actual cost. */
static int settle_charge(struct weir__api *api, const struct weir__reservation_token *token,
                         const struct weir__reservation_charge *charge, int64_t actual, weir_time now,
                         weir_decision *decision)
{
    int64_t amount = actual - charge->cost;
    weir_time when = amount < 0 ? token->taken : now;
    if (!charge->direct)
        return settle_rule(api, charge, amount, when, decision);
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_params params = charge->params;
    weir_limit limit;
    int error = weir__api_direct_limit(&params, &limit);
    if (error)
        return error;
    return amount < 0 ? weir_refund(segment, &limit, charge->key.data, charge->key.len, -amount, when, decision)
                      : weir_charge(segment, &limit, charge->key.data, charge->key.len, amount, when, decision);
}

static void write_charge(struct weir__buffer *out, const struct weir__reservation_charge *charge, int64_t actual,
                         int error, const weir_decision *decision)
{
    weir__buffer_add_literal(out, "{\"rule\":");
    if (charge->direct)
        weir__buffer_add_literal(out, "null");
    else
        weir__json_add_string(out, charge->rule);
    weir__buffer_add_literal(out, ",\"key\":");
    weir__json_add_string(out, charge->key);
    weir__buffer_printf(out, ",\"reserved\":%" PRId64 ",\"cost\":%" PRId64, charge->cost, actual);
    if (error)
        weir__buffer_add_literal(out, ",\"limit\":null,\"remaining\":null}");
    else
        weir__buffer_printf(out, ",\"limit\":%" PRId64 ",\"remaining\":%" PRId64 "}", decision->limit,
                            decision->remaining);
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

/* Reads {"reservation", "cost"}. False: the fault is set. */
static bool read_settlement(const json_t *root, bool cancel, uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX], size_t *len,
                            int64_t *actual, struct weir__api_fault *fault)
{
    static const char *const of_commit[] = {"reservation", "cost", NULL}, *const of_cancel[] = {"reservation", NULL};
    const json_t *text = json_object_get(root, "reservation");
    if (!weir__api_only(root, cancel ? of_cancel : of_commit, NULL, -1, fault))
        return false;
    if (!json_is_string(text))
        return weir__api_wrong(fault, -1, "reservation", "is needed: the text that reserve returned");
    if (!cancel && !json_object_get(root, "cost"))
        return weir__api_wrong(fault, -1, "cost", "is needed: what it cost in the end");
    if (!weir__api_read_int(root, "cost", 0, WEIR__API_COST_MAX, -1, actual, fault))
        return false;
    *len = weir__reservation_token_from_text((weir_text){json_string_value(text), json_string_length(text)}, bytes);
    return true;
}

/*
 * Takes the marker, before the store is involved, so that only one of several callers sends the request to it; the same
 * caller continues after the store's reply. False: the reply has the error.
 */
static bool begin_settling(struct weir__api *api, const struct weir__reservation_token *token, weir_time now,
                           struct weir__api_reply *reply)
{
    bool first = false;
    if (now.mono_ns >= token->due_ns) {
        weir__api_fail(reply, 410, "expired", "the reservation has expired: its estimate is refunded", "reservation");
        return false;
    }
    int error = take_marker(api, token, now, &first);
    if (error)
        weir__api_fail(reply, 503, "failed", weir_strerror(error), NULL);
    else if (!first)
        weir__api_fail(reply, 409, "already_settled", "the reservation was committed or cancelled before",
                       "reservation");
    return first;
}

void weir__api_settle(struct weir__api *api, weir_text body, bool cancel, struct weir__api_reply *reply)
{
    struct weir__api_fault fault = {.code = ""};
    struct weir__reservation_token token;
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    size_t len = 0;
    int64_t actual = 0;
    json_t *root = weir__api_parse(body, &fault);
    bool read = root && read_settlement(root, cancel, bytes, &len, &actual, &fault);
    json_decref(root);
    if (!read) {
        weir__api_fail(reply, 400, fault.code, fault.message, fault.field);
        return;
    }
    weir_time now = weir_clock(weir_engine_segment(api->engine));
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
    weir__buffer_printf(&reply->out, "{\"settled\":true,\"cost\":%" PRId64 ",\"rules\":[", actual);
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
                                                              .key = item->key,
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
    size_t len = 1;
    for (int round = 0; round < 2; round++) {
        item->dry_run = round == 0;
        int error = weir__api_decide(api, item, token->taken, result);
        if (error) {
            weir__api_fail(reply, 503, "undecided", weir_strerror(error), NULL);
            return 0;
        }
        len = make_token(api, item, result, token, bytes);
        if (!len) {
            weir__api_fail(
                reply, 422, "too_large",
                "the rules' names and keys do not fit into a reservation token (keys of at most 191 bytes, about 1000 "
                "bytes in all)",
                NULL);
            return 0;
        }
        if (!weir_passes(&result->decision) && round == 1)
            return 0;
    }
    return len;
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

static void write_reservation(struct weir__api *api, const weir_result *result, const uint8_t *bytes, size_t len,
                              int64_t expires_s, struct weir__buffer *out)
{
    char text[WEIR__RESERVATION_TOKEN_TEXT_MAX + 1];
    weir__api_write_result(out, result, api->scratch->outcomes);
    weir__api_write_lease(api, out);
    if (!len) {
        weir__buffer_add_literal(out, ",\"reservation\":null,\"expires_s\":null}\n");
        return;
    }
    weir__buffer_add_literal(out, ",\"reservation\":");
    weir__json_add_string(out, (weir_text){text, weir__reservation_token_to_text(bytes, len, text)});
    weir__buffer_printf(out, ",\"expires_s\":%" PRId64 "}\n", expires_s);
}

static void reserve_item(struct weir__api *api, struct weir__api_item *item, int64_t expires_s,
                         struct weir__api_reply *reply)
{
    weir_result result;
    uint64_t first_slot;
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    if (needs_store(api, item)) {
        reply->needs_store = true;
        return;
    }
    struct weir__reservation_token token = {.taken = weir_clock(weir_engine_segment(api->engine))};
    token.due_ns = token.taken.mono_ns + expires_s * WEIR_SECOND;
    if (RAND_bytes(token.id, sizeof token.id) != 1) {
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
    write_reservation(api, &result, bytes, len, expires_s, &reply->out);
    if (item->http)
        weir__api_set_http(api, &result, reply);
}

void weir__api_reserve(struct weir__api *api, weir_text body, bool status_wanted, struct weir__api_reply *reply)
{
    static const char *const more[] = {"expires_s", NULL};
    struct weir__api_fault fault = {.code = ""};
    struct weir__api_item *item = &api->scratch->items[0];
    int64_t expires_s = EXPIRES_DEFAULT_S;
    if (!api->reservations) {
        weir__api_fail(reply, 503, "no_reservations", "reservations are switched off (weir_api_reservations)", NULL);
        return;
    }
    json_t *root = weir__api_parse(body, &fault);
    if (root && weir__api_read_item(root, -1, more, item, &fault) &&
        weir__api_read_int(root, "expires_s", 1, EXPIRES_MAX_S, -1, &expires_s, &fault)) {
        if (item->dry_run)
            weir__api_wrong(&fault, -1, "dry_run", "has no meaning for a reservation");
        else if (item->cost < 1)
            weir__api_wrong(&fault, -1, item->kind == WEIR__API_DESCRIPTORS ? "hits" : "cost",
                            "must be at least 1: an estimate");
    }
    if (*fault.code) {
        weir__api_fail(reply, 400, fault.code, fault.message, fault.field);
    } else {
        item->http |= status_wanted;
        reserve_item(api, item, expires_s, reply);
    }
    json_decref(root);
}
