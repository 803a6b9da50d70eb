/* The client with several servers: slots, redirections, failed servers; and masters named by Sentinel. */
#include "client_request.h"

static struct request_storage many[64];

/* A name whose slot is on server `server`. */
static const char *name_on(int server, int which)
{
    static char names[4][32];
    static int next_name;
    char *name = names[next_name++ % 4];
    for (int i = 0;; i++) {
        snprintf(name, 32, "n%d", i);
        int slot = (int)weir__slot(name, strlen(name));
        if (slot >= fake_servers[server].first_slot && slot <= fake_servers[server].last_slot && which-- == 0)
            return name;
    }
}

/* Servers 0 to 2 have a third of the slots each; 3 has none. */
static void begin_cluster(const char *url)
{
    fake_begin(url);
    for (int i = 0; i < 3; i++) {
        fake_servers[i].first_slot = i * 5461;
        fake_servers[i].last_slot = i == 2 ? 16383 : (i + 1) * 5461 - 1;
    }
    for (int i = 0; i < FAKE_SERVERS; i++)
        fake_servers[i].moved_port = 1;
    fake_servers[3].first_slot = 20000;
    fake_servers[4].first_slot = 20000;
    fake_servers[5].first_slot = 20000;
}

TEST(requests_go_to_the_server_of_their_slot)
{
    begin_cluster("redis+cluster://f:2");
    for (int server = 0; server < 3; server++)
        for (int i = 0; i < 12; i++) {
            CHECK_EQ(take_one(name_on(server, 3), 1), 0);
            CHECK_EQ(one.ops[0].taken, i < 10);
        }
    for (int server = 0; server < 3; server++)
        CHECK_EQ(fake_servers[server].evals, 12);
    CHECK_EQ(fake_stats().redirects, 0);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    fake_end();
}

/* Heartbeats go to every server of the cluster: one that is lost is noticed without a request. */
TEST(idle_client_notices_that_one_server_is_unavailable)
{
    begin_cluster("redis+cluster://f:1");
    fake_client->driver.heartbeat_us = fake_options.heartbeat_us;
    weir__client_start(fake_client, fake_now);
    fake_pass(30 * 1000000);
    CHECK_EQ(fake_downs, 0);
    CHECK(fake_servers[2].connects > 0 && fake_servers[3].connects == 0);
    fake_servers[2].down = true;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (fake_channels[i].open && fake_channels[i].server == 2)
            fake_lose(i);
    fake_pass(10 * 1000000);
    CHECK_EQ(fake_downs, 1);
    fake_servers[2].down = false;
    fake_pass(4 * 1000000);
    CHECK_EQ(fake_ups, 1);
    CHECK_EQ(take_one(name_on(2, 0), 1), 0);
    fake_end();
}

TEST(requests_for_one_key_share_a_command)
{
    begin_cluster("redis+cluster://f:1");
    take_one(name_on(0, 0), 0);
    int before = fake_servers[0].evals;
    for (int i = 0; i < 60; i++) {
        request_take(&many[i], i % 2 ? name_on(0, 1) : name_on(0, i), 1, limit());
        submit(&many[i]);
    }
    fake_run();
    CHECK_EQ(fake_done_count, 61);
    CHECK_EQ(fake_servers[0].evals - before, 31); /* 30 names, and the shared one */
    int passed = 0;
    for (int i = 1; i < 60; i += 2)
        passed += many[i].ops[0].taken;
    CHECK_EQ(passed, FAKE_LIMIT);
    fake_end();
}

/* A group with counters on three servers. */
static void group_of_three(struct request_storage *request_storage, int which, int64_t cost)
{
    request_begin(request_storage);
    request_add_group(request_storage, false);
    for (int server = 0; server < 3; server++)
        request_add_op(request_storage, name_on(server, which), WEIR__OP_TAKE, cost, limit());
}

TEST(group_over_several_servers_is_all_or_nothing)
{
    begin_cluster("redis+cluster://f:1");
    CHECK_EQ(take_one(name_on(1, 0), 8), 0);
    for (int i = 0; i < 5; i++) {
        group_of_three(&one, 0, 1);
        submit(&one);
        fake_run();
        CHECK_EQ(one.request.error, 0);
        for (int j = 0; j < 3; j++)
            CHECK_EQ(one.ops[j].taken, i < 2);
        CHECK_EQ(weir_passes(&one.ops[1].decision), i < 2);
    }
    for (int server = 0; server < 3; server++)
        CHECK_EQ(*fake_used(&fake_servers[server], name_on(server, 0)), server == 1 ? 10 : 2);
    fake_end();
}

TEST(groups_after_the_first_wait_for_it)
{
    begin_cluster("redis+cluster://f:1");
    for (int i = 0; i < 12; i++) {
        request_begin(&one);
        request_add_group(&one, false);
        request_add_op(&one, name_on(0, 0), WEIR__OP_TAKE, 1, limit());
        request_add_op(&one, name_on(1, 0), WEIR__OP_TAKE, 1, limit());
        request_add_group(&one, true);
        request_add_op(&one, name_on(2, 0), WEIR__OP_TAKE, 1, limit());
        submit(&one);
        fake_run();
        CHECK_EQ(one.request.error, 0);
        CHECK_EQ(one.ops[2].taken, i < 10);
    }
    CHECK_EQ(*fake_used(&fake_servers[2], name_on(2, 0)), 10);
    fake_end();
}

TEST(missed_deadline_refunds_everything)
{
    begin_cluster("redis+cluster://f:1");
    group_of_three(&one, 0, 0);
    submit(&one);
    fake_run();
    fake_servers[1].paused = true;
    struct request_storage *gone = malloc(sizeof(*gone));
    group_of_three(gone, 0, 4);
    submit(gone);
    fake_pass(30000);
    CHECK_EQ(gone->request.error, WEIR_ESTORESLOW);
    free(gone);
    fake_servers[1].paused = false;
    fake_pass(1000);
    for (int server = 0; server < 3; server++)
        CHECK_EQ(*fake_used(&fake_servers[server], name_on(server, 0)), 0);
    CHECK_EQ(fake_stats().refunds, 3);
    /* Also when the request is cancelled. */
    fake_servers[1].paused = true;
    gone = malloc(sizeof(*gone));
    group_of_three(gone, 0, 4);
    submit(gone);
    fake_run();
    weir__client_cancel(fake_client, &gone->request);
    free(gone);
    fake_servers[1].paused = false;
    fake_pass(1000);
    for (int server = 0; server < 3; server++)
        CHECK_EQ(*fake_used(&fake_servers[server], name_on(server, 0)), 0);
    fake_end();
}

TEST(moved_slots_are_followed)
{
    begin_cluster("redis+cluster://f:1");
    const char *name = name_on(0, 0);
    char kept[32];
    strcpy(kept, name);
    CHECK_EQ(take_one(kept, 1), 0);
    /* All of server 0's slots move to server 3. */
    fake_servers[3].first_slot = fake_servers[0].first_slot;
    fake_servers[3].last_slot = fake_servers[0].last_slot;
    fake_servers[0].first_slot = 20000;
    fake_servers[0].last_slot = 0;
    fake_servers[0].moved_port = 4;
    CHECK_EQ(take_one(kept, 1), 0);
    CHECK_EQ(fake_stats().redirects, 1);
    CHECK_EQ(*fake_used(&fake_servers[3], kept), 1);
    fake_pass(1000000); /* the slot map is read again */
    int evals = fake_servers[0].evals;
    CHECK_EQ(take_one(kept, 1), 0);
    CHECK_EQ(fake_servers[0].evals, evals);
    CHECK_EQ(fake_stats().redirects, 1);
    fake_end();
}

TEST(redirection_of_a_migrating_slot_is_followed)
{
    begin_cluster("redis+cluster://f:1");
    char name[32];
    strcpy(name, name_on(0, 0));
    CHECK_EQ(take_one(name, 1), 0);
    fake_servers[0].migrating_slot = (int)weir__slot(name, strlen(name));
    fake_servers[0].importing_port = 4;
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(take_one(name, 1), 0);
        CHECK_EQ(one.ops[0].taken, i < 10);
    }
    CHECK_EQ(fake_servers[3].redirected_evals, 12);
    fake_end();
}

TEST(tryagain_and_clusterdown_are_retried)
{
    static const char *const canned_reply[] = {"-TRYAGAIN Multiple keys\r\n", "-CLUSTERDOWN The cluster is down\r\n"};
    for (int i = 0; i < 2; i++) {
        begin_cluster("redis+cluster://f:1");
        char name[32];
        strcpy(name, name_on(0, 0));
        take_one(name, 0);
        fake_servers[0].canned_reply = canned_reply[i];
        fake_servers[0].canned_times = 2;
        CHECK_EQ(take_one(name, 1), 1); /* not done yet */
        fake_pass(15000);
        CHECK_EQ(one.request.error, 0);
        CHECK_EQ(one.ops[0].taken, true);
        CHECK_EQ(fake_done_count, 2);
        /* Repeated without end: only until the deadline. */
        fake_servers[0].canned_times = 1000;
        CHECK_EQ(take_one(name, 1), 1);
        fake_pass(25000);
        CHECK(one.request.error != 0);
        CHECK_EQ(fake_done_count, 3);
        fake_end();
    }
}

TEST(keys_of_a_migrating_slot_are_sent_one_by_one)
{
    begin_cluster("redis+cluster://f:1");
    char name[64];
    take_one(name_on(0, 0), 0);
    fake_servers[0].apart = true;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "{%s}%d", name_on(0, 0), i);
        request_take(&many[i], name, 1, limit());
        submit(&many[i]);
    }
    fake_pass(19000);
    CHECK_EQ(fake_done_count, 21);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(many[i].request.error, 0);
        CHECK(many[i].ops[0].taken);
    }
    fake_end();
}

TEST(circular_redirections_end)
{
    begin_cluster("redis+cluster://f:1");
    char name[32];
    strcpy(name, name_on(0, 0));
    take_one(name, 0);
    fake_servers[0].canned_reply = "-MOVED 1 f:1\r\n";
    fake_servers[0].canned_times = 1000;
    CHECK_EQ(take_one(name, 1), WEIR_ESTORECROSSSLOT);
    fake_end();
}

TEST(failed_master_affects_only_its_slots)
{
    begin_cluster("redis+cluster://f:1,f:2,f:3");
    char lost[32], kept[32];
    strcpy(lost, name_on(1, 0));
    strcpy(kept, name_on(2, 0));
    take_one(lost, 1);
    take_one(kept, 1);
    fake_servers[1].down = true;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (fake_channels[i].open && fake_channels[i].server == 1)
            fake_lose(i);
    for (int i = 0; i < 100; i++) {
        CHECK(take_one(lost, 0) < 0);
        CHECK_EQ(take_one(kept, 0), 0);
        fake_pass(10000);
    }
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    /* A group that needs the failed server fails as a whole, and nothing stays taken. */
    group_of_three(&one, 0, 1);
    submit(&one);
    fake_run();
    CHECK_EQ(one.request.error, WEIR_ESTOREBREAKER);
    CHECK_EQ(*fake_used(&fake_servers[2], kept), 1);
    /* Exchanges of several counters: each succeeds or fails by itself. */
    request_begin(&one);
    for (int server = 0; server < 3; server++) {
        request_add_group(&one, false);
        request_add_op(&one, name_on(server, 5), WEIR__OP_EXCHANGE, 1, limit());
    }
    submit(&one);
    fake_run();
    CHECK_EQ(one.request.error, 0);
    CHECK_EQ(one.ops[0].error, 0);
    CHECK_EQ(one.ops[1].error, WEIR_ESTOREBREAKER);
    CHECK_EQ(one.ops[2].error, 0);
    /* A replica is promoted: within a second its slots are served, and the failed server is no longer probed. */
    fake_servers[4].first_slot = fake_servers[1].first_slot;
    fake_servers[4].last_slot = fake_servers[1].last_slot;
    fake_servers[1].last_slot = 0;
    fake_pass(1000000);
    CHECK_EQ(take_one(lost, 1), 0);
    CHECK_EQ(fake_ups, 1);
    int connects = fake_servers[1].connects;
    fake_pass(20 * 1000000);
    CHECK_EQ(fake_servers[1].connects, connects);
    fake_end();
}

TEST(without_a_slot_map_requests_fail_without_flooding)
{
    begin_cluster("redis+cluster://f:1,f:2,f:3");
    for (int i = 0; i < 3; i++)
        fake_servers[i].down = true;
    int slow = 0;
    for (int i = 0; i < 200; i++) {
        int error = take_one("k", 1);
        fake_pass(20000);
        if (error == 1)
            error = one.request.error;
        slow += error == WEIR_ESTORESLOW;
    }
    CHECK_EQ(fake_done_count, 200);
    CHECK(slow <= 6);
    CHECK(fake_servers[0].connects <= 20);
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_stats().state == WEIR__STORE_DOWN || fake_stats().state == WEIR__STORE_PROBING, 1);
    for (int i = 0; i < 3; i++)
        fake_servers[i].down = false;
    fake_pass(1500000);
    CHECK_EQ(take_one("k", 1), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
    /* A server that is not in a cluster. */
    begin_cluster("redis+cluster://f:1");
    fake_servers[0].slots_empty = true;
    CHECK(take_one("k", 1) != 0);
    fake_end();
}

/* ---- Sentinel ---- */

TEST(master_is_found_through_sentinel_and_followed)
{
    fake_begin("redis+sentinel://f:4,f:5,f:6/m");
    fake_servers[3].down = true;     /* one sentinel is unavailable */
    fake_servers[5].master_port = 0; /* one does not know the master */
    fake_servers[4].master_port = 1;
    CHECK_EQ(take_one("k", 1), 0);
    CHECK_EQ(fake_servers[0].evals, 1);
    /* The master replies READONLY: the new one is looked up. */
    fake_servers[0].canned_reply = "-READONLY You can't write against a read only replica.\r\n";
    fake_servers[0].canned_times = 1000;
    fake_servers[0].replica = true;
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREREADONLY);
    /* Sentinel still names the old one: the ROLE reply shows that it is a replica. */
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREREADONLY);
    CHECK_EQ(fake_servers[0].evals, 2);
    fake_servers[4].master_port = 2;
    CHECK_EQ(take_one("k", 1), 0);
    CHECK_EQ(fake_servers[1].evals, 1);
    fake_end();
}

TEST(master_behind_a_partition_is_abandoned)
{
    fake_begin("redis+sentinel://f:4/m");
    fake_servers[3].master_port = 1;
    CHECK_EQ(take_one("k", 1), 0);
    fake_servers[3].master_port = 2;
    fake_pass(4000000);
    CHECK_EQ(take_one("k", 1), 0);
    CHECK_EQ(fake_servers[1].evals, 1);
    /* Unavailable sentinels do not matter while the master is there. */
    fake_servers[3].down = true;
    fake_pass(20000000);
    CHECK_EQ(take_one("k", 1), 0);
    fake_end();
}

TEST(without_sentinels_requests_fail)
{
    fake_begin("redis+sentinel://f:4,f:5/m");
    fake_servers[3].down = fake_servers[4].down = true;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(take_one("k", 1), WEIR_ESTOREDOWN);
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREBREAKER);
    CHECK_EQ(fake_downs, 1);
    fake_servers[4].down = false;
    fake_servers[4].master_port = 1;
    fake_pass(2000000);
    CHECK_EQ(take_one("k", 1), 0);
    fake_end();
}

/* Random redirections and faults in a cluster: each request is completed once, and no counter has less consumed than
 * what passed. */
TEST(random_faults_in_a_cluster)
{
    uint64_t random = 3;
    for (int64_t round = test_scaled(40, 5); round > 0; round--) {
        static int done[64];
        int64_t passed = 0;
        begin_cluster("redis+cluster://f:1,f:2,f:3?retry_min=1ms&retry_max=10ms");
        for (int step = 0; step < 300; step++) {
            int i = step % 64;
            done[i] = 0;
            struct fake_server *server = &fake_servers[test_random(&random) % 3];
            switch (test_random(&random) % 30) {
            case 0:
                server->paused = true;
                break;
            case 1:
                server->down = true;
                break;
            case 2:
                server->canned_reply = "-TRYAGAIN x\r\n";
                server->canned_times = 2;
                break;
            case 3:
                server->script = false;
                break;
            case 4:
                for (unsigned c = 0; c < WEIR__CHANNELS; c++)
                    if (fake_channels[c].open && fake_channels[c].server == server - fake_servers)
                        fake_lose(c);
                break;
            case 5:
                fake_piece = test_random(&random) % 5;
                break;
            default:
                if (test_random(&random) % 3 == 0)
                    server->paused = server->down = false;
            }
            group_of_three(&many[i], 0, 1);
            many[i].request.owner = &done[i];
            submit(&many[i]);
            fake_pass(25000);
            CHECK_EQ(done[i], 1);
            bool took = many[i].ops[0].taken;
            if (!many[i].request.error) {
                CHECK(took == many[i].ops[1].taken && took == many[i].ops[2].taken);
                passed += took;
            }
        }
        for (int i = 0; i < 3; i++)
            fake_servers[i].paused = fake_servers[i].down = false;
        fake_pass(10 * 1000000);
        for (int i = 0; i < 3; i++)
            CHECK(*fake_used(&fake_servers[i], name_on(i, 0)) >= passed);
        fake_end();
    }
}

TEST_MAIN
