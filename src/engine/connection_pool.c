/*
 * The engine's own connections to the store. See connection_pool.h.
 *
 * One lock says whose each is, and is held for moments; a borrower waits for the store without it. A process that was
 * forked uses none of its parent's: the connections are the parent's, and so may the lock be, held by a thread that did
 * not come along.
 */
#include "engine/connection_pool.h"
#include "base/clock.h"
#include "remote/blocking_client.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <unistd.h>

#define SETTLE_US 100000 /* for what must go back when an engine is closed */

struct place {
    struct weir__borrowed borrowed; /* first: a borrower's pointer is its place's */
    struct weir__links *links;
    struct weir__client_stats stats; /* when it was returned last */
    bool taken;
};

struct weir__links {
    uint64_t process;
    struct weir__links *parents; /* of the process that this one was forked from; freed with these */
    pthread_mutex_t lock;
    pthread_cond_t given; /* one of the places */
    struct place place[WEIR__LINKS];
};

struct weir__links *weir__links_new(void)
{
    struct weir__links *links = calloc(1, sizeof *links);

    if (!links)
        return NULL;
    links->process = (uint64_t)getpid();
    for (int i = 0; i < WEIR__LINKS; i++)
        links->place[i].links = links;
    weir__deadline_cond(&links->given);
    pthread_mutex_init(&links->lock, NULL);
    return links;
}

static void free_one(struct weir__links *links)
{
    bool ours = links->process == (uint64_t)getpid(); /* and not of the process that this one was forked from */

    for (int i = 0; i < WEIR__LINKS; i++) {
        struct weir__borrowed *borrowed = &links->place[i].borrowed;
        if (links->place[i].taken) /* by a thread of the parent that did not come along: what it was at is left alone */
            continue;
        if (borrowed->link && ours)
            weir__link_settle(borrowed->link, SETTLE_US);
        if (borrowed->link)
            weir__link_free(borrowed->link);
        weir_ask_free(borrowed->ask);
    }
    if (ours) { /* else somebody who did not come along may be waiting */
        pthread_cond_destroy(&links->given);
        pthread_mutex_destroy(&links->lock);
    }
    free(links);
}

void weir__links_free(struct weir__links *links)
{
    while (links) {
        struct weir__links *parents = links->parents;
        free_one(links);
        links = parents;
    }
}

/* This process's. The first who needs them after a fork makes them. NULL: no memory. */
static struct weir__links *own_links(weir *engine)
{
    uint64_t seen = weir__load64(&engine->links);
    struct weir__links *links = (struct weir__links *)(uintptr_t)seen;
    if (links->process == (uint64_t)getpid())
        return links;
    struct weir__links *fresh = weir__links_new();
    if (!fresh)
        return NULL;
    fresh->parents = links;
    if (weir__cas64(&engine->links, &seen, (uint64_t)(uintptr_t)fresh))
        return fresh;
    free_one(fresh); /* another thread was faster */
    return (struct weir__links *)(uintptr_t)seen;
}

/* The first ones rather than the last: so no more are connected than are needed. */
static struct place *take_free(struct weir__links *links)
{
    for (int i = 0; i < WEIR__LINKS; i++) {
        if (!links->place[i].taken) {
            links->place[i].taken = true;
            return &links->place[i];
        }
    }
    return NULL;
}

/* NULL: all were others' for so long. */
static struct place *take(struct weir__links *links, int64_t wait_us)
{
    bool in_time = true;
    pthread_mutex_lock(&links->lock);
    struct place *place = take_free(links);
    if (!place) {
        struct timespec until = weir__deadline(wait_us);
        while (!place && in_time) {
            in_time = pthread_cond_timedwait(&links->given, &links->lock, &until) == 0;
            place = take_free(links);
        }
    }
    pthread_mutex_unlock(&links->lock);
    return place;
}

static void give(struct place *place)
{
    struct weir__links *links = place->links;
    pthread_mutex_lock(&links->lock);
    if (place->borrowed.link)
        weir__link_stats(place->borrowed.link, &place->stats);
    place->taken = false;
    pthread_cond_signal(&links->given);
    pthread_mutex_unlock(&links->lock);
}

static int fill(weir *engine, struct weir__borrowed *borrowed)
{
    if (!borrowed->link)
        borrowed->link = weir__link_new(engine->store);
    if (!borrowed->link)
        return WEIR_ENOMEM;
    return borrowed->ask ? 0 : weir_ask_new(engine, &borrowed->ask);
}

struct weir__borrowed *weir__links_borrow(weir *engine, int *error)
{
    int64_t deadline_us = weir__monotonic_us() + engine->store->deadline_us;
    struct weir__links *links = own_links(engine);
    struct place *place = links ? take(links, engine->store->deadline_us) : NULL;
    if (!place) {
        *error = links ? WEIR_ESTORESLOW : WEIR_ENOMEM;
        return NULL;
    }
    *error = fill(engine, &place->borrowed);
    if (*error) {
        give(place);
        return NULL;
    }
    weir_ask_clear(place->borrowed.ask);
    weir_ask_question(place->borrowed.ask)->deadline_us = deadline_us; /* waiting for a link is waiting, too */
    return &place->borrowed;
}

void weir__links_ask(struct weir__borrowed *borrowed)
{
    struct weir__question *question = weir_ask_question(borrowed->ask);
    question->error = weir__link_ask(borrowed->link, question);
}

void weir__links_return(struct weir__borrowed *borrowed)
{
    struct weir__question *back = weir_ask_back(borrowed->ask);
    if (back)
        weir__link_give_back(borrowed->link, back);
    give((struct place *)borrowed);
}

static void add_stats(weir_store_stats *to, const struct weir__client_stats *from)
{
    to->questions += from->questions;
    to->failed += from->failed;
    to->slow += from->slow;
    to->refused += from->refused;
    to->gave_back += from->gave_back;
    to->connects += from->connects;
    to->up |= from->state == WEIR__STORE_UP;
    to->error = from->state != WEIR__STORE_UP && from->last_error ? from->last_error : to->error;
}

void weir__links_stats(weir *engine, weir_store_stats *stats)
{
    struct weir__links *links = own_links(engine);
    if (!links)
        return;
    pthread_mutex_lock(&links->lock);
    for (int i = 0; i < WEIR__LINKS;
         i++) /* what is borrowed is its borrower's: not even whether there is a link is seen */
        add_stats(stats, &links->place[i].stats);
    pthread_mutex_unlock(&links->lock);
}
