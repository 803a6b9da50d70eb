/* The agent under weir serve. */
#define _GNU_SOURCE /* strsignal */
#include "serve/agent_process.h"
#include "control/admin_listener.h"
#include "serve/handover.h"
#include "serve/agent_threads.h"
#include "stats/history_writer.h"
#include "serve/agent_main.h"
#include "serve/signal_action.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAUSE_MS = 100, /* after the first failure */
    PAUSE_MAX_MS = 5000,
    STEADY_MS = 10000, /* what ran for so long has not failed in a row */
    LAST_MS = 3000,    /* for the last exchange */
    SHARE_MS = 500,    /* between two looks at the state folder */
    MESSAGES_MAX = 256 /* that are taken before anything else */
};

/* Closes the descriptors of the process that stays root: nginx's output, signals, the lock of the runtime folder. */
static void descriptors_close(const struct weir__logger *log, int channel)
{
    struct rlimit files = {.rlim_cur = 1024};
    const int keep[] = {channel < log->file ? channel : log->file, channel < log->file ? log->file : channel, INT_MAX};
    unsigned from = STDERR_FILENO + 1;
    getrlimit(RLIMIT_NOFILE, &files);
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
        if (keep[i] < (int)from)
            continue;
        if (keep[i] > (int)from && syscall(SYS_close_range, from, (unsigned)keep[i] - 1, 0) != 0)
            for (unsigned fd = from; fd < (unsigned)keep[i] && fd < files.rlim_cur; fd++) /* a kernel before 5.9 */
                close((int)fd);
        from = (unsigned)keep[i] + 1;
    }
}

/* In the child. The configuration is its own copy: texts that root read stay in it. False after it was logged. */
static bool become_agent(struct weir__config *config, const struct weir__agent_user *user,
                         const struct weir__logger *log)
{
    weir__handover_take(config, user, log);
    return weir__privilege_drop(user, log) && weir__handover_check(config, user, log);
}

/* In a process group of its own, so that a terminal's Ctrl-C does not end it before the workers; and not without us. */
_Noreturn static void be_the_agent(const struct weir__companion *companion, const struct weir__config *config,
                                   const struct weir__logger *log, pid_t parent, int channel)
{
    struct weir__config own = *config;
    descriptors_close(log, channel);
    setpgid(0, 0);
    if (channel > 0)
        weir__sidecar_send_by(channel, config->segment_path);
    if (!become_agent(&own, &companion->user, log))
        _exit(1);
    prctl(PR_SET_NAME, "weir-agent"); /* a process of this name has no privileges any more */
    prctl(PR_SET_PDEATHSIG,
          companion->death ? companion->death : SIGTERM); /* after the change of user, which clears it */
    int signals = weir__take_signals();
    if (signals < 0 || getppid() != parent)
        _exit(1);
    enum weir__exchange_end end = weir__process_run(&own, log, signals, NULL);
    _exit(end == WEIR__EXCHANGE_STOPPED ? 0 : 1);
}

/* What has to be there first. False after it was logged. */
static bool share(struct weir__agent_user *user, const struct weir__config *config, const struct weir__logger *log)
{
    char why[256];
    if (!weir__agent_user_find(config, user, why, sizeof why)) {
        weir__logf(log, WEIR__LOG_ERROR, "the agent does not start: %s", why);
        return false;
    }
    return weir__handover_share(config, user, log);
}

bool weir__companion_become(struct weir__config *config, const struct weir__logger *log)
{
    struct weir__agent_user user;
    return share(&user, config, log) && become_agent(config, &user, log);
}

bool weir__companion_prepare(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__agent_user user;
    int status = 0;
    if (geteuid() != 0 || !config->published)
        return weir__keeper_prepare(config, log);
    if (!share(&user, config, log))
        return false;
    pid_t child = fork();
    if (child == 0) {
        struct weir__config own = *config;
        descriptors_close(log, 0);
        own.admin.listener = NULL; /* the port is for the agent itself */
        if (!become_agent(&own, &user, log))
            _exit(1);
        own.admin.listener = config->admin.listener;
        _exit(weir__keeper_prepare(&own, log) ? 0 : 1);
    }
    if (child < 0)
        weir__logf(log, WEIR__LOG_ERROR, "the agent cannot be started: %s", strerror(errno));
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    bool good = child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good)
        weir__handover_warn(config, &user, false, log);
    return good;
}

static void channel_close(struct weir__companion *companion)
{
    if (companion->channel > 0)
        close(companion->channel);
    free(companion->inbox.text);
    companion->channel = 0;
    companion->inbox = (struct weir__sidecar_inbox){0};
}

/* True: only root can bind the admin listener's port, and cannot at present. */
static bool port_is_taken(const struct weir__config *config)
{
    const struct weir__listener *listener = config->admin.listener;
    char why[256];
    if (geteuid() != 0 || !listener || strtol(listener->port, NULL, 10) >= IPPORT_RESERVED)
        return false;
    int bound = weir__admin_bind(listener, why, sizeof why);
    if (bound >= 0)
        close(bound);
    return bound < 0;
}

/* An agent that was started without its port gets it by being started again. */
static void port_look(struct weir__companion *companion, const struct weir__config *config, int64_t now_ms)
{
    if (!companion->portless || now_ms < companion->port_due_ms)
        return;
    companion->port_due_ms = now_ms + PAUSE_MAX_MS;
    companion->portless = port_is_taken(config);
    if (!companion->portless)
        weir__companion_renew(companion);
}

void weir__companion_tend(struct weir__companion *companion, const struct weir__config *config,
                          const struct weir__logger *log, int64_t now_ms)
{
    if (companion->pid || !weir__keeper_needed(config) || now_ms < companion->due_ms)
        return;
    int ends[2] = {0, 0};
    companion->due_ms = now_ms + PAUSE_MAX_MS; /* if anything fails here */
    if (!share(&companion->user, config, log))
        return;
    if (companion->user.drops && !weir__sidecar_channel(ends)) {
        weir__logf(log, WEIR__LOG_ERROR, "the agent cannot be started: %s", strerror(errno));
        return;
    }
    companion->portless = port_is_taken(config);
    companion->port_due_ms = now_ms + PAUSE_MAX_MS;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        be_the_agent(companion, config, log, parent, ends[1]);
    }
    if (ends[1] > 0)
        close(ends[1]);
    companion->channel = ends[0];
    if (child < 0) {
        weir__logf(log, WEIR__LOG_ERROR, "the agent cannot be started: %s", strerror(errno));
        channel_close(companion);
        return;
    }
    companion->pid = child;
    companion->started_ms = now_ms;
}

void weir__companion_serve(struct weir__companion *companion, const struct weir__config *config,
                           const struct weir__logger *log, int64_t now_ms)
{
    char path[4200];
    if (!companion->pid || companion->channel <= 0)
        return;
    for (int i = 0; i < MESSAGES_MAX; i++) {
        struct pollfd wait = {.fd = companion->channel, .events = POLLIN};
        if (poll(&wait, 1, 0) <= 0)
            break;
        if (!(wait.revents & POLLIN)) { /* it has closed its end */
            channel_close(companion);
            return;
        }
        size_t rules = weir__sidecar_receive(companion->channel, config->segment_path, &companion->inbox);
        if (!rules || weir__observer_prepare(config->segment_path, rules) != 0)
            continue;
        snprintf(path, sizeof path, "%s.history", config->segment_path);
        (void)!weir__handover_file(path, &companion->user);
    }
    port_look(companion, config, now_ms);
    if (now_ms - companion->shared_ms < SHARE_MS)
        return;
    companion->shared_ms = now_ms;
    companion->foreign = weir__handover_warn(config, &companion->user, companion->foreign, log);
}

void weir__companion_renew(struct weir__companion *companion)
{
    companion->due_ms = 0;
    companion->pause_ms = 0;
    companion->renewing = companion->pid != 0;
    if (companion->pid)
        kill(companion->pid, SIGTERM);
}

bool weir__companion_ended(struct weir__companion *companion, pid_t child, int status, const struct weir__logger *log,
                           int64_t now_ms)
{
    if (!companion->pid || child != companion->pid)
        return false;
    companion->pid = 0;
    channel_close(companion);
    if (companion->renewing) {
        companion->renewing = false;
        return true;
    }
    if (now_ms - companion->started_ms >= STEADY_MS)
        companion->pause_ms = 0;
    companion->pause_ms = companion->pause_ms ? companion->pause_ms * 2 : PAUSE_MS;
    if (companion->pause_ms > PAUSE_MAX_MS)
        companion->pause_ms = PAUSE_MAX_MS;
    companion->due_ms = now_ms + companion->pause_ms;
    if (WIFSIGNALED(status))
        weir__logf(log, WEIR__LOG_WARNING, "the agent was killed by signal %d (%s); it is started again",
                   WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        weir__logf(log, WEIR__LOG_WARNING, "the agent ended (exit %d); it is started again", WEXITSTATUS(status));
    return true;
}

void weir__companion_stop(struct weir__companion *companion)
{
    if (!companion->pid)
        return;
    kill(companion->pid, SIGTERM);
    for (int waited = 0; waited < LAST_MS; waited += 10) {
        if (waitpid(companion->pid, NULL, WNOHANG) != 0) {
            companion->pid = 0;
            channel_close(companion);
            return;
        }
        poll(NULL, 0, 10);
    }
    kill(companion->pid, SIGKILL);
    waitpid(companion->pid, NULL, 0);
    companion->pid = 0;
    channel_close(companion);
}
