/*
 * The engine's own connections to the store. See links.h.
 *
 * Each has a lock, which is held while its borrower waits for the store. A process that was forked uses none of its
 * parent's: the connections are the parent's, and the locks may be held by threads that did not come along.
 */
#define _GNU_SOURCE /* pthread_mutex_clocklock */
#include "engine/links.h"
#include "engine/link.h"
#include "engine/weir.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_US 100000 /* for what must go back when an engine is closed */

struct place {
    struct weir__borrowed borrowed; /* first: a borrower's pointer is its place's */
    pthread_mutex_t lock;
};

struct weir__links {
    uint64_t process;
    struct weir__links *parents; /* of the process that this one was forked from; freed with these */
    struct place place[WEIR__LINKS];
};

struct weir__links *weir__links_new(void)
{
    struct weir__links *links = calloc(1, sizeof *links);

    if (!links)
        return NULL;
    links->process = (uint64_t)getpid();
    for (int i = 0; i < WEIR__LINKS; i++)
        pthread_mutex_init(&links->place[i].lock, NULL);
    return links;
}

/* `ours`: of this process, and not of the one that it was forked from. */
static void empty(struct place *place, bool ours)
{
    if (place->borrowed.link && ours)
        weir__link_settle(place->borrowed.link, SETTLE_US);
    if (place->borrowed.link)
        weir__link_free(place->borrowed.link);
    weir_ask_free(place->borrowed.ask);
    place->borrowed = (struct weir__borrowed){0};
}

static void free_one(struct weir__links *links)
{
    for (int i = 0; i < WEIR__LINKS; i++) {
        /* Held by nobody, or by a thread of the parent that did not come along: what it was at is left alone. */
        if (pthread_mutex_trylock(&links->place[i].lock) != 0)
            continue;
        empty(&links->place[i], links->process == (uint64_t)getpid());
        pthread_mutex_unlock(&links->place[i].lock);
        pthread_mutex_destroy(&links->place[i].lock);
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

/* Any that is free, the first ones rather than the last: so no more are connected than are needed. */
static struct place *lock_any(struct weir__links *links, int64_t wait_us)
{
    for (int i = 0; i < WEIR__LINKS; i++)
        if (pthread_mutex_trylock(&links->place[i].lock) == 0)
            return &links->place[i];
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + wait_us * 1000;
    until.tv_sec += ns / WEIR_SECOND;
    until.tv_nsec = ns % WEIR_SECOND;
    struct place *place = &links->place[(uint64_t)until.tv_nsec / 64 % WEIR__LINKS];
    return pthread_mutex_clocklock(&place->lock, CLOCK_MONOTONIC, &until) == 0 ? place : NULL;
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
    int64_t deadline_us = weir__link_now() + engine->store->deadline_us;
    struct weir__links *links = own_links(engine);
    struct place *place = links ? lock_any(links, engine->store->deadline_us) : NULL;
    if (!place) {
        *error = links ? WEIR_ESTORESLOW : WEIR_ENOMEM;
        return NULL;
    }
    *error = fill(engine, &place->borrowed);
    if (*error) {
        pthread_mutex_unlock(&place->lock);
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
    pthread_mutex_unlock(&((struct place *)borrowed)->lock);
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
    for (int i = 0; i < WEIR__LINKS && links; i++) {
        struct place *place = &links->place[i];
        struct weir__client_stats of_one;
        pthread_mutex_lock(&place->lock);
        if (place->borrowed.link) {
            weir__link_stats(place->borrowed.link, &of_one);
            add_stats(stats, &of_one);
        }
        pthread_mutex_unlock(&place->lock);
    }
}
