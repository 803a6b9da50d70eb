/* The work of one request: documents are read once, and compiled without holding the database lock. */
#include "service.h"

static struct weir__control *watched;
static int reads, parses,
    parses_with_lock; /* calls into set.c: documents read, sets parsed, and sets parsed while the lock was held */
static const char *interfere; /* SQL that is executed while a set is compiled without the lock; or NULL */

static pthread_mutex_t slow_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t slow_changed = PTHREAD_COND_INITIALIZER;
static int slow; /* documents called slow that are being compiled; below 0: they do not block */

static const struct weir__node *counted_read(uint32_t source, struct weir__arena *arena,
                                             struct weir__diagnostics *report)
{
    reads++;
    return weir__yaml_read(source, arena, report);
}

static int counted_load(const struct weir__source *sources, size_t count, const struct weir__diagnostic_sink *sink,
                        struct weir__map_files *files, weir_rules **rules)
{
    weir_text text = sources->text;
    parses++;
    bool alone = weir__fair_lock_acquire_within(&watched->database_lock, 0);
    parses_with_lock += !alone;
    if (alone && interfere)
        CHECK_EQ(weir__db_run_with(watched->db, interfere, NULL, 0), 0);
    if (alone)
        weir__fair_lock_release(&watched->database_lock);
    if (text.len && memmem(text.data, text.len, "slow", 4)) { /* compiling takes until the test continues it */
        pthread_mutex_lock(&slow_lock);
        slow++;
        pthread_cond_broadcast(&slow_changed);
        while (slow > 0)
            pthread_cond_wait(&slow_changed, &slow_lock);
        pthread_mutex_unlock(&slow_lock);
    }
    return weir__load_sources(sources, count, sink, files, rules);
}

/* Bodies are parsed without the lock, too. */
static struct weir__control *parsing; /* NULL: bodies are not watched */
static int json_parses_with_lock;
json_t *__real_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error);

json_t *__wrap_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error)
{
    bool alone = !parsing || weir__fair_lock_acquire_within(&parsing->database_lock, 0);
    json_parses_with_lock += !alone;
    if (alone && parsing)
        weir__fair_lock_release(&parsing->database_lock);
    return __real_json_loadb(text, len, flags, error);
}

#define weir__yaml_read    counted_read
#define weir__load_sources counted_load
#include "control/set.c"

static void count_from_here(struct service *s)
{
    watched = s->control;
    reads = parses = parses_with_lock = 0;
}

/* As long as a body may be, with an error in every line. */
static char *hostile_document(void)
{
    char *body = malloc(WEIR__REST_BODY_MAX + 1);
    size_t used = (size_t)sprintf(body, "name: a\nlimit: 1\nwindow: 1m\n");
    for (int i = 0; used < WEIR__REST_BODY_MAX - 32; i++)
        used += (size_t)sprintf(body + used, "wrong%d: x\n", i);
    return body;
}

TEST(a_document_with_many_errors_is_read_once)
{
    struct service s = {0};
    char *body = hostile_document();
    service_open(&s, false);
    count_from_here(&s);
    static const char *const requests[] = {"POST /v1/validate", "POST /v1/rules", "PUT /v1/rules/a"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        count_from_here(&s);
        CHECK_EQ(rest_if_match(&s, requests[i], "*", body), 422);
        CHECK_EQ(parses, 1);
        CHECK_EQ(reads, 1);
        CHECK_EQ(parses_with_lock, 0);
        /* The first hundred errors, and one that reports that there are more. */
        CHECK_EQ(json_array_size(at(&s, "error.errors")), 101);
        CHECK_WORD(&s, "error.errors[0].field", "wrong0");
        CHECK_WORD(&s, "error.errors[99].field", "wrong99");
        CHECK_EQ(number(&s, "error.errors[99].line"), 103);
        CHECK_WORD(&s, "error.errors[100].message", "too many errors; the rest is not shown");
    }
    free(body);
    service_close(&s);
}

TEST(problems_are_attributed_to_their_documents)
{
    struct service s = {0};
    char text[256];
    service_open(&s, false);
    count_from_here(&s);
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "name: r%d\nlimit: 1\nwindow: 1m\n", i);
        CHECK_EQ(rest(&s, "POST /v1/rules", text), 201);
    }
    count_from_here(&s);
    CHECK_EQ(rest(&s, "POST /v1/revisions",
                  "{\"stage\":\"enforced\",\"documents\":[{\"name\":\"r0\"},{\"name\":\"r1\"},{\"name\":\"r2\"}]}"),
             201);
    CHECK_EQ(json_array_size(at(&s, "warnings")), 2); /* the second and the third equal the first */
    CHECK_WORD(&s, "warnings[0].document", "r1");
    CHECK_WORD(&s, "warnings[0].field", "name");
    CHECK_WORD(&s, "warnings[1].document", "r2");
    CHECK_WORD(&s, "warnings[1].field", "name");
    CHECK_EQ(reads, 1);
    service_close(&s);
}

/* Every request that compiles does so without holding the database lock. */
BOTH(nothing_is_compiled_under_the_lock)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    count_from_here(&s);
    static const struct {
        const char *what, *body;
        int status, parses;
    } cases[] = {{"POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\n", 200, 1},
                 {"POST /v1/rules", "name: a\nlimit: 1\nwindow: 1m\n", 201, 1},
                 {"POST /v1/rules", "name: b\nlimit: 1\nwindow: 1m\n", 201, 1},
                 {"PUT /v1/rules/a", "name: a\nlimit: 2\nwindow: 1m\n", 200, 1},
                 {"POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}", 200, 1},
                 {"POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}", 409, 0},
                 {"POST /v1/revisions", "{\"documents\":[{\"name\":\"b\",\"stage\":\"shadow\"}]}", 201, 1},
                 {"POST /v1/rules/a/rollback", "{\"version\":1}", 200, 1},
                 {"POST /v1/rules/a/rollback", "{\"version\":9}", 404, 0},
                 {"POST /v1/revisions/1/rollback", "{}", 200, 1},
                 {"POST /v1/revisions/9/rollback", "{}", 404, 0},
                 {"DELETE /v1/rules/a", NULL, 409, 0},
                 {"DELETE /v1/rules/a?withdraw=true", NULL, 204, 1},
                 {"DELETE /v1/rules/b", NULL, 204, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        count_from_here(&s);
        int status = rest_if_match(&s, cases[i].what, "*", cases[i].body);
        if (status != cases[i].status || parses != cases[i].parses || parses_with_lock)
            printf("  %s: %d, %d sets, %d with the turn\n", cases[i].what, status, parses, parses_with_lock);
        CHECK_EQ(status, cases[i].status);
        CHECK_EQ(parses, cases[i].parses);
        CHECK_EQ(parses_with_lock, 0);
    }
    service_close(&s);
}

/* Another process changes the set each time after it was compiled: the set that is published is the one compiled last.
 */
BOTH(publishing_succeeds_despite_constant_changes)
{
    struct service s = {0};
    weir_rules *rules = NULL;
    service_open(&s, on_postgres);
    count_from_here(&s);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 201);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/b", "*", rule_text("b", 2)), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/b/publish", "{\"stage\":\"enforced\"}"), 200);
    count_from_here(&s);
    interfere = "UPDATE documents SET enforced_version = 3 - enforced_version WHERE name = 'b'";
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    interfere = NULL;
    CHECK_EQ(number(&s, "revision"), 2);
    CHECK_EQ(parses, 4);
    CHECK_EQ(parses_with_lock, 1); /* the last attempt holds the lock, so that no change can come first */
    CHECK_EQ(rest(&s, "GET /v1/rules/published", NULL), 200);
    CHECK(strstr(s.reply.body, "limit: 1\n") != NULL && strstr(s.reply.body, "name: a\n") != NULL);
    CHECK_EQ(weir_rules_parse("p", s.reply.body, s.reply.len, NULL, NULL, &rules), 0);
    weir_rules_free(rules);
    service_close(&s);
}

struct validation {
    pthread_t thread;
    struct service *service;
    char token[128];
    int status;
};

static void *validate_slowly(void *context)
{
    struct validation *me = context;
    char authorization[160];
    struct weir__rest_reply reply;
    struct weir__rest_request r = {.method = text_of("POST"),
                                   .path = text_of("/v1/validate"),
                                   .body = text_of("name: slow\nlimit: 1\nwindow: 1m\n"),
                                   .content_type = text_of("application/yaml"),
                                   .address = "192.0.2.7"};
    snprintf(authorization, sizeof authorization, "Bearer %s", me->token);
    r.authorization = text_of(authorization);
    weir__rest_run(me->service->control, &r, &reply);
    me->status = reply.status;
    if (reply.status == 503)
        CHECK(strstr(reply.body, "\"busy\"") != NULL && weir__rest_header(&reply, "Retry-After") != NULL);
    weir__rest_free(&reply);
    return NULL;
}

/* Waits until so many validations have a slot: they compile or wait to. Gives up after a while, if the test fails. */
static void until_validations(struct weir__control *control, int wanted)
{
    int count = -1;
    for (int left = 30000; left > 0 && count != wanted; left--) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        pthread_mutex_lock(&control->published_lock);
        count = 0;
        for (int i = 0; i < WEIR__DRY_RUNS_MAX; i++)
            count += *control->dry_runs[i] != 0;
        pthread_mutex_unlock(&control->published_lock);
    }
    CHECK_EQ(count, wanted);
}

/* Validations of any duration and number, as a viewer may send them, delay no publication. */
TEST(validations_delay_no_publication)
{
    enum { TOKENS = WEIR__DRY_RUNS_MAX / WEIR__DRY_RUNS_PER_TOKEN };
    struct service s = {0};
    struct validation validations[WEIR__DRY_RUNS_MAX + 2] = {0};
    service_open(&s, false);
    watched = s.control;
    for (int i = 0; i < WEIR__DRY_RUNS_MAX + 2; i++)
        validations[i].service = &s;
    for (int i = 0; i <= TOKENS; i++) { /* the last one gets no slot */
        CHECK_EQ(rest(&s, "POST /v1/tokens", "{\"name\":\"v\",\"role\":\"viewer\"}"), 201);
        for (int j = 0; j < WEIR__DRY_RUNS_PER_TOKEN; j++)
            snprintf(validations[i * WEIR__DRY_RUNS_PER_TOKEN + j].token, 128, "%s", word(&s, "token"));
    }
    CHECK_EQ(pthread_create(&validations[0].thread, NULL, validate_slowly, &validations[0]), 0);
    pthread_mutex_lock(&slow_lock);
    while (!slow)
        pthread_cond_wait(&slow_changed, &slow_lock);
    pthread_mutex_unlock(&slow_lock);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    for (int i = 1; i < WEIR__DRY_RUNS_MAX; i++) {
        CHECK_EQ(pthread_create(&validations[i].thread, NULL, validate_slowly, &validations[i]), 0);
        until_validations(s.control, i + 1);
        struct validation third = {.service = &s};
        memcpy(third.token, validations[i].token, sizeof third.token);
        if (i % WEIR__DRY_RUNS_PER_TOKEN) { /* its token has as many as are allowed */
            validate_slowly(&third);
            CHECK_EQ(third.status, 503);
        }
    }
    validate_slowly(&validations[WEIR__DRY_RUNS_MAX]); /* all slots are in use */
    CHECK_EQ(validations[WEIR__DRY_RUNS_MAX].status, 503);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    pthread_mutex_lock(&slow_lock);
    slow = -1000;
    pthread_cond_broadcast(&slow_changed);
    pthread_mutex_unlock(&slow_lock);
    for (int i = 0; i < WEIR__DRY_RUNS_MAX; i++) {
        pthread_join(validations[i].thread, NULL);
        CHECK_EQ(validations[i].status, 200);
    }
    until_validations(s.control, 0);
    CHECK_EQ(rest(&s, "POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\n"), 200);
    slow = 0;
    service_close(&s);
}

static int check_host(void *context, weir_text body, int *status, char **json)
{
    (void)context, (void)status;
    *json = strdup(body.len ? "{}" : "{\"empty\":true}");
    return 0;
}

TEST(request_to_try_is_parsed_without_the_lock_and_is_short)
{
    static const struct weir__control_host host = {.check = check_host};
    struct service s = {.host = &host};
    char *body = calloc(1, 65538);
    service_open(&s, false);
    parsing = s.control;
    json_parses_with_lock = 0;
    CHECK_EQ(rest(&s, "POST /v1/check", "{\"attributes\":{}}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/check", "{\"wrong\":1}"), 400);
    CHECK_EQ(json_parses_with_lock, 0);
    memset(body, ' ', 65536);
    body[0] = '{';
    body[65535] = '}';
    CHECK_EQ(rest(&s, "POST /v1/check", body), 200);
    body[65535] = ' ';
    body[65536] = '}';
    CHECK_EQ(rest(&s, "POST /v1/check", body), 413);
    CHECK_WORD(&s, "error.code", "too_large");
    parsing = NULL;
    service_close(&s);
    free(body);
}

TEST_MAIN
