/* Tokens, rights, sessions, the login throttle; keys and statistics; the OpenAPI description. */
#include "service.h"

static void make_token(struct service *s, const char *role, char token[128], char id[32])
{
    char body[128];
    const char *user = s->user;
    s->user = "tester";
    snprintf(body, sizeof body, "{\"name\":\"%s-token\",\"role\":\"%s\"}", role, role);
    CHECK_EQ(rest(s, "POST /v1/tokens", body), 201);
    snprintf(token, 128, "%s", word(s, "token"));
    snprintf(id, 32, "%s", word(s, "id"));
    s->user = user;
}

BOTH(rights_follow_the_role)
{
    static const struct {
        const char *what, *body;
        enum weir__role least;
    } cases[] = {{"GET /v1/rules", NULL, WEIR__VIEWER},
                 {"GET /v1/audit", NULL, WEIR__VIEWER},
                 {"POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\n", WEIR__VIEWER},
                 {"POST /v1/rules", "name: a\nlimit: 1\nwindow: 1m\n", WEIR__EDITOR},
                 {"POST /v1/rules/a/publish", "{\"stage\":\"draft\"}", WEIR__EDITOR},
                 {"DELETE /v1/rules/a", NULL, WEIR__EDITOR},
                 {"GET /v1/keys/a/b", NULL, WEIR__OPERATOR},
                 {"PUT /v1/keys/a/b/block", "{\"for\":\"1m\"}", WEIR__OPERATOR},
                 {"GET /v1/tokens", NULL, WEIR__OPERATOR},
                 {"POST /v1/tokens", "{\"name\":\"x\",\"role\":\"viewer\"}", WEIR__OPERATOR},
                 {"POST /v1/login-links", "{\"name\":\"x\",\"role\":\"viewer\"}", WEIR__OPERATOR},
                 {"DELETE /v1/tokens/x", NULL, WEIR__OPERATOR}};
    struct service s = {0};
    char id[32];
    service_open(&s, on_postgres);
    for (int role = WEIR__VIEWER; role <= WEIR__OPERATOR; role++) {
        make_token(&s, weir__role_name((enum weir__role)role), s.token, id);
        s.user = NULL;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            int status = rest(&s, cases[i].what, cases[i].body);
            CHECK_EQ(status == 403, (int)cases[i].least > role);
            CHECK(status != 401 && status != 429);
        }
        CHECK_EQ(rest(&s, "GET /v1/session", NULL), 200);
        CHECK_WORD(&s, "role", weir__role_name((enum weir__role)role));
        s.user = "tester";
    }
    s.user = NULL;
    *s.token = 0;
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 401);
    CHECK(weir__rest_header(&s.reply, "WWW-Authenticate") != NULL);
    CHECK_EQ(rest(&s, "GET /healthz", NULL), 200);
    CHECK_EQ(rest(&s, "GET /v1/openapi.json", NULL), 200);
    service_close(&s);
}

BOTH(tokens_can_be_revoked_and_expire)
{
    struct service s = {0};
    char id[32];
    service_open(&s, on_postgres);
    make_token(&s, "operator", s.token, id);
    s.user = NULL;
    CHECK_EQ(rest(&s, "GET /v1/tokens", NULL), 200);
    CHECK_WORD(&s, "items[0].id", id);
    CHECK(json_is_string(at(&s, "items[0].last_used")));
    CHECK(strstr(s.reply.body, strchr(s.token + strlen("weir_"), '_') + 1) == NULL); /* shown once */
    /* A token that has expired. */
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE tokens SET expires = 1 WHERE id = $1", WEIR__S(id)), 0);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 401);
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE tokens SET expires = NULL WHERE id = $1", WEIR__S(id)), 0);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    char what[64];
    snprintf(what, sizeof what, "DELETE /v1/tokens/%s", id);
    CHECK_EQ(rest(&s, what, NULL), 204);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 401);
    s.user = "tester";
    CHECK_EQ(rest(&s, what, NULL), 404);
    static const char *const wrong[] = {"{}",
                                        "{\"name\":\"\",\"role\":\"viewer\"}",
                                        "{\"name\":\"a\\u0000b\",\"role\":\"viewer\"}",
                                        "{\"name\":\"a\",\"role\":\"king\"}",
                                        "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":\"yesterday\"}",
                                        "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":\"1999-01-01T00:00:00Z\"}",
                                        "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":\"0d\"}",
                                        "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":\"999999999d\"}",
                                        "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":7}",
                                        "[]",
                                        "{\"name\":\"a\",\"role\":\"viewer\"",
                                        "{\"name\":\"a\",\"role\":\"viewer\",\"hash\":\"x\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char buffer[512];
        struct weir__rest_request r = request_of(&s, "POST /v1/tokens", wrong[i], buffer);
        CHECK_EQ(service_run(&s, &r), 400);
    }
    CHECK_EQ(rest(&s, "POST /v1/tokens", "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":\"30d\"}"), 201);
    CHECK_EQ(
        rest(&s, "POST /v1/tokens", "{\"name\":\"a\",\"role\":\"viewer\",\"expires\":\"2032-01-01T00:00:00.000Z\"}"),
        201);
    CHECK_WORD(&s, "expires", "2032-01-01T00:00:00.000Z");
    service_close(&s);
}

TEST(wrong_tokens_are_throttled)
{
    struct service s = {0};
    char id[32], token[128], buffer[512], body[256];
    int refused = 0;
    service_open(&s, false);
    make_token(&s, "viewer", token, id);
    s.user = NULL;
    for (int i = 0; i < 200; i++) {
        snprintf(s.token, sizeof s.token, "weir_%s_%039d", id, i);
        int status = rest(&s, "GET /v1/rules", NULL);
        CHECK(status == 401 || status == 429);
        refused += status == 401;
    }
    CHECK(refused >= 5 && refused <= 7); /* 5, and those that are forgotten in ten or twenty seconds of running */
    CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
    /* The right token is accepted nevertheless, from this address and from another, as a token and for a session. */
    snprintf(s.token, sizeof s.token, "%s", token);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    CHECK(s.reply.right_token && !s.reply.last);
    snprintf(body, sizeof body, "{\"token\":\"%s\"}", token);
    CHECK_EQ(rest(&s, "POST /v1/session", body), 201);
    struct weir__rest_request r = request_of(&s, "GET /v1/rules", NULL, buffer);
    r.address = "2001:db8::1";
    CHECK_EQ(service_run(&s, &r), 200);
    /* All addresses of an IPv6 network count as one; creating sessions does not bypass the throttle. */
    for (int i = 0; i < 30; i++) {
        char address[32];
        r = request_of(&s, "POST /v1/session", "{\"token\":\"weir_x_y\"}", buffer);
        snprintf(address, sizeof address, "2001:db8::%x", i + 2);
        r.address = address;
        int status = service_run(&s, &r);
        CHECK_EQ(status, i < 5 ? 401 : 429);
    }
    service_close(&s);
}

/* The delay precedes the check, for right and wrong tokens: disconnecting early gains an attacker nothing. */
TEST(delay_grows_with_wrong_tokens)
{
    struct service s = {0};
    int64_t before = 0, grown = 0;
    char id[32], token[128], buffer[512];
    service_open(&s, false);
    make_token(&s, "viewer", token, id);
    s.user = NULL;
    snprintf(s.token, sizeof s.token, "weir_0_wrong");
    struct weir__rest_request r = request_of(&s, "GET /v1/rules", NULL, buffer);
    for (int i = 0; i < 40; i++) {
        int64_t delay = weir__rest_delay_ms(s.control, &r);
        CHECK(delay >= 0 && delay <= 2000 && (i > 0 || delay == 0));
        int status = service_run(&s, &r);
        const char *after = weir__rest_header(&s.reply, "Retry-After");
        CHECK(s.reply.wrong_token && !s.reply.right_token && (status == 429) == s.reply.last);
        CHECK((status == 429) == (after != NULL) && (delay == 0 || status == 429));
        CHECK(!after || (atoi(after) >= 4 && atoi(after) <= 5));
        grown += delay > before;
        before = delay;
    }
    CHECK_EQ(grown, 4); /* 250 ms, 500 ms, 1 s, 2 s */
    CHECK_EQ(before, 2000);
    /* A right token is delayed as much, in each way of presenting it, and accepted; a request without a token is not
     * delayed. */
    snprintf(s.token, sizeof s.token, "%s", token);
    r = request_of(&s, "GET /v1/rules", NULL, buffer);
    CHECK_EQ(weir__rest_delay_ms(s.control, &r), 2000);
    CHECK_EQ(service_run(&s, &r), 200);
    CHECK(s.reply.right_token && !s.reply.wrong_token && !s.reply.last);
    r.authorization = text_of("");
    CHECK_EQ(weir__rest_delay_ms(s.control, &r), 0);
    r.cookie = text_of(WEIR__SESSION_COOKIE "=x");
    CHECK_EQ(weir__rest_delay_ms(s.control, &r), 2000);
    r = request_of(&s, "POST /v1/session", "{}", buffer);
    r.authorization = text_of("");
    CHECK_EQ(weir__rest_delay_ms(s.control, &r), 2000);
    r.address = "192.0.2.8";
    CHECK_EQ(weir__rest_delay_ms(s.control, &r), 0);
    service_close(&s);
}

/* An attacker with many addresses is limited globally, and a right token is accepted from any of them. */
TEST(wrong_tokens_from_many_addresses_are_throttled)
{
    struct service s = {0};
    char id[32], token[128], buffer[512], address[32];
    int refused = 0;
    service_open(&s, false);
    make_token(&s, "viewer", token, id);
    s.user = NULL;
    for (int i = 0; i < 1000; i++) {
        snprintf(s.token, sizeof s.token, "weir_%s_%039d", id, i);
        struct weir__rest_request r = request_of(&s, "GET /v1/rules", NULL, buffer);
        snprintf(address, sizeof address, "10.0.%d.%d", i / 250, i % 250);
        r.address = address;
        int status = service_run(&s, &r);
        CHECK(status == 401 || status == 429);
        refused += status == 401;
    }
    CHECK(refused >= 500 && refused <= 700); /* 500, and those that are forgotten in twenty seconds of running */
    snprintf(s.token, sizeof s.token, "%s", token);
    struct weir__rest_request r = request_of(&s, "GET /v1/rules", NULL, buffer);
    r.address = address;
    CHECK_EQ(service_run(&s, &r), 200);
    service_close(&s);
}

static const char *cookie_set(struct service *s)
{
    static char cookie[256];
    const char *header = weir__rest_header(&s->reply, "Set-Cookie");
    snprintf(cookie, sizeof cookie, "other=1; %.*s", header ? (int)strcspn(header, ";") : 0, header ? header : "");
    return cookie;
}

BOTH(sessions)
{
    struct service s = {0};
    char id[32], token[128], body[200], buffer[512], cookie[256], what[64];
    service_open(&s, on_postgres);
    make_token(&s, "editor", token, id);
    s.user = NULL;
    snprintf(body, sizeof body, "{\"token\":\"%s\"}", token);
    struct weir__rest_request r = request_of(&s, "POST /v1/session", body, buffer);
    r.tls = true;
    r.host = text_of("weir.example:9091");
    r.origin = text_of("https://evil.example");
    r.content_type = text_of("text/plain"); /* as a form of another site has it */
    CHECK_EQ(service_run(&s, &r), 403);
    CHECK(weir__rest_header(&s.reply, "Set-Cookie") == NULL);
    r.content_type = text_of("application/json; charset=utf-8"); /* behind a proxy that sets another Host */
    CHECK_EQ(service_run(&s, &r), 201);
    r.content_type = text_of("text/plain");
    r.origin = text_of("https://weir.example:9091");
    CHECK_EQ(service_run(&s, &r), 201);
    CHECK(strstr(weir__rest_header(&s.reply, "Set-Cookie"), "; HttpOnly; SameSite=Strict; ") != NULL);
    CHECK(strstr(weir__rest_header(&s.reply, "Set-Cookie"), "; Secure") != NULL);
    snprintf(cookie, sizeof cookie, "%s", cookie_set(&s));
    CHECK_WORD(&s, "who", "editor-token");

    r = request_of(&s, "POST /v1/rules", rule_text("a", 1), buffer);
    r.cookie = text_of(cookie);
    r.host = text_of("weir.example:9091");
    r.origin = text_of("https://evil.example");
    CHECK_EQ(service_run(&s, &r), 403);
    r.origin = text_of("https://weir.example:9091");
    CHECK_EQ(service_run(&s, &r), 201);
    r = request_of(&s, "GET /v1/tokens", NULL, buffer);
    r.cookie = text_of(cookie);
    CHECK_EQ(service_run(&s, &r), 403);
    /* Only the hash is stored. */
    int64_t found = -1;
    CHECK_EQ(
        weir__db_run(s.control->db, "SELECT count(*) FROM sessions WHERE hash = $1", WEIR__S(strrchr(cookie, '=') + 1)),
        0);
    CHECK(weir__db_next(s.control->db));
    found = weir__db_number(s.control->db, 0);
    CHECK_EQ(found, 0);
    /* A session ends when it expires, when it is deleted, and with its token. */
    r = request_of(&s, "GET /v1/session", NULL, buffer);
    r.cookie = text_of(cookie);
    CHECK_EQ(service_run(&s, &r), 200);
    CHECK_EQ(weir__db_run_with(s.control->db, "UPDATE sessions SET expires = 5", NULL, 0), 0);
    CHECK_EQ(service_run(&s, &r), 401);
    for (int way = 0; way < 2; way++) {
        struct weir__rest_request login = request_of(&s, "POST /v1/session", body, buffer);
        CHECK_EQ(service_run(&s, &login), 201);
        snprintf(cookie, sizeof cookie, "%s", cookie_set(&s));
        CHECK_EQ(service_run(&s, &r), 200);
        struct weir__rest_request out = request_of(&s, "DELETE /v1/session", NULL, buffer);
        out.cookie = text_of(cookie);
        snprintf(what, sizeof what, "DELETE /v1/tokens/%s", id);
        s.user = way ? "tester" : NULL;
        CHECK_EQ(way ? rest(&s, what, NULL) : service_run(&s, &out), 204);
        s.user = NULL;
        CHECK_EQ(service_run(&s, &r), 401);
    }
    service_close(&s);
}

static void make_link(struct service *s, char body[200], char id[32])
{
    s->user = "tester";
    CHECK_EQ(rest(s, "POST /v1/login-links", "{\"name\":\"me\",\"role\":\"editor\"}"), 201);
    snprintf(body, 200, "{\"link\":\"%s\"}", word(s, "link"));
    snprintf(id, 32, "%s", word(s, "id"));
    s->user = NULL;
}

BOTH(login_link_opens_one_session)
{
    struct service s = {0};
    char body[200], wrong[300], id[32], buffer[512], cookie[256], what[64];
    service_open(&s, on_postgres);
    make_link(&s, body, id);
    /* Only the hash is stored. */
    CHECK_EQ(weir__db_run(s.control->db, "SELECT count(*) FROM tokens WHERE hash = $1 OR salt = $1", WEIR__S(body)), 0);
    CHECK(weir__db_next(s.control->db) && weir__db_number(s.control->db, 0) == 0);
    /* Wrong ones do not use it up; neither is it a token, nor a token a link. */
    snprintf(wrong, sizeof wrong, "%s", body);
    wrong[strlen(wrong) - 4] ^= 1;
    CHECK_EQ(rest(&s, "POST /v1/session", wrong), 401);
    snprintf(s.token, sizeof s.token, "weir_%.*s", (int)strcspn(body + 9, "\""), body + 9);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 401);
    snprintf(wrong, sizeof wrong, "{\"token\":\"%s\"}", s.token);
    CHECK_EQ(rest(&s, "POST /v1/session", wrong), 401);
    char token[128], token_id[32];
    make_token(&s, "editor", token, token_id);
    s.user = NULL;
    *s.token = 0;
    snprintf(wrong, sizeof wrong, "{\"link\":\"%s\"}", token + 5);
    CHECK_EQ(rest(&s, "POST /v1/session", wrong), 401);
    snprintf(wrong, sizeof wrong, "{\"link\":\"%s\", \"token\":\"%s\"}", token + 5, token);
    CHECK_EQ(rest(&s, "POST /v1/session", wrong), 400);

    struct weir__rest_request r = request_of(&s, "POST /v1/session", body, buffer);
    CHECK_EQ(service_run(&s, &r), 201);
    CHECK_WORD(&s, "who", "me");
    CHECK_WORD(&s, "role", "editor");
    snprintf(cookie, sizeof cookie, "%s", cookie_set(&s));
    CHECK_EQ(service_run(&s, &r), 401);
    CHECK(weir__rest_header(&s.reply, "Set-Cookie") == NULL);
    r = request_of(&s, "GET /v1/session", NULL, buffer);
    r.cookie = text_of(cookie);
    CHECK_EQ(service_run(&s, &r), 200);
    /* The session outlives the link, and ends with its token. */
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE tokens SET created = created - $1", WEIR__N(WEIR__LINK_MS)), 0);
    CHECK_EQ(service_run(&s, &r), 200);
    s.user = "tester";
    snprintf(what, sizeof what, "DELETE /v1/tokens/%s", id);
    CHECK_EQ(rest(&s, what, NULL), 204);
    s.user = NULL;
    r.address = "192.0.2.77"; /* the other one has shown many wrong ones */
    CHECK_EQ(service_run(&s, &r), 401);
    service_close(&s);
}

/* The clock is stepped by moving the time at which the link was made. */
BOTH(login_link_expires)
{
    struct service s = {0};
    char body[200], id[32];
    service_open(&s, on_postgres);
    const int64_t steps[] = {-WEIR__LINK_MS, 60000,
                             10000 - WEIR__LINK_MS}; /* at its end; a clock set back; before it */
    for (int i = 0; i < 3; i++) {
        make_link(&s, body, id);
        CHECK_EQ(weir__db_run(s.control->db, "UPDATE tokens SET created = created + $1 WHERE id = $2",
                              WEIR__N(steps[i]), WEIR__S(id)),
                 0);
        CHECK_EQ(rest(&s, "POST /v1/session", body), i < 2 ? 401 : 201);
    }
    make_link(&s, body, id); /* a revoked one */
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE tokens SET revoked = 5 WHERE id = $1", WEIR__S(id)), 0);
    CHECK_EQ(rest(&s, "POST /v1/session", body), 401);
    /* Making one deletes those whose sessions have ended. */
    CHECK_EQ(weir__db_run_with(s.control->db, "UPDATE tokens SET expires = 5", NULL, 0), 0);
    make_link(&s, body, id);
    int64_t left = weir__db_count(s.control->db, "SELECT count(*) FROM tokens");
    CHECK_EQ(left, 2); /* the one with a session, and the new one */
    service_close(&s);
}

static int links_used;

static void *use_link(void *context)
{
    const struct weir__rest_request *request = ((void **)context)[1];
    struct weir__rest_reply reply = {0};
    weir__rest_run(((void **)context)[0], request, &reply);
    __atomic_fetch_add(&links_used, reply.status == 201, __ATOMIC_SEQ_CST);
    weir__rest_free(&reply);
    return NULL;
}

/* Eight requests at once at two services that share a database: one gets a session. */
BOTH(login_link_used_concurrently)
{
    enum { THREADS = 8, ROUNDS = 5 };
    struct service s = {0}, other = {0};
    char body[200], id[32], buffer[512];
    service_open(&s, on_postgres);
    other = s;
    other.control = NULL;
    other.path[0] = 0;
    struct weir__control_options options = {.url = s.url, .login_links = true};
    CHECK_EQ(weir__control_open(&options, &other.control), 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        links_used = 0;
        make_link(&s, body, id);
        struct weir__rest_request r = request_of(&s, "POST /v1/session", body, buffer);
        void *contexts[2][2] = {{s.control, &r}, {other.control, &r}};
        for (int i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, use_link, contexts[i % 2]), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        CHECK_EQ(links_used, 1);
    }
    weir__control_close(other.control);
    service_close(&s);
}

TEST(login_links_need_a_loopback_listener)
{
    struct service s = {0};
    char body[200], id[32];
    service_open(&s, false);
    make_link(&s, body, id);
    s.control->login_links = false;
    CHECK_EQ(rest(&s, "POST /v1/session", body), 403);
    CHECK_WORD(&s, "error.code", "no_login_links");
    s.user = "tester";
    CHECK_EQ(rest(&s, "POST /v1/login-links", "{\"name\":\"me\",\"role\":\"editor\"}"), 403);
    s.control->login_links = true;
    CHECK_EQ(rest(&s, "POST /v1/login-links", "{\"name\":\"\",\"role\":\"editor\"}"), 400);
    CHECK_EQ(rest(&s, "POST /v1/login-links", "{\"name\":\"me\",\"role\":\"root\"}"), 400);
    CHECK_EQ(rest(&s, "POST /v1/login-links", "{\"name\":\"me\",\"role\":\"editor\",\"expires\":\"9d\"}"), 400);
    service_close(&s);
}

TEST(sessions_of_a_token_are_limited)
{
    struct service s = {0};
    char ids[2][32], tokens[2][128], body[200], buffer[512];
    service_open(&s, false);
    for (int i = 0; i < 2; i++)
        make_token(&s, "viewer", tokens[i], ids[i]);
    s.user = NULL;
    for (int i = 0; i < 62; i++) {
        snprintf(body, sizeof body, "{\"token\":\"%s\"}", tokens[0]);
        struct weir__rest_request r = request_of(&s, "POST /v1/session", body, buffer);
        int status = service_run(&s, &r);
        CHECK(status == (i < 60 ? 201 : 429) || (i == 60 && status == 201)); /* a second may have passed */
    }
    CHECK_WORD(&s, "error.code", "too_many_sessions");
    CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
    int64_t found = -1;
    found = weir__db_count(s.control->db, "SELECT count(*) FROM sessions");
    CHECK_EQ(s.control->db->error, 0);
    CHECK(found <= 61);
    /* The token itself is good, and so are the sessions of others. */
    struct weir__rest_request r = request_of(&s, "GET /v1/rules", NULL, buffer);
    char bearer[160];
    snprintf(bearer, sizeof bearer, "Bearer %s", tokens[0]);
    r.authorization = text_of(bearer);
    CHECK_EQ(service_run(&s, &r), 200);
    snprintf(body, sizeof body, "{\"token\":\"%s\"}", tokens[1]);
    r = request_of(&s, "POST /v1/session", body, buffer);
    CHECK_EQ(service_run(&s, &r), 201);
    service_close(&s);
}

/* ---- The host ---- */

static int64_t blocked_ns;
static char last_key[256];

static int fake_state(void *context, const struct weir__host_query *what, char **json)
{
    snprintf(last_key, sizeof last_key, "%s|%.*s", what->rule, (int)what->key.len, what->key.data);
    *json = strdup("{\"remaining\":5}");
    return strcmp(what->rule, "none") == 0 ? WEIR_ENORULE : *(int *)context;
}

static char last_author[128];

static int fake_change(void *context, struct weir__host_key_change *change)
{
    blocked_ns = change->for_ns;
    snprintf(last_key, sizeof last_key, "%s|%.*s", change->rule, (int)change->key.len, change->key.data);
    snprintf(last_author, sizeof last_author, "%.*s: %.*s", (int)change->by.len, change->by.data,
             (int)change->reason.len, change->reason.data);
    change->hosts = change->action == WEIR__HOST_RESET ? "this" : "all";
    change->why = change->action == WEIR__HOST_RESET ? "there is no store" : NULL;
    change->passes = change->cost < 5;
    change->remaining = 10 - change->cost;
    change->retry_after_ns = 1500000000;
    return *(int *)context;
}

static int fake_keys(void *context, const struct weir__host_query *what, char **json)
{
    snprintf(last_key, sizeof last_key, "%.*s", (int)what->key.len, what->key.data);
    *json = strdup("{\"items\":[]}");
    return *(int *)context;
}

static int fake_hot(void *context, const struct weir__host_query *what, char **json)
{
    char text[128];
    snprintf(text, sizeof text, "{\"rule\":\"%s\",\"denied\":%d,\"near\":%d,\"n\":%d}", what->rule, what->denied,
             what->near, (int)what->n);
    *json = strdup(text);
    return *(int *)context;
}

BOTH(host_state_is_reported)
{
    static int error;
    static const struct weir__control_host host = {
        .context = &error, .key_state = fake_state, .keys = fake_keys, .key_change = fake_change, .hot = fake_hot};
    struct service s = {.host = &host};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "GET /v1/keys/api%2F1m/user%3A1%2Fx/y", NULL), 200);
    CHECK(strcmp(last_key, "api/1m|user:1/x/y") == 0);
    CHECK_EQ(number(&s, "remaining"), 5);
    CHECK_EQ(rest(&s, "GET /v1/keys/none/k", NULL), 404);
    CHECK_EQ(rest(&s, "DELETE /v1/keys/a/k", NULL), 200);
    CHECK_WORD(&s, "hosts", "this");
    CHECK_WORD(&s, "why", "there is no store");
    CHECK_EQ(rest(&s, "PUT /v1/keys/a/k/block", "{\"for\":\"10m\", \"reason\":\"abuse\"}"), 200);
    CHECK_WORD(&s, "hosts", "all");
    CHECK(json_is_null(at(&s, "why")));
    CHECK(strcmp(last_author, "tester: abuse") == 0);
    CHECK_EQ(blocked_ns, 600 * WEIR_SECOND);
    CHECK(strcmp(last_key, "a|k") == 0);
    CHECK_EQ(rest(&s, "PUT /v1/keys/a/k/block", "{\"until\":\"2001-01-01T00:00:00Z\"}"), 400);
    CHECK_EQ(rest(&s, "PUT /v1/keys/a/k/block", "{\"for\":\"401d\"}"), 400);
    CHECK_EQ(rest(&s, "PUT /v1/keys/a/k/block", "{}"), 400);
    CHECK_EQ(rest(&s, "PUT /v1/keys/a/k/block", "{\"for\":\"1h30m\"}"), 200);
    CHECK_EQ(blocked_ns, 5400 * WEIR_SECOND);
    /* A change whose reason is refused is neither made nor in the audit log. */
    CHECK_EQ(rest(&s, "PUT /v1/keys/a/k/block", "{\"for\":\"2m\", \"reason\":7}"), 400);
    CHECK_EQ(blocked_ns, 5400 * WEIR_SECOND);
    CHECK_EQ(rest(&s, "GET /v1/audit", NULL), 200);
    CHECK(at(&s, "items[0].details.reason") == NULL);
    CHECK_EQ(number(&s, "items[0].id"), number(&s, "items[1].id") + 1);
    CHECK(json_real_value(at(&s, "items[0].details.for_s")) == 5400);
    CHECK_EQ(rest(&s, "DELETE /v1/keys/a/k/block", NULL), 200);
    CHECK_EQ(blocked_ns, 0);
    CHECK_EQ(rest(&s, "GET /v1/audit", NULL), 200);
    CHECK_WORD(&s, "items[0].action", "key_unblock");
    CHECK_WORD(&s, "items[1].action", "key_block");
    CHECK_WORD(&s, "items[1].object", "a/k");
    CHECK_WORD(&s, "items[2].details.reason", "abuse");
    CHECK_WORD(&s, "items[3].action", "key_reset");
    CHECK_EQ(rest(&s, "POST /v1/keys/a/k/take", "{\"cost\":7}"), 200);
    CHECK(json_is_false(at(&s, "allowed")));
    CHECK_EQ(number(&s, "remaining"), 3);
    CHECK_EQ(rest(&s, "POST /v1/keys/a/k/take", "{}"), 200);
    CHECK(json_is_true(at(&s, "allowed")));
    CHECK_EQ(rest(&s, "POST /v1/keys/a/k/take", "{\"cost\":0}"), 400);
    CHECK_EQ(rest(&s, "POST /v1/keys/a/k/take", "{\"cost\":\"1\"}"), 400);
    CHECK_EQ(rest(&s, "GET /v1/keys?about=user%3A42", NULL), 200);
    CHECK(strcmp(last_key, "user:42") == 0);
    CHECK_EQ(rest(&s, "GET /v1/keys", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/blocks", NULL), 501);
    CHECK_EQ(rest(&s, "GET /v1/stats/hot?rule=a&by=denied&n=7", NULL), 200);
    CHECK_EQ(number(&s, "n"), 7);
    CHECK_EQ(number(&s, "denied"), 1);
    CHECK_EQ(rest(&s, "GET /v1/stats/hot?by=denied", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/stats/hot?rule=a&by=luck", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/stats", NULL), 501);
    CHECK_EQ(rest(&s, "GET /v1/advice", NULL), 501);
    error = WEIR_ESTOREDOWN;
    CHECK_EQ(rest(&s, "GET /v1/keys/a/k", NULL), 503);
    CHECK_EQ(rest(&s, "DELETE /v1/keys/a/k", NULL), 503);
    error = 0;
    service_close(&s);
}

/* A stand-in for the host's hash of a key. */
static uint64_t fake_hash(void *context, weir_text key)
{
    (void)context;
    return key.len;
}

static int fake_hidden(void *context, const struct weir__host_query *what, char **json)
{
    *json = strdup(what->hide ? "{\"hide\":1}" : "{\"hide\":0}");
    return *(int *)context;
}

static int fake_list(void *context, const struct weir__host_deferred *which, char **json, char *why)
{
    (void)context, (void)which, (void)why;
    *json = strdup("{\"items\":[{\"key\":\"user:secret\"},{\"key_hex\":\"00ff\"}],\"next\":null}");
    return 0;
}

static int fake_ticket(void *context, const char *ticket, enum weir__host_change change, char **json, char *why)
{
    (void)context, (void)ticket, (void)change, (void)why;
    *json = strdup("{\"key\":\"user:secret\",\"state\":\"waiting\"}");
    return 0;
}

/* The texts of keys are shown to operators only, unless the configuration allows viewers. */
TEST(key_texts_are_shown_by_role)
{
    int result = 0;
    struct weir__control_queue queue = {.list = fake_list, .ticket = fake_ticket};
    struct weir__control_host host = {
        .context = &result, .key_change = fake_change, .key_hash = fake_hash, .hot = fake_hidden, .queue = &queue};
    static const char *const roles[] = {"viewer", "editor", "operator"};
    static const enum weir__role least[] = {WEIR__NOBODY, WEIR__VIEWER, WEIR__EDITOR, WEIR__OPERATOR};
    for (size_t l = 0; l < sizeof least / sizeof *least; l++) {
        struct service s = {.host = &host, .key_texts = least[l]};
        char id[32];
        service_open(&s, false);
        CHECK_EQ(rest(&s, "DELETE /v1/keys/a/user:se%2Fcret", NULL), 200);
        CHECK_EQ(rest(&s, "DELETE /v1/keys/a%2Ffew/user:se%2Fcret", NULL), 200); /* one of the limits of a rule */
        for (int role = WEIR__VIEWER; role <= WEIR__OPERATOR; role++) {
            bool sees = role >= (int)(least[l] ? least[l] : WEIR__OPERATOR);
            s.user = "tester";
            char token[128];
            make_token(&s, roles[role - WEIR__VIEWER], token, id);
            s.user = NULL;
            snprintf(s.token, sizeof s.token, "%s", token);
            CHECK_EQ(rest(&s, "GET /v1/session", NULL), 200);
            CHECK_EQ(json_is_true(at(&s, "key_texts")), sees);
            CHECK_EQ(rest(&s, "GET /v1/stats/hot?rule=a", NULL), 200);
            CHECK_EQ(number(&s, "hide"), !sees);
            CHECK_EQ(rest(&s, "GET /v1/audit", NULL), 200);
            size_t last = json_array_size(at(&s, "items")) - 1;
            const char *object = json_string_value(json_object_get(json_array_get(at(&s, "items"), last), "object"));
            CHECK(object && strcmp(object, sees ? "a/user:se/cret" : "a/~000000000000000c") == 0);
            object = json_string_value(json_object_get(json_array_get(at(&s, "items"), last - 1), "object"));
            CHECK(object && strcmp(object, sees ? "a/few/user:se/cret" : "a/few/~000000000000000c") == 0);
            CHECK_EQ(strstr(s.reply.body, "cret") != NULL, sees);
            CHECK_EQ(rest(&s, "GET /v1/queue", NULL), 200);
            CHECK_WORD(&s, "items[0].key", sees ? "user:secret" : "~000000000000000b");
            CHECK_WORD(&s, "items[1].key", sees ? "(none)" : "~0000000000000002"); /* of the two bytes */
            CHECK_EQ(strstr(s.reply.body, "00ff") != NULL, sees);
            CHECK_EQ(rest(&s, "GET /v1/queue/some", NULL), 200);
            CHECK_WORD(&s, "key", sees ? "user:secret" : "~000000000000000b");
            CHECK_WORD(&s, "state", "waiting");
        }
        service_close(&s);
    }
}

TEST(openapi_description_matches_the_routes)
{
    struct service s = {0};
    const char *path, *method;
    json_t *item, *operation;
    size_t described = 0;
    service_open(&s, false);
    CHECK_EQ(rest(&s, "GET /v1/openapi.json", NULL), 200);
    json_t *paths = at(&s, "paths");
    for (size_t i = 0; i < weir__route_count; i++) {
        char lower[8] = "";
        for (size_t c = 0; weir__routes[i].method[c]; c++)
            lower[c] = (char)weir__lower(weir__routes[i].method[c]);
        operation = json_object_get(json_object_get(paths, weir__routes[i].path), lower);
        if (!operation)
            printf("  not described: %s %s\n", weir__routes[i].method, weir__routes[i].path);
        CHECK(operation != NULL);
        /* The role that the description names is the one required. */
        const char *description = json_string_value(json_object_get(operation, "description"));
        CHECK_EQ(description == NULL, weir__routes[i].role == WEIR__NOBODY);
        CHECK(!description || strstr(description, weir__role_name(weir__routes[i].role)) != NULL);
    }
    json_object_foreach(paths, path, item) json_object_foreach(item, method, operation) described++;
    CHECK_EQ(described, weir__route_count);
    service_close(&s);
}

TEST_MAIN
