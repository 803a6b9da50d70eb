/* Asking a client whose servers are played (fake.h). */
#ifndef WEIR_TEST_CLIENT_REQUEST_H
#define WEIR_TEST_CLIENT_REQUEST_H

#include "../../test.h"
#include "fake.h"

static struct asked one;

static inline weir_limit limit(void)
{
    return asked_limit(FAKE_LIMIT, 60);
}

static inline void op(struct asked *asked)
{
    weir__client_submit(fake_client, &asked->request, fake_now);
}

/* Its error, or 1: not done. */
static inline int ask_one(const char *name, int64_t cost)
{
    int before = fake_done_count;
    asked_one(&one, name, cost, limit());
    op(&one);
    fake_run();
    return fake_done_count > before ? one.request.error : 1;
}

#endif
