/* weir agent: the agent without weir serve, for an nginx or an application that something else runs. */
#include "serve/serve.h"
#include "base/clock.h"
#include "control/control.h"
#include "serve/agent.h"
#include "base/signals.h"
#include "serve/deployment.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCH_MS = 500 /* between two checks for changed files */, POLL_MS = 100 };

/* The running configuration, and fingerprints of its files. */
struct watched {
    struct weir__config *config;
    struct weir__logger *log;
    uint64_t fingerprint, last_seen;
};

static void config_drop(struct weir__config *config)
{
    weir__config_free(config);
    free(config);
}

/* Reads a configuration that needs an agent. NULL after a report. */
static struct weir__config *config_read(const char *file, weir_diagnose *diagnose, void *context)
{
    struct weir__config *config = calloc(1, sizeof *config);
    if (!config)
        return NULL;
    if (weir__config_load(config, file, diagnose, context) == 0 &&
        (weir__agent_needed(config) ||
         weir__config_report(file, "there is no store, rules service, queue, load level or notify in it: nothing to do",
                             diagnose, context)))
        return config;
    config_drop(config);
    return NULL;
}

/* Reads weir.yaml again if its files have changed and two fingerprints in a row are equal, or if requested. NULL: no,
 * or it is rejected, which was logged. */
static struct weir__config *read_changed(struct watched *w, bool requested)
{
    uint64_t fingerprint = weir__config_fingerprint(w->config);
    bool settled = fingerprint == w->last_seen;
    w->last_seen = fingerprint;
    if (!requested && (!fingerprint || fingerprint == w->fingerprint || !settled))
        return NULL;
    w->fingerprint = fingerprint;
    struct weir__config *next = config_read(w->config->file, weir__log_diagnostic, w->log);
    if (!next)
        weir__logf(w->log, WEIR__LOG_ERROR, "%s rejected; the previous configuration stays active", w->config->file);
    return next;
}

/* Prepares a configuration for the agent, which replaces the present one. False after a logged error: nothing changes.
 */
static bool prepare(struct watched *w, struct weir__config *config)
{
    if (!weir__agent_prepare(config, w->log))
        return false;
    if (weir__config_publish(config))
        weir__logf(w->log, WEIR__LOG_WARNING, "%s: " WEIR__RULES_UNDECIDED, config->file);
    if (config != w->config)
        config_drop(w->config);
    w->config = config;
    w->fingerprint = w->last_seen = weir__config_fingerprint(config);
    weir__logf(w->log, WEIR__LOG_INFO, "weir %s runs the agent for %s", weir_version(), config->segment_path);
    weir__deployment_log_admin(config, w->log);
    if (config->store.url)
        weir__logf(w->log, WEIR__LOG_INFO, "weir %s synchronizes eventual rules with %s", weir_version(),
                   config->store.shown);
    return true;
}

/*
 * Reaps children. False: the agent exited by itself, after it logged why. *stopping is set if a signal to the agent
 * alone stopped it.
 */
static bool reap(struct weir__agent_process *agent, bool *stopping)
{
    int status;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (child == agent->pid && !agent->renewing && WIFEXITED(status)) {
            agent->pid = 0;
            *stopping = WEXITSTATUS(status) == 0;
            return *stopping;
        }
        weir__agent_reaped(agent, child, status);
    }
    return true;
}

/* Supervises the agent, a child process: restarts it when it is killed, and when weir.yaml or a file that it names
 * changes. */
static int run(struct watched *w, int signals)
{
    /* SIGKILL of the supervisor kills the agent, too */
    struct weir__agent_process agent = {.log = w->log, .death = SIGKILL};
    bool stopping = false;
    weir__privilege_limit(w->log);
    bool good = prepare(w, w->config);
    for (int64_t watched_ms = weir__monotonic_ms(); good && !stopping;) {
        struct pollfd wait[] = {{.fd = signals, .events = POLLIN},
                                {.fd = agent.channel > 0 ? agent.channel : -1, .events = POLLIN},
                                {.fd = agent.output > 0 ? agent.output : -1, .events = POLLIN}};
        bool requested = false;
        agent.config = w->config;
        weir__agent_start_if_due(&agent);
        poll(wait, sizeof wait / sizeof *wait, POLL_MS);
        weir__agent_poll(&agent);
        good = reap(&agent, &stopping);
        for (enum weir__signal_action action; (action = weir__signal_next(signals)) != WEIR__ACTION_NONE;
             requested = true)
            stopping |= action == WEIR__ACTION_STOP;
        if (stopping || !good || (!requested && weir__monotonic_ms() - watched_ms < WATCH_MS))
            continue;
        watched_ms = weir__monotonic_ms();
        struct weir__config *next = read_changed(w, requested);
        if (!next)
            continue;
        if (!prepare(w, next)) {
            config_drop(next);
            continue;
        }
        if (!weir__logger_open(w->log, next->log_path, next->log_json))
            weir__logf(w->log, WEIR__LOG_ERROR, "%s cannot be opened: %s", next->log_path, strerror(errno));
        weir__agent_restart(&agent);
    }
    weir__agent_stop(&agent);
    if (good)
        weir__logf(w->log, WEIR__LOG_INFO, "stopped");
    return good ? 0 : 1;
}

static int agent(const char *file, bool once, int signals, weir_diagnose *diagnose, void *context)
{
    struct weir__logger log = {.file = STDERR_FILENO, .plain = true};
    struct watched w = {.config = config_read(file, diagnose, context), .log = &log};
    if (!w.config)
        return 1;
    int code = 1;
    signal(SIGPIPE, SIG_IGN);
    if (once && !w.config->store.url) {
        weir__logf(&log, WEIR__LOG_ERROR, "%s names no store: there is nothing to exchange once", file);
    } else if (once) {
        code = weir__agent_become(w.config, &log) && weir__exchange_once(w.config, &log) == 0 ? 0 : 1;
    } else if (!weir__logger_open(&log, w.config->log_path, w.config->log_json)) {
        weir__logf(&log, WEIR__LOG_ERROR, "%s cannot be opened: %s", w.config->log_path, strerror(errno));
    } else {
        log.plain = false;
        code = run(&w, signals);
    }
    weir__logger_close(&log);
    config_drop(w.config);
    return code;
}

int weir__agent(const char *file, bool once, weir_diagnose *diagnose, void *context)
{
    weir__wipe_freed_memory();
    int signals = once ? -1 : weir__signals_open(); /* before weir.yaml is read: no signal is lost */
    if (!once && signals < 0) {
        perror("weir agent");
        return 1;
    }
    int code = agent(file, once, signals, diagnose, context);
    if (signals >= 0)
        close(signals);
    return code;
}
