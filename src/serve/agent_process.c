/* The agent as a child process of the supervisor. See agent.h. */
#include "serve/agent.h"
#include "control/control.h"
#include "stats/stats.h"
#include "base/clock.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAUSE_MS = 100, /* back-off after the first failure; doubles up to: */
    PAUSE_MAX_MS = 5000,
    STEADY_MS = 10000,       /* an agent that ran this long resets the back-off */
    LAST_MS = 3000,          /* for a stopping agent's last exchange with the store */
    RENEW_MS = 10000,        /* from SIGTERM to SIGKILL when the agent is replaced */
    PREPARE_MS = 30000,      /* deadline of weir__bootstrap */
    HISTORY_MS = 2000,       /* deadline for creating or enlarging the history */
    HISTORY_PAUSE_MS = 1000, /* between two requests for a history; 10 times as long after a failure */
    SHARE_MS = 500,          /* between two checks for root's files in the state folder */
    MESSAGES_MAX = 256       /* per call of weir__agent_poll */
};

/* In the agent's process: takes what only root can read, then drops root's privileges. False after a logged error. */
static bool become_agent(struct weir__config *config, const struct weir__agent_user *user,
                         const struct weir__logger *log)
{
    weir__secrets_wipe();
    weir__wipe_inherited_memory();
    weir__handover_take(config, user, log);
    return weir__privilege_drop(user, log) && weir__handover_check(config, user, log);
}

/* The agent's process. It has its own session: Ctrl-C at a terminal does not reach it, and it cannot insert input into
 * that terminal. It dies with its parent. */
_Noreturn static void agent_main(const struct weir__agent_process *agent, pid_t parent, int channel, int output,
                                 int admin, int queue)
{
    struct weir__config own = *agent->config;
    struct weir__logger log = *agent->log;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) /* it could read what is typed at the terminal */
        _exit(1);
    if (output > 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        log.file = STDERR_FILENO; /* not the log file, which it could truncate */
    weir__close_descriptors((int[]){log.file, channel, admin, queue}, 4);
    own.admin.socket = admin;
    own.queue.listener = queue;
    setsid();
    if (channel > 0)
        weir__sidecar_send_by(channel, own.segment_path);
    if (!become_agent(&own, &agent->user, &log))
        _exit(1);
    prctl(PR_SET_NAME, "weir-agent"); /* set after privileges are dropped; tests rely on it */
    prctl(PR_SET_PDEATHSIG, agent->death ? agent->death : SIGTERM); /* a change of user clears it */
    int signals = weir__signals_open();
    if (signals < 0 || getppid() != parent)
        _exit(1);
    _exit(weir__agent_run(&own, &log, signals) ? 0 : 1);
}

/* Finds the agent's user, and hands files over to it. False after a logged error. */
static bool find_user_and_share(struct weir__agent_user *user, const struct weir__config *config,
                                const struct weir__logger *log)
{
    char why[256];
    if (!weir__agent_user_find(config, user, why, sizeof why)) {
        weir__logf(log, WEIR__LOG_ERROR, "agent failed to start: %s", why);
        return false;
    }
    return weir__handover_share(config, user, log);
}

bool weir__agent_become(struct weir__config *config, const struct weir__logger *log)
{
    struct weir__agent_user user;
    return find_user_and_share(&user, config, log) && become_agent(config, &user, log);
}

bool weir__agent_prepare(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__agent_user user;
    if (!config->published && (!config->admin.database || config->admin.rules == WEIR__RULES_IN_FILES))
        return true;
    if (!find_user_and_share(&user, config, log))
        return false;
    int code = weir__helper_fork(PREPARE_MS, log->file, 0);
    if (code == WEIR__IN_HELPER) {
        struct weir__config own = *config;
        own.admin.listener = NULL; /* only the agent binds the admin port */
        bool good = become_agent(&own, &user, log);
        own.admin.listener = config->admin.listener;
        _exit(good && weir__bootstrap(&own, log) ? 0 : 1);
    }
    if (code < 0)
        weir__logf(log, WEIR__LOG_ERROR, "cannot prepare the rules%s%s: %s", user.drops ? " as user " : "", user.name,
                   strerror(errno));
    if (code != 0)
        weir__handover_warn(config, &user, false, log);
    return code == 0;
}

/* 0: there is none. */
static void close_if_open(int *descriptor)
{
    if (*descriptor > 0)
        close(*descriptor);
    *descriptor = 0;
}

/* Copies complete lines of the agent to the log, and lines over 4 KiB in pieces. */
static void output_copy(struct weir__agent_process *agent)
{
    for (int i = 0; agent->output > 0 && i < MESSAGES_MAX; i++) {
        char *line = agent->line;
        ssize_t got = read(agent->output, line + agent->line_len, sizeof agent->line - agent->line_len);
        if (got == 0) /* the agent has closed its end */
            close_if_open(&agent->output);
        if (got <= 0)
            return;
        size_t len = agent->line_len += (size_t)got;
        const char *end = memrchr(line, '\n', len);
        size_t complete = end ? (size_t)(end - line) + 1 : len == sizeof agent->line ? len : 0;
        if (complete)
            weir__log_raw(agent->log, (weir_text){line, complete});
        memmove(line, line + complete, len - complete);
        agent->line_len = len - complete;
    }
}

static void output_close(struct weir__agent_process *agent)
{
    output_copy(agent);
    if (agent->line_len)
        weir__log_raw(agent->log, (weir_text){agent->line, agent->line_len});
    close_if_open(&agent->output);
    agent->line_len = 0;
}

static void channel_close(struct weir__agent_process *agent)
{
    close_if_open(&agent->channel);
    free(agent->inbox.text);
    agent->inbox = (struct weir__sidecar_inbox){0};
}

/* True if only root can bind the admin listener's port, and binding fails at present. */
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

/* Restarts an agent that lacks the admin port once the port is free. */
static void port_look(struct weir__agent_process *agent, int64_t now_ms)
{
    if (!agent->portless || now_ms < agent->port_due_ms)
        return;
    agent->port_due_ms = now_ms + PAUSE_MAX_MS;
    agent->portless = port_is_taken(agent->config);
    if (!agent->portless)
        weir__agent_restart(agent);
}

void weir__agent_start_if_due(struct weir__agent_process *agent)
{
    int64_t now_ms = weir__monotonic_ms();
    if (agent->pid || !weir__agent_needed(agent->config) || now_ms < agent->due_ms)
        return;
    int ends[2] = {0, 0}, output[2] = {0, 0};
    agent->due_ms = now_ms + PAUSE_MAX_MS; /* in case starting fails */
    if (!find_user_and_share(&agent->user, agent->config, agent->log))
        return;
    int admin = agent->listening ? weir__listening_admin(agent->listening, agent->config) : 0;
    int queue = agent->listening ? weir__listening_queue(agent->listening, agent->config) : 0;
    agent->portless = admin == 0 && port_is_taken(agent->config);
    agent->port_due_ms = now_ms + PAUSE_MAX_MS;
    bool connected = !agent->user.drops || (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 &&
                                            pipe2(output, O_CLOEXEC) == 0);
    if (output[0] > 0)
        fcntl(output[0], F_SETFL, O_NONBLOCK);
    pid_t parent = getpid(), child = connected ? fork() : -1;
    if (child == 0)
        agent_main(agent, parent, ends[1], output[1], admin, queue);
    close_if_open(&ends[1]);
    close_if_open(&output[1]);
    agent->channel = ends[0];
    agent->output = output[0];
    if (child < 0) {
        weir__logf(agent->log, WEIR__LOG_ERROR, "agent failed to start: %s; retrying in 5 s", strerror(errno));
        channel_close(agent);
        output_close(agent);
        return;
    }
    agent->pid = child;
    agent->started_ms = now_ms;
}

/* Creates a history with room for `rules`. Rate-limited: the agent repeats a request that has no effect. */
static void history_prepare(struct weir__agent_process *agent, size_t rules, int64_t now_ms)
{
    const char *segment = agent->config->segment_path;
    char path[4200];
    if (now_ms < agent->history_due_ms)
        return;
    int code = weir__helper_fork(HISTORY_MS, 0, 0); /* as the agent can write to the file */
    if (code == WEIR__IN_HELPER)
        _exit(-weir__history_writer_prepare(segment, rules));
    agent->history_due_ms = now_ms + (code == 0 ? HISTORY_PAUSE_MS : HISTORY_MS + 10 * HISTORY_PAUSE_MS);
    snprintf(path, sizeof path, "%s.history", segment);
    if (code == 0)
        (void)!weir__handover_file(path, &agent->user, 0);
}

/* Kills an agent that did not exit in time after weir__agent_restart. */
static void renew_late(struct weir__agent_process *agent, int64_t now_ms)
{
    if (!agent->pid || !agent->renewing || now_ms < agent->renew_due_ms)
        return;
    weir__logf(agent->log, WEIR__LOG_WARNING, "agent did not exit within %d s; killing it and starting another",
               RENEW_MS / 1000);
    kill(agent->pid, SIGKILL);
    agent->renew_due_ms = now_ms + RENEW_MS;
}

void weir__agent_poll(struct weir__agent_process *agent)
{
    int64_t now_ms = weir__monotonic_ms();
    renew_late(agent, now_ms);
    output_copy(agent);
    if (!agent->pid || agent->channel <= 0)
        return;
    for (int i = 0; i < MESSAGES_MAX; i++) {
        struct pollfd wait = {.fd = agent->channel, .events = POLLIN};
        if (poll(&wait, 1, 0) <= 0)
            break;
        size_t rules = 0;
        if (!(wait.revents & POLLIN) || !weir__sidecar_receive(agent->channel, agent->config->segment_path,
                                                               agent->user.workers, &agent->inbox, &rules)) {
            channel_close(agent); /* the agent has closed its end */
            return;
        }
        if (rules)
            history_prepare(agent, rules, now_ms);
    }
    port_look(agent, now_ms);
    if (now_ms - agent->shared_ms < SHARE_MS)
        return;
    agent->shared_ms = now_ms;
    agent->foreign = weir__handover_warn(agent->config, &agent->user, agent->foreign, agent->log);
}

void weir__agent_restart(struct weir__agent_process *agent)
{
    agent->renew_due_ms = weir__monotonic_ms() + RENEW_MS;
    agent->due_ms = 0;
    agent->pause_ms = 0;
    agent->renewing = agent->pid != 0;
    if (agent->pid)
        kill(agent->pid, SIGTERM);
}

void weir__agent_reaped(struct weir__agent_process *agent, pid_t child, int status)
{
    int64_t now_ms = weir__monotonic_ms();
    if (!agent->pid || child != agent->pid)
        return;
    agent->pid = 0;
    channel_close(agent);
    output_close(agent);
    if (agent->renewing) {
        agent->renewing = false;
        return;
    }
    if (now_ms - agent->started_ms >= STEADY_MS)
        agent->pause_ms = 0;
    agent->pause_ms = agent->pause_ms ? agent->pause_ms * 2 : PAUSE_MS;
    if (agent->pause_ms > PAUSE_MAX_MS)
        agent->pause_ms = PAUSE_MAX_MS;
    agent->due_ms = now_ms + agent->pause_ms;
    if (WIFSIGNALED(status))
        weir__logf(agent->log, WEIR__LOG_WARNING, "agent killed by signal %d (%s); restarting in %d ms",
                   WTERMSIG(status), strsignal(WTERMSIG(status)), (int)agent->pause_ms);
    else
        weir__logf(agent->log, WEIR__LOG_WARNING, "agent exited (exit code %d); restarting in %d ms",
                   WEXITSTATUS(status), (int)agent->pause_ms);
}

void weir__agent_stop(struct weir__agent_process *agent)
{
    bool ended = agent->pid == 0;
    if (!ended)
        kill(agent->pid, SIGTERM);
    for (int waited = 0; waited < LAST_MS && !ended; waited += 10) {
        ended = waitpid(agent->pid, NULL, WNOHANG) != 0;
        output_copy(agent);
        if (!ended)
            poll(NULL, 0, 10);
    }
    if (!ended) {
        kill(agent->pid, SIGKILL);
        waitpid(agent->pid, NULL, 0);
    }
    agent->pid = 0;
    channel_close(agent);
    output_close(agent);
}
