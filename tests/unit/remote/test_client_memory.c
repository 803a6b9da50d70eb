/* The client without memory: whichever allocation fails, each request is completed once and nothing leaks. */
#include "../../failing.h"
#include "../../test.h"

static bool failing;
static uint64_t fail_random = 1;
static unsigned fail_one_in = 4;
static int failures_made;

static bool fails(void)
{
    bool now = failing && test_random(&fail_random) % fail_one_in == 0;
    failures_made += now;
    return now;
}

FAILING_MALLOC(fails())
FAILING_CALLOC(fails())
FAILING_REALLOC(fails())

/* The simulated servers have enough. */
#define malloc  __real_malloc
#define realloc __real_realloc
#include "fake.h"
#undef malloc
#undef realloc

static void run_some(const char *url, uint64_t *random)
{
    static struct request_storage requests[16];
    static int done[16];
    weir_limit limit = token_bucket(FAKE_LIMIT, 60);

    fake_begin(url);
    for (int i = 0; i < 3; i++) {
        fake_servers[i].first_slot = i * 5461;
        fake_servers[i].last_slot = i == 2 ? 16383 : (i + 1) * 5461 - 1;
        fake_servers[i].moved_port = 1;
    }
    failing = true;
    for (int step = 0; step < 60; step++) {
        struct request_storage *request_storage = &requests[step % 16];
        request_begin(request_storage);
        request_add_group(request_storage, false);
        for (int i = 0; i < 3; i++) {
            char name[16];
            snprintf(name, sizeof(name), "n%d", (step + i) % 9);
            request_add_op(request_storage, name, WEIR__OP_TAKE, 1, limit);
        }
        done[step % 16] = 0;
        request_storage->request.owner = &done[step % 16];
        fake_servers[test_random(random) % 3].paused = test_random(random) % 3 == 0;
        weir__client_submit(fake_client, &request_storage->request, fake_now);
        fake_pass(25000);
        CHECK_EQ(done[step % 16], 1);
    }
    failing = false;
    for (int i = 0; i < FAKE_SERVERS; i++)
        fake_servers[i].paused = false;
    /* With memory again, everything works as before. */
    fake_pass(10 * 1000000);
    request_take(&requests[0], "new", 1, limit);
    requests[0].request.owner = &done[0];
    done[0] = 0;
    weir__client_submit(fake_client, &requests[0].request, fake_now);
    fake_pass(25000);
    CHECK_EQ(done[0], 1);
    CHECK_EQ(requests[0].request.error, 0);
    fake_end();
}

TEST(allocation_failures_with_one_server)
{
    uint64_t random = 1;
    for (int64_t round = test_scaled(40, 5); round > 0; round--) {
        fail_one_in = (unsigned)(2 + round % 20);
        run_some("redis://f:1?retry_min=1ms&retry_max=10ms", &random);
    }
    CHECK(failures_made > 10);
}

TEST(allocation_failures_with_a_cluster)
{
    uint64_t random = 2;
    for (int64_t round = test_scaled(40, 5); round > 0; round--) {
        fail_one_in = (unsigned)(2 + round % 20);
        run_some("redis+cluster://f:1,f:2?retry_min=1ms&retry_max=10ms", &random);
    }
    CHECK(failures_made > 10);
}

TEST(allocation_failure_while_creating_the_client)
{
    failing = true;
    fail_one_in = 1;
    CHECK(weir__client_new(&fake_options, &fake_driver, 1, 0) == NULL);
    failing = false;
}

TEST_MAIN
