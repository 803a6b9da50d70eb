/*
 * Dispatch: one round of the dispatcher. Claims requests, takes their cost from the rules, delivers them, and commits
 * the outcomes to the queue.
 */
#include "queue/ingest_internal.h"
#include "queue/dispatcher_internal.h"
#include "engine/mapped_file.h"

#include <stdio.h>

enum {
    WAIT_MAX_MS = 30000,  /* longest wait for a limit before the rules are evaluated again: rules change, and operators
                             reset keys */
    PERMIT_MS = 250,      /* wait for a permit of a concurrency rule: it may be released before its lease ends */
    DELAY_MAX_MS = 20000, /* longest delay before a delivery; a longer one is cut to it */
    CLAIM_MORE_MS = 40000 /* added to the delivery timeout: a delay before it, and the queue's own calls */
};

_Static_assert(WEIR__RETRY_MAX_MS < WEIR__QUEUE_AHEAD_MS, "a back-off must not look like a clock set back");

static uint64_t random_bits(void)
{
    uint64_t random = 0;
    return weir__random_fill(&random, sizeof random) == 0 ? random : (uint64_t)weir__dispatcher_clock_ms();
}

/* ---- The end of a delivery ---- */

/* The outcome is committed; with an error, another agent has the request. */
static void finish_delivery(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery, int error)
{
    const struct weir__queue_ending *end = &delivery->end;
    if (!error && end->kind == WEIR__ENDED_DELIVERED)
        dispatcher->counts.delivered++;
    if (!error && end->kind == WEIR__ENDED_DEAD) {
        dispatcher->counts.dead++;
        dispatcher->dead_unlogged++;
        snprintf(dispatcher->dead_why, sizeof dispatcher->dead_why, "%s", delivery->why);
    }
    int64_t claim_ms = end->kind == WEIR__ENDED_RETRY && !end->aside ? end->due_ms : 0;
    if (claim_ms < dispatcher->next_claim_ms)
        dispatcher->next_claim_ms = claim_ms;
    weir__delivery_clear(delivery);
}

/*
 * Commits all ended deliveries in one transaction. On failure they stay ended and are committed again later; their
 * claims block the other requests of their keys meanwhile.
 */
void weir__dispatcher_commit(struct weir__dispatcher *dispatcher)
{
    struct weir__queue_ending endings[WEIR__DISPATCHER_DELIVERIES];
    struct weir__delivery *ended[WEIR__DISPATCHER_DELIVERIES];
    size_t count = 0;
    if (!dispatcher->queue) /* its file was removed and no other is open yet; the outcomes are committed to that one,
                               which does not know them */
        return;
    dispatcher->ended = false;
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++) {
        if (dispatcher->delivery[i].state != WEIR__DELIVERY_ENDED)
            continue;
        ended[count] = &dispatcher->delivery[i];
        endings[count++] = dispatcher->delivery[i].end;
    }
    int error = count ? weir__queue_end(dispatcher->queue, endings, count) : 0;
    if (error) {
        weir__dispatcher_report(dispatcher, error, weir__queue_why(dispatcher->queue));
        return;
    }
    for (size_t i = 0; i < count; i++)
        finish_delivery(dispatcher, ended[i], endings[i].error);
}

static void commit_ended(struct weir__dispatcher *dispatcher)
{
    if (dispatcher->ended)
        weir__dispatcher_commit(dispatcher);
}

static void end(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery, enum weir__queue_end_kind how)
{
    delivery->state = WEIR__DELIVERY_ENDED;
    delivery->end.kind = how;
    delivery->end.ticket = delivery->item.ticket;
    delivery->end.why = how == WEIR__ENDED_DELIVERED ? NULL : delivery->why;
    dispatcher->ended = true;
    (void)!weir_permits_release(dispatcher->engine, &delivery->permits);
}

/* Ends a delivery without a reply: the request waits until due_ms, and that is no attempt. */
static void requeue(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery, int64_t due_ms,
                    const char *why)
{
    delivery->end.due_ms = due_ms;
    delivery->end.status = delivery->item.last_status;
    snprintf(delivery->why, sizeof delivery->why, "%s", why);
    end(dispatcher, delivery, WEIR__ENDED_RETRY);
}

static void dead_letter(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery, const char *why)
{
    requeue(dispatcher, delivery, 0, why);
    delivery->end.kind = WEIR__ENDED_DEAD;
}

/* The transfer ended, with or without a reply. */
static void received(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery, CURLcode code)
{
    int64_t now = weir__dispatcher_clock_ms();
    weir__delivery_received(delivery, dispatcher->multi, code);
    int status = delivery->end.status, attempts = delivery->item.attempts + 1;
    weir__rule_breaker_record(&dispatcher->breakers, delivery->item.rule, weir__retry_is_unavailable(status), now);
    dispatcher->counts.attempts++;
    if (weir__retry_is_final(status)) {
        end(dispatcher, delivery, WEIR__ENDED_DELIVERED);
        return;
    }
    dispatcher->counts.failed++;
    delivery->end.attempt_counts = true;
    int64_t wait = weir__retry_backoff_ms(attempts, random_bits());
    delivery->end.due_ms = now + (wait > delivery->retry_after_ms ? wait : delivery->retry_after_ms);
    end(dispatcher, delivery, attempts > dispatcher->config->queue.retries ? WEIR__ENDED_DEAD : WEIR__ENDED_RETRY);
}

void weir__dispatcher_receive(struct weir__dispatcher *dispatcher)
{
    int left, running;
    CURLMsg *message;
    struct weir__delivery *delivery;
    (void)curl_multi_perform(dispatcher->multi, &running);
    while ((message = curl_multi_info_read(dispatcher->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&delivery);
        received(dispatcher, delivery, code);
    }
    commit_ended(dispatcher);
}

/* ---- Its beginning ---- */

static struct weir__aside_group *aside_of(struct weir__dispatcher *dispatcher, uint64_t group)
{
    return &dispatcher->aside_groups[group % WEIR__DISPATCHER_ASIDE_GROUPS];
}

/*
 * True if a rule other than the one that the request waits for denied it. The other requests of its rule and key may
 * not be subject to it, so they need not wait. Limits are named RULE/LIMIT.
 */
static bool is_other(const weir_outcome *outcome, weir_text rule)
{
    size_t len = strnlen(outcome->rule, sizeof outcome->rule);
    return outcome->reason != WEIR_BY_SHED && outcome->reason != WEIR_BY_FAILURE &&
           (len < rule.len || memcmp(outcome->rule, rule.data, rule.len) != 0 ||
            (len > rule.len && outcome->rule[rule.len] != '/'));
}

/*
 * A rule denied the request. `group`: identifies the requests of its rule and key that the same other rules limit; they
 * wait together, without holding up the rest. 0: no other rule limits it.
 */
static void wait_for_limit(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery,
                           const weir_outcome *outcome, uint64_t group, int64_t now)
{
    const weir_decision *decision = &outcome->decision;
    if (decision->verdict == WEIR_NEVER_FITS) {
        dead_letter(dispatcher, delivery, "its cost exceeds what its rule ever allows");
        return;
    }
    dispatcher->counts.requeued++;
    int64_t wait = decision->retry_after_ns < 0 ? WAIT_MAX_MS : (decision->retry_after_ns + 999999) / 1000000;
    if (wait > WAIT_MAX_MS)
        wait = WAIT_MAX_MS;
    if (outcome->reason == WEIR_BY_FAILURE)
        wait = WEIR__DISPATCHER_SECOND_MS;
    if (decision->verdict == WEIR_DENY && decision->reset_after_ns < 0 && wait > PERMIT_MS)
        wait = PERMIT_MS;
    wait = wait > 0 ? wait : 1;
    if (group && is_other(outcome, delivery->item.rule)) {
        delivery->end.aside = group;
        *aside_of(dispatcher, group) = (struct weir__aside_group){group, now + wait};
    }
    requeue(dispatcher, delivery, now + wait,
            decision->verdict == WEIR_BLOCKED    ? "the key is blocked"
            : outcome->reason == WEIR_BY_SHED    ? "shed: the host is overloaded"
            : outcome->reason == WEIR_BY_FAILURE ? "its counter is unavailable"
                                                 : "its limit is reached");
}

/* Takes the request's cost from all its rules, all or nothing, and schedules or requeues it. */
static void take_from_limit(struct weir__dispatcher *dispatcher, struct weir__delivery *delivery)
{
    const struct weir__deferred *item = &delivery->item;
    int64_t now = weir__dispatcher_clock_ms(), until = weir__rule_breaker_until(&dispatcher->breakers, item->rule, now);
    char tier[WEIR__TIER_MAX + 1];
    weir_taken what = {.rule = item->rule.data,
                       .key = item->key.data,
                       .key_len = item->key.len,
                       .tier = weir__deferred_tier(item, tier),
                       .others = weir__deferred_others(item)};
    weir_outcome outcome;
    uint64_t group = weir__retry_aside_group(item->rule, item->key, what.others);
    const struct weir__aside_group *aside = aside_of(dispatcher, group);
    if (!weir__delivery_is_sendable(item)) {
        dead_letter(dispatcher, delivery, "invalid method or target");
        return;
    }
    if (until) {
        requeue(dispatcher, delivery, until, "the upstream is unavailable");
        return;
    }
    if (group && aside->group == group && aside->until_ms > now && aside->until_ms - now <= WAIT_MAX_MS) {
        dispatcher->counts.requeued++;
        delivery->end.aside = group;
        requeue(dispatcher, delivery, aside->until_ms, "its limit is reached");
        return;
    }
    int error = weir_key_take(dispatcher->engine, &what, item->cost, (weir_time){0, 0}, &delivery->permits, &outcome);
    if (error == WEIR_ENORULE && !dispatcher->config->queue.database) {
        /* A queue shared by hosts: they load new rules one after the other, so another host may have this one. */
        requeue(dispatcher, delivery, now + WAIT_MAX_MS, "the dispatching host does not have its rule");
    } else if (error == WEIR_ENORULE || error == WEIR_ECOST || error == WEIR_EKEYEMPTY || error == WEIR_EINVAL) {
        dead_letter(dispatcher, delivery, error == WEIR_ENORULE ? "its rule is gone" : weir_strerror(error));
    } else if (error) {
        requeue(dispatcher, delivery, now + WEIR__DISPATCHER_SECOND_MS, weir_strerror(error));
    } else if (!weir_passes(&outcome.decision)) {
        wait_for_limit(dispatcher, delivery, &outcome, group, now);
    } else {
        int64_t delay = outcome.decision.delay_ns / 1000000;
        delivery->renew_ms = now + delivery->permits.lease_ns / 2000000;
        delivery->begins_ms = now + (delay < DELAY_MAX_MS ? delay : DELAY_MAX_MS);
        delivery->state = WEIR__DELIVERY_DELAYED;
    }
}

/* The claimed delivery with the fewest attempts: while a circuit breaker is open, probes use up attempts evenly. */
static struct weir__delivery *next_claimed(struct weir__dispatcher *dispatcher)
{
    struct weir__delivery *next = NULL;
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++) {
        struct weir__delivery *delivery = &dispatcher->delivery[i];
        if (delivery->state == WEIR__DELIVERY_CLAIMED && (!next || delivery->item.attempts < next->item.attempts))
            next = delivery;
    }
    return next;
}

/*
 * Copies a claimed request into a free delivery, unless it is in one already. It is claimed again if its claim expired
 * by a clock set forward, or because the commit of its outcome failed; a second delivery would break the order of its
 * key.
 */
static int claimed(void *context, const struct weir__deferred *item)
{
    struct weir__dispatcher *dispatcher = context;
    struct weir__delivery *unused = NULL;
    for (size_t i = WEIR__DISPATCHER_DELIVERIES; i-- > 0;) {
        struct weir__delivery *delivery = &dispatcher->delivery[i];
        if (delivery->state == WEIR__DELIVERY_FREE)
            unused = delivery;
        else if (strcmp(delivery->item.ticket, item->ticket) == 0)
            return 0;
    }
    if (unused && !weir__delivery_copy(unused, item))
        requeue(dispatcher, unused, weir__dispatcher_clock_ms() + WEIR__DISPATCHER_SECOND_MS, "out of memory");
    return 0;
}

void weir__dispatcher_claim(struct weir__dispatcher *dispatcher, int64_t now)
{
    struct weir__claim_request wanted = {
        .now_ms = now, .claim_ms = dispatcher->to.timeout_ms + CLAIM_MORE_MS, .fair = true};
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++)
        wanted.free += dispatcher->delivery[i].state == WEIR__DELIVERY_FREE;
    dispatcher->next_claim_ms = now + (dispatcher->waiting ? WEIR__DISPATCHER_BUSY_MS : WEIR__DISPATCHER_IDLE_MS);
    if (!wanted.free)
        return;
    int count = weir__queue_claim(dispatcher->queue, &wanted, claimed, dispatcher);
    weir__dispatcher_report(dispatcher, count < 0 ? count : 0, weir__queue_why(dispatcher->queue));
    dispatcher->counts.active = count >= 0;
    dispatcher->counts.standby = count == WEIR__QUEUE_STANDBY;
    if (count < 0)
        dispatcher->next_claim_ms = now + WEIR__DISPATCHER_STANDBY_MS;
    else if (count > 0)
        dispatcher->next_claim_ms = now; /* there may be more */
    struct weir__delivery *next;
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES && (next = next_claimed(dispatcher)) != NULL; i++)
        take_from_limit(dispatcher, next);
    commit_ended(dispatcher);
}

/* True if at_ms has come. A time more than most_ms ahead counts, too: the clock was set back. */
static bool is_time(int64_t at_ms, int64_t most_ms, int64_t now)
{
    return at_ms <= now || at_ms - now > most_ms;
}

int64_t weir__dispatcher_poll_timers(struct weir__dispatcher *dispatcher, int64_t now)
{
    int64_t next = now + WEIR__DISPATCHER_IDLE_MS;
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++) {
        struct weir__delivery *delivery = &dispatcher->delivery[i];
        int64_t renewed_ms = delivery->permits.lease_ns / 2000000;
        if (delivery->state == WEIR__DELIVERY_DELAYED && is_time(delivery->begins_ms, DELAY_MAX_MS, now) &&
            !weir__delivery_send(delivery, &dispatcher->to, dispatcher->multi))
            requeue(dispatcher, delivery, now + WEIR__DISPATCHER_SECOND_MS, "the request could not be sent");
        if (delivery->state == WEIR__DELIVERY_DELAYED && delivery->begins_ms < next)
            next = delivery->begins_ms;
        if (delivery->permits.count && is_time(delivery->renew_ms, renewed_ms, now)) {
            (void)!weir_permits_renew(dispatcher->engine, &delivery->permits);
            delivery->renew_ms = now + renewed_ms;
        }
        if (delivery->permits.count && delivery->renew_ms < next)
            next = delivery->renew_ms;
    }
    return next;
}

void weir__dispatcher_requeue_all(struct weir__dispatcher *dispatcher)
{
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++) {
        struct weir__delivery *delivery = &dispatcher->delivery[i];
        if (delivery->state == WEIR__DELIVERY_SENT)
            curl_multi_remove_handle(dispatcher->multi, delivery->curl);
        if (delivery->state == WEIR__DELIVERY_SENT || delivery->state == WEIR__DELIVERY_DELAYED)
            requeue(dispatcher, delivery, weir__dispatcher_clock_ms(), "the agent stopped");
    }
    commit_ended(dispatcher);
}
