/* weir serve: everything is looked at before anything is started. */
#include "serve/serve.h"
#include "serve/deployment.h"
#include "serve/privilege.h"
#include "serve/signal_action.h"
#include "serve/supervisor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int print(struct weir__plan *plan, struct weir__nginx *nginx)
{
    struct weir__nginx_setting setting = {
        .module = *nginx->module ? nginx->module : "modules/ngx_http_weir_module.so",
        .stream_core = nginx->stream_core,
        .stream_module = *nginx->stream_module ? nginx->stream_module : "modules/ngx_stream_weir_module.so",
        .version = nginx->version ? nginx->version : 1022001,
        .rules_file = plan->config.rules_path ? plan->config.rules_path : "rules.yaml",
        .open_files = sysconf(_SC_OPEN_MAX),
    };
    char *text = weir__nginx_conf(&plan->config, &plan->facts, &setting);
    if (!text || fputs(text, stdout) == EOF || fflush(stdout)) {
        perror("weir serve");
        free(text);
        return 1;
    }
    free(text);
    return 0;
}

/* Has nginx look at it, too, in a folder of its own: nothing else is touched. */
static int check(struct weir__plan *plan, const struct weir__nginx *nginx, const char *missing,
                 const struct weir__logger *log)
{
    struct weir__private folder;
    const struct weir__config *config = &plan->config;
    if (missing) {
        weir__logf(log, WEIR__LOG_WARNING, "%s; nginx's own test was left out", missing);
    } else if (!weir__private_make(&folder, plan->facts.group_id)) {
        weir__logf(log, WEIR__LOG_ERROR, "no private folder can be made: %s", strerror(errno));
        return 1;
    } else {
        bool good = weir__plan_write(plan, nginx, &folder, 0, true, log) &&
                    weir__plan_try(plan, nginx, &folder, -1, log) == WEIR__TRIAL_GOOD;
        weir__private_remove(&folder);
        if (!good)
            return 1;
    }
    printf("%s is good: %zu rule%s, %zu listener%s, %zu route%s\n", config->file, plan->facts.rules,
           plan->facts.rules == 1 ? "" : "s", config->listener_count, config->listener_count == 1 ? "" : "s",
           config->route_count, config->route_count == 1 ? "" : "s");
    return fflush(stdout) ? 1 : 0;
}

/* A signal interrupts the trial, but only one that asks for a stop ends it. Others are for what runs afterwards. */
static enum weir__trial try_to_the_end(struct weir__plan *plan, const struct weir__nginx *nginx,
                                       const struct weir__private *folder, int signals, const struct weir__logger *log)
{
    enum weir__trial tried = WEIR__TRIAL_INTERRUPTED;
    bool reload = false;
    for (int left = 3; tried == WEIR__TRIAL_INTERRUPTED; left--) {
        tried = weir__plan_try(plan, nginx, folder, left > 0 ? signals : -1, log); /* the last goes to its end */
        for (enum weir__wish wish; (wish = weir__next_wish(signals)) != WEIR__WISH_NONE; reload = true)
            if (wish == WEIR__WISH_STOP)
                return WEIR__TRIAL_INTERRUPTED;
    }
    if (reload)
        raise(SIGHUP);
    return tried;
}

/* Takes the plan. */
static int run(struct weir__plan *plan, const struct weir__nginx *nginx, int signals, struct weir__logger *log)
{
    struct weir__private folder;
    const struct weir__config *config = &plan->config;
    uint64_t print = weir__supervise_print(config); /* before the trial: that may take long */
    int code = 1;
    signal(SIGPIPE, SIG_IGN);
    weir__privilege_limit(log);
    if (!weir__private_make(&folder, plan->facts.group_id)) {
        weir__logf(log, WEIR__LOG_ERROR, "no private folder can be made: %s", strerror(errno));
        weir__plan_free(plan);
        return 1;
    }
    enum weir__trial tried = WEIR__TRIAL_BAD;
    if (weir__plan_write(plan, nginx, &folder, 0, false, log))
        tried = try_to_the_end(plan, nginx, &folder, signals, log);
    if (tried == WEIR__TRIAL_GOOD && !weir__logger_open(log, config->log_path, config->log_json)) {
        weir__logf(log, WEIR__LOG_ERROR, "%s cannot be opened: %s", config->log_path, strerror(errno));
        tried = WEIR__TRIAL_BAD;
    }
    if (tried == WEIR__TRIAL_GOOD)
        code = weir__supervise(plan, print, nginx, &folder, log, signals);
    else
        weir__plan_free(plan);
    weir__private_remove(&folder);
    weir__logger_close(log);
    return tried == WEIR__TRIAL_INTERRUPTED ? 0 : code;
}

static int serve(const char *file, enum weir__serve_mode mode, int signals, weir_diagnose *diagnose, void *context)
{
    struct weir__logger log = {.file = STDERR_FILENO, .plain = true};
    struct weir__nginx nginx;
    char missing[512];
    signal(SIGCHLD, SIG_DFL); /* who started us may have had it ignored, and then nobody could be waited for */
    struct weir__plan *plan = mode == WEIR__SERVE_RUN ? weir__plan_read(file, NULL, diagnose, context)
                                                      : weir__plan_read_only(file, diagnose, context);
    if (!plan)
        return 1;
    bool found = weir__nginx_find(&nginx, missing, sizeof missing);
    if (mode == WEIR__SERVE_RUN && found)
        return run(plan, &nginx, signals, &log);
    int code = 1;
    if (mode == WEIR__SERVE_RUN)
        weir__logf(&log, WEIR__LOG_ERROR, "%s", missing);
    else if (mode == WEIR__SERVE_PRINT)
        code = print(plan, &nginx);
    else
        code = check(plan, &nginx, found ? NULL : missing, &log);
    weir__plan_free(plan);
    return code;
}

int weir__serve(const char *file, enum weir__serve_mode mode, weir_diagnose *diagnose, void *context)
{
    int signals = mode == WEIR__SERVE_RUN ? weir__take_signals() : -1; /* first: one that comes early is not lost */
    if (mode == WEIR__SERVE_RUN && signals < 0) {
        perror("weir serve");
        return 1;
    }
    int code = serve(file, mode, signals, diagnose, context);
    if (signals >= 0)
        close(signals);
    return code;
}
