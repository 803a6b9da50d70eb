/* A private Redis server for a test, on a socket in a temporary directory. */
#ifndef WEIR_TESTS_REDIS_H
#define WEIR_TESTS_REDIS_H

#include "private_dir.h"

#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Further options of the server, if defined before this file is included: strings, each followed by a comma. */
#ifndef SERVER_OPTIONS
#define SERVER_OPTIONS
#endif

static struct {
    char folder[64], socket[96];
    pid_t pid;
    redisContext *context; /* NULL: the server is not running */
} server;

static inline void server_kill(void)
{
    if (server.context)
        redisFree(server.context);
    server.context = NULL;
    if (server.pid > 0) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
        unlink(server.socket);
    }
    server.pid = 0;
}

static inline void server_end(void)
{
    char command[96];
    server_kill();
    snprintf(command, sizeof command, "rm -rf '%s'", server.folder);
    CHECK_EQ(system(command), 0);
}

/* The redis-server in PATH, or the one that WEIR_TEST_SERVER names: tests/run has several. */
static inline const char *server_program(void)
{
    const char *named = getenv("WEIR_TEST_SERVER");
    return named && named[0] ? named : "redis-server";
}

/* While the server loads its files, it replies with an error. */
static inline bool server_ready(void)
{
    redisReply *reply = server.context->err ? NULL : redisCommand(server.context, "PING");
    bool ready = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return ready;
}

static inline void server_connect(void)
{
    for (int i = 0; i < 1000 && !server.context; i++) {
        usleep(20000);
        server.context = redisConnectUnix(server.socket);
        if (server.context && !server_ready()) {
            redisFree(server.context);
            server.context = NULL;
        }
    }
    CHECK(server.context != NULL);
}

/* Starts the server, for the first test that needs it and after server_kill. False, after printing SKIP: none is
 * installed. */
static inline bool server_begin(void)
{
    if (server.context)
        return true;
    if (strchr(server_program(), '/') == NULL && system("command -v redis-server >/dev/null 2>&1") != 0) {
        printf("SKIP what needs a real server: redis-server is not installed (./dev test installs it)\n");
        return false;
    }
    if (!server.folder[0]) {
        snprintf(server.folder, sizeof server.folder, "%s/weir-redis-XXXXXX", private_root());
        if (!mkdtemp(server.folder))
            return false;
        snprintf(server.socket, sizeof server.socket, "%s/socket", server.folder);
        atexit(server_end);
    }
    server.pid = fork();
    if (server.pid == 0) {
        execlp(server_program(), "redis-server", "--port", "0", "--unixsocket", server.socket, "--save", "", "--dir",
               server.folder, "--logfile", "/dev/null", SERVER_OPTIONS(char *) NULL);
        _exit(127);
    }
    server_connect();
    return server.context != NULL;
}

/* Runs a command and returns its reply, which the caller frees. */
static inline redisReply *server_reply(const char *command)
{
    redisReply *reply = redisCommand(server.context, command);
    CHECK(reply != NULL);
    return reply;
}

static inline void server_do(const char *command)
{
    redisReply *reply = server_reply(command);
    CHECK(reply && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

#endif
