/*
 * Reserve, commit, cancel: for costs that are known only afterwards. What is promised, and what happens when somebody
 * dies in between, is in docs/service-http.md; in short: an estimate is given back at most once, and what is
 * not settled expires.
 */
#include "services/http/api.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define EXPIRES_USUAL_S 60
#define EXPIRES_MAX_S   3600
#define MARKER_MORE_NS  (60 * WEIR_SECOND) /* a marker outlives its ticket by this */
#define AT_ONCE_MAX     1000               /* reservations that one look gives back */

/* ---- The marker: who takes its one unit settles the ticket ---- */

static int take_marker(struct weir__api *api, const struct weir__ticket *ticket, weir_time now, bool *first)
{
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW,
                          .align = WEIR_ALIGN_FIRST_REQUEST,
                          .limit = 1,
                          .window_ns = ticket->due_ns - ticket->taken.mono_ns + MARKER_MORE_NS,
                          .id = UINT64_C(0x7469636b65747321)};
    weir_limit limit;
    weir_decision decision;
    int error = weir_limit_init(&limit, &params);
    if (!error)
        error = weir_take(segment, &limit, ticket->nonce, sizeof ticket->nonce, 1, now, &decision);
    *first = !error && weir_passes(&decision);
    return error;
}

/* ---- Settling ---- */

/* Under a rule. `decision` NULL: finds out whether the store must be asked: 1. */
static int settle_rule(struct weir__api *api, const struct weir__ticket_part *part, int64_t amount, weir_time when,
                       weir_decision *decision)
{
    char rule[WEIR_NAME_MAX + 1];
    if (part->rule.len > WEIR_NAME_MAX)
        return WEIR_ENORULE;
    memcpy(rule, part->rule.data, part->rule.len);
    rule[part->rule.len] = 0;
    weir_taken taken = {.rule = rule,
                        .shadow = part->shadow,
                        .key = part->key.data,
                        .key_len = part->key.len,
                        .quota = part->quota,
                        .window_ns = part->window_ns};
    if (!decision)
        return weir_key_settle_prepare(api->engine, &taken, amount, when, api->ask);
    return api->ask ? weir_key_settle_asked(api->engine, &taken, amount, when, api->ask, decision)
                    : weir_key_settle(api->engine, &taken, amount, when, decision);
}

/* True if the store must be asked first; then it is in api->ask. An error counts as nothing to ask. */
static bool part_must_ask(struct weir__api *api, const struct weir__ticket *ticket,
                          const struct weir__ticket_part *part, int64_t actual, weir_time now)
{
    int64_t amount = actual - part->cost;
    return api->ask && !api->answered && !part->direct &&
           settle_rule(api, part, amount, amount < 0 ? ticket->taken : now, NULL) == 1;
}

/* Corrects one counter to what it should have taken. */
static int settle_part(struct weir__api *api, const struct weir__ticket *ticket, const struct weir__ticket_part *part,
                       int64_t actual, weir_time now, weir_decision *decision)
{
    int64_t amount = actual - part->cost;
    weir_time when = amount < 0 ? ticket->taken : now;
    if (!part->direct)
        return settle_rule(api, part, amount, when, decision);
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_params params = part->params;
    weir_limit limit;
    int error = weir__api_direct_limit(&params, &limit);
    if (error)
        return error;
    return amount < 0 ? weir_refund(segment, &limit, part->key.data, part->key.len, -amount, when, decision)
                      : weir_charge(segment, &limit, part->key.data, part->key.len, amount, when, decision);
}

static void write_part(struct weir__out *out, const struct weir__ticket_part *part, int64_t actual, int error,
                       const weir_decision *decision)
{
    weir__out_text(out, "{\"rule\":");
    if (part->direct)
        weir__out_text(out, "null");
    else
        weir__out_string(out, part->rule);
    weir__out_text(out, ",\"key\":");
    weir__out_string(out, part->key);
    weir__out_text(out, ",\"reserved\":");
    weir__out_int(out, part->cost);
    weir__out_text(out, ",\"cost\":");
    weir__out_int(out, actual);
    weir__out_text(out, ",\"limit\":");
    if (error)
        weir__out_text(out, "null,\"remaining\":null");
    else {
        weir__out_int(out, decision->limit);
        weir__out_text(out, ",\"remaining\":");
        weir__out_int(out, decision->remaining);
    }
    weir__out_text(out, "}");
}

/* The marker is ours: the slot first, so that a death here leaves the estimate taken rather than given back twice. */
static void settle_all(struct weir__api *api, const struct weir__ticket *ticket, int64_t actual, weir_time now,
                       struct weir__out *out)
{
    if (api->reservations)
        weir__reservations_release(api->reservations, ticket->slot, ticket->due_ns / 1000);
    for (size_t i = 0; i < ticket->count; i++) {
        weir_decision decision;
        if (!out && part_must_ask(api, ticket, &ticket->parts[i], actual, now))
            continue; /* nobody waits for it */
        int error = settle_part(api, ticket, &ticket->parts[i], actual, now, &decision);
        if (!out)
            continue;
        if (i)
            weir__out_text(out, ",");
        write_part(out, &ticket->parts[i], actual, error, &decision);
    }
}

/* Reads {"ticket", "cost"}. False: the fault was told. */
static bool read_settlement(const json_t *root, bool cancel, uint8_t bytes[WEIR__TICKET_MAX], size_t *len,
                            int64_t *actual, struct weir__api_fault *fault)
{
    static const char *const of_commit[] = {"ticket", "cost", NULL}, *const of_cancel[] = {"ticket", NULL};
    const json_t *text = json_object_get(root, "ticket");
    if (!weir__api_only(root, cancel ? of_cancel : of_commit, -1, fault))
        return false;
    if (!json_is_string(text))
        return weir__api_wrong(fault, -1, "ticket", "is needed: the text that reserve answered with");
    if (!cancel && !json_object_get(root, "cost"))
        return weir__api_wrong(fault, -1, "cost", "is needed: what it cost in the end");
    if (!weir__api_read_int(root, "cost", 0, WEIR__API_COST_MAX, -1, actual, fault))
        return false;
    *len = weir__ticket_from_text((weir_text){json_string_value(text), json_string_length(text)}, bytes);
    return true;
}

/*
 * Takes the marker: before the store is asked, so that of several who settle the same only one asks it. Who has it goes
 * on when the store has answered. False: the fault was told.
 */
static bool begin_settling(struct weir__api *api, const struct weir__ticket *ticket, weir_time now,
                           struct weir__api_reply *reply)
{
    bool first = false;
    if (now.mono_ns >= ticket->due_ns) {
        weir__api_fail(reply, 410, "expired", "the reservation has expired: its estimate is given back", "ticket");
        return false;
    }
    int error = take_marker(api, ticket, now, &first);
    if (error)
        weir__api_fail(reply, 503, "failed", weir_strerror(error), NULL);
    else if (!first)
        weir__api_fail(reply, 409, "already_settled", "the reservation was committed or cancelled before", "ticket");
    return first;
}

void weir__api_settle(struct weir__api *api, weir_text body, bool cancel, struct weir__api_reply *reply)
{
    struct weir__api_fault fault = {.code = ""};
    struct weir__ticket ticket;
    uint8_t bytes[WEIR__TICKET_MAX];
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
    if (!len || !weir__ticket_unpack(bytes, len, api->ticket_key, &ticket)) {
        weir__api_fail(reply, 400, "bad_ticket", "this is no ticket of this segment", "ticket");
        return;
    }
    if (!api->answered && !begin_settling(api, &ticket, now, reply))
        return;
    for (size_t i = 0; i < ticket.count; i++)
        reply->must_ask |= part_must_ask(api, &ticket, &ticket.parts[i], actual, now);
    if (reply->must_ask)
        return;
    weir__out_text(&reply->out, "{\"settled\":true,\"cost\":");
    weir__out_int(&reply->out, actual);
    weir__out_text(&reply->out, ",\"rules\":[");
    settle_all(api, &ticket, actual, now, &reply->out);
    weir__out_text(&reply->out, "]}\n");
}

size_t weir__api_expire(struct weir__api *api)
{
    weir_time now = weir_clock(weir_engine_segment(api->engine));
    struct weir__ticket ticket;
    uint8_t bytes[WEIR__TICKET_MAX];
    uint32_t at = 0;
    int64_t due_us = 0;
    size_t given_back = 0, len;
    for (size_t i = 0; i < AT_ONCE_MAX; i++) {
        len = weir__reservations_next_due(api->reservations, &at, now.mono_ns / 1000, bytes, &due_us);
        if (!len)
            break;
        bool first = false, ours = weir__ticket_unpack(bytes, len, api->ticket_key, &ticket) &&
                                   ticket.due_ns / 1000 == due_us && ticket.slot == at - 1;
        if (!ours || (take_marker(api, &ticket, now, &first) == 0 && !first))
            weir__reservations_release(api->reservations, at - 1, due_us); /* of another segment, or settled */
        if (!first)
            continue;
        settle_all(api, &ticket, 0, now, NULL);
        given_back++;
    }
    return given_back;
}

/* ---- Reserving ---- */

/* What was taken under rules, or would be. False: it cannot be written down. */
static bool add_outcomes(const weir_outcome *outcomes, size_t count, struct weir__ticket *ticket)
{
    for (size_t i = 0; i < count; i++) {
        const weir_outcome *outcome = &outcomes[i];
        if (outcome->reason != WEIR_BY_LIMIT || !weir_passes(&outcome->decision))
            continue;
        if (outcome->key_cut || ticket->count == WEIR__TICKET_PARTS)
            return false;
        ticket->parts[ticket->count++] = (struct weir__ticket_part){.cost = outcome->cost,
                                                                    .rule = {outcome->rule, strlen(outcome->rule)},
                                                                    .key = {outcome->key, outcome->key_len},
                                                                    .shadow = outcome->shadow,
                                                                    .quota = outcome->quota,
                                                                    .window_ns = outcome->window_ns};
    }
    return true;
}

/* The length of the ticket, or 0 if it does not fit. */
static size_t make_ticket(struct weir__api *api, const struct weir__api_item *item, const weir_answer *answer,
                          struct weir__ticket *ticket, uint8_t bytes[WEIR__TICKET_MAX])
{
    ticket->count = 0;
    if (item->kind != WEIR__API_DIRECT) {
        if (!add_outcomes(api->room->outcomes, answer->outcomes, ticket))
            return 0;
    } else {
        ticket->parts[0] = (struct weir__ticket_part){.cost = item->cost,
                                                      .direct = true,
                                                      .key = item->key,
                                                      .quota = item->quota,
                                                      .window_ns = item->window_ns,
                                                      .params = item->params};
        ticket->count = 1;
    }
    return weir__ticket_pack(ticket, api->ticket_key, bytes);
}

/*
 * Decides, in a slot that is claimed. First dry, to see that the ticket can be written: what was taken must be possible
 * to give back. The length of the ticket, or 0: denied, or a failure that was told.
 */
static size_t take_estimate(struct weir__api *api, struct weir__api_item *item, struct weir__ticket *ticket,
                            uint8_t bytes[WEIR__TICKET_MAX], weir_answer *answer, struct weir__api_reply *reply)
{
    size_t len = 1;
    for (int round = 0; round < 2; round++) {
        item->dry_run = round == 0;
        int error = weir__api_decide(api, item, ticket->taken, answer);
        if (error) {
            weir__api_fail(reply, 503, "undecided", weir_strerror(error), NULL);
            return 0;
        }
        len = make_ticket(api, item, answer, ticket, bytes);
        if (!len) {
            weir__api_fail(reply, 422, "too_large",
                           "the rules' names and keys do not fit into a ticket (keys of at most 191 bytes, about 1000 "
                           "bytes in all)",
                           NULL);
            return 0;
        }
        if (!weir_passes(&answer->decision) && round == 1)
            return 0;
    }
    return len;
}

/* The store is asked for both rounds at once. */
static bool must_ask(struct weir__api *api, struct weir__api_item *item)
{
    bool asks = false;
    for (int round = 0; round < 2; round++) {
        item->dry_run = round == 0;
        asks |= weir__api_must_ask(api, item);
    }
    return asks;
}

static void write_reservation(struct weir__api *api, const weir_answer *answer, const uint8_t *bytes, size_t len,
                              int64_t expires_s, struct weir__out *out)
{
    char text[WEIR__TICKET_TEXT_MAX + 1];
    weir__api_write_answer(out, answer, api->room->outcomes);
    weir__api_write_lease(api, out);
    weir__out_text(out, ",\"ticket\":");
    if (len)
        weir__out_string(out, (weir_text){text, weir__ticket_to_text(bytes, len, text)});
    else
        weir__out_text(out, "null");
    weir__out_text(out, ",\"expires_s\":");
    if (len)
        weir__out_int(out, expires_s);
    else
        weir__out_text(out, "null");
    weir__out_text(out, "}\n");
}

static void reserve_item(struct weir__api *api, struct weir__api_item *item, int64_t expires_s,
                         struct weir__api_reply *reply)
{
    weir_answer answer;
    uint64_t spread;
    uint8_t bytes[WEIR__TICKET_MAX];
    if (must_ask(api, item)) {
        reply->must_ask = true;
        return;
    }
    struct weir__ticket ticket = {.taken = weir_clock(weir_engine_segment(api->engine))};
    ticket.due_ns = ticket.taken.mono_ns + expires_s * WEIR_SECOND;
    if (RAND_bytes(ticket.nonce, sizeof ticket.nonce) != 1) {
        weir__api_fail(reply, 503, "failed", "no random bytes are to be had", NULL);
        return;
    }
    memcpy(&spread, ticket.nonce, sizeof spread);
    int64_t slot = weir__reservations_claim(api->reservations, spread, ticket.due_ns / 1000);
    if (slot < 0) {
        weir__api_fail(reply, 503, "too_many_reservations", "too many reservations are pending; settle some, or wait",
                       NULL);
        return;
    }
    ticket.slot = (uint32_t)slot;
    size_t len = take_estimate(api, item, &ticket, bytes, &answer, reply);
    if (len)
        weir__reservations_publish(api->reservations, ticket.slot, ticket.due_ns / 1000, bytes, len);
    else
        weir__reservations_release(api->reservations, ticket.slot, ticket.due_ns / 1000);
    if (reply->status != 200)
        return;
    write_reservation(api, &answer, bytes, len, expires_s, &reply->out);
    if (item->http)
        weir__api_tell_http(api, &answer, reply);
}

void weir__api_reserve(struct weir__api *api, weir_text body, bool status_wanted, struct weir__api_reply *reply)
{
    static const char *const more[] = {"expires_s", NULL};
    struct weir__api_fault fault = {.code = ""};
    struct weir__api_item *item = &api->room->items[0];
    int64_t expires_s = EXPIRES_USUAL_S;
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
