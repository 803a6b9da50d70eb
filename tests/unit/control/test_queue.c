/* Deferred requests over REST: rights, audit log, errors. */
#include "service.h"

#define TICKET "0123456789abcdef0123456789abcdef"

static struct {
    int error; /* returned by the next change or read */
    char called[256];
} played;

static int reply_with(char **json, char *why, const char *what)
{
    snprintf(played.called, sizeof played.called, "%s", what);
    snprintf(why, WEIR__HOST_WHY, "said the queue");
    *json = played.error ? NULL : strdup("{\"ticket\":\"" TICKET "\"}");
    return played.error;
}

static int fake_stats(void *context, char **json, char *why)
{
    (void)context;
    return reply_with(json, why, "figures");
}

static int fake_list(void *context, const struct weir__host_deferred *which, char **json, char *why)
{
    char what[200];
    (void)context;
    snprintf(what, sizeof what, "%s %s %d %d %s", which->state ? which->state : "-", which->rule ? which->rule : "-",
             (int)which->after, (int)which->limit, which->full_tickets ? "whole" : "cut");
    return reply_with(json, why, what);
}

static int fake_ticket(void *context, const char *ticket, enum weir__host_change change, char **json, char *why)
{
    static const char *const names[] = {"get", "cancel", "requeue"};
    if (strcmp(ticket, TICKET) != 0)
        return WEIR__HOST_NO_TICKET;
    if (change)
        played.error = *(int *)context;
    return reply_with(json, why, names[change]);
}

static int refusal;
static struct weir__control_queue queue = {&refusal, fake_stats, fake_list, fake_ticket};
static const struct weir__control_host host = {.queue = &queue};

TEST(list_can_be_filtered)
{
    struct service s = {.host = &host};
    service_open(&s, false);
    CHECK_EQ(rest(&s, "GET /v1/queue", NULL), 200);
    CHECK(strcmp(played.called, "- - 0 100 whole") == 0);
    CHECK_EQ(rest(&s, "GET /v1/queue?state=dead&rule=api%2F1m&after=17&limit=5", NULL), 200);
    CHECK(strcmp(played.called, "dead api/1m 17 5 whole") == 0);
    CHECK_EQ(rest(&s, "GET /v1/queue?state=lost", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/queue?limit=0", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/queue?limit=1001", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/queue?after=x", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/queue/stats", NULL), 200);
    CHECK(strcmp(played.called, "figures") == 0);
    CHECK_EQ(rest(&s, "POST /v1/queue/stats", NULL), 405);
    service_close(&s);
}

TEST(changes_are_audited_without_the_ticket)
{
    struct service s = {.host = &host};
    service_open(&s, false);
    CHECK_EQ(rest(&s, "GET /v1/queue/" TICKET, NULL), 200);
    CHECK_EQ(rest(&s, "GET /v1/queue/00", NULL), 404);
    CHECK_EQ(rest(&s, "POST /v1/queue/" TICKET "/cancel", NULL), 200);
    CHECK(strcmp(played.called, "cancel") == 0);
    CHECK_EQ(rest(&s, "POST /v1/queue/" TICKET "/requeue", NULL), 200);
    CHECK(strcmp(played.called, "requeue") == 0);
    CHECK_EQ(rest(&s, "POST /v1/queue/00/requeue", NULL), 404); /* nothing to audit */
    CHECK_EQ(rest(&s, "GET /v1/audit", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 2);
    CHECK_WORD(&s, "items[0].action", "queue_requeue");
    CHECK_WORD(&s, "items[1].action", "queue_cancel");
    CHECK_WORD(&s, "items[1].object", "01234567…");
    CHECK(strstr(s.reply.body, TICKET) == NULL);
    service_close(&s);
}

TEST(queue_errors_become_http_errors)
{
    static const struct {
        int error, status;
        const char *code;
    } cases[] = {{WEIR__HOST_NO_TICKET, 404, "no_ticket"},
                 {WEIR__HOST_OTHER_STATE, 409, "other_state"},
                 {WEIR__HOST_QUEUE_FULL, 409, "queue_full"},
                 {WEIR__HOST_QUEUE_UNAVAILABLE, 503, "queue_unavailable"},
                 {WEIR_ENOMEM, 503, "failed"}};
    struct service s = {.host = &host};
    service_open(&s, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        played.error = 0;
        refusal = cases[i].error;
        CHECK_EQ(rest(&s, "POST /v1/queue/" TICKET "/requeue", NULL), cases[i].status);
        CHECK_WORD(&s, "error.code", cases[i].code);
        CHECK_EQ(rest(&s, "GET /v1/queue", NULL), cases[i].status);
    }
    played.error = refusal = 0;
    service_close(&s);
}

TEST(rights_by_role)
{
    static const char *const looks[] = {"GET /v1/queue", "GET /v1/queue/stats", ("GET /v1/queue/" TICKET)};
    static const char *const changes[] = {"POST /v1/queue/" TICKET "/cancel", "POST /v1/queue/" TICKET "/requeue"};
    static const char *const roles[] = {"viewer", "editor", "operator"};
    struct service s = {.host = &host};
    service_open(&s, false);
    for (size_t i = 0; i < 3; i++) {
        char body[64];
        snprintf(body, sizeof body, "{\"name\":\"x\",\"role\":\"%s\"}", roles[i]);
        s.user = "tester";
        CHECK_EQ(rest(&s, "POST /v1/tokens", body), 201);
        snprintf(s.token, sizeof s.token, "%s", word(&s, "token"));
        s.user = NULL;
        for (size_t look = 0; look < 3; look++)
            CHECK_EQ(rest(&s, looks[look], NULL), 200);
        CHECK_EQ(rest(&s, "GET /v1/queue", NULL), 200);
        CHECK((strstr(played.called, "whole") != NULL) == (i == 2));
        for (size_t at = 0; at < 2; at++)
            CHECK_EQ(rest(&s, changes[at], NULL), i == 2 ? 200 : 403);
    }
    *s.token = 0;
    CHECK_EQ(rest(&s, "GET /v1/queue", NULL), 401);
    service_close(&s);
}

TEST(host_without_a_queue_replies_with_an_error)
{
    static const struct weir__control_host bare = {0};
    struct service s = {.host = &bare};
    service_open(&s, false);
    CHECK_EQ(rest(&s, "GET /v1/queue", NULL), 501);
    CHECK_EQ(rest(&s, "GET /v1/queue/stats", NULL), 501);
    CHECK_EQ(rest(&s, "POST /v1/queue/" TICKET "/cancel", NULL), 501);
    service_close(&s);
}

TEST_MAIN
