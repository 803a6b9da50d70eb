/* weir agent: the exchange with the store and the rules service, beside an nginx or an application that somebody else
 * looks after. */
#include "serve/serve.h"
#include "base/clock.h"
#include "serve/agent_process.h"
#include "serve/agent_threads.h"
#include "serve/agent_main.h"
#include "serve/signal_action.h"
#include "serve/supervisor.h"
#include "remote/blocking_client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 500 /* between two looks at the disk */, TURN_MS = 100 };

/* What runs, and what is on disk. */
struct watched {
    struct weir__config *config, *next;
    struct weir__logger *log;
    uint64_t print, seen;
};

static uint64_t print_of(const char *file)
{
    struct weir__fingerprint print = weir__sources_look(file);
    return print.error ? 0 : print.sum | 1;
}

/* A configuration with something to do; NULL after everything that is wrong was told. */
static struct weir__config *config_read(const char *file, weir_diagnose *diagnose, void *context)
{
    struct weir__config *config = calloc(1, sizeof *config);
    int error = config ? weir__config_load(config, file, diagnose, context) : WEIR_ENOMEM;
    const char *wrong = error == WEIR_ENOMEM       ? weir_strerror(error)
                        : error == WEIR_ERULESBUSY ? "was written while it was read; try again"
                        : !error && !weir__keeper_needed(config)
                            ? "there is no store, no rules service, no queue and no load level in it: nothing to do"
                            : NULL;
    if (wrong && diagnose)
        diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = wrong});
    if (!error && !wrong)
        return config;
    if (config)
        weir__config_free(config);
    free(config);
    return NULL;
}

/* Reads the file again when it has changed and nobody is writing, or when asked to. */
static bool changed(void *context, bool asked)
{
    struct watched *w = context;
    uint64_t print = geteuid() == 0 ? weir__supervise_print(w->config) : print_of(w->config->file);
    bool settled = print == w->seen;
    w->seen = print;
    if (!asked && (!print || print == w->print || !settled))
        return false;
    w->print = print;
    w->next = config_read(w->config->file, weir__log_diagnostic, w->log);
    if (!w->next)
        weir__logf(w->log, WEIR__LOG_ERROR, "%s was not taken; what ran before goes on", w->config->file);
    return w->next != NULL;
}

/* Puts what `changed` has read in the place of what runs. */
static void take_next(struct watched *w)
{
    weir__config_free(w->config);
    free(w->config);
    w->config = w->next;
    w->next = NULL;
    if (!weir__logger_open(w->log, w->config->log_path, w->config->log_json))
        weir__logf(w->log, WEIR__LOG_ERROR, "%s cannot be opened: %s", w->config->log_path, strerror(errno));
}

static void tell(const struct watched *w)
{
    if (w->config->store.url)
        weir__logf(w->log, WEIR__LOG_INFO, "weir %s exchanges what passes under eventual rules with %s", weir_version(),
                   w->config->store.shown);
}

/* False: it ended by itself, as it cannot begin, and not for another one; that was logged. */
static bool reap(struct weir__companion *agent, const struct weir__logger *log)
{
    int status;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
        bool failed = child == agent->pid && !agent->renewing && WIFEXITED(status);
        if (failed)
            return false;
        weir__companion_ended(agent, child, status, log, weir__monotonic_ms());
    }
    return true;
}

/*
 * Root's part: the agent is a child of another user, started again when it is killed, and when the file or anything
 * that only root can read has changed.
 */
static int run_child(struct watched *w, int signals)
{
    struct weir__companion agent = {.death = SIGKILL}; /* kill -9 of one is kill -9 of both */
    bool stopping = false;
    weir__privilege_limit(w->log);
    bool good = weir__companion_prepare(w->config, w->log);
    w->print = w->seen = weir__supervise_print(w->config);
    tell(w);
    for (int64_t looked = weir__monotonic_ms(); good && !stopping;) {
        struct pollfd wait[] = {{.fd = signals, .events = POLLIN},
                                {.fd = agent.channel > 0 ? agent.channel : -1, .events = POLLIN}};
        bool asked = false;
        weir__companion_tend(&agent, w->config, w->log, weir__monotonic_ms());
        poll(wait, 2, TURN_MS);
        weir__companion_serve(&agent, w->config, w->log, weir__monotonic_ms());
        good = reap(&agent, w->log);
        for (enum weir__wish wish; (wish = weir__next_wish(signals)) != WEIR__WISH_NONE; asked = true)
            stopping |= wish == WEIR__WISH_STOP;
        if (stopping || !good || (!asked && weir__monotonic_ms() - looked < LOOK_MS))
            continue;
        looked = weir__monotonic_ms();
        if (!changed(w, asked))
            continue;
        take_next(w);
        w->print = w->seen = weir__supervise_print(w->config);
        tell(w);
        good = weir__companion_prepare(w->config, w->log);
        weir__companion_renew(&agent);
    }
    if (good) {
        weir__companion_stop(&agent);
        weir__logf(w->log, WEIR__LOG_INFO, "stopped");
    }
    return good ? 0 : 1;
}

static int run(struct watched *w, int signals)
{
    struct weir__exchange_watch watch = {changed, w};
    enum weir__exchange_end end = WEIR__EXCHANGE_CHANGED;
    if (!weir__companion_become(w->config, w->log))
        return 1;
    while (end == WEIR__EXCHANGE_CHANGED) {
        if (!weir__keeper_prepare(w->config, w->log))
            return 1;
        tell(w);
        end = weir__process_run(w->config, w->log, signals, &watch);
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
    struct watched w = {.log = &log, .print = print_of(file)};
    w.seen = w.print;
    w.config = config_read(file, diagnose, context);
    if (!w.config)
        return 1;
    int code = 1;
    signal(SIGPIPE, SIG_IGN);
    if (once && !w.config->store.url) {
        weir__logf(&log, WEIR__LOG_ERROR, "%s names no store: there is nothing to exchange once", file);
    } else if (once) {
        code = weir__companion_become(w.config, &log) && weir__exchange_once(w.config, &log) == 0 ? 0 : 1;
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
    int signals = once ? -1 : weir__take_signals(); /* first: one that comes early is not lost */
    if (!once && signals < 0) {
        perror("weir agent");
        return 1;
    }
    int code = agent(file, once, signals, diagnose, context);
    if (signals >= 0)
        close(signals);
    return code;
}
