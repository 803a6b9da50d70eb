/* The HTTP API on an engine of the test's own: a call is one line. */
#ifndef WEIR_TESTS_API_H
#define WEIR_TESTS_API_H

#include "../../engine.h"
#include "../../private_dir.h"

#include "services/http/api.h"
#include "engine/mapped_file.h"

#include <unistd.h>

#define TEST_RESERVATIONS 64

struct test_api {
    weir *engine;
    struct weir__reservations *reservations;
    struct weir__api api;
    char path[64];
    int status; /* of the last call */
    char response[1 << 20];
    char room[512]; /* small, so that longer responses have to grow */
};

struct test_reservations {
    struct weir__reservations list; /* first: its address stands for the structure's */
    struct weir__mapped mapped;
};

/* Opens or creates a file of reservations, as nginx/http/ngx_http_weir_api.c does. */
static inline int test_reservations_open(const char *path, uint32_t count, struct weir__reservations **reservations)
{
    struct test_reservations *made = calloc(1, sizeof *made);
    struct weir__file_spec spec = {.path = path,
                                   .bytes = weir__reservations_bytes(count),
                                   .format = weir__reservations_format,
                                   .plan = &count,
                                   .check = weir__reservations_check,
                                   .disabled = "reservations"};
    int error = weir__mapped_open(&spec, &made->mapped);
    if (!error)
        error = weir__reservations_attach(&made->list, made->mapped.memory, made->mapped.bytes);
    *reservations = &made->list;
    if (error) {
        *reservations = NULL;
        free(made);
    }
    return error;
}

static inline void test_reservations_close(struct weir__reservations *reservations)
{
    weir__mapped_close(&((struct test_reservations *)reservations)->mapped);
    free(reservations);
}

static inline struct test_api *test_api_open(const char *rules)
{
    struct test_api *t = calloc(1, sizeof *t);
    t->engine = test_engine(rules);
    private_path(t->path, sizeof t->path, "reservations");
    unlink(t->path);
    CHECK_EQ(test_reservations_open(t->path, TEST_RESERVATIONS, &t->reservations), 0);
    CHECK_EQ(weir__api_open(&t->api, t->engine, t->reservations), 0);
    return t;
}

static inline void test_api_close(struct test_api *t)
{
    free(t->api.scratch);
    test_reservations_close(t->reservations);
    unlink(t->path);
    weir_close(t->engine);
    free(t);
}

static inline const char *test_call(struct test_api *t, enum weir__api_method method, const char *path,
                                    const char *body)
{
    struct weir__api_route route;
    struct weir__api_reply reply;
    weir__buffer_borrow(&reply.out, t->room, sizeof t->room);
    weir__api_find_route(method, (weir_text){path, strlen(path)}, &route);
    weir__api_run(&t->api, &route, (weir_text){body, strlen(body)}, false, &reply);
    t->status = reply.status;
    snprintf(t->response, sizeof t->response, "%.*s", (int)reply.out.len, reply.out.data);
    weir__buffer_free(&reply.out);
    return t->response;
}

static inline const char *test_post(struct test_api *t, const char *path, const char *body)
{
    return test_call(t, WEIR__POST, path, body);
}

/* A number in the last response's body, such as "remaining"; -999 if there is none. */
static inline int64_t test_number(const struct test_api *t, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(t->response, quoted);
    char *end = NULL;
    int64_t value = at ? strtoll(at + strlen(quoted), &end, 10) : -999;
    return at && end == at + strlen(quoted) ? -999 : value;
}

#define BODY_HAS(t, text)                                                                                              \
    do {                                                                                                               \
        CHECK(strstr((t)->response, (text)) != NULL);                                                                  \
        if (!strstr((t)->response, (text)))                                                                            \
            printf("  %d %s\n", (t)->status, (t)->response);                                                           \
    } while (0)

#endif
