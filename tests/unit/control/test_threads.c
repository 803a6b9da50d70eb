/* Many at once: none overwrites another, and whoever asks for the set sees whole ones. */
#include "service.h"

#include <pthread.h>

enum { WRITERS = 4, READERS = 2 };

struct worker {
    struct service service; /* the control is shared */
    int rounds, written, read;
};

static void *write_often(void *context)
{
    struct worker *w = context;
    for (int i = 0; i < w->rounds; i++) {
        char tag[32];
        if (ask(&w->service, "GET /v1/rules/a", NULL) != 200)
            continue;
        int version = (int)number(&w->service, "version");
        snprintf(tag, sizeof tag, "\"v%d\"", version);
        char text[128];
        snprintf(text, sizeof text, "name: a\nlimit: %d\nwindow: 1m\n", version + 1);
        int status = ask_if(&w->service, "PUT /v1/rules/a", tag, text);
        CHECK(status == 200 || status == 412);
        w->written += status == 200;
        status = ask(&w->service, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}");
        CHECK(status == 200 || status == 409);
    }
    return NULL;
}

static void *read_often(void *context)
{
    struct worker *w = context;
    for (int i = 0; i < w->rounds; i++) {
        weir_rules *rules = NULL;
        CHECK_EQ(ask(&w->service, "GET /v1/rules/published", NULL), 200);
        CHECK_EQ(weir_rules_parse("p", w->service.reply.body, w->service.reply.len, NULL, NULL, &rules), 0);
        weir_rules_free(rules);
        rules = NULL;
        CHECK_EQ(weir_rules_load(w->service.path, NULL, NULL, &rules), 0);
        weir_rules_free(rules);
        CHECK_EQ(weir__control_tick(w->service.control), 0);
    }
    return NULL;
}

BOTH(many_at_once)
{
    struct service s = {0};
    static struct worker workers[WRITERS + READERS];
    pthread_t threads[WRITERS + READERS];
    int rounds = (int)test_scaled(40, 5), written = 0;
    service_open(&s, on_postgres);
    CHECK_EQ(ask(&s, "POST /v1/rules", "name: a\nlimit: 1\nwindow: 1m\n"), 201);
    CHECK_EQ(ask(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    for (int i = 0; i < WRITERS + READERS; i++) {
        workers[i] = (struct worker){.service = s, .rounds = rounds};
        workers[i].service.json = NULL;
        memset(&workers[i].service.reply, 0, sizeof s.reply);
        CHECK_EQ(pthread_create(&threads[i], NULL, i < WRITERS ? write_often : read_often, &workers[i]), 0);
    }
    for (int i = 0; i < WRITERS + READERS; i++) {
        pthread_join(threads[i], NULL);
        written += workers[i].written;
        weir__rest_free(&workers[i].service.reply);
        json_decref(workers[i].service.json);
    }
    CHECK_EQ(ask(&s, "GET /v1/rules/a", NULL), 200);
    CHECK_EQ(number(&s, "version"), written + 1); /* every acknowledged change is a version, and nothing else is */
    CHECK_EQ(number(&s, "enforced_version"), written + 1);
    service_close(&s);
}

TEST_MAIN
