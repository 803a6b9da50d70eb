/* Reservations: tokens, settling once, expiry, and reservations of killed processes. */
#include "api.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char rules[] =
    "rules:\n"
    "  - { name: tokens, match: { path: /llm }, key: \"user:${user_id}\", limit: 1000, window: 1d }\n"
    "  - { name: all, match: { path: /llm }, limit: 5000, window: 400d, algorithm: fixed_window }\n"
    "  - { name: seen, match: { path: /llm }, limit: 300, window: 1d, shadow: true }\n"
    "  - { name: long, match: { path: /long }, key: \"${user_id}\", limit: 300, window: 1d }\n";

#define RESERVE "{\"attributes\":{\"path\":\"/llm\",\"user_id\":\"1\"},\"cost\":400}"

static int64_t left(struct test_api *t, const char *rule, const char *key)
{
    weir_outcome outcome = {.error = 1};
    CHECK_EQ(weir_key_state(t->engine, rule, key, strlen(key), (weir_time){0, 0}, &outcome), 0);
    return outcome.decision.remaining;
}

static void token_of(const struct test_api *t, char *token)
{
    const char *at = strstr(t->response, "\"reservation\":\"");
    token[0] = 0;
    CHECK(at != NULL);
    if (at)
        sscanf(at + 15, "%1399[^\"]", token);
}

static void settle(struct test_api *t, const char *how, const char *token, int64_t cost)
{
    char body[1600];
    if (cost >= 0)
        snprintf(body, sizeof body, "{\"reservation\":\"%s\",\"cost\":%" PRId64 "}", token, cost);
    else
        snprintf(body, sizeof body, "{\"reservation\":\"%s\"}", token);
    test_post(t, how, body);
}

TEST(commit_settles_the_difference_exactly_once)
{
    struct test_api *t = test_api_open(rules);
    char token[1400];
    test_post(t, "reserve", RESERVE);
    BODY_HAS(t, "\"expires_s\":60");
    token_of(t, token);
    CHECK_EQ(left(t, "tokens", "user:1"), 600);
    CHECK_EQ(left(t, "all", "*"), 4600);
    settle(t, "commit", token, 150);
    CHECK_EQ(t->status, 200);
    BODY_HAS(t, "{\"settled\":true,\"cost\":150,\"rules\":[{\"rule\":\"tokens\",\"key\":\"user:1\",\"reserved\":400,"
                "\"cost\":150,"
                "\"limit\":1000,\"remaining\":850}");
    CHECK_EQ(left(t, "all", "*"), 4850);
    settle(t, "commit", token, 150);
    CHECK_EQ(t->status, 409);
    BODY_HAS(t, "already_settled");
    settle(t, "cancel", token, -1);
    CHECK_EQ(t->status, 409);
    CHECK_EQ(left(t, "all", "*"), 4850);
    test_api_close(t);
}

TEST(commit_above_the_estimate_may_exceed_the_limit)
{
    struct test_api *t = test_api_open(rules);
    char token[1400];
    test_post(t, "reserve", RESERVE);
    token_of(t, token);
    settle(t, "commit", token, 1200);
    CHECK_EQ(t->status, 200);
    CHECK_EQ(left(t, "tokens", "user:1"), -200);
    CHECK_EQ(left(t, "all", "*"), 3800);
    test_post(t, "reserve", "{\"attributes\":{\"path\":\"/llm\",\"user_id\":\"1\"},\"cost\":1}");
    BODY_HAS(t, "\"decision\":\"deny\"");
    BODY_HAS(t, "\"reservation\":null,\"expires_s\":null}");
    test_api_close(t);
}

TEST(cancel_refunds_everything)
{
    struct test_api *t = test_api_open(rules);
    char token[1400];
    test_post(t, "reserve",
              "{\"key\":\"llm\",\"limit\":1000,\"window\":\"1d\",\"burst\":1500,\"cost\":700,\"algorithm\":\"token_"
              "bucket\"}");
    CHECK_EQ(test_number(t, "remaining"), 800);
    token_of(t, token);
    settle(t, "cancel", token, -1);
    CHECK_EQ(t->status, 200);
    BODY_HAS(t, "{\"rule\":null,\"key\":\"llm\",\"reserved\":700,\"cost\":0,\"limit\":1500,\"remaining\":1500}");
    test_api_close(t);
}

/* Otherwise a client could put a zero byte into its name and get a refund for units taken from another counter. */
TEST(zero_byte_does_not_end_a_key)
{
    struct test_api *t = test_api_open("rules: [{ name: q, key: \"u:${query:u}\", limit: 100, window: 1d }]\n");
    char token[1400];
    test_post(t, "check", "{\"attributes\":{\"query\":\"u=me\"},\"cost\":50}");
    test_post(t, "reserve", "{\"attributes\":{\"query\":\"u=me%00x\"},\"cost\":30}");
    BODY_HAS(t, "\"key\":\"u:me\\u0000x\"");
    token_of(t, token);
    settle(t, "cancel", token, -1);
    CHECK_EQ(t->status, 200);
    BODY_HAS(t, "\"key\":\"u:me\\u0000x\",\"reserved\":30,\"cost\":0,\"limit\":100,\"remaining\":100}");
    CHECK_EQ(left(t, "q", "u:me"), 50);
    test_api_close(t);
}

static void wait_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

TEST(unsettled_reservation_expires)
{
    struct test_api *t = test_api_open(rules);
    char token[1400], settled[1400];
    test_post(t, "reserve", "{\"attributes\":{\"path\":\"/llm\",\"user_id\":\"1\"},\"cost\":100,\"expires_s\":60}");
    token_of(t, settled);
    CHECK_EQ(weir__api_expire(&t->api), 0);
    settle(t, "commit", settled, 100);
    CHECK_EQ(t->status, 200);
    test_post(t, "reserve", "{\"attributes\":{\"path\":\"/llm\",\"user_id\":\"1\"},\"cost\":400,\"expires_s\":1}");
    token_of(t, token);
    wait_ms(1010);
    settle(t, "commit", token, 10);
    CHECK_EQ(t->status, 410);
    BODY_HAS(t, "expired");
    CHECK_EQ(weir__api_expire(&t->api), 1);
    CHECK_EQ(weir__api_expire(&t->api), 0);
    CHECK_EQ(left(t, "tokens", "user:1"), 900);
    CHECK_EQ(left(t, "all", "*"), 4900);
    test_api_close(t);
}

/* The reservation outlives the process that made it: another process, which maps the file anew, refunds it. */
TEST(reservation_of_a_killed_process_expires)
{
    char path[64], file[96];
    private_path(path, sizeof path, "segment");
    snprintf(file, sizeof file, "%s.reservations", path);
    weir_segment_options how = {.path = path, .size = 1 << 20, .flags = WEIR_OPEN_CREATE};
    weir_options options = {.segment = how, .rules_text = rules};
    unlink(how.path);
    unlink(file);
    for (int maker = 1; maker >= 0; maker--) {
        pid_t child = maker ? fork() : 0;
        if (child > 0) {
            int status = 0;
            waitpid(child, &status, 0);
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            continue;
        }
        struct test_api *t = calloc(1, sizeof *t);
        CHECK_EQ(weir_open(&options, &t->engine), 0);
        CHECK_EQ(test_reservations_open(file, TEST_RESERVATIONS, &t->reservations), 0);
        CHECK_EQ(weir__api_open(&t->api, t->engine, t->reservations), 0);
        if (maker) {
            test_post(t, "reserve",
                      "{\"attributes\":{\"path\":\"/llm\",\"user_id\":\"1\"},\"cost\":400,\"expires_s\":1}");
            raise(SIGKILL);
        }
        CHECK_EQ(left(t, "tokens", "user:1"), 600);
        wait_ms(1010);
        CHECK_EQ(weir__api_expire(&t->api), 1);
        CHECK_EQ(left(t, "tokens", "user:1"), 1000);
        test_api_close(t);
    }
    unlink(how.path);
    unlink(file);
}

TEST(pending_reservations_are_bounded)
{
    struct test_api *t = test_api_open(rules);
    char token[1400] = "";
    for (int i = 0; i < TEST_RESERVATIONS; i++) {
        test_post(t, "reserve", "{\"key\":\"k\",\"limit\":1000,\"window\":\"1d\"}");
        CHECK_EQ(t->status, 200);
    }
    token_of(t, token);
    test_post(t, "reserve", "{\"key\":\"k\",\"limit\":1000,\"window\":\"1d\"}");
    CHECK_EQ(t->status, 503);
    BODY_HAS(t, "too_many_reservations");
    settle(t, "cancel", token, -1);
    test_post(t, "reserve", "{\"key\":\"k\",\"limit\":1000,\"window\":\"1d\"}");
    CHECK_EQ(t->status, 200);
    CHECK_EQ(test_number(t, "remaining"), 1000 - TEST_RESERVATIONS);
    test_api_close(t);
}

TEST(denied_reservation_uses_no_slot)
{
    struct test_api *t = test_api_open(rules);
    for (int i = 0; i < 2 * TEST_RESERVATIONS; i++) {
        test_post(t, "reserve", "{\"key\":\"k\",\"limit\":1,\"window\":\"1d\",\"cost\":2,\"http\":true}");
        CHECK_EQ(t->status, 429);
    }
    test_api_close(t);
}

TEST(reservation_too_long_for_its_slot_is_refused)
{
    struct test_api *t = test_api_open(rules);
    char body[600], user[201];
    memset(user, 'u', 200);
    user[200] = 0;
    snprintf(body, sizeof body, "{\"attributes\":{\"path\":\"/long\",\"user_id\":\"%s\"},\"cost\":100}", user);
    test_post(t, "reserve", body);
    CHECK_EQ(t->status, 422);
    CHECK_EQ(left(t, "long", user), 300);
    test_api_close(t);
}

TEST(invalid_reservations_are_refused)
{
    static const char *const wrong[][3] = {
        {"reserve", "{\"attributes\":{},\"expires_s\":0}", "expires_s"},
        {"reserve", "{\"attributes\":{},\"expires_s\":3601}", "expires_s"},
        {"reserve", "{\"attributes\":{},\"cost\":0}", "\"field\":\"cost\""},
        {"reserve", "{\"attributes\":{},\"dry_run\":true}", "\"field\":\"dry_run\""},
        {"reserve", "{\"batch\":[]}", "\"field\":\"attributes\""},
        {"commit", "{\"cost\":1}", "\"field\":\"reservation\""},
        {"commit", "{\"reservation\":\"x\"}", "\"field\":\"cost\""},
        {"commit", "{\"reservation\":\"x\",\"cost\":-1}", "\"field\":\"cost\""},
        {"cancel", "{\"reservation\":\"x\",\"cost\":1}", "\"field\":\"cost\""},
        {"cancel", "{\"reservation\":1}", "\"field\":\"reservation\""},
        {"cancel", "{\"reservation\":\"\"}", "bad_reservation"},
        {"cancel", "{\"reservation\":\"AAAA\"}", "bad_reservation"},
        {"cancel", "[", "bad_json"},
    };
    struct test_api *t = test_api_open(rules);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        test_post(t, wrong[i][0], wrong[i][1]);
        CHECK_EQ(t->status, 400);
        BODY_HAS(t, wrong[i][2]);
    }
    t->api.reservations = NULL;
    test_post(t, "reserve", RESERVE);
    CHECK_EQ(t->status, 503);
    test_api_close(t);
}

/* ---- Tickets ---- */

TEST(changed_token_is_refused)
{
    struct test_api *t = test_api_open(rules);
    char token[1400], changed[1400];
    test_post(t, "reserve", RESERVE);
    token_of(t, token);
    for (size_t i = 0; token[i]; i++) {
        strcpy(changed, token);
        changed[i] = changed[i] == 'A' ? 'B' : 'A';
        settle(t, "cancel", changed, -1);
        /* The last character may carry bits that belong to no byte. */
        CHECK(t->status == 400 || !token[i + 1]);
    }
    token[strlen(token) - 4] = 0;
    settle(t, "cancel", token, -1);
    CHECK_EQ(t->status, 400);
    test_api_close(t);
}

TEST(token_of_another_segment_is_refused)
{
    struct test_api *one = test_api_open(rules), *other = test_api_open(rules);
    char token[1400];
    test_post(one, "reserve", RESERVE);
    token_of(one, token);
    settle(other, "cancel", token, -1);
    CHECK_EQ(other->status, 400);
    test_api_close(one);
    test_api_close(other);
}

TEST(token_round_trips)
{
    uint8_t key[WEIR_SECRET_BYTES] = {1}, bytes[WEIR__RESERVATION_TOKEN_MAX], again[WEIR__RESERVATION_TOKEN_MAX];
    char text[WEIR__BASE64URL_MAX(WEIR__RESERVATION_TOKEN_MAX) + 1];
    struct weir__reservation_token token = {.taken = {5, 6}, .due_ns = 7, .id = {8}, .slot = 9, .count = 2}, read;
    token.charges[0] = (struct weir__reservation_charge){
        .cost = 10, .rule = {"rule", 4}, .key = {"k\0y", 3}, .shadow = true, .quota = 11, .window_ns = 12};
    token.charges[1] = (struct weir__reservation_charge){.cost = 13,
                                                         .direct = true,
                                                         .key = {"", 0},
                                                         .quota = 14,
                                                         .window_ns = 15,
                                                         .params = {.burst = 16, .algorithm = 2}};
    size_t len = weir__reservation_token_pack(&token, key, bytes);
    CHECK(len > 0);
    size_t text_len = weir__write_base64url(text, bytes, len);
    CHECK_EQ(weir__read_base64url((weir_text){text, text_len}, again, sizeof again), len);
    CHECK(memcmp(bytes, again, len) == 0);
    CHECK(weir__reservation_token_unpack(again, len, key, &read));
    CHECK(read.taken.mono_ns == 5 && read.taken.wall_ns == 6 && read.due_ns == 7 && read.slot == 9 && read.count == 2);
    CHECK(read.charges[0].shadow && !read.charges[0].direct && read.charges[0].rule.len == 4 &&
          read.charges[0].key.len == 3);
    CHECK(read.charges[1].direct && read.charges[1].params.burst == 16 && read.charges[1].params.limit == 14 &&
          read.charges[1].params.algorithm == WEIR_FIXED_WINDOW && read.charges[1].params.window_ns == 15);
    key[0] = 2;
    CHECK(!weir__reservation_token_unpack(again, len, key, &read));
    char longest[1000];
    memset(longest, 'k', sizeof longest);
    token.charges[1].key = (weir_text){longest, sizeof longest};
    CHECK_EQ(weir__reservation_token_pack(&token, key, bytes), 0);
}

/* ---- The file ---- */

TEST(damaged_file_is_recreated_and_a_good_one_kept)
{
    char path[64];
    private_path(path, sizeof path, "file");
    struct weir__reservations *one, *two;
    unlink(path);
    CHECK_EQ(test_reservations_open(path, 100, &one), 0);
    CHECK_EQ(test_reservations_open(path, 200, &two), 0);
    CHECK_EQ(two->count, 100);
    int64_t slot = weir__reservations_claim(one, 7, 1000);
    weir__reservations_publish(one, (uint32_t)slot, 1000, (const uint8_t *)"token", 6);
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    uint32_t at = 0;
    int64_t due = 0;
    CHECK_EQ(weir__reservations_next_due(two, &at, 999, bytes, &due), 0);
    at = 0;
    CHECK_EQ(weir__reservations_next_due(two, &at, 1000, bytes, &due), 6);
    CHECK(at == slot + 1 && due == 1000 && memcmp(bytes, "token", 6) == 0);
    weir__reservations_release(two, (uint32_t)slot, 999);
    at = 0;
    CHECK_EQ(weir__reservations_next_due(one, &at, 1000, bytes, &due), 6);
    weir__reservations_release(two, (uint32_t)slot, 1000);
    at = 0;
    CHECK_EQ(weir__reservations_next_due(one, &at, 1000, bytes, &due), 0);

    /* The slot of a dead writer is free again when it is due. */
    slot = weir__reservations_claim(one, 7, 1000);
    at = 0;
    CHECK_EQ(weir__reservations_next_due(one, &at, 1000, bytes, &due), 0);
    CHECK_EQ(weir__reservations_claim(one, 7, 1000), slot);
    test_reservations_close(two);

    int file = open(path, O_WRONLY);
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    close(file);
    CHECK_EQ(test_reservations_open(path, 200, &two), 0);
    CHECK_EQ(two->count, 200);
    test_reservations_close(one);
    test_reservations_close(two);
    unlink(path);
    CHECK_EQ(test_reservations_open("/nowhere/x", 10, &one), WEIR_ENOENT);
    CHECK_EQ(test_reservations_open(path, 0, &one), WEIR_ESIZE);
}

static int cut_reservations(void)
{
    char path[64];
    weir_segment_options anonymous = {.size = 1 << 20};
    weir_segment *segment = NULL;
    struct weir__reservations *made = NULL;
    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX];
    int64_t due = 0;
    uint32_t at = 0;
    private_path(path, sizeof path, "file");
    if (weir_segment_open(&anonymous, &segment) != 0 || weir_segment_guard(segment) != 0 ||
        test_reservations_open(path, 100, &made) != 0 || truncate(path, 0) != 0)
        return 2;
    int64_t slot = weir__reservations_claim(made, 7, 1000);
    weir__reservations_publish(made, (uint32_t)slot, 1000, (const uint8_t *)"token", 6);
    if (weir__reservations_next_due(made, &at, 1000, bytes, &due) != 6 || !weir__sidecar_lost() || weir__sidecar_lost())
        return 3;
    test_reservations_close(made);
    /* The next process to open the file recreates it. */
    if (test_reservations_open(path, 100, &made) != 0)
        return 4;
    test_reservations_close(made);
    weir_segment_close(segment);
    return 0;
}

TEST(truncated_file_crashes_no_process)
{
    char path[64];
    private_path(path, sizeof path, "file");
    unlink(path);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(cut_reservations());
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    unlink(path);
}

TEST(file_of_another_user_is_refused)
{
    enum { STRANGER = 65534 };
    char folder[64], path[80];
    struct weir__reservations *made = NULL;
    if (geteuid() != 0)
        return;
    private_path(folder, sizeof folder, "open");
    snprintf(path, sizeof path, "%s/file", folder);
    CHECK(mkdir(folder, 0700) == 0 && chmod(folder, 01777) == 0);
    CHECK_EQ(test_reservations_open(path, 100, &made), 0);
    test_reservations_close(made);
    CHECK_EQ(chown(path, STRANGER, (gid_t)-1), 0);
    CHECK_EQ(test_reservations_open(path, 100, &made), WEIR_EOWNER);
    unlink(path);
    CHECK_EQ(rmdir(folder), 0);
}

/* Foreign bytes in the slots: nothing is refunded, and every slot becomes free in the end. */
TEST(random_bytes_in_the_file_are_harmless)
{
    struct test_api *t = test_api_open(rules);
    int file = open(t->path, O_RDWR);
    size_t bytes = (size_t)lseek(file, 0, SEEK_END);
    uint64_t *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    for (size_t i = 4096 / 8; i < bytes / 8; i++)
        slots[i] = UINT64_C(0x0123456789abcdef) * i;
    munmap(slots, bytes);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir__api_expire(&t->api), 0);
    test_api_close(t);
}

TEST_MAIN
