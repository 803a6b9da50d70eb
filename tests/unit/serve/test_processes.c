/* Parts of the supervisor: helper processes with a deadline, the agent's channel, the agent's system call filter. */
#include "serve/privilege.h"
#include "serve/serve.h"
#include "base/sidecar.h"

#include "../../test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Runs `work` in a helper. */
static int helper_run(int (*work)(void *context), void *context, int keep, int64_t deadline_ms)
{
    int code = weir__helper_fork(deadline_ms, keep, 0);
    if (code == WEIR__IN_HELPER)
        _exit(work(context));
    return code;
}

static int number(void *context)
{
    return *(int *)context;
}

static int stop(void *context)
{
    (void)context;
    raise(SIGSTOP); /* as an attacker of the same user could */
    return 0;
}

static int die(void *context)
{
    (void)context;
    raise(SIGKILL);
    return 0;
}

/* Leaves a child process behind that keeps the pipe open. */
static int leave_child(void *context)
{
    (void)context;
    if (fork() == 0)
        pause();
    return 0;
}

struct descriptors {
    int kept, closed;
    pid_t parent_session;
};

static int look(void *context)
{
    const struct descriptors *seen = context;
    return (fcntl(seen->kept, F_GETFD) < 0) | (fcntl(seen->closed, F_GETFD) >= 0) << 1 |
           (getsid(0) == seen->parent_session) << 2;
}

TEST(helper_returns_the_result_of_its_work)
{
    for (int code = 0; code < 60; code += 7)
        CHECK_EQ(helper_run(number, &code, 0, 5000), code);
    CHECK_EQ(helper_run(die, NULL, 0, 5000), -1);
}

TEST(stopped_helper_is_killed_at_its_deadline)
{
    int64_t before = now_ms();
    errno = 0;
    CHECK_EQ(helper_run(stop, NULL, 0, 100), -1);
    CHECK_EQ(errno, ETIMEDOUT);
    CHECK(now_ms() - before >= 100 && now_ms() - before < 4000);
}

TEST(helper_has_its_own_session_and_only_kept_descriptors)
{
    int ends[2], others[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && pipe2(others, O_CLOEXEC) == 0);
    struct descriptors seen = {ends[1], others[1], getsid(0)};
    CHECK_EQ(helper_run(look, &seen, ends[1], 5000), 0);
    /* The child processes it leaves behind are killed: then the pipe has no other end. */
    CHECK_EQ(helper_run(leave_child, NULL, ends[1], 5000), 0);
    char byte;
    close(ends[1]);
    CHECK_EQ(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    close(others[0]);
    close(others[1]);
}

/* ---- The agent's channel ---- */

static size_t file_read(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, size) : -1;
    if (file >= 0)
        close(file);
    return got < 0 ? SIZE_MAX : (size_t)got;
}

TEST(closed_channel_and_repeated_text)
{
    char folder[] = "/tmp/weir-channel-XXXXXX", segment[64], path[80], text[64];
    struct weir__sidecar_inbox inbox = {0};
    struct stat at;
    size_t rules;
    int ends[2];
    CHECK(mkdtemp(folder) && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    snprintf(segment, sizeof segment, "%s/segment", folder);
    snprintf(path, sizeof path, "%s.hosts", segment);
    static const char hosts[] = "\0\1\1hosts", more[] = "\0\0\1";
    CHECK_EQ(send(ends[1], hosts, sizeof hosts - 1, 0), (ssize_t)sizeof hosts - 1);
    CHECK(weir__sidecar_receive(ends[0], segment, getgid(), &inbox, &rules));
    CHECK(rules == 0 && file_read(path, text, sizeof text) == 5 && memcmp(text, "hosts", 5) == 0);
    CHECK(stat(path, &at) == 0 && (at.st_mode & 0777) == 0640 && at.st_gid == getgid());
    /* A last part without a first one does not write the previous text again. */
    unlink(path);
    CHECK_EQ(send(ends[1], more, sizeof more - 1, 0), (ssize_t)sizeof more - 1);
    CHECK(weir__sidecar_receive(ends[0], segment, getgid(), &inbox, &rules));
    CHECK(file_read(path, text, sizeof text) == SIZE_MAX);
    CHECK(weir__sidecar_receive(ends[0], segment, getgid(), &inbox, &rules)); /* nothing was received */
    close(ends[1]);
    CHECK(!weir__sidecar_receive(ends[0], segment, getgid(), &inbox, &rules));
    close(ends[0]);
    free(inbox.text);
    rmdir(folder);
}

/* ---- System calls ---- */

/* A pipe is no terminal: ENOTTY, unless the call is filtered. */
static int terminal_calls(void *context)
{
    static const struct weir__logger log = {.file = 2};
    static const struct weir__agent_user same = {0};
    const int *pipe_end = context;
    char byte = 'x';
    if (ioctl(*pipe_end, TIOCSTI, &byte) == 0 || errno != ENOTTY || !weir__privilege_drop(&same, &log))
        return 1;
    if (ioctl(*pipe_end, TIOCSTI, &byte) == 0 || errno != EPERM)
        return 2;
    if (ioctl(*pipe_end, TIOCLINUX, &byte) == 0 || errno != EPERM)
        return 3;
    return ioctl(*pipe_end, TCGETS, &byte) == 0 || errno != ENOTTY ? 4 : 0;
}

TEST(agent_cannot_inject_terminal_input)
{
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(helper_run(terminal_calls, &ends[1], ends[1], 5000), 0);
    close(ends[0]);
    close(ends[1]);
}

/* ---- Signals; last, as they stay blocked ---- */

static int reports;

/* Called while weir.yaml is read. By default each of these signals would end the process. */
static void send_all(void *context, const weir_diagnostic *what)
{
    (void)context;
    (void)what;
    static const int sent[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        CHECK_EQ(raise(sent[i]), 0);
    reports++;
}

TEST(signals_during_startup_are_kept)
{
    char path[] = "/tmp/weir-agent-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, "worker: 1\n", 10) == 10);
    close(file);
    CHECK_EQ(weir__agent(path, false, send_all, NULL), 1);
    CHECK(reports > 0);

    sigset_t waiting;
    CHECK_EQ(sigpending(&waiting), 0);
    CHECK(sigismember(&waiting, SIGHUP) == 1 && sigismember(&waiting, SIGTERM) == 1);
    unlink(path);
}

TEST_MAIN
