/* Typical configurations: the worked scenarios of the rules, each with numbers that can be checked by hand. */
#include "../../engine.h"

#define IDENTITY "identity: { user_id: header:X-User-Id, api_key: header:X-API-Key, tier: header:X-Plan }\n"

TEST(a_thousand_an_hour_per_user)
{
    weir *w = test_engine(IDENTITY
                          "rules:\n"
                          "  - { name: api, match: { path: /api/* }, key: 'user:${user_id}', limit: 1000, window: 1h, "
                          "algorithm: sliding_window_counter }\n");
    CHECK_EQ(test_passing(w, "GET /api/x @X-User-Id=1", 0, 1500), 1000);
    CHECK_EQ(test_passing(w, "GET /api/y @X-User-Id=2", 0, 1500), 1000);
    CHECK(!test_passes(w, "GET /api/x @X-User-Id=1", 1));
    CHECK(test_passes(w, "GET /other @X-User-Id=1", 1));
    CHECK(test_passes(w, "GET /api/x @X-User-Id=1", 2 * 3600 + 1));
    weir_close(w);
}

TEST(login_five_a_minute_per_address)
{
    weir *w = test_engine("rules:\n"
                          "  - name: login\n"
                          "    match: { path: /auth/login, method: POST }\n"
                          "    key: ip:${client_ip}\n"
                          "    limit: 5\n"
                          "    window: 1m\n"
                          "    algorithm: sliding_window_log\n");
    CHECK_EQ(test_passing(w, "POST /auth/login ip=192.0.2.1", 0, 20), 5);
    CHECK_EQ(test_passing(w, "POST /auth/login ip=192.0.2.2", 0, 20), 5);
    CHECK_EQ(test_passing(w, "GET /auth/login ip=192.0.2.1", 0, 20), 20);
    CHECK_EQ(test_passing(w, "POST /auth/%6cogin ip=192.0.2.1", 1, 20), 0);
    CHECK_EQ(test_passing(w, "POST //auth/x/../login?a=b ip=192.0.2.1", 1, 20), 0);
    weir_result a = test_check(w, "POST /auth/login ip=192.0.2.1", 20);
    CHECK_EQ(a.decision.verdict, WEIR_DENY);
    CHECK_EQ(a.decision.retry_after_ns, 40 * WEIR_SECOND);
    CHECK_EQ(a.status, 429);
    CHECK(strcmp(a.decided_by.rule, "login") == 0 && strcmp(a.decided_by.key, "ip:192.0.2.1") == 0);
    CHECK_EQ(test_passing(w, "POST /auth/login ip=192.0.2.1", 60, 20), 5);
    weir_close(w);
}

TEST(a_hundred_a_day_per_api_key)
{
    weir *w = test_engine(
        IDENTITY
        "rules:\n  - { name: keys, key: 'key:${api_key}', limit: 100, window: 1d, algorithm: fixed_window }\n");
    CHECK_EQ(test_passing(w, "GET /x @X-API-Key=a", 10, 200), 100);
    CHECK_EQ(test_passing(w, "GET /x @X-API-Key=b", 10, 200), 100);
    CHECK_EQ(test_passing(w, "GET /x", 10, 200), 200); /* no key: the rule is skipped */
    CHECK_EQ(test_passing(w, "GET /x @X-API-Key=a", 86399, 5), 0);
    CHECK_EQ(test_passing(w, "GET /x @X-API-Key=a", 86401, 200), 100);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(w, "keys", false, &stats), 0);
    CHECK_EQ(stats.missing_key, 200);
    CHECK_EQ(stats.allowed, 300);
    CHECK_EQ(stats.denied, 305);
    weir_close(w);
}

TEST(search_twenty_a_minute_per_user)
{
    weir *w = test_engine(
        IDENTITY
        "rules:\n  - { name: search, match: { path: /search }, key: 'u:${user_id}', limit: 20, window: 60 }\n");
    CHECK_EQ(test_passing(w, "GET /search?q=x user_id=9", 0, 30), 20);
    CHECK_EQ(test_passing(w, "GET /search?q=y user_id=9", 3, 30), 1); /* one unit is refilled every three seconds */
    weir_close(w);
}

static const char marketing[] = "domain: messaging\n"
                                "descriptors:\n"
                                "  - key: message_type\n"
                                "    value: marketing\n"
                                "    rate_limit: { unit: day, requests_per_unit: 5 }\n";

TEST(five_marketing_messages_a_day)
{
    weir *w = test_engine(marketing);
    weir_descriptor_entry entry = {{"message_type", 12}, {"marketing", 9}};
    weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    weir_outcome outcome;
    weir_descriptor_query query = {.domain = {"messaging", 9},
                                   .descriptors = &descriptor,
                                   .descriptor_count = 1,
                                   .outcomes = &outcome,
                                   .now = test_seconds(0)};
    weir_result result;
    int passed = 0;
    for (int i = 0; i < 9; i++) {
        CHECK_EQ(weir_check_descriptors(w, &query, &result), 0);
        passed += weir_passes(&result.decision);
    }
    CHECK_EQ(passed, 5);
    CHECK_EQ(outcome.decision.verdict, WEIR_DENY);
    CHECK_EQ(outcome.decision.limit, 5);
    query.now = test_seconds(86400);
    CHECK_EQ(weir_check_descriptors(w, &query, &result), 0);
    CHECK(weir_passes(&result.decision));
    entry.value = (weir_text){"other", 5};
    CHECK_EQ(weir_check_descriptors(w, &query, &result), 0);
    CHECK_EQ(outcome.reason, WEIR_BY_NOTHING);
    weir_close(w);
}

TEST(two_posts_a_second_and_ten_accounts_a_day)
{
    weir *w = test_engine(
        IDENTITY "rules:\n"
                 "  - { name: posts, match: { path: /posts, method: POST }, key: 'u:${user_id}', limit: 2, window: 1s, "
                 "algorithm: fixed_window }\n"
                 "  - { name: accounts, match: { path: /accounts, method: POST }, key: 'ip:${client_ip}', limit: 10, "
                 "window: 1d, algorithm: sliding_window_log }\n");
    CHECK_EQ(test_passing(w, "POST /posts user_id=1", 0.1, 5), 2);
    CHECK_EQ(test_passing(w, "POST /posts user_id=1", 1.1, 5), 2);
    CHECK_EQ(test_passing(w, "POST /accounts ip=2001:db8::1", 0, 30), 10);
    CHECK_EQ(test_passing(w, "POST /accounts ip=2001:db8::ffff:1", 0, 30), 0); /* of the same /64 */
    CHECK_EQ(test_passing(w, "POST /accounts ip=2001:db8:0:1::1", 0, 30), 10);
    CHECK_EQ(test_passing(w, "POST /accounts ip=::ffff:192.0.2.1", 0, 30), 10);
    CHECK_EQ(test_passing(w, "POST /accounts ip=192.0.2.1", 0, 30), 0);
    weir_close(w);
}

TEST(tiers)
{
    weir *w = test_engine(IDENTITY "rules:\n"
                                   "  - name: api\n"
                                   "    key: user:${user_id}\n"
                                   "    limit: { free: 10, basic: 100, pro: 1000, enterprise: unlimited, default: 5 }\n"
                                   "    window: 1h\n"
                                   "    algorithm: fixed_window\n");
    CHECK_EQ(test_passing(w, "GET /x user_id=1 @X-Plan=free", 0, 2000), 10);
    CHECK_EQ(test_passing(w, "GET /x user_id=2 @X-Plan=basic", 0, 2000), 100);
    CHECK_EQ(test_passing(w, "GET /x user_id=3 @X-Plan=pro", 0, 2000), 1000);
    CHECK_EQ(test_passing(w, "GET /x user_id=4 @X-Plan=enterprise", 0, 2000), 2000);
    CHECK_EQ(test_passing(w, "GET /x user_id=5 @X-Plan=gold", 0, 2000), 5);
    CHECK_EQ(test_passing(w, "GET /x user_id=6", 0, 2000), 5);
    /* An upgrade of the tier keeps the consumed units. */
    CHECK_EQ(test_passing(w, "GET /x user_id=1 @X-Plan=basic", 1, 2000), 90);
    weir_close(w);
}

TEST(per_address_and_per_user_together)
{
    weir *w = test_engine(
        IDENTITY "rules:\n"
                 "  - { name: by-ip, key: 'ip:${client_ip}', limit: 30, window: 1m, algorithm: fixed_window }\n"
                 "  - { name: by-user, key: 'user:${user_id}', limit: 10, window: 1m, algorithm: fixed_window }\n");
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.1 user_id=1", 0, 50), 10);
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.1 user_id=2", 0, 50), 10);
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.1 user_id=3", 0, 50),
             10); /* the denied ones consumed nothing under the address */
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.1 user_id=4", 0, 50), 0);
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.2 user_id=4", 0, 50), 10);
    weir_result a = test_check(w, "GET /x ip=192.0.2.1 user_id=5", 1);
    CHECK(strcmp(a.decided_by.rule, "by-ip") == 0);
    a = test_check(w, "GET /x ip=192.0.2.9 user_id=9", 1);
    CHECK(strcmp(a.decided_by.rule, "by-user") == 0); /* the tightest rule is reported */
    CHECK_EQ(a.decision.remaining, 9);
    CHECK_EQ(a.matched, 2);
    weir_close(w);
}

TEST(several_limits_in_one_rule)
{
    weir *w = test_engine("rules:\n"
                          "  - name: api\n"
                          "    key: ip:${client_ip}\n"
                          "    limits: [ { limit: 50, window: 1h, algorithm: fixed_window }, { limit: 10, window: 1m, "
                          "algorithm: fixed_window } ]\n");
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.1", 0, 30), 10);
    int passed = 0;
    for (int minute = 1; minute < 10; minute++)
        passed += test_passing(w, "GET /x ip=192.0.2.1", minute * 60, 30);
    CHECK_EQ(passed, 40);
    weir_result a = test_check(w, "GET /x ip=192.0.2.1", 700);
    CHECK(strcmp(a.decided_by.rule, "api/1h") == 0);
    weir_close(w);
}

TEST(shadow_rule_with_an_enforced_rule)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: api, key: 'ip:${client_ip}', limit: 10, window: 1m, algorithm: fixed_window }\n"
        "  - { name: api, key: 'ip:${client_ip}', limit: 4, window: 1m, algorithm: fixed_window, shadow: true }\n");
    int shadowed = 0;
    for (int i = 0; i < 15; i++)
        shadowed += test_check(w, "GET /x ip=192.0.2.1", 0).shadow_denied;
    CHECK_EQ(shadowed, 6); /* of the ten that passed */
    weir_rule_stats real, shadow;
    CHECK_EQ(weir_rule_stats_read(w, "api", false, &real), 0);
    CHECK_EQ(weir_rule_stats_read(w, "api", true, &shadow), 0);
    CHECK_EQ(real.allowed, 10);
    CHECK_EQ(real.denied, 5);
    CHECK_EQ(shadow.allowed, 4);
    CHECK_EQ(shadow.denied, 11);
    weir_close(w);
}

TEST(wider_shadow_counts_requests_that_a_narrow_rule_denies)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: api, key: 'ip:${client_ip}', limit: 4, window: 1m, algorithm: fixed_window }\n"
        "  - { name: api, key: 'ip:${client_ip}', limit: 10, window: 1m, algorithm: fixed_window, shadow: true }\n");
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.1", 0, 15), 4);
    weir_rule_stats shadow;
    CHECK_EQ(weir_rule_stats_read(w, "api", true, &shadow), 0);
    CHECK_EQ(shadow.allowed, 10);
    CHECK_EQ(shadow.denied, 5);
    weir_close(w);
}

TEST(lists)
{
    weir *w = test_engine(
        "allow: { networks: [10.0.0.0/8], keys: ['ip:192.0.2.7'] }\n"
        "block: { networks: [203.0.113.0/24], keys: ['ip:192.0.2.6*'] }\n"
        "rules:\n"
        "  - { name: api, key: 'ip:${client_ip}', limit: 1, window: 1m, block: { keys: ['ip:198.51.100.1'] } }\n");
    CHECK_EQ(test_passing(w, "GET /x ip=10.1.2.3", 0, 5), 5);
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.7", 0, 5), 5);
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.8", 0, 5), 1);
    CHECK_EQ(test_passing(w, "GET /x ip=203.0.113.9", 0, 5), 0);
    CHECK_EQ(test_passing(w, "GET /x ip=192.0.2.66", 0, 5), 0);
    CHECK_EQ(test_passing(w, "GET /x ip=198.51.100.1", 0, 5), 0);
    weir_result a = test_check(w, "GET /x ip=203.0.113.9", 0);
    CHECK_EQ(a.decided_by.reason, WEIR_BY_BLOCK_LIST);
    CHECK_EQ(a.decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(a.decision.retry_after_ns, -1);
    weir_close(w);
}

TEST(missing_keys)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: deny, match: { path: /deny }, key: '${user_id}', limit: 5, window: 1m, on_missing_key: deny }\n"
        "  - { name: share, match: { path: /share }, key: '${user_id}', limit: 5, window: 1m, on_missing_key: share }\n"
        "  - { name: skip, match: { path: /skip }, key: '${user_id}', limit: 5, window: 1m }\n");
    CHECK_EQ(test_passing(w, "GET /deny", 0, 9), 0);
    CHECK_EQ(test_passing(w, "GET /share", 0, 9), 5);
    CHECK_EQ(test_passing(w, "GET /share user_id=%missing", 0, 9),
             5); /* the shared counter cannot be addressed by name */
    CHECK_EQ(test_passing(w, "GET /skip", 0, 9), 9);
    const char *names[] = {"deny", "share", "skip"};
    uint64_t missing[] = {9, 0, 9};
    for (int i = 0; i < 3; i++) {
        weir_rule_stats stats;
        CHECK_EQ(weir_rule_stats_read(w, names[i], false, &stats), 0);
        CHECK_EQ(stats.missing_key, missing[i]);
    }
    weir_close(w);
}

TEST(costs)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: paths, match: { path: /api/* }, key: a, limit: 50, window: 1h, cost: { '/api/export': 20, "
        "default: 1 }, "
        "algorithm: fixed_window }\n"
        "  - { name: header, match: { path: /llm }, key: a, limit: 100, window: 1h, cost: { from: 'header:X-Tokens', "
        "default: 10, max: 60 }, algorithm: fixed_window }\n");
    CHECK(test_passes(w, "GET /api/export", 0));
    CHECK(test_passes(w, "GET /api/export", 0));
    CHECK(!test_passes(w, "GET /api/export", 0));
    CHECK_EQ(test_passing(w, "GET /api/x", 0, 30), 10);
    CHECK_EQ(test_check(w, "GET /llm @X-Tokens=55", 0).decision.remaining, 45);
    CHECK_EQ(test_check(w, "GET /llm @X-Tokens=-5", 0).decision.remaining, 35); /* an invalid cost is the default */
    CHECK_EQ(test_check(w, "GET /llm", 0).decision.remaining, 25);

    struct test_request r;
    weir_result a;
    test_request(&r, "GET /llm");
    r.query.now = test_seconds(0);
    r.query.has_cost = true;
    r.query.cost = 0;
    CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(a.decision.remaining, 25);
    r.query.cost = -5;
    CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(a.decision.remaining, 30);
    r.query.cost = 31;
    CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(a.decision.verdict, WEIR_DENY);
    r.query.cost = 101;
    CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(a.decision.verdict, WEIR_NEVER_FITS);
    r.query.cost = 30;
    r.query.dry_run = true;
    CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(a.decision.verdict, WEIR_ALLOW);
    weir_close(w);
}

TEST(which_rule_is_reported)
{
    weir *w = test_engine("rules:\n"
                          "  - { name: short, key: a, limit: 1, window: 1s, algorithm: fixed_window }\n"
                          "  - { name: long, key: a, limit: 1, window: 1h, algorithm: fixed_window }\n"
                          "  - { name: mild, match: { path: /p }, key: a, limit: 1, window: 2s, algorithm: "
                          "fixed_window, report_priority: 5, response: "
                          "{ status: 503, message: 'later', headers: [retry-after] } }\n");
    CHECK(test_passes(w, "GET /p", 0));
    weir_result a = test_check(w, "GET /x", 0.5);
    CHECK(strcmp(a.decided_by.rule, "long") == 0); /* the longest wait */
    a = test_check(w, "GET /p", 0.5);
    CHECK(strcmp(a.decided_by.rule, "mild") == 0); /* by report_priority */
    CHECK_EQ(a.status, 503);
    CHECK_EQ(a.headers, WEIR_HEADERS_RETRY_AFTER);
    CHECK(a.decided_by.decision.retry_after_ns < 2 * WEIR_SECOND);
    weir_close(w);
}

/* Whichever rule is reported: a client that waits for retry_after passes, and without a chance there is no
 * retry_after. */
TEST(retry_after_covers_all_denying_rules)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: long, key: a, limit: 1, window: 1h, algorithm: sliding_window_log }\n"
        "  - { name: loud, key: a, limit: 1, window: 2s, algorithm: sliding_window_log, report_priority: 5 }\n"
        "  - { name: tried, key: a, limit: 1, window: 1d, shadow: true }\n"
        "  - { name: none, match: { path: /none }, limit: 0 }\n");
    CHECK(test_passes(w, "GET /p", 0));
    weir_result a = test_check(w, "GET /p", 1);
    CHECK(strcmp(a.decided_by.rule, "loud") == 0);
    CHECK_EQ(a.decided_by.decision.retry_after_ns, WEIR_SECOND);
    CHECK_EQ(a.decision.retry_after_ns, 3599 * WEIR_SECOND);
    a = test_check(w, "GET /none", 1);
    CHECK(strcmp(a.decided_by.rule, "loud") == 0);
    CHECK_EQ(a.decision.retry_after_ns, -1);
    CHECK(test_passes(w, "GET /p", 3600));
    weir_close(w);
}

/* If several rules deny together nothing is taken; the segment's statistics count each denial once. */
TEST(each_denying_rule_is_counted_once)
{
    weir *w =
        test_engine("rules:\n"
                    "  - { name: a, match: { path: /two }, limit: 2, window: 1d }\n"
                    "  - { name: b, match: { path: /two }, limit: 9, window: 1d }\n"
                    "  - { name: c, match: { path: /count }, limit: 1, window: 1d, algorithm: sliding_window_log,\n"
                    "      count_rejected: true }\n"
                    "  - { name: d, match: { path: /count }, limit: 1, window: 1d }\n"
                    "  - { name: e, match: { path: /dear }, limit: 5, window: 1d, cost: 6 }\n"
                    "  - { name: f, match: { path: /dear }, limit: 9, window: 1d }\n");
    weir_stats stats;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(test_check(w, "GET /two", 0).decision.verdict, i < 2 ? WEIR_ALLOW : WEIR_DENY);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(test_check(w, "GET /count", 0).decision.verdict, i < 1 ? WEIR_ALLOW : WEIR_DENY);
    CHECK_EQ(test_check(w, "GET /dear", 0).decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(weir_key_block(w, "b", "*", 1, WEIR_DAY, test_seconds(0)), 0);
    CHECK_EQ(test_check(w, "GET /two", 0).decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(weir_stats_read(weir_engine_segment(w), &stats), 0);
    CHECK_EQ(stats.allowed, 2 * 2 + 2 * 1);
    CHECK_EQ(stats.denied, 3 + 2 * 2 + 1); /* by a; by c and d; by a, beside a blocked one */
    CHECK_EQ(stats.never_fits, 1);
    CHECK_EQ(stats.blocked, 1);
    weir_close(w);
}

TEST(limit_zero_and_unlimited)
{
    weir *w = test_engine("rules:\n"
                          "  - { name: gone, match: { path: /v1/* }, limit: 0, window: 1s }\n"
                          "  - { name: free, match: { path: /free }, limit: unlimited, window: 1s }\n");
    weir_result a = test_check(w, "GET /v1/x", 0);
    CHECK_EQ(a.decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(a.decided_by.reason, WEIR_BY_BAN);
    CHECK_EQ(a.decision.retry_after_ns, -1);
    a = test_check(w, "GET /free", 0);
    CHECK_EQ(a.decided_by.reason, WEIR_BY_UNLIMITED);
    CHECK(weir_passes(&a.decision));
    a = test_check(w, "GET /none", 0);
    CHECK_EQ(a.decided_by.reason, WEIR_BY_NOTHING);
    CHECK_EQ(a.matched, 0);
    weir_close(w);
}

TEST(count_rejected_counts_what_others_deny)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: log, key: a, limit: 10, window: 1m, algorithm: sliding_window_log, count_rejected: true }\n"
        "  - { name: narrow, key: a, limit: 2, window: 10s, algorithm: fixed_window }\n");
    CHECK_EQ(test_passing(w, "GET /x", 0, 10), 2);
    weir_result a =
        test_check(w, "GET /x", 30); /* the narrow one's window is new; the log is full of denied requests */
    CHECK(!weir_passes(&a.decision) && strcmp(a.decided_by.rule, "log") == 0);
    CHECK_EQ(test_passing(w, "GET /x", 91, 1), 1);
    weir_close(w);
}

TEST(trusted_proxies)
{
    weir *w = test_engine("identity: { client_ip: { trusted_proxies: [10.0.0.0/8] } }\n"
                          "rules: [ { name: a, key: '${client_ip}', limit: 2, window: 1m } ]\n");
    CHECK_EQ(test_passing(w, "GET / ip=10.0.0.1 @X-Forwarded-For=192.0.2.1,10.0.0.2", 0, 5), 2);
    CHECK_EQ(test_passing(w, "GET / ip=10.0.0.1 @X-Forwarded-For=1.2.3.4,192.0.2.1", 0, 5),
             0); /* what a client forges is left of it */
    CHECK_EQ(test_passing(w, "GET / ip=192.0.2.9 @X-Forwarded-For=192.0.2.1", 0, 5), 2);
    CHECK(strcmp(test_check(w, "GET / ip=192.0.2.9 @X-Forwarded-For=192.0.2.1", 0).decided_by.key, "192.0.2.9") == 0);
    weir_close(w);
}

/* A unit that a waiting client took in one window and refunds in the next does not belong to the next. */
TEST(late_refund_of_a_queue_position)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: queue, key: a, limit: 1, window: 1s, burst: 20, algorithm: leaky_bucket, on_limit: delay }\n"
        "  - { name: window, key: a, limit: 5, window: 4s, algorithm: fixed_window }\n"
        "  - { name: bucket, key: a, limit: 5, window: 4s }\n");
    struct test_request r;
    weir_result a;
    CHECK_EQ(test_passing(w, "GET /", 3, 4), 4);
    CHECK_EQ(test_passing(w, "GET /", 8, 9), 5);
    test_request(&r, "GET /");
    r.query.has_cost = true;
    r.query.cost = -1;
    r.query.now = test_seconds(3); /* the time of the take */
    for (int i = 0; i < 4; i++)
        CHECK_EQ(weir_check(w, &r.query, &a), 0);
    CHECK_EQ(test_passing(w, "GET /", 8, 9), 0);
    weir_close(w);
}

TEST(delays_add_up_to_the_longest)
{
    weir *w = test_engine(
        "rules:\n"
        "  - { name: slow, key: a, limit: 1, window: 1s, burst: 10, algorithm: leaky_bucket, on_limit: delay }\n"
        "  - { name: slower, key: a, limit: 1, window: 2s, burst: 10, algorithm: leaky_bucket, on_limit: delay }\n");
    CHECK_EQ(test_check(w, "GET /", 0).decision.verdict, WEIR_ALLOW);
    weir_result a = test_check(w, "GET /", 0);
    CHECK_EQ(a.decision.verdict, WEIR_DELAY);
    CHECK_EQ(a.decision.delay_ns, 2 * WEIR_SECOND);
    CHECK_EQ(a.on_limit, WEIR_ON_LIMIT_DELAY);
    weir_close(w);
}

TEST_MAIN
