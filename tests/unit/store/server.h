/* A Redis of a test's own: on a socket in a temporary folder, with the script loaded. */
#ifndef WEIR_TEST_STORE_SERVER_H
#define WEIR_TEST_STORE_SERVER_H

#include "../../test.h"
#include "store/script.h"

#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct server {
    char folder[64], socket[96];
    pid_t pid;
    redisContext *context;
};

static struct server server;

static void server_stop(void)
{
    if (server.context)
        redisFree(server.context);
    if (server.pid > 0) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
        unlink(server.socket);
        rmdir(server.folder);
    }
    server = (struct server){.pid = 0};
}

/* Runs a command and returns its reply, which the caller frees. */
static inline redisReply *server_run(const char *command)
{
    redisReply *reply = redisCommand(server.context, command);
    CHECK(reply != NULL);
    return reply;
}

static inline void server_do(const char *command)
{
    redisReply *reply = server_run(command);
    CHECK(reply && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

/* The server, started by the first test that asks. False, loudly: there is none on this machine. */
static bool server_start(void)
{
    if (server.context)
        return true;
    if (system("command -v redis-server >/dev/null 2>&1") != 0) {
        printf("SKIP the script in a real server: redis-server is not installed (./dev test installs it)\n");
        return false;
    }
    snprintf(server.folder, sizeof server.folder, "/tmp/weir-store-XXXXXX");
    if (!mkdtemp(server.folder))
        return false;
    snprintf(server.socket, sizeof server.socket, "%s/socket", server.folder);
    server.pid = fork();
    if (server.pid == 0) {
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", server.socket, "--save", "", "--dir",
               server.folder, "--logfile", "/dev/null", (char *)NULL);
        _exit(127);
    }
    atexit(server_stop);
    for (int i = 0; i < 200; i++) {
        usleep(20000);
        server.context = redisConnectUnix(server.socket);
        if (server.context && !server.context->err)
            break;
        if (server.context)
            redisFree(server.context);
        server.context = NULL;
    }
    CHECK(server.context != NULL);
    if (!server.context)
        return false;
    redisReply *reply = redisCommand(server.context, "SCRIPT LOAD %b", weir__script, weir__script_len());
    CHECK(reply && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, weir__script_sha) == 0);
    if (reply && reply->type == REDIS_REPLY_ERROR)
        printf("  %s\n", reply->str);
    freeReplyObject(reply);
    return true;
}

/* One run of the script; 0 or the error. */
static inline int server_ask(const struct weir__batch_part *parts, size_t count, const char *sender, uint64_t batch)
{
    static struct weir__buffer buffer;
    void *reply = NULL;
    buffer.len = 0;
    weir__script_call(&buffer, parts, count, sender, batch);
    if (buffer.failed || redisAppendFormattedCommand(server.context, buffer.data, buffer.len) != REDIS_OK ||
        redisGetReply(server.context, &reply) != REDIS_OK)
        return WEIR_ESTOREDOWN;
    redisReply *answer = reply;
    int error = answer->type == REDIS_REPLY_ERROR ? weir__store_error(answer->str, answer->len)
                                                  : weir__script_read(answer, parts, count);
    if (answer->type == REDIS_REPLY_ERROR)
        printf("  %s\n", answer->str);
    freeReplyObject(answer);
    return error;
}

/* One question with all its groups in one run. */
static inline int server_question(struct weir__question *question)
{
    struct weir__batch_part parts[WEIR__BATCH_GROUPS];
    for (uint32_t i = 0; i < question->group_count; i++)
        parts[i] = (struct weir__batch_part){question, i};
    return server_ask(parts, question->group_count, question->sender, question->batch);
}

static inline void ask_name(struct weir__ask *ask, const char *name)
{
    ask->name_len = (uint16_t)strlen(name);
    memcpy(ask->name, name, ask->name_len + 1U);
}

/* Asks for one counter. */
static inline int server_one(struct weir__ask *ask)
{
    struct weir__group group = {0, 1, false};
    struct weir__question question = {.asks = ask, .ask_count = 1, .groups = &group, .group_count = 1};
    return server_question(&question);
}

#endif
