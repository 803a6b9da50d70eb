/* The engine's own connections to the store, for callers who would rather wait than have an event loop. */
#ifndef WEIR_ENGINE_CONNECTION_POOL_H
#define WEIR_ENGINE_CONNECTION_POOL_H

#include "engine/async.h"
#include "remote/client.h"

#define WEIR__LINKS 16 /* requests that can wait for the store at the same time; more wait for them */

struct weir__link;
struct weir__links;

/* One connection, and what is asked over it. Its borrower's alone. */
struct weir__borrowed {
    struct weir__link *link;
    weir_ask *ask;
};

/* Connects to nothing yet. NULL: no memory. */
struct weir__links *weir__links_new(void);
void weir__links_free(struct weir__links *links);

/* One that is free, with an empty ask. NULL: *error says why: none was free within the store's deadline, or there is no
 * memory. */
struct weir__borrowed *weir__links_borrow(weir *engine, int *error);
/* Asks what is in its ask, and waits; the question then has its answers, or its error. */
void weir__links_ask(struct weir__borrowed *borrowed);
/* Gives back to the store what was not kept, and the link to whoever needs it next. */
void weir__links_return(struct weir__borrowed *borrowed);

/* Sums over this process's, each as it was when it was returned last: waits for nobody. */
void weir__links_stats(weir *engine, weir_store_stats *stats);

#endif
