/* One request after the other through the drain: claimed, asked for, sent, answered, told to the queue. */
#include "queue/ingest_request.h"
#include "queue/dispatcher_internal.h"
#include "queue/delivery_headers.h"
#include "engine/mapped_file.h"

#include <stdio.h>

enum {
    WAIT_MAX_MS = 30000, /* rules change, and operators reset keys: what waits for longer is looked at again */
    SLOT_MS = 250,       /* requests in flight: a slot may be given back long before its lease ends */
    DELAY_MAX_MS = 20000,
    CLAIM_MORE_MS = 40000 /* than a delivery may take: a delay before it, and the queue's own time */
};

_Static_assert(WEIR__DRAIN_MOST_MS < WEIR__QUEUE_AHEAD_MS, "what waits for its next attempt must not seem due");

static uint64_t dice(void)
{
    uint64_t random = 0;
    return weir__random_fill(&random, sizeof random) == 0 ? random : (uint64_t)weir__drain_clock_ms();
}

/* ---- The end of a delivery ---- */

static void sooner(struct weir__drain *drain, int64_t ms)
{
    if (ms < drain->look_ms)
        drain->look_ms = ms;
}

/* The queue knows; or, with an error, the request is somebody else's by now. */
static void settled(struct weir__drain *drain, struct weir__delivery *delivery, int error)
{
    if (!error && delivery->end == WEIR__END_DELIVERED)
        drain->counts.delivered++;
    if (!error && delivery->end == WEIR__END_DEAD) {
        drain->counts.dead++;
        drain->dead_untold++;
        snprintf(drain->dead_why, sizeof drain->dead_why, "%s", delivery->why);
    }
    sooner(drain, delivery->end == WEIR__END_AGAIN && !delivery->aside ? delivery->due_ms : 0);
    weir__delivery_clear(delivery);
}

static struct weir__queue_ending ending_of(const struct weir__delivery *delivery)
{
    static const enum weir__queue_end_kind kinds[] = {[WEIR__END_DELIVERED] = WEIR__ENDED_DELIVERED,
                                                      [WEIR__END_AGAIN] = WEIR__ENDED_AGAIN,
                                                      [WEIR__END_DEAD] = WEIR__ENDED_DEAD};
    return (struct weir__queue_ending){.ticket = delivery->item.ticket,
                                       .kind = kinds[delivery->end],
                                       .due_ms = delivery->due_ms,
                                       .why = delivery->end == WEIR__END_DELIVERED ? NULL : delivery->why,
                                       .status = delivery->status,
                                       .attempt_counts = delivery->counts,
                                       .aside = delivery->aside};
}

/*
 * All that have ended at once: each commit of the queue may wait for a disk. If that fails they are told again: their
 * claims hold the others of their keys back meanwhile.
 */
void weir__drain_settle(struct weir__drain *drain)
{
    struct weir__queue_ending endings[WEIR__DRAIN_AT_ONCE];
    struct weir__delivery *ended[WEIR__DRAIN_AT_ONCE];
    size_t count = 0;
    if (!drain->queue) /* removed, and there is no other yet: they are told to that one, which knows nothing of them */
        return;
    drain->ended = false;
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++) {
        if (drain->delivery[i].state != WEIR__DELIVERY_ENDED)
            continue;
        ended[count] = &drain->delivery[i];
        endings[count++] = ending_of(&drain->delivery[i]);
    }
    int error = count ? weir__queue_end(drain->queue, endings, count) : 0;
    if (error) {
        weir__drain_trouble(drain, error, weir__queue_why(drain->queue));
        return;
    }
    for (size_t i = 0; i < count; i++)
        settled(drain, ended[i], endings[i].error);
}

static void settle_new(struct weir__drain *drain)
{
    if (drain->ended)
        weir__drain_settle(drain);
}

static void end(struct weir__drain *drain, struct weir__delivery *delivery, enum weir__delivery_end how)
{
    delivery->state = WEIR__DELIVERY_ENDED;
    delivery->end = how;
    drain->ended = true;
    (void)!weir_held_release(drain->engine, &delivery->held);
}

static void put_back(struct weir__drain *drain, struct weir__delivery *delivery, int64_t due_ms, const char *why)
{
    delivery->due_ms = due_ms;
    delivery->counts = false;
    delivery->status = delivery->item.last_status;
    snprintf(delivery->why, sizeof delivery->why, "%s", why);
    end(drain, delivery, WEIR__END_AGAIN);
}

static void give_up(struct weir__drain *drain, struct weir__delivery *delivery, const char *why)
{
    delivery->status = delivery->item.last_status;
    snprintf(delivery->why, sizeof delivery->why, "%s", why);
    end(drain, delivery, WEIR__END_DEAD);
}

/* An answer has come, or none. */
static void received(struct weir__drain *drain, struct weir__delivery *delivery, CURLcode code)
{
    int64_t now = weir__drain_clock_ms();
    weir__delivery_received(delivery, drain->multi, code);
    weir__pause_note(&drain->pauses, delivery->item.rule, weir__drain_is_away(delivery->status), now);
    int attempts = delivery->item.attempts + 1;
    drain->counts.attempts++;
    if (weir__drain_is_answer(delivery->status)) {
        end(drain, delivery, WEIR__END_DELIVERED);
        return;
    }
    drain->counts.failed++;
    delivery->counts = true;
    int64_t wait = weir__drain_backoff_ms(attempts, dice());
    delivery->due_ms = now + (wait > delivery->wanted_ms ? wait : delivery->wanted_ms);
    end(drain, delivery,
        weir__drain_is_over(attempts, drain->config->queue.retries) ? WEIR__END_DEAD : WEIR__END_AGAIN);
}

void weir__drain_receive(struct weir__drain *drain)
{
    int left, running;
    CURLMsg *message;
    struct weir__delivery *delivery;
    (void)curl_multi_perform(drain->multi, &running);
    while ((message = curl_multi_info_read(drain->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&delivery);
        received(drain, delivery, code);
    }
    settle_new(drain);
}

/* ---- Its beginning ---- */

static void send_off(struct weir__drain *drain, struct weir__delivery *delivery)
{
    if (!weir__delivery_send(delivery, &drain->to, drain->multi))
        put_back(drain, delivery, weir__drain_clock_ms() + WEIR__DRAIN_SECOND_MS, "it could not be sent");
}

static struct weir__aside *aside_of(struct weir__drain *drain, uint64_t group)
{
    return &drain->asides[group % WEIR__DRAIN_ASIDES];
}

/*
 * Another rule than the one that the request waits for: the others of its rule and key need not wait for that one, as
 * its key may be this client's alone. Limits are named RULE/LIMIT.
 */
static bool is_other(const weir_outcome *outcome, weir_text rule)
{
    size_t len = strnlen(outcome->rule, sizeof outcome->rule);
    return outcome->reason != WEIR_BY_SHED && outcome->reason != WEIR_BY_FAILURE &&
           (len < rule.len || memcmp(outcome->rule, rule.data, rule.len) != 0 ||
            (len > rule.len && outcome->rule[rule.len] != '/'));
}

/* A rule said no. `group`: that of the request, 0: no other rule limits it. */
static void wait_on(struct weir__drain *drain, struct weir__delivery *delivery, const weir_outcome *outcome,
                    uint64_t group, int64_t now)
{
    const weir_decision *decision = &outcome->decision;
    drain->counts.put_back++;
    if (decision->verdict == WEIR_NEVER_FITS) {
        give_up(drain, delivery, "it costs more than its rule ever allows");
        return;
    }
    int64_t wait = decision->retry_after_ns < 0 ? WAIT_MAX_MS : (decision->retry_after_ns + 999999) / 1000000;
    if (wait > WAIT_MAX_MS)
        wait = WAIT_MAX_MS;
    if (outcome->reason == WEIR_BY_FAILURE)
        wait = WEIR__DRAIN_SECOND_MS;
    if (decision->verdict == WEIR_DENY && decision->reset_after_ns < 0 && wait > SLOT_MS)
        wait = SLOT_MS;
    wait = wait > 0 ? wait : 1;
    if (group && is_other(outcome, delivery->item.rule)) {
        delivery->aside = group;
        *aside_of(drain, group) = (struct weir__aside){group, now + wait};
    }
    put_back(drain, delivery, now + wait,
             decision->verdict == WEIR_BLOCKED    ? "the key is blocked"
             : outcome->reason == WEIR_BY_SHED    ? "others come first while the load is high"
             : outcome->reason == WEIR_BY_FAILURE ? "its counter cannot be reached"
                                                  : "its limit is reached");
}

/* Takes what it costs under all rules that it had, as any request of them: all or nothing. */
static void take(struct weir__drain *drain, struct weir__delivery *delivery)
{
    const struct weir__deferred *item = &delivery->item;
    int64_t now = weir__drain_clock_ms(), until = weir__pause_until(&drain->pauses, item->rule, now);
    weir_taken what = {
        .rule = item->rule.data, .key = item->key.data, .key_len = item->key.len, .others = weir__request_others(item)};
    char tier[WEIR__TIER_MAX + 1];
    weir_outcome outcome;
    uint64_t group = weir__drain_group(item->rule, item->key, what.others);
    const struct weir__aside *aside = aside_of(drain, group);
    delivery->aside = 0;
    (void)!weir__request_tier(item, tier, &what.tier);
    if (!weir__drain_is_sound(item)) {
        give_up(drain, delivery, "it is no request that could be sent");
        return;
    }
    if (until) {
        put_back(drain, delivery, until, "others of its rule got no answer");
        return;
    }
    if (group && aside->group == group && aside->until_ms > now && aside->until_ms - now <= WAIT_MAX_MS) {
        drain->counts.put_back++;
        delivery->aside = group;
        put_back(drain, delivery, aside->until_ms, "its limit is reached");
        return;
    }
    int error = weir_key_take(drain->engine, &what, item->cost, (weir_time){0, 0}, &delivery->held, &outcome);
    if (error == WEIR_ENORULE && !drain->config->queue.database) {
        /* It is the fleet's, whose hosts get their rules one after the other: others may know this one. */
        put_back(drain, delivery, now + WAIT_MAX_MS, "its rule is not known to the host that delivers");
    } else if (error == WEIR_ENORULE || error == WEIR_ECOST || error == WEIR_EKEYEMPTY || error == WEIR_EINVAL) {
        give_up(drain, delivery, error == WEIR_ENORULE ? "its rule is gone" : weir_strerror(error));
    } else if (error) {
        put_back(drain, delivery, now + WEIR__DRAIN_SECOND_MS, weir_strerror(error));
    } else if (!weir_passes(&outcome.decision)) {
        wait_on(drain, delivery, &outcome, group, now);
    } else {
        int64_t delay = outcome.decision.delay_ns / 1000000;
        delivery->renew_ms = now + delivery->held.lease_ns / 2000000;
        delivery->begins_ms = now + (delay < DELAY_MAX_MS ? delay : DELAY_MAX_MS);
        delivery->state = WEIR__DELIVERY_DELAYED;
    }
}

/* While a rule is paused one of them tries for all: not always the same, whose attempts it would use up. */
static struct weir__delivery *next_claimed(struct weir__drain *drain)
{
    struct weir__delivery *next = NULL;
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++) {
        struct weir__delivery *delivery = &drain->delivery[i];
        if (delivery->state == WEIR__DELIVERY_CLAIMED && (!next || delivery->item.attempts < next->item.attempts))
            next = delivery;
    }
    return next;
}

/*
 * One that is here already is claimed anew when the clock was set forward, or when the queue could not be told of its
 * end in time. What goes on here is its delivery all the same: a second one beside it would break the order of its key.
 */
static bool is_here(const struct weir__drain *drain, const char *ticket)
{
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++)
        if (drain->delivery[i].state != WEIR__DELIVERY_FREE && strcmp(drain->delivery[i].item.ticket, ticket) == 0)
            return true;
    return false;
}

static int claimed(void *context, const struct weir__deferred *item)
{
    struct weir__drain *drain = context;
    if (is_here(drain, item->ticket))
        return 0;
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++)
        if (drain->delivery[i].state == WEIR__DELIVERY_FREE)
            return weir__delivery_copy(&drain->delivery[i], item) ? 0 : 1; /* without memory the claim ends by itself */
    return 1;
}

/* What there is room for: rules that are slow or have many keys leave some of it to the others. */
static struct weir__queue_room room_of(const struct weir__drain *drain, struct weir__queue_held *held)
{
    struct weir__queue_room room = {.fair = true, .held = held};
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++) {
        const struct weir__delivery *delivery = &drain->delivery[i];
        size_t at = 0;
        if (delivery->state == WEIR__DELIVERY_FREE) {
            room.free++;
            continue;
        }
        while (at < room.held_count && !weir__text_equal(held[at].rule, delivery->item.rule))
            at++;
        if (at == room.held_count)
            held[room.held_count++] = (struct weir__queue_held){.rule = delivery->item.rule};
        held[at].count++;
    }
    return room;
}

void weir__drain_claim(struct weir__drain *drain, int64_t now)
{
    struct weir__queue_held held[WEIR__DRAIN_AT_ONCE];
    struct weir__queue_room room = room_of(drain, held);
    drain->look_ms = now + (drain->waiting ? WEIR__DRAIN_BUSY_MS : WEIR__DRAIN_IDLE_MS);
    if (!room.free)
        return;
    int count = weir__queue_claim(drain->queue, now, drain->to.timeout_ms + CLAIM_MORE_MS, &room, claimed, drain);
    weir__drain_trouble(drain, count < 0 ? count : 0, weir__queue_why(drain->queue));
    drain->counts.drains = count >= 0;
    drain->counts.stands_by = count == WEIR__QUEUE_STANDBY;
    if (count < 0)
        drain->look_ms = now + WEIR__DRAIN_STANDBY_MS;
    else if (count > 0)
        drain->look_ms = now; /* there may be more, for whom these leave room */
    struct weir__delivery *next;
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE && (next = next_claimed(drain)) != NULL; i++)
        take(drain, next);
    settle_new(drain);
}

/* Nothing is further ahead than `most_ms`, unless the clock was set back. */
static bool is_time(int64_t at_ms, int64_t most_ms, int64_t now)
{
    return at_ms <= now || at_ms - now > most_ms;
}

/* What waits for its moment or holds a slot. */
int64_t weir__drain_tend(struct weir__drain *drain, int64_t now)
{
    int64_t next = now + WEIR__DRAIN_IDLE_MS;
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++) {
        struct weir__delivery *delivery = &drain->delivery[i];
        int64_t renewed_ms = delivery->held.lease_ns / 2000000;
        if (delivery->state == WEIR__DELIVERY_DELAYED && is_time(delivery->begins_ms, DELAY_MAX_MS, now))
            send_off(drain, delivery);
        if (delivery->state == WEIR__DELIVERY_DELAYED && delivery->begins_ms < next)
            next = delivery->begins_ms;
        if (delivery->held.count && is_time(delivery->renew_ms, renewed_ms, now)) {
            (void)!weir_held_renew(drain->engine, &delivery->held);
            delivery->renew_ms = now + renewed_ms;
        }
        if (delivery->held.count && delivery->renew_ms < next)
            next = delivery->renew_ms;
    }
    return next;
}

void weir__drain_abandon(struct weir__drain *drain)
{
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++) {
        struct weir__delivery *delivery = &drain->delivery[i];
        if (delivery->state == WEIR__DELIVERY_SENT)
            curl_multi_remove_handle(drain->multi, delivery->curl);
        if (delivery->state == WEIR__DELIVERY_SENT || delivery->state == WEIR__DELIVERY_DELAYED)
            put_back(drain, delivery, weir__drain_clock_ms(), "the agent was stopped");
    }
    settle_new(drain);
}
