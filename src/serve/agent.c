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

/* The running configuration, the one read last, and fingerprints of the file. */
struct watched {
    struct weir__config *config, *next;
    struct weir__logger *log;
    uint64_t fingerprint, last_seen;
};

static uint64_t fingerprint_of(const char *file)
{
    struct weir__fingerprint fingerprint = weir__sources_look(file);
    return fingerprint.error ? 0 : fingerprint.sum | 1;
}

/* Reads a configuration that needs an agent. NULL after a report. */
static struct weir__config *config_read(const char *file, weir_diagnose *diagnose, void *context)
{
    struct weir__config *config = calloc(1, sizeof *config);
    if (!config)
        return NULL;
    if (weir__config_load(config, file, diagnose, context) == 0 &&
        (weir__agent_needed(config) ||
         weir__config_report(file,
                             "there is no store, no rules service, no queue and no load level in it: nothing to do",
                             diagnose, context)))
        return config;
    weir__config_free(config);
    free(config);
    return NULL;
}

/* Reads the file again if it has changed and two fingerprints in a row are equal, or if requested. True: `next` is set.
 */
static bool changed(void *context, bool requested)
{
    struct watched *w = context;
    uint64_t fingerprint = geteuid() == 0 ? weir__config_fingerprint(w->config) : fingerprint_of(w->config->file);
    bool settled = fingerprint == w->last_seen;
    w->last_seen = fingerprint;
    if (!requested && (!fingerprint || fingerprint == w->fingerprint || !settled))
        return false;
    w->fingerprint = fingerprint;
    w->next = config_read(w->config->file, weir__log_diagnostic, w->log);
    if (!w->next)
        weir__logf(w->log, WEIR__LOG_ERROR, "%s rejected; the previous configuration stays active", w->config->file);
    return w->next != NULL;
}

/* Makes `next` the running configuration. */
static void take_next(struct watched *w)
{
    weir__config_free(w->config);
    free(w->config);
    w->config = w->next;
    w->next = NULL;
    if (!weir__logger_open(w->log, w->config->log_path, w->config->log_json))
        weir__logf(w->log, WEIR__LOG_ERROR, "%s cannot be opened: %s", w->config->log_path, strerror(errno));
}

static void log_start(const struct watched *w)
{
    if (w->config->store.url)
        weir__logf(w->log, WEIR__LOG_INFO, "weir %s synchronizes eventual rules with %s", weir_version(),
                   w->config->store.shown);
}

/* Reaps children. False: the agent exited by itself, after it logged why. */
static bool reap(struct weir__agent_process *agent)
{
    int status;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (child == agent->pid && !agent->renewing && WIFEXITED(status)) {
            agent->pid = 0;
            return false;
        }
        weir__agent_reaped(agent, child, status);
    }
    return true;
}

/* As root: supervises an agent of another user; restarts it when it is killed, and when weir.yaml or a file that only
 * root can read changes. */
static int run_child(struct watched *w, int signals)
{
    /* SIGKILL of the supervisor kills the agent, too */
    struct weir__agent_process agent = {.config = w->config, .log = w->log, .death = SIGKILL};
    bool stopping = false;
    weir__privilege_limit(w->log);
    bool good = weir__agent_prepare(w->config, w->log);
    w->fingerprint = w->last_seen = weir__config_fingerprint(w->config);
    log_start(w);
    for (int64_t watched_ms = weir__monotonic_ms(); good && !stopping;) {
        struct pollfd wait[] = {{.fd = signals, .events = POLLIN},
                                {.fd = agent.channel > 0 ? agent.channel : -1, .events = POLLIN},
                                {.fd = agent.output > 0 ? agent.output : -1, .events = POLLIN}};
        bool requested = false;
        weir__agent_start_if_due(&agent);
        poll(wait, sizeof wait / sizeof *wait, POLL_MS);
        weir__agent_poll(&agent);
        good = reap(&agent);
        for (enum weir__signal_action action; (action = weir__signal_next(signals)) != WEIR__ACTION_NONE;
             requested = true)
            stopping |= action == WEIR__ACTION_STOP;
        if (stopping || !good || (!requested && weir__monotonic_ms() - watched_ms < WATCH_MS))
            continue;
        watched_ms = weir__monotonic_ms();
        if (!changed(w, requested))
            continue;
        take_next(w);
        agent.config = w->config;
        w->fingerprint = w->last_seen = weir__config_fingerprint(w->config);
        log_start(w);
        good = weir__agent_prepare(w->config, w->log);
        weir__agent_restart(&agent);
    }
    weir__agent_stop(&agent);
    if (good)
        weir__logf(w->log, WEIR__LOG_INFO, "stopped");
    return good ? 0 : 1;
}

static int run(struct watched *w, int signals)
{
    struct weir__exchange_watch watch = {changed, w};
    enum weir__exchange_end end = WEIR__EXCHANGE_CHANGED;
    if (!weir__agent_become(w->config, w->log))
        return 1;
    while (end == WEIR__EXCHANGE_CHANGED) {
        if (!weir__bootstrap(w->config, w->log))
            return 1;
        log_start(w);
        end = weir__agent_run(w->config, w->log, signals, &watch);
        if (end != WEIR__EXCHANGE_CHANGED || !w->next)
            break;
        take_next(w);
    }
    if (end == WEIR__EXCHANGE_STOPPED)
        weir__logf(w->log, WEIR__LOG_INFO, "stopped");
    return end == WEIR__EXCHANGE_STOPPED ? 0 : 1;
}

static int agent(const char *file, bool once, int signals, weir_diagnose *diagnose, void *context)
{
    struct weir__logger log = {.file = STDERR_FILENO, .plain = true};
    struct watched w = {.log = &log, .fingerprint = fingerprint_of(file)};
    w.last_seen = w.fingerprint;
    w.config = config_read(file, diagnose, context);
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
        code = geteuid() == 0 ? run_child(&w, signals) : run(&w, signals);
    }
    weir__logger_close(&log);
    weir__config_free(w.config);
    free(w.config);
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
