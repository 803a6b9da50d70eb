/* Permits under strict rules: engines of several hosts, one real Redis. */
#include "../../engine.h"
#include "../remote/server.h"
#include "engine/permits.h"
#include "remote/client.h"

#include <weir/store.h>

#define SLOTS(name, more)                                                                                              \
    "  - { name: " name ", key: '${user_id}', algorithm: concurrency, consistency: strict" more " }\n"

static const char rules[] = "rules:\n" SLOTS("slow", ", match: { path: /slow }, limit: 3, lease: 60s");

static weir *host_with(const char *text, const char *with, int flags)
{
    char url[192];
    snprintf(url, sizeof url, "redis+unix://%s?deadline=30s&connect_timeout=30s&%s", server.socket, with);
    weir_options kind = {.segment = {.size = 8 << 20},
                         .rules_text = text,
                         .diagnose = test_print_diagnostic,
                         .store = url,
                         .flags = flags};
    weir *engine = NULL;
    if (weir_store_use() != 0 || weir_open(&kind, &engine) != 0)
        exit(1);
    return engine;
}

static weir *host(const char *text)
{
    return host_with(text, "", 0);
}

static bool begin(void)
{
    if (!server_start())
        return false;
    server_do("FLUSHALL");
    return true;
}

static weir_result result;

static bool hold(weir *engine, const char *line, weir_permits *permits)
{
    struct test_request r;
    test_request(&r, line);
    r.query.permits = permits;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    return weir_passes(&result.decision);
}

static int64_t left(weir *engine, const char *rule, const char *key)
{
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(engine, rule, key, strlen(key), (weir_time){0, 0}, &outcome), 0);
    CHECK_EQ(outcome.error, 0);
    return outcome.decision.remaining;
}

TEST(hosts_share_permits)
{
    if (!begin())
        return;
    weir *a = host(rules), *b = host(rules);
    weir_permits first, second, third, none;
    CHECK(hold(a, "GET /slow user_id=7", &first));
    CHECK_EQ(first.count, 1);
    CHECK_EQ(first.lease_ns, 60 * WEIR_SECOND);
    CHECK_EQ(result.decision.limit, 3);
    CHECK_EQ(result.decision.remaining, 2);
    CHECK_EQ(result.decided_by.error, 0);
    CHECK(hold(b, "GET /slow user_id=7", &second));
    CHECK(hold(a, "GET /slow user_id=7", &third));
    for (int i = 0; i < 3; i++) { /* denials are not cached */
        CHECK(!hold(b, "GET /slow user_id=7", &none));
        CHECK_EQ(none.count, 0);
        CHECK_EQ(result.decision.retry_after_ns, WEIR_SECOND);
        CHECK_EQ(result.decision.reset_after_ns, -1);
    }
    CHECK(hold(b, "GET /slow user_id=8", &none));
    weir_permits copy;
    memcpy(&copy, &first, weir_permits_size(&first));
    CHECK(weir_permits_size(&first) < 500);
    CHECK_EQ(weir_permits_release(a, &first), 1);
    CHECK_EQ(first.count, 0);
    CHECK_EQ(weir_permits_release(a, &first), 0);
    CHECK(hold(b, "GET /slow user_id=7", &first));
    CHECK_EQ(weir_permits_release(a, &copy), 0); /* a second release frees no other permit */
    CHECK_EQ(left(a, "slow", "7"), 0);
    CHECK_EQ(weir_permits_release(a, &second), 1); /* whichever host acquired it */
    CHECK_EQ(weir_permits_renew(a, &third), 0);
    CHECK_EQ(third.count, 1);
    CHECK_EQ(weir_permits_release(a, &third), 1);
    CHECK_EQ(weir_permits_release(b, &first), 1);
    CHECK_EQ(left(a, "slow", "7"), 3);
    weir_close(a);
    weir_close(b);
}

TEST(tiers_soft_and_resets)
{
    if (!begin())
        return;
    weir *a = host("identity: { tier: header:X-Plan }\n"
                   "rules:\n" SLOTS("slow", ", limit: { free: 1, pro: 3, default: 1 }, lease: 60s")
                       SLOTS("soft", ", match: { path: /soft }, limit: 10, soft: 10%"));
    weir_permits permits[3], none;
    for (int i = 0; i < 3; i++)
        CHECK(hold(a, "GET / user_id=7 @x-plan=pro", &permits[i]));
    CHECK(!hold(a, "GET / user_id=7 @x-plan=free", &none));
    CHECK_EQ(weir_permits_release(a, &permits[0]), 1);
    CHECK_EQ(weir_permits_release(a, &permits[1]), 1);
    CHECK(!hold(a, "GET / user_id=7 @x-plan=free", &none));
    CHECK(hold(a, "GET / user_id=7 @x-plan=pro", &permits[1]));
    CHECK_EQ(weir_key_reset(a, "slow", "7", 1, (weir_time){0, 0}), 0);
    CHECK(hold(a, "GET / user_id=7 @x-plan=free", &none));
    CHECK_EQ(weir_permits_release(a, &permits[1]), 0);
    /* Soft: one more, marked. */
    int passed = 0;
    for (int i = 0; i < 12; i++) {
        char line[64];
        snprintf(line, sizeof line, "GET /soft user_id=%d @x-plan=pro", 9);
        passed += i >= 3 || hold(a, line, &none); /* the other rule lets three in */
    }
    CHECK_EQ(passed, 12);
    weir_close(a);
    a = host("rules:\n" SLOTS("soft", ", limit: 10, soft: 10%"));
    CHECK_EQ(weir_key_reset(a, "soft", "9", 1, (weir_time){0, 0}), 0);
    for (passed = 0; passed < 20 && hold(a, "GET / user_id=9", &none); passed++)
        CHECK_EQ(result.decision.flags, passed < 10 ? 0 : WEIR_OVER_SOFT);
    CHECK_EQ(passed, 11);
    weir_close(a);
}

TEST(reserve_over_all_hosts)
{
    static const char text[] =
        "rules:\n" SLOTS("slots", ", limit: 10, reserve: 20%") "  - { name: vip, match: { path: /vip }, priority: "
                                                               "critical, limit: 100000, window: 1h }\n";
    if (!begin())
        return;
    weir *a = host(text), *b = host(text);
    weir_permits permits[10], none;
    for (int i = 0; i < 8; i++)
        CHECK(hold(i % 2 ? a : b, "GET /any user_id=7", &permits[i]));
    CHECK(!hold(a, "GET /any user_id=7", &none)); /* denied by the reserve alone */
    CHECK_EQ(result.decided_by.reason, WEIR_BY_SHED);
    CHECK(hold(b, "GET /vip user_id=7", &permits[8]));
    CHECK(hold(a, "GET /vip user_id=7", &permits[9]));
    CHECK(!hold(b, "GET /vip user_id=7", &none));
    CHECK_EQ(result.decided_by.reason, WEIR_BY_LIMIT);
    CHECK(!hold(b, "GET /any user_id=7", &none)); /* none is available for anyone now */
    CHECK_EQ(result.decided_by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(none.count, 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weir_permits_release(a, &permits[i]), 1);
    CHECK_EQ(left(b, "slots", "7"), 10);
    weir_close(a);
    weir_close(b);
}

TEST(all_or_nothing_with_other_rules)
{
    static const char several[] = "rules:\n" SLOTS("slow", ", limit: 5") SLOTS(
        "wide", ", limit: 50") "  - { name: rate, key: '${user_id}', limit: 3, window: 1h, consistency: strict }\n"
                               "  - { name: near, key: '${user_id}', algorithm: concurrency, limit: 2 }\n";
    if (!begin())
        return;
    weir *a = host(several);
    weir_permits permits[3], none;
    CHECK(hold(a, "GET / user_id=7", &permits[0]));
    CHECK_EQ(permits[0].count, 3);
    CHECK(hold(a, "GET / user_id=7", &permits[1]));
    for (int i = 0; i < 20; i++) { /* the host's own limit denies */
        CHECK(!hold(a, "GET / user_id=7", &none));
        CHECK_EQ(strcmp(result.decided_by.rule, "near"), 0);
    }
    CHECK_EQ(left(a, "rate", "7"), 1);
    CHECK_EQ(left(a, "slow", "7"), 3);
    CHECK_EQ(weir_permits_release(a, &permits[0]), 3);
    CHECK(hold(a, "GET / user_id=7", &permits[0]));
    CHECK_EQ(weir_permits_release(a, &permits[1]), 3);
    for (int i = 0; i < 20; i++) { /* the rate denies */
        CHECK(!hold(a, "GET / user_id=7", &none));
        CHECK_EQ(none.count, 0);
    }
    CHECK_EQ(left(a, "slow", "7"), 4);
    CHECK_EQ(left(a, "wide", "7"), 49);
    CHECK_EQ(left(a, "near", "7"), 1);
    CHECK_EQ(weir_permits_release(a, &permits[0]), 3);
    CHECK_EQ(left(a, "slow", "7"), 5);
    weir_close(a);
}

TEST(late_local_denial_releases_the_permit)
{
    static const char both[] = "rules:\n" SLOTS(
        "far", ", limit: 5") "  - { name: near, algorithm: concurrency, limit: 1, key: '${user_id}' }\n";
    if (!begin())
        return;
    weir *a = host_with(both, "", WEIR_NO_CONNECT), *b = host(both);
    struct test_request r;
    weir_async *async = NULL;
    weir_permits permits, other;
    CHECK_EQ(weir_async_new(a, &async), 0);
    test_request(&r, "GET / user_id=7");
    r.query.permits = &permits;
    r.query.async = async;
    CHECK_EQ(weir_check_begin(a, &r.query), 1);
    CHECK_EQ(server_run(weir_async_request(async)), 0);
    r.query.async = NULL; /* another request is faster, without the store */
    r.query.permits = &other;
    CHECK_EQ(weir_check(a, &r.query, &result), 0);
    CHECK(weir_passes(&result.decision));
    CHECK_EQ(left(b, "far", "7"), 4);
    r.query.async = async;
    r.query.permits = &permits;
    CHECK_EQ(weir_check(a, &r.query, &result), 0);
    CHECK(!weir_passes(&result.decision));
    CHECK_EQ(permits.count, 0);
    struct weir__store_request *back = weir_async_rollback(async);
    CHECK(back && back->op_count == 1);
    if (back) {
        back->ops[0].kind = WEIR__OP_REFUND;
        CHECK_EQ(server_run(back), 0);
    }
    CHECK_EQ(left(b, "far", "7"), 5);
    weir_async_free(async);
    weir_close(a);
    weir_close(b);
}

TEST(shadows_and_more_permits_than_fit)
{
    char text[4096] = "rules:\n" SLOTS("a", ", limit: 2") SLOTS("b", ", limit: 1, shadow: true");
    if (!begin())
        return;
    weir *a = host(text);
    weir_permits permits[2], none;
    CHECK(hold(a, "GET / user_id=7", &permits[0]));
    CHECK_EQ(permits[0].count, 2);
    CHECK(hold(a, "GET / user_id=7", &permits[1]));
    CHECK_EQ(permits[1].count, 1);
    CHECK(result.shadow_denied);
    CHECK(!hold(a, "GET / user_id=7", &none));
    CHECK_EQ(weir_permits_release(a, &permits[0]), 2);
    CHECK_EQ(left(a, "b", "7"), 1);
    weir_close(a);

    for (int kinds = 1; kinds < 3; kinds++) { /* all in the store, or every other */
        strcpy(text, "rules:\n");
        for (int i = 0; i <= WEIR_PERMITS_MAX; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     "  - { name: r%d, algorithm: concurrency, limit: 1, consistency: %s, on_store_failure: closed }\n",
                     i, i % kinds ? "local" : "strict");
        server_do("FLUSHALL");
        a = host(text);
        for (int i = 0; i < 3; i++) {
            CHECK(!hold(a, "GET /", &none));
            CHECK_EQ(result.decided_by.error, WEIR_ETOOMANY);
            CHECK_EQ(none.count, 0);
        }
        CHECK_EQ(left(a, "r0", "*"), 1);
        CHECK_EQ(left(a, "r1", "*"), 1);
        weir_close(a);
    }
}

/* ---- Permits as text ---- */

TEST(text_is_valid_on_every_host_of_the_store)
{
    static const char both[] = "rules:\n" SLOTS("far", ", match: { path: /far }, limit: 5, lease: 20s")
        SLOTS("both",
              ", match: { path: /both }, limit: 5, lease: 20s") "  - { name: near, match: { path: /both }, algorithm: "
                                                                "concurrency, limit: 4, key: '${user_id}' }\n";
    if (!begin())
        return;
    weir *a = host(both), *b = host(both), *other = host_with(both, "prefix=other", 0), *alone = test_engine(both);
    char text[WEIR_PERMITS_TEXT_MAX + 1], wrong[WEIR_PERMITS_TEXT_MAX + 1];
    weir_permits permits, again;
    CHECK(hold(a, "GET /far user_id=7", &permits));
    size_t len = weir_permits_to_text(a, &permits, text);
    CHECK(len > 0 && len < 200);
    CHECK_EQ(weir_permits_from_text(other, (weir_text){text, len}, &again), WEIR_ELEASE);
    CHECK_EQ(weir_permits_from_text(alone, (weir_text){text, len}, &again), WEIR_ELEASE);
    CHECK_EQ(weir_permits_from_text(b, (weir_text){text, len}, &again), 0);
    CHECK_EQ(again.count, 1);
    CHECK_EQ(again.lease_ns, 20 * WEIR_SECOND);
    CHECK_EQ(weir_permits_renew(b, &again), 0);
    weir_permits others[2];
    CHECK(hold(a, "GET /far user_id=7", &others[0]));
    CHECK(hold(a, "GET /far user_id=8", &others[1]));
    for (size_t i = 0; i < len; i++) { /* whatever is changed: it is the same lease, or none */
        memcpy(wrong, text, len + 1);
        wrong[i] = wrong[i] == 'A' ? 'B' : 'A';
        if (weir_permits_from_text(b, (weir_text){wrong, len}, &again) == 0)
            CHECK(weir_permits_release(b, &again) <= 1);
        if (weir_permits_from_text(b, (weir_text){text, i}, &again) == 0)
            CHECK(weir_permits_release(b, &again) <= 1);
    }
    CHECK_EQ(left(a, "far", "7"), 4);
    CHECK_EQ(left(a, "far", "8"), 4);
    CHECK_EQ(weir_permits_release(a, &others[0]), 1);
    CHECK(hold(a, "GET /far user_id=7", &permits));
    len = weir_permits_to_text(a, &permits, text);
    CHECK_EQ(weir_permits_from_text(b, (weir_text){text, len}, &again), 0);
    CHECK_EQ(weir_permits_release(b, &again), 1);
    CHECK_EQ(left(a, "far", "7"), 5);
    CHECK_EQ(weir_permits_release(a, &permits), 0);

    /* With both kinds: on another host only the store's part is valid. */
    CHECK(hold(a, "GET /both user_id=7", &permits));
    CHECK_EQ(permits.count, 2);
    len = weir_permits_to_text(a, &permits, text);
    CHECK_EQ(weir_permits_from_text(b, (weir_text){text, len}, &again), 0);
    CHECK_EQ(again.count, 1);
    CHECK_EQ(weir_permits_release(b, &again), 1);
    CHECK_EQ(weir_permits_from_text(a, (weir_text){text, len}, &again), 0);
    CHECK_EQ(again.count, 2);
    CHECK_EQ(weir_permits_release(a, &again), 1);
    CHECK_EQ(left(a, "near", "7"), 4);
    weir_close(a);
    weir_close(b);
    weir_close(other);
    weir_close(alone);
}

static int64_t number_of(const char *command)
{
    redisReply *reply = server_reply(command);
    int64_t number = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1000;
    freeReplyObject(reply);
    return number;
}

/* A client writes its own text around an identity that it has, or around an invented one. */
TEST(forged_text_gets_only_what_the_rule_allows)
{
    static const char text_of[] = "rules:\n" SLOTS("far", ", match: { path: /far }, limit: 2, lease: 20s") SLOTS(
        "tiers",
        ", match: { path: /tiers }, limit: { free: 1, pro: 3, default: 1 }, lease: 30s") "  - { name: bucket, key: "
                                                                                         "'${user_id}', limit: 5, "
                                                                                         "window: 1h, consistency: "
                                                                                         "strict, match: { path: "
                                                                                         "/bucket } }\n";
    if (!begin())
        return;
    weir *a = host(text_of), *b = host(text_of);
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    weir_permits permits, forged, again;
    CHECK(hold(a, "GET /bucket user_id=7", &permits));
    CHECK(hold(a, "GET /far user_id=7", &permits));
    forged = permits;
    forged.lease[0].for_us = INT64_C(86400000000);
    forged.lease[0].word = 1000;
    CHECK_EQ(weir_permits_from_text(b, (weir_text){text, weir_permits_to_text(a, &forged, text)}, &again), 0);
    CHECK_EQ(again.lease[0].for_us, 20000000);
    CHECK_EQ(again.lease[0].word, 2);
    CHECK_EQ(again.lease_ns, 20 * WEIR_SECOND);
    CHECK_EQ(weir_permits_renew(b, &again), 0);
    int64_t ttl = number_of("PTTL weir:far:7");
    CHECK(ttl > 0 && ttl <= 20002);
    forged.lease[0].for_us = 5000000; /* a shorter lease only affects the client itself */
    CHECK_EQ(weir_permits_from_text(b, (weir_text){text, weir_permits_to_text(a, &forged, text)}, &again), 0);
    CHECK_EQ(again.lease[0].for_us, 5000000);

    /* Other names: of a rule with another algorithm, of none, and of one whose name only begins so. */
    static const char *const names[] = {"weir:bucket:7", "weir:none:7", "weir:fa:7",
                                        "weir:far",      "weir::hosts", "far:7"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        forged = permits;
        forged.names_len = (uint32_t)strlen(names[i]);
        memcpy(forged.names, names[i], forged.names_len);
        forged.lease[0].place = forged.names_len;
        CHECK_EQ(weir_permits_from_text(b, (weir_text){text, weir_permits_to_text(a, &forged, text)}, &again),
                 WEIR_ELEASE);
    }
    CHECK_EQ(left(a, "bucket", "7"), 4);
    CHECK_EQ(weir_permits_release(a, &permits), 1);

    CHECK(hold(a, "GET /tiers user_id=7 tier=pro", &permits));
    CHECK_EQ(weir_permits_from_text(b, (weir_text){text, weir_permits_to_text(a, &permits, text)}, &again), 0);
    CHECK_EQ(again.lease[0].for_us, 30000000);
    CHECK_EQ(again.lease[0].word, permits.lease[0].word);
    CHECK_EQ(weir_permits_release(b, &again), 1);
    weir_close(a);
    weir_close(b);
}

/* ---- Lost data, and an unavailable store ---- */

TEST(permit_lost_by_the_store_is_acquired_again)
{
    if (!begin())
        return;
    weir *a = host(rules);
    weir_permits permits[3], others[3];
    for (int i = 0; i < 3; i++)
        CHECK(hold(a, "GET /slow user_id=7", &permits[i]));
    server_do("FLUSHALL");
    CHECK(hold(a, "GET /slow user_id=7", &others[0])); /* acquired before the loss is noticed */
    CHECK_EQ(weir_permits_renew(a, &permits[0]), 0);
    CHECK_EQ(weir_permits_renew(a, &permits[1]), 0);
    CHECK_EQ(weir_permits_renew(a, &permits[2]), WEIR_ELEASE); /* no room; tried again with the next renewal */
    CHECK_EQ(permits[2].count, 1);
    CHECK(!hold(a, "GET /slow user_id=7", &others[1]));
    CHECK_EQ(weir_permits_release(a, &others[0]), 1);
    CHECK_EQ(weir_permits_renew(a, &permits[2]), 0);
    CHECK(!hold(a, "GET /slow user_id=7", &others[1]));
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir_permits_release(a, &permits[i]), 1);

    /* A permit that was parsed from a text is not acquired again. */
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    weir *async_engine = host_with(rules, "", WEIR_NO_CONNECT);
    weir_async *async;
    CHECK_EQ(weir_async_new(async_engine, &async), 0);
    CHECK(hold(a, "GET /slow user_id=7", &permits[0]));
    size_t len = weir_permits_to_text(a, &permits[0], text);
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        CHECK_EQ(weir_permits_from_text(async_engine, (weir_text){text, len}, &permits[1]), 0);
        CHECK_EQ(weir_permits_renew_begin(async_engine, &permits[1], false, async), 1);
        CHECK_EQ(server_run(weir_async_request(async)), 0);
        CHECK_EQ(weir_permits_renew_finish(async_engine, &permits[1], false, async), 0);
        CHECK_EQ(permits[1].count, !forgotten);
        CHECK(weir_async_rollback(async) == NULL);
        weir_async_clear(async);
        server_do("FLUSHALL");
    }
    weir_async_free(async);
    weir_close(async_engine);
    weir_close(a);
}

TEST(release_without_waiting)
{
    if (!begin())
        return;
    weir *a =
        host_with("rules:\n" SLOTS(
                      "far", ", limit: 5") "  - { name: near, algorithm: concurrency, limit: 4, key: '${user_id}' }\n",
                  "", WEIR_NO_CONNECT);
    weir_async *async;
    weir_permits permits;
    struct test_request r;
    CHECK_EQ(weir_async_new(a, &async), 0);
    test_request(&r, "GET / user_id=7");
    r.query.async = async;
    r.query.permits = &permits;
    CHECK_EQ(weir_check_begin(a, &r.query), 1);
    CHECK_EQ(server_run(weir_async_request(async)), 0);
    CHECK_EQ(weir_check(a, &r.query, &result), 0);
    CHECK_EQ(permits.count, 2);
    CHECK(weir_async_rollback(async) == NULL);
    weir_async_clear(async);
    CHECK_EQ(weir_permits_release_detached(a, &permits, async), 1);
    CHECK_EQ(permits.count, 0);
    struct weir__store_request *back = weir_async_rollback(async);
    CHECK(back && back->op_count == 1 && back->ops[0].taken && back->ops[0].lease[0]);
    CHECK_EQ(weir_permits_release_begin(a, &permits, async), 0);
    CHECK_EQ(weir_permits_release_detached(a, &permits, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_permits_release_finish(a, &permits, NULL), 0); /* as weir_permits_release */
    /* No store request was sent, and the engine cannot send one. */
    weir_async_clear(async);
    CHECK_EQ(weir_check_begin(a, &r.query), 1);
    CHECK_EQ(server_run(weir_async_request(async)), 0);
    CHECK_EQ(weir_check(a, &r.query, &result), 0);
    CHECK_EQ(weir_permits_renew(a, &permits), WEIR_ESTOREBREAKER);
    CHECK_EQ(permits.count, 2);
    CHECK_EQ(weir_permits_release(a, &permits), WEIR_ESTOREBREAKER);
    CHECK_EQ(permits.count, 0);
    weir_async_free(async);
    weir_close(a);
}

TEST(policies_when_the_store_is_unavailable)
{
    static const char policies[] = "rules:\n" SLOTS("near", ", match: { path: /near }, limit: 2")
        SLOTS("open", ", match: { path: /open }, limit: 2, on_store_failure: open")
            SLOTS("shut", ", match: { path: /shut }, limit: 2, on_store_failure: closed");
    weir_options kind = {
        .segment = {.size = 8 << 20}, .rules_text = policies, .store = "redis+unix:///nonexistent/socket"};
    weir *a = NULL;
    weir_permits permits[3], none;
    CHECK_EQ(weir_store_use(), 0);
    CHECK_EQ(weir_open(&kind, &a), 0);
    CHECK(hold(a, "GET /near user_id=7", &permits[0])); /* the host's own permits */
    CHECK(hold(a, "GET /near user_id=7", &permits[1]));
    CHECK_EQ(permits[0].count, 1);
    CHECK_EQ(permits[0].names_len, 0);
    CHECK(!hold(a, "GET /near user_id=7", &none));
    CHECK_EQ(weir_permits_renew(a, &permits[0]), 0);
    CHECK_EQ(weir_permits_release(a, &permits[0]), 1);
    CHECK(hold(a, "GET /near user_id=7", &permits[0]));
    for (int i = 0; i < 5; i++) {
        CHECK(hold(a, "GET /open user_id=7", &none));
        CHECK_EQ(none.count, 0);
        CHECK(!hold(a, "GET /shut user_id=7", &none));
    }
    CHECK_EQ(result.decided_by.reason, WEIR_BY_FAILURE);
    weir_close(a);
}

/* ---- Rules ---- */

static char diagnostics[512];

static void collect_diagnostic(void *context, const weir_diagnostic *d)
{
    (void)context;
    snprintf(diagnostics, sizeof diagnostics, "%s", d->message);
}

TEST(eventual_consistency_is_refused_with_the_rule_name)
{
    static const char text[] = "rules:\n  - { name: a, algorithm: concurrency, limit: 1, consistency: eventual }\n";
    weir_rules *read;
    CHECK_EQ(weir_rules_parse("x", text, strlen(text), collect_diagnostic, NULL, &read), WEIR_ERULES);
    CHECK(strstr(diagnostics, "use strict") != NULL);
    weir *a = host_with("rules:\n  - { name: a, algorithm: concurrency, limit: 1 }\n", "", WEIR_NO_CONNECT);
    weir_permits permits;
    CHECK(hold(a, "GET /", &permits)); /* this program's default is WEIR_LOCAL */
    CHECK_EQ(permits.names_len, 0);
    weir_close(a);
}

TEST(decisions_of_the_store_are_in_the_local_statistics)
{
    if (!begin())
        return;
    weir *a = host(
        "rules:\n" SLOTS("slow", ", match: { path: /slow }, limit: 2") "  - { name: rate, match: { path: /rate }, "
                                                                       "limit: 3, window: 1h, consistency: strict }\n");
    weir_permits permits;
    weir_stats stats;
    for (int i = 0; i < 5; i++) {
        (void)hold(a, "GET /slow user_id=1", &permits);
        (void)hold(a, "GET /rate", &permits);
    }
    CHECK_EQ(weir_stats_read(weir_engine_segment(a), &stats), 0);
    CHECK_EQ(stats.allowed, 5);
    CHECK_EQ(stats.denied, 5);
    weir_close(a);
}

TEST_MAIN
