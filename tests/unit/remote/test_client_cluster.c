/* The client with several servers: slots, redirections, servers that are lost; and masters that Sentinel names. */
#include "client_request.h"

static struct asked many[64];

/* A name in the slots of server `server`. */
static const char *name_on(int server, int which)
{
    static char names[4][32];
    static int turn;
    char *name = names[turn++ % 4];
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

TEST(every_name_goes_to_its_server)
{
    begin_cluster("redis+cluster://f:2");
    for (int server = 0; server < 3; server++)
        for (int i = 0; i < 12; i++) {
            CHECK_EQ(ask_one(name_on(server, 3), 1), 0);
            CHECK_EQ(one.ops[0].taken, i < 10);
        }
    for (int server = 0; server < 3; server++)
        CHECK_EQ(fake_servers[server].evals, 12);
    CHECK_EQ(fake_stats().redirects, 0);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    fake_end();
}

TEST(a_key_that_many_want_is_asked_for_at_once)
{
    begin_cluster("redis+cluster://f:1");
    ask_one(name_on(0, 0), 0);
    int before = fake_servers[0].evals;
    for (int i = 0; i < 60; i++) {
        asked_one(&many[i], i % 2 ? name_on(0, 1) : name_on(0, i), 1, limit());
        op(&many[i]);
    }
    fake_run();
    CHECK_EQ(fake_done_count, 61);
    CHECK_EQ(fake_servers[0].evals - before, 31); /* 30 names, and the one */
    int passed = 0;
    for (int i = 1; i < 60; i += 2)
        passed += many[i].ops[0].taken;
    CHECK_EQ(passed, FAKE_LIMIT);
    fake_end();
}

/* A group over three servers. */
static void group_of_three(struct asked *asked, int which, int64_t cost)
{
    asked_begin(asked);
    asked_group(asked, false);
    for (int server = 0; server < 3; server++)
        asked_add(asked, name_on(server, which), WEIR__OP_TAKE, cost, limit());
}

TEST(a_group_over_servers_takes_from_all_or_none)
{
    begin_cluster("redis+cluster://f:1");
    CHECK_EQ(ask_one(name_on(1, 0), 8), 0);
    for (int i = 0; i < 5; i++) {
        group_of_three(&one, 0, 1);
        op(&one);
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
        asked_begin(&one);
        asked_group(&one, false);
        asked_add(&one, name_on(0, 0), WEIR__OP_TAKE, 1, limit());
        asked_add(&one, name_on(1, 0), WEIR__OP_TAKE, 1, limit());
        asked_group(&one, true);
        asked_add(&one, name_on(2, 0), WEIR__OP_TAKE, 1, limit());
        op(&one);
        fake_run();
        CHECK_EQ(one.request.error, 0);
        CHECK_EQ(one.ops[2].taken, i < 10);
    }
    CHECK_EQ(*fake_used(&fake_servers[2], name_on(2, 0)), 10);
    fake_end();
}

TEST(a_deadline_gives_everything_back)
{
    begin_cluster("redis+cluster://f:1");
    group_of_three(&one, 0, 0);
    op(&one);
    fake_run();
    fake_servers[1].paused = true;
    struct asked *gone = malloc(sizeof(*gone));
    group_of_three(gone, 0, 4);
    op(gone);
    fake_pass(30000);
    CHECK_EQ(gone->request.error, WEIR_ESTORESLOW);
    free(gone);
    fake_servers[1].paused = false;
    fake_pass(1000);
    for (int server = 0; server < 3; server++)
        CHECK_EQ(*fake_used(&fake_servers[server], name_on(server, 0)), 0);
    CHECK_EQ(fake_stats().refunds, 3);
    /* The same when its owner goes. */
    fake_servers[1].paused = true;
    gone = malloc(sizeof(*gone));
    group_of_three(gone, 0, 4);
    op(gone);
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
    CHECK_EQ(ask_one(kept, 1), 0);
    /* All of server 0's slots go to server 3. */
    fake_servers[3].first_slot = fake_servers[0].first_slot;
    fake_servers[3].last_slot = fake_servers[0].last_slot;
    fake_servers[0].first_slot = 20000;
    fake_servers[0].last_slot = 0;
    fake_servers[0].moved_port = 4;
    CHECK_EQ(ask_one(kept, 1), 0);
    CHECK_EQ(fake_stats().redirects, 1);
    CHECK_EQ(*fake_used(&fake_servers[3], kept), 1);
    fake_pass(1000000); /* the map is read anew */
    int evals = fake_servers[0].evals;
    CHECK_EQ(ask_one(kept, 1), 0);
    CHECK_EQ(fake_servers[0].evals, evals);
    CHECK_EQ(fake_stats().redirects, 1);
    fake_end();
}

TEST(a_slot_on_its_way_is_asked_for_there)
{
    begin_cluster("redis+cluster://f:1");
    char name[32];
    strcpy(name, name_on(0, 0));
    CHECK_EQ(ask_one(name, 1), 0);
    fake_servers[0].ask_slot = (int)weir__slot(name, strlen(name));
    fake_servers[0].ask_port = 4;
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(ask_one(name, 1), 0);
        CHECK_EQ(one.ops[0].taken, i < 10);
    }
    CHECK_EQ(fake_servers[3].asks_after_asking, 12);
    fake_end();
}

TEST(tryagain_and_clusterdown_are_tried_again)
{
    static const char *const says[] = {"-TRYAGAIN Multiple keys\r\n", "-CLUSTERDOWN The cluster is down\r\n"};
    for (int i = 0; i < 2; i++) {
        begin_cluster("redis+cluster://f:1");
        char name[32];
        strcpy(name, name_on(0, 0));
        ask_one(name, 0);
        fake_servers[0].says = says[i];
        fake_servers[0].says_times = 2;
        CHECK_EQ(ask_one(name, 1), 1); /* waits */
        fake_pass(15000);
        CHECK_EQ(one.request.error, 0);
        CHECK_EQ(one.ops[0].taken, true);
        CHECK_EQ(fake_done_count, 2);
        /* For ever: only until the deadline. */
        fake_servers[0].says_times = 1000;
        CHECK_EQ(ask_one(name, 1), 1);
        fake_pass(25000);
        CHECK(one.request.error != 0);
        CHECK_EQ(fake_done_count, 3);
        fake_end();
    }
}

TEST(keys_of_a_slot_that_moves_are_asked_for_one_by_one)
{
    begin_cluster("redis+cluster://f:1");
    char name[64];
    ask_one(name_on(0, 0), 0);
    fake_servers[0].apart = true;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "{%s}%d", name_on(0, 0), i);
        asked_one(&many[i], name, 1, limit());
        op(&many[i]);
    }
    fake_pass(19000);
    CHECK_EQ(fake_done_count, 21);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(many[i].request.error, 0);
        CHECK(many[i].ops[0].taken);
    }
    fake_end();
}

TEST(redirections_in_a_circle_end)
{
    begin_cluster("redis+cluster://f:1");
    char name[32];
    strcpy(name, name_on(0, 0));
    ask_one(name, 0);
    fake_servers[0].says = "-MOVED 1 f:1\r\n";
    fake_servers[0].says_times = 1000;
    CHECK_EQ(ask_one(name, 1), WEIR_ESTORECROSSSLOT);
    fake_end();
}

TEST(a_lost_master_takes_only_its_slots_with_it)
{
    begin_cluster("redis+cluster://f:1,f:2,f:3");
    char lost[32], kept[32];
    strcpy(lost, name_on(1, 0));
    strcpy(kept, name_on(2, 0));
    ask_one(lost, 1);
    ask_one(kept, 1);
    fake_servers[1].down = true;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (fake_channels[i].open && fake_channels[i].server == 1)
            fake_lose(i);
    for (int i = 0; i < 100; i++) {
        CHECK(ask_one(lost, 0) < 0);
        CHECK_EQ(ask_one(kept, 0), 0);
        fake_pass(10000);
    }
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    /* A group that needs the lost one fails as a whole, and leaves nothing taken. */
    group_of_three(&one, 0, 1);
    op(&one);
    fake_run();
    CHECK_EQ(one.request.error, WEIR_ESTOREBREAKER);
    CHECK_EQ(*fake_used(&fake_servers[2], kept), 1);
    /* Exchanges of several counters: each for itself. */
    asked_begin(&one);
    for (int server = 0; server < 3; server++) {
        asked_group(&one, false);
        asked_add(&one, name_on(server, 5), WEIR__OP_EXCHANGE, 1, limit());
    }
    op(&one);
    fake_run();
    CHECK_EQ(one.request.error, 0);
    CHECK_EQ(one.ops[0].error, 0);
    CHECK_EQ(one.ops[1].error, WEIR_ESTOREBREAKER);
    CHECK_EQ(one.ops[2].error, 0);
    /* A replica is promoted: within a second its slots are back, and the lost one is looked for no longer. */
    fake_servers[4].first_slot = fake_servers[1].first_slot;
    fake_servers[4].last_slot = fake_servers[1].last_slot;
    fake_servers[1].last_slot = 0;
    fake_pass(1000000);
    CHECK_EQ(ask_one(lost, 1), 0);
    CHECK_EQ(fake_ups, 1);
    int connects = fake_servers[1].connects;
    fake_pass(20 * 1000000);
    CHECK_EQ(fake_servers[1].connects, connects);
    fake_end();
}

TEST(no_map_no_answers_and_no_storm)
{
    begin_cluster("redis+cluster://f:1,f:2,f:3");
    for (int i = 0; i < 3; i++)
        fake_servers[i].down = true;
    int slow = 0;
    for (int i = 0; i < 200; i++) {
        int error = ask_one("k", 1);
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
    CHECK_EQ(ask_one("k", 1), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
    /* A server that is no cluster. */
    begin_cluster("redis+cluster://f:1");
    fake_servers[0].slots_empty = true;
    CHECK(ask_one("k", 1) != 0);
    fake_end();
}

/* ---- Sentinel ---- */

TEST(the_master_is_found_and_followed)
{
    fake_begin("redis+sentinel://f:4,f:5,f:6/m");
    fake_servers[3].down = true;     /* one sentinel is away */
    fake_servers[5].master_port = 0; /* one knows no such master */
    fake_servers[4].master_port = 1;
    CHECK_EQ(ask_one("k", 1), 0);
    CHECK_EQ(fake_servers[0].evals, 1);
    /* The master says that it is none: the new one is looked for. */
    fake_servers[0].says = "-READONLY You can't write against a read only replica.\r\n";
    fake_servers[0].says_times = 1000;
    fake_servers[0].replica = true;
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREREADONLY);
    /* Sentinel still names the old one: its role gives it away. */
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREREADONLY);
    CHECK_EQ(fake_servers[0].evals, 2);
    fake_servers[4].master_port = 2;
    CHECK_EQ(ask_one("k", 1), 0);
    CHECK_EQ(fake_servers[1].evals, 1);
    fake_end();
}

TEST(a_master_behind_a_partition_is_left)
{
    fake_begin("redis+sentinel://f:4/m");
    fake_servers[3].master_port = 1;
    CHECK_EQ(ask_one("k", 1), 0);
    fake_servers[3].master_port = 2;
    fake_pass(4000000);
    CHECK_EQ(ask_one("k", 1), 0);
    CHECK_EQ(fake_servers[1].evals, 1);
    /* Sentinels that are away do not matter while the master is there. */
    fake_servers[3].down = true;
    fake_pass(20000000);
    CHECK_EQ(ask_one("k", 1), 0);
    fake_end();
}

TEST(no_sentinel_no_master)
{
    fake_begin("redis+sentinel://f:4,f:5/m");
    fake_servers[3].down = fake_servers[4].down = true;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(ask_one("k", 1), WEIR_ESTOREDOWN);
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREBREAKER);
    CHECK_EQ(fake_downs, 1);
    fake_servers[4].down = false;
    fake_servers[4].master_port = 1;
    fake_pass(2000000);
    CHECK_EQ(ask_one("k", 1), 0);
    fake_end();
}

/* Random redirections and faults in a cluster: each request is done once, and no counter goes below what passed. */
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
                server->says = "-TRYAGAIN x\r\n";
                server->says_times = 2;
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
            op(&many[i]);
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
