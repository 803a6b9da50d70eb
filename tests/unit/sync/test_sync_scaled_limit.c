/* The exchange under limits scaled by each host's own load: usage is sent and applied, never the remaining units. */
#include "hosts.h"

#define REQUEST "GET / ip=192.0.2.1"
#define KEY     "192.0.2.1"

static struct fake_store store;
static struct host hosts[2];

static void throttle_is(struct host *host, uint32_t throttle)
{
    struct weir__load_view view = weir__load_view_neutral();
    view.throttle = throttle;
    weir__load_page_write(host->engine->load, test_seconds(hosts_time).mono_ns, &view);
}

/* A store that changes the load of the first host while a request is in transit. */
static int send_with_load_change(void *context, struct weir__store_request *request)
{
    static bool low;
    int error = fake_send(context, request);
    low = !low;
    throttle_is(&hosts[0], low ? 0 : 1000);
    return error;
}

static void begin(const char *rule, weir__sync_send *send_request)
{
    char rules[512];
    snprintf(
        rules, sizeof rules,
        "rules: [{name: a, key: \"${client_ip}\", consistency: eventual, limit: 100, adaptive: {min: 20%%}, %s}]\n",
        rule);
    hosts_time = 0;
    fake_store_make(&store);
    for (int i = 0; i < 2; i++)
        host_make(&hosts[i], rules, send_request, &store, hosts_now);
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        host_free(&hosts[i]);
    fake_store_free(&store);
}

static const char *const kinds[] = {"window: 1d, algorithm: fixed_window", "window: 1d",
                                    "window: 1d, algorithm: sliding_window_log",
                                    "window: 1d, algorithm: sliding_window_counter"};

TEST(hosts_of_different_load_share_usage)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        begin(kinds[i], fake_send);
        throttle_is(&hosts[0], 0);
        throttle_is(&hosts[1], 1000);
        CHECK_EQ(host_check(&hosts[1], REQUEST, 50), 50);
        hosts_sync(hosts, 2);
        CHECK_EQ(host_left(&hosts[1], "a", KEY), 50);
        CHECK_EQ(host_check(&hosts[0], REQUEST, 5), 5); /* it had not received the usage of the key */
        hosts_sync(hosts, 2);
        CHECK_EQ(host_left(&hosts[0], "a", KEY), 20 - 55);
        CHECK_EQ(host_left(&hosts[1], "a", KEY), 45);
        CHECK_EQ(host_check(&hosts[0], REQUEST, 5), 0);
        throttle_is(&hosts[0], 1000);
        CHECK_EQ(host_check(&hosts[0], REQUEST, 50), 45);
        end();
    }
}

TEST(load_change_in_transit_changes_no_usage)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        begin(kinds[i], send_with_load_change);
        throttle_is(&hosts[0], 1000);
        CHECK_EQ(host_check(&hosts[0], REQUEST, 15), 15);
        for (int round = 0; round < 9; round++)
            CHECK_EQ(host_round(&hosts[0]), 0);
        throttle_is(&hosts[0], 1000);
        CHECK_EQ(host_left(&hosts[0], "a", KEY), 85);
        CHECK_EQ(store.taken, 15);
        CHECK_EQ(host_unsent(&hosts[0]), 0);
        end();
    }
}

TEST_MAIN
