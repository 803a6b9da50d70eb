/*
 * A rules service for a test: in a directory of its own, on SQLite or on a PostgreSQL that the test program starts.
 * BOTH(name) runs a test on each.
 */
#ifndef WEIR_TEST_SERVICE_H
#define WEIR_TEST_SERVICE_H

#include "../../private_dir.h"
#include "control/call.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct service {
    struct weir__control *control;
    char folder[64], url[256], path[128];
    const struct weir__control_host *host;
    enum weir__role key_texts;
    const char *user; /* NULL: by token */
    char token[128];
    struct weir__rest_reply reply;
    json_t *json; /* the reply's body */
};

/* ---- PostgreSQL ---- */

static char postgres_folder[64];
static int postgres_databases;

static inline int postgres(const char *what)
{
    char command[256];
    snprintf(command, sizeof command, "tests/postgres.sh %s %s", what, postgres_folder);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void postgres_end(void)
{
    char command[128];
    if (!*postgres_folder)
        return;
    postgres("stop");
    snprintf(command, sizeof command, "rm -rf %s", postgres_folder);
    (void)!system(command);
}

/* False: this machine has no PostgreSQL, which is reported as SKIP. */
static inline bool postgres_begin(void)
{
    static pid_t owner;
    if (!*postgres_folder) {
        snprintf(postgres_folder, sizeof postgres_folder, "%s/weir-pg-XXXXXX", private_root());
        if (!mkdtemp(postgres_folder))
            return false;
        int status = postgres("start");
        if (status != 0) {
            printf("SKIP PostgreSQL: %s\n", status == 77 ? "not installed" : "does not start");
            rmdir(postgres_folder);
            strcpy(postgres_folder, "-");
            return false;
        }
        owner = getpid();
        atexit(postgres_end);
    }
    (void)owner;
    return *postgres_folder != '-';
}

/* ---- The service ---- */

static inline void service_open_again(struct service *s)
{
    struct weir__control_options options = {
        .url = s->url, .published_path = s->path, .host = s->host, .key_texts = s->key_texts, .login_links = true};
    CHECK_EQ(weir__control_open(&options, &s->control), 0);
}

static inline void service_open(struct service *s, bool on_postgres)
{
    const struct weir__control_host *host = s->host;
    *s = (struct service){.user = "tester", .host = host, .key_texts = s->key_texts};
    snprintf(s->folder, sizeof s->folder, "%s/weir-control-XXXXXX", private_root());
    CHECK(mkdtemp(s->folder) != NULL);
    snprintf(s->path, sizeof s->path, "%s/published.yaml", s->folder);
    snprintf(s->url, sizeof s->url, "sqlite:%s/rules.db", s->folder);
    if (on_postgres) {
        char command[256], name[32];
        snprintf(name, sizeof name, "t%d_%d", (int)getpid(), postgres_databases++);
        snprintf(command, sizeof command, "psql -q -h %s -U weir -d postgres -c 'CREATE DATABASE %s'", postgres_folder,
                 name);
        CHECK_EQ(system(command), 0);
        snprintf(s->url, sizeof s->url, "postgresql://weir@/%s?host=%s", name, postgres_folder);
    }
    service_open_again(s);
}

static inline void service_shut(struct service *s)
{
    weir__rest_free(&s->reply);
    json_decref(s->json);
    s->json = NULL;
    weir__control_close(s->control);
    s->control = NULL;
}

static inline void service_close(struct service *s)
{
    char command[128];
    service_shut(s);
    snprintf(command, sizeof command, "rm -rf %s", s->folder);
    (void)!system(command);
}

static inline weir_text text_of(const char *text)
{
    return (weir_text){text ? text : "", text ? strlen(text) : 0};
}

/* Fills a request: "PUT /v1/rules/a?x=1". */
static inline struct weir__rest_request request_of(struct service *s, const char *what, const char *body,
                                                   char buffer[512])
{
    struct weir__rest_request r = {.address = "192.0.2.7", .local_user = s->user};
    const char *space = strchr(what, ' '), *query = strchr(what, '?');
    r.method = (weir_text){what, (size_t)(space - what)};
    r.path = (weir_text){space + 1, query ? (size_t)(query - space - 1) : strlen(space + 1)};
    r.query = text_of(query ? query + 1 : NULL);
    r.body = text_of(body);
    r.content_type = text_of(body && *body == '{' ? "application/json" : "application/yaml");
    if (!s->user && *s->token) {
        snprintf(buffer, 512, "Bearer %s", s->token);
        r.authorization = text_of(buffer);
    }
    return r;
}

static inline int service_run(struct service *s, const struct weir__rest_request *r)
{
    weir__rest_free(&s->reply);
    json_decref(s->json);
    weir__rest_run(s->control, r, &s->reply);
    s->json = s->reply.body ? json_loadb(s->reply.body, s->reply.len, JSON_DECODE_ANY, NULL) : NULL;
    return s->reply.status;
}

/* Runs a request and returns its status. */
static inline int rest(struct service *s, const char *what, const char *body)
{
    char buffer[512];
    struct weir__rest_request r = request_of(s, what, body, buffer);
    return service_run(s, &r);
}

static inline int rest_if_match(struct service *s, const char *what, const char *if_match, const char *body)
{
    char buffer[512];
    struct weir__rest_request r = request_of(s, what, body, buffer);
    r.if_match = text_of(if_match);
    return service_run(s, &r);
}

/* "errors[0].line" of the reply: a number, or -1. */
static inline json_t *at(struct service *s, const char *path)
{
    json_t *node = s->json;
    char part[64];
    while (node && *path) {
        size_t len = strcspn(path, ".[");
        if (*path == '[') {
            node = json_array_get(node, (size_t)atoi(path + 1));
            len = strcspn(path, "]") + 1;
        } else {
            snprintf(part, sizeof part, "%.*s", (int)len, path);
            node = json_object_get(node, part);
        }
        path += len;
        path += *path == '.';
    }
    return node;
}

static inline int64_t number(struct service *s, const char *path)
{
    json_t *node = at(s, path);
    return json_is_integer(node) ? json_integer_value(node) : json_is_null(node) ? 0 : -1;
}

static inline const char *word(struct service *s, const char *path)
{
    const char *text = json_string_value(at(s, path));
    return text ? text : "(none)";
}

#define CHECK_WORD(s, path, expected)                                                                                  \
    do {                                                                                                               \
        if (strcmp(word(s, path), expected) != 0)                                                                      \
            printf("  %s is \"%s\"\n", path, word(s, path));                                                           \
        CHECK(strcmp(word(s, path), expected) == 0);                                                                   \
    } while (0)

/* The complete file, or ""; static memory. */
static inline const char *file_text(const char *path)
{
    static char text[1 << 16];
    int file = open(path, O_RDONLY);
    ssize_t len = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[len > 0 ? len : 0] = 0;
    return text;
}

static inline char *rule_text(const char *name, int limit)
{
    static char text[512];
    snprintf(text, sizeof text, "name: %s\nmatch: { path: /%s/* }\nkey: ip:${client_ip}\nlimit: %d\nwindow: 1m\n", name,
             name, limit);
    return text;
}

#define BOTH(name)                                                                                                     \
    static void name##_on(bool on_postgres);                                                                           \
    TEST(name##_sqlite)                                                                                                \
    {                                                                                                                  \
        name##_on(false);                                                                                              \
    }                                                                                                                  \
    TEST(name##_postgres)                                                                                              \
    {                                                                                                                  \
        if (postgres_begin())                                                                                          \
            name##_on(true);                                                                                           \
    }                                                                                                                  \
    static void name##_on(bool on_postgres)

#endif
