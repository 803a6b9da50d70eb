/* Requests of a client whose servers are simulated (fake.h). */
#ifndef WEIR_TEST_CLIENT_REQUEST_H
#define WEIR_TEST_CLIENT_REQUEST_H

#include "../../test.h"
#include "fake.h"

static struct request_storage one;

static inline weir_limit limit(void)
{
    return token_bucket(FAKE_LIMIT, 60);
}

static inline void submit(struct request_storage *request_storage)
{
    weir__client_submit(fake_client, &request_storage->request, fake_now);
}

/* Takes from one counter; returns the error, or 1: not done yet. */
static inline int take_one(const char *name, int64_t cost)
{
    int before = fake_done_count;
    request_take(&one, name, cost, limit());
    submit(&one);
    fake_run();
    return fake_done_count > before ? one.request.error : 1;
}

#endif
