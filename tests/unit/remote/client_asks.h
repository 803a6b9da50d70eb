/* Asking a client whose servers are played (fake.h). */
#ifndef WEIR_TEST_STORE_CLIENT_ASKS_H
#define WEIR_TEST_STORE_CLIENT_ASKS_H

#include "../../test.h"
#include "fake.h"

static struct asked one;

static inline weir_limit limit(void)
{
    return asked_limit(FAKE_LIMIT, 60);
}

static inline void ask(struct asked *asked)
{
    weir__client_ask(fake_client, &asked->question, fake_now);
}

/* Its error, or 1: not done. */
static inline int ask_one(const char *name, int64_t cost)
{
    int before = fake_done_count;
    asked_one(&one, name, cost, limit());
    ask(&one);
    fake_run();
    return fake_done_count > before ? one.question.error : 1;
}

#endif
