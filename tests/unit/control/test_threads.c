/* Concurrent requests: no lost update, and readers of the set always see a complete one. */
#include "base/file.h"
#include "service.h"

#include <pthread.h>

enum { WRITERS = 4, READERS = 2 };

struct worker {
    struct service service; /* the control is shared */
    int rounds, written, read;
};

/* Retries as a client does that gets 503 (others are served first, nothing was changed): a disk may take seconds. */
static int rest_until_accepted(struct service *s, const char *what, const char *if_match, const char *body)
{
    int status = 503;
    for (int i = 0; i < 100 && status == 503; i++) {
        status = if_match ? rest_if_match(s, what, if_match, body) : rest(s, what, body);
        if (status == 503 && strcmp(word(s, "error.code"), "busy") != 0)
            break;
    }
    return status;
}

static void *write_often(void *context)
{
    struct worker *w = context;
    for (int i = 0; i < w->rounds; i++) {
        char tag[32];
        if (rest_until_accepted(&w->service, "GET /v1/rules/a", NULL, NULL) != 200)
            continue;
        int version = (int)number(&w->service, "version");
        snprintf(tag, sizeof tag, "\"v%d\"", version);
        char text[128];
        snprintf(text, sizeof text, "name: a\nlimit: %d\nwindow: 1m\n", version + 1);
        int status = rest_until_accepted(&w->service, "PUT /v1/rules/a", tag, text);
        CHECK(status == 200 || status == 412);
        w->written += status == 200;
        status = rest_until_accepted(&w->service, "POST /v1/rules/a/publish", NULL, "{\"stage\":\"enforced\"}");
        CHECK(status == 200 || status == 409);
    }
    return NULL;
}

static void *read_often(void *context)
{
    struct worker *w = context;
    for (int i = 0; i < w->rounds; i++) {
        weir_rules *rules = NULL;
        CHECK_EQ(rest_until_accepted(&w->service, "GET /v1/rules/published", NULL, NULL), 200);
        CHECK_EQ(weir_rules_parse("p", w->service.reply.body, w->service.reply.len, NULL, NULL, &rules), 0);
        weir_rules_free(rules);
        rules = NULL;
        CHECK_EQ(weir_rules_load(w->service.path, NULL, NULL, &rules), 0);
        weir_rules_free(rules);
        CHECK_EQ(weir__control_tick(w->service.control), 0);
    }
    return NULL;
}

BOTH(concurrent_changes_lose_nothing)
{
    struct service s = {0};
    static struct worker workers[WRITERS + READERS];
    pthread_t threads[WRITERS + READERS];
    int rounds = (int)test_scaled(40, 5), written = 0;
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: a\nlimit: 1\nwindow: 1m\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
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
    CHECK_EQ(rest(&s, "GET /v1/rules/a", NULL), 200);
    CHECK_EQ(number(&s, "version"), written + 1); /* every acknowledged change is a version, and nothing else is */
    CHECK_EQ(number(&s, "enforced_version"), written + 1);
    service_close(&s);
}

/* Several processes replace one file, as weir serve and its agent may: its contents are always one process's, and
 * complete. */
TEST(concurrently_replaced_file_is_always_complete)
{
    enum { PROCESSES = 4, BYTES = 100000 };
    char folder[] = "/tmp/weir-replace-XXXXXX", path[64];
    char *text = malloc(BYTES + 1);
    pid_t children[PROCESSES];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/file", folder);
    for (int p = 0; p < PROCESSES; p++) {
        memset(text, 'a' + p, BYTES);
        text[BYTES] = 0;
        children[p] = fork();
        for (int i = 0; children[p] == 0 && i < 40; i++)
            if (weir__file_replace(path, "head\n", text, (size_t)(BYTES - 1000 * p - i)) != 0)
                _exit(1);
        if (children[p] == 0)
            _exit(0);
    }
    bool was_there = false;
    for (int left = PROCESSES; left;) {
        size_t len = 0;
        char *seen = weir__file_read(path, &len);
        CHECK(seen || !was_there); /* once created, it is never missing */
        was_there |= seen != NULL;
        CHECK(!seen || (len > 90000 && strncmp(seen, "head\n", 5) == 0));
        for (size_t i = 6; seen && i < len; i++)
            if (seen[i] != seen[5]) {
                CHECK_EQ(seen[i], seen[5]);
                break;
            }
        free(seen);
        int status = 0;
        if (waitpid(-1, &status, WNOHANG) > 0) {
            CHECK_EQ(status, 0);
            left--;
        }
    }
    CHECK(was_there);
    free(text);
    char command[96];
    snprintf(command, sizeof command, "rm %s && rmdir %s", path, folder); /* no temporary file is left */
    CHECK_EQ(system(command), 0);
}

/* ---- Rules in files ---- */

/* Reads documents of files that change: text and line are always of the same file. */
static void *read_files(void *context)
{
    struct worker *w = context;
    for (int i = 0; i < w->rounds; i++) {
        CHECK_EQ(rest_until_accepted(&w->service, "GET /v1/rules/a", NULL, NULL), 200);
        const char *limit = strstr(word(&w->service, "text"), "limit: ");
        CHECK(limit && atoi(limit + 7) == number(&w->service, "line"));
        CHECK_EQ(rest_until_accepted(&w->service, "GET /v1/rules", NULL, NULL), 200);
        CHECK_EQ(json_array_size(at(&w->service, "items")), 1);
        CHECK_EQ(rest_until_accepted(&w->service, "GET /v1/rules/published", NULL, NULL), 200);
        CHECK_EQ(rest_until_accepted(&w->service, "POST /v1/rules/a/publish", NULL, "{\"stage\":\"draft\"}"), 409);
        CHECK_EQ(rest_until_accepted(&w->service, "GET /healthz", NULL, NULL), 200);
    }
    weir__rest_free(&w->service.reply);
    json_decref(w->service.json);
    return NULL;
}

/* The rule is in the line of its limit. */
static void write_rule(const char *path, int line)
{
    char text[256];
    int len = snprintf(text, sizeof text, "%.*srules: [{ name: a, limit: %d, window: 1m }]\n", line - 1,
                       "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", line);
    CHECK(weir__file_write(path, text, (size_t)len));
}

TEST(files_change_while_they_are_read)
{
    struct service s = {0};
    struct worker workers[READERS] = {0};
    pthread_t threads[READERS];
    char path[128];
    service_open(&s, false);
    service_shut(&s);
    snprintf(path, sizeof path, "%s/rules.yaml", s.folder);
    write_rule(path, 1);
    struct weir__named_rules named = {.path = path, .file = "weir.yaml"};
    struct weir__control_options options = {.url = s.url, .files = &named};
    CHECK_EQ(weir__control_open(&options, &s.control), 0);
    for (int i = 0; i < READERS; i++) {
        workers[i] = (struct worker){.service = {.control = s.control, .user = "reader"}, .rounds = 40};
        CHECK_EQ(pthread_create(&threads[i], NULL, read_files, &workers[i]), 0);
    }
    for (int round = 0; round < 60; round++) {
        write_rule(path, round % 16 + 1);
        CHECK_EQ(weir__control_tick(s.control), 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(rest(&s, "GET /v1/rules/a", NULL), 200);
    CHECK_EQ(number(&s, "line"), 12);
    service_close(&s);
}

TEST_MAIN
