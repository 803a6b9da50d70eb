/* Questions for tests of the client and the link. */
#ifndef WEIR_TEST_ASKED_H
#define WEIR_TEST_ASKED_H

#include "remote/request.h"

#include <stdio.h>
#include <string.h>

#define ASKED_MAX 512

/* A question with room for what it is about. */
struct asked {
    struct weir__question question;
    struct weir__ask asks[ASKED_MAX];
    struct weir__group groups[ASKED_MAX];
};

static inline weir_limit asked_limit(int64_t limit, int64_t window_s)
{
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = limit, .window_ns = window_s * WEIR_SECOND};
    weir_limit made;

    if (weir_limit_init(&made, &params))
        memset(&made, 0, sizeof(made));
    return made;
}

static inline void asked_begin(struct asked *asked)
{
    memset(&asked->question, 0, sizeof(asked->question));
    asked->question.asks = asked->asks;
    asked->question.groups = asked->groups;
}

/* A new group. */
static inline void asked_group(struct asked *asked, bool after_first)
{
    asked->groups[asked->question.group_count++] =
        (struct weir__group){.first = asked->question.ask_count, .after_first = after_first};
}

/* One more ask in the last group. */
static inline struct weir__ask *asked_add(struct asked *asked, const char *name, enum weir__ask_how how, int64_t cost,
                                          weir_limit limit)
{
    struct weir__ask *ask = &asked->asks[asked->question.ask_count++];

    memset(ask, 0, sizeof(*ask));
    ask->limit = limit;
    ask->how = how;
    ask->cost = cost;
    ask->name_len = (uint16_t)snprintf(ask->name, sizeof(ask->name), "%s", name);
    asked->groups[asked->question.group_count - 1].count++;
    return ask;
}

/* One take of one counter. */
static inline void asked_one(struct asked *asked, const char *name, int64_t cost, weir_limit limit)
{
    asked_begin(asked);
    asked_group(asked, false);
    asked_add(asked, name, WEIR__ASK_TAKE, cost, limit);
}

#endif
