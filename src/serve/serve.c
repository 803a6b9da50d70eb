/* weir serve: reads and checks everything, then starts it; also --check and --print. */
#include "serve/serve.h"
#include "serve/deployment.h"
#include "serve/takeover.h"
#include "base/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int print(struct weir__deployment *deployment, struct weir__nginx *nginx)
{
    if (!*nginx->module)
        strcpy(nginx->module, "modules/ngx_http_weir_module.so");
    if (!*nginx->stream_module)
        strcpy(nginx->stream_module, "modules/ngx_stream_weir_module.so");
    if (!nginx->version)
        nginx->version = 1022001;
    struct weir__nginx_setting setting = {
        .nginx = nginx,
        .rules_file = deployment->config.rules_path ? deployment->config.rules_path : "rules.yaml",
        .open_files = sysconf(_SC_OPEN_MAX),
    };
    char *text = weir__nginx_conf(&deployment->config, &deployment->facts, &setting);
    bool good = text && fputs(text, stdout) != EOF && fflush(stdout) == 0;
    if (!good)
        perror("weir serve");
    free(text);
    return good ? 0 : 1;
}

/* Runs nginx -t. A signal interrupts it: one that stops ends it, others are raised again once nginx -t has finished. */
static enum weir__nginx_test try_to_the_end(struct weir__deployment *deployment, const struct weir__serving *serving)
{
    enum weir__nginx_test tried = WEIR__NGINX_TEST_INTERRUPTED;
    int again = 0;
    for (int left = 3; tried == WEIR__NGINX_TEST_INTERRUPTED; left--) {
        /* the last attempt ignores signals */
        tried = weir__deployment_test(deployment, serving, left > 0 ? serving->signals : -1);
        for (enum weir__signal_action action; (action = weir__signal_next(serving->signals)) != WEIR__ACTION_NONE;
             again = action == WEIR__ACTION_UPGRADE || again == SIGUSR2 ? SIGUSR2 : SIGHUP) /* both reload */
            if (action == WEIR__ACTION_STOP)
                return WEIR__NGINX_TEST_INTERRUPTED;
    }
    if (again)
        raise(again);
    return tried;
}

/* Writes the deployment into a runtime directory of its own, and runs nginx -t. */
static enum weir__nginx_test prepare(struct weir__deployment *deployment, struct weir__serving *serving, bool test_only)
{
    if (!weir__runtime_dir_make(&serving->folder, deployment->facts.workers.group_id)) {
        weir__logf(&serving->log, WEIR__LOG_ERROR, "cannot create a runtime directory: %s", strerror(errno));
        return WEIR__NGINX_TEST_FAILED;
    }
    if (!weir__deployment_write(deployment, serving, 0, test_only))
        return WEIR__NGINX_TEST_FAILED;
    return try_to_the_end(deployment, serving);
}

/* --check: runs nginx -t in a runtime directory of its own, which is removed. `missing`: why it cannot, or NULL. */
static int check(struct weir__deployment *deployment, struct weir__serving *serving, const char *missing)
{
    const struct weir__config *config = &deployment->config;
    enum weir__nginx_test tried = missing ? WEIR__NGINX_TEST_PASSED : prepare(deployment, serving, true);
    weir__runtime_dir_remove(&serving->folder);
    if (tried != WEIR__NGINX_TEST_PASSED)
        return 1;
    if (missing)
        weir__logf(&serving->log, WEIR__LOG_WARNING, "%s; skipped nginx -t", missing);
    printf("%s is good: %zu rule%s, %zu listener%s, %zu route%s\n", config->file, deployment->facts.rules,
           deployment->facts.rules == 1 ? "" : "s", config->listener_count, config->listener_count == 1 ? "" : "s",
           config->route_count, config->route_count == 1 ? "" : "s");
    fputs(deployment->facts.hosts, stdout);
    return fflush(stdout) ? 1 : 0;
}

/* Frees the deployment. */
static int run(struct weir__deployment *deployment, struct weir__serving *serving)
{
    const struct weir__config *config = &deployment->config;
    struct weir__logger *log = &serving->log;
    uint64_t print = weir__config_fingerprint(config); /* before nginx -t, which may take long */
    int code = 1;
    signal(SIGPIPE, SIG_IGN);
    weir__privilege_limit(log);
    enum weir__nginx_test tried = prepare(deployment, serving, false);
    if (tried == WEIR__NGINX_TEST_PASSED && !weir__logger_open(log, config->log_path, config->log_json)) {
        weir__logf(log, WEIR__LOG_ERROR, "%s cannot be opened: %s", config->log_path, strerror(errno));
        tried = WEIR__NGINX_TEST_FAILED;
    }
    if (tried == WEIR__NGINX_TEST_PASSED)
        code = weir__supervisor_run(deployment, print, serving);
    else
        weir__deployment_free(deployment);
    weir__runtime_dir_remove(&serving->folder);
    weir__logger_close(log);
    return tried == WEIR__NGINX_TEST_INTERRUPTED ? 0 : code;
}

/* Goes on with what another version of this program has handed over. */
static int take_over(struct weir__serving *serving)
{
    static struct weir__takeover takeover;
    struct weir__logger *log = &serving->log;
    signal(SIGPIPE, SIG_IGN);
    log->plain = false;
    if (!weir__takeover_receive(&takeover, serving))
        return 1;
    if (!weir__logger_open(log, *takeover.log_path ? takeover.log_path : NULL, takeover.log_json))
        weir__logf(log, WEIR__LOG_ERROR, "%s cannot be opened: %s", takeover.log_path, strerror(errno));
    weir__privilege_limit(log);
    int code = weir__supervisor_take_over(&takeover, serving);
    weir__runtime_dir_remove(&serving->folder);
    weir__logger_close(log);
    return code;
}

static int serve(const char *file, enum weir__serve_mode mode, int signals, weir_diagnose *diagnose, void *context)
{
    static struct weir__serving serving;
    serving = (struct weir__serving){.file = file, .log = {.file = STDERR_FILENO, .plain = true}, .signals = signals};
    char missing[512];
    signal(SIGCHLD, SIG_DFL); /* if the parent ignored it, children could not be waited for */
    if (mode == WEIR__SERVE_RUN) {
        weir__program_path(serving.program);
        if (weir__takeover_pending())
            return take_over(&serving);
        weir__systemd_sockets(&serving.listening);
    }
    const struct weir__listening *ours = mode == WEIR__SERVE_RUN ? &serving.listening : NULL;
    struct weir__deployment *deployment = weir__deployment_read(file, ours, diagnose, context);
    if (!deployment)
        return 1;
    bool found = weir__nginx_find(&serving.nginx, missing, sizeof missing);
    if (mode == WEIR__SERVE_RUN && found)
        return run(deployment, &serving);
    int code = 1;
    if (mode == WEIR__SERVE_RUN)
        weir__logf(&serving.log, WEIR__LOG_ERROR, "%s", missing);
    else if (mode == WEIR__SERVE_PRINT)
        code = print(deployment, &serving.nginx);
    else
        code = check(deployment, &serving, found ? NULL : missing);
    weir__deployment_free(deployment);
    return code;
}

int weir__serve(const char *file, enum weir__serve_mode mode, weir_diagnose *diagnose, void *context)
{
    weir__wipe_freed_memory();
    int signals = mode == WEIR__SERVE_RUN ? weir__signals_open() : -1; /* before weir.yaml is read: no signal is lost */
    if (mode == WEIR__SERVE_RUN && signals < 0) {
        perror("weir serve");
        return 1;
    }
    int code = serve(file, mode, signals, diagnose, context);
    if (signals >= 0)
        close(signals);
    return code;
}
