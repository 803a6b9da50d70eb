/* Deployments: weir.yaml read, checked, written for nginx and tested. See deployment.h. */
#include "serve/deployment.h"
#include "base/buffer.h"
#include "serve/agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- Reading ---- */

struct weir__deployment *weir__deployment_read(const char *file, const struct weir__listening *ours,
                                               weir_diagnose *diagnose, void *context)
{
    struct weir__deployment *deployment = calloc(1, sizeof *deployment);
    if (deployment && weir__config_load(&deployment->config, file, diagnose, context) == 0 &&
        (deployment->config.listener_count ||
         weir__config_report(file,
                             "there is neither a gateway nor a service; weir serve has nothing to do, weir agent runs "
                             "the agent alone",
                             diagnose, context)) &&
        weir__preflight(&deployment->config, ours, diagnose, context, &deployment->facts))
        return deployment;
    weir__deployment_free(deployment);
    return NULL;
}

/* nginx.conf has the service's tokens and passwords. */
static void conf_free(struct weir__deployment *deployment)
{
    if (deployment->conf)
        explicit_bzero(deployment->conf, strlen(deployment->conf));
    free(deployment->conf);
    deployment->conf = deployment->config.nginx_conf = NULL;
}

void weir__deployment_free(struct weir__deployment *deployment)
{
    if (!deployment)
        return;
    weir__config_free(&deployment->config);
    conf_free(deployment);
    free(deployment);
}

/* ---- Writing and testing ---- */

/*
 * The socket through which the agent delivers deferred requests. nginx creates it with mode 0666 and applies no limits
 * there, so only the agent's group may search its directory. The directory stays root's: nginx's master changes the
 * socket's mode by name, and a user who can write there could redirect that to any file by a link.
 */
static bool delivery_prepare(struct weir__deployment *deployment, const struct weir__runtime_dir *folder)
{
    char path[300];
    if (!deployment->config.queue.wanted || deployment->config.queue.deliver_to)
        return true;
    snprintf(path, sizeof path, "%s/deliver", folder->path);
    struct weir__agent_user agent;
    char why[256];
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) ||
        !weir__agent_user_find(&deployment->config, &agent, why, sizeof why) ||
        (agent.drops && (chown(path, 0, agent.group) != 0 || chmod(path, 0710) != 0)))
        return false;
    strcat(path, "/socket");
    deployment->config.queue.gateway =
        weir__arena_copy(&deployment->config.arena, (weir_text){path, strlen(path)}).data;
    return deployment->config.queue.gateway != NULL;
}

bool weir__deployment_write(struct weir__deployment *deployment, const struct weir__serving *serving, unsigned number,
                            bool test_only)
{
    static const char none[] = "rules: []\n";
    const struct weir__runtime_dir *folder = &serving->folder;
    const struct weir__logger *log = &serving->log;
    const struct weir__config *config = &deployment->config;
    struct rlimit files = {.rlim_max = 1024};
    char rules_name[64];
    if (weir__has_listener(config, WEIR__RESP) && !*serving->nginx.stream_module) {
        weir__logf(log, WEIR__LOG_ERROR,
                   "resp needs ngx_stream_weir_module.so, which is missing beside ngx_http_weir_module.so");
        return false;
    }
    bool changed = !test_only && config->published && access(config->rules_path, F_OK) != 0;
    if (!test_only && !weir__agent_prepare(config, log))
        return false;
    changed = changed && access(config->rules_path, F_OK) == 0; /* it was written now */
    if (!test_only && weir__config_publish(&deployment->config)) {
        weir__logf(log, WEIR__LOG_WARNING, "%s: " WEIR__RULES_UNDECIDED, config->file);
        changed = true;
    }
    if (changed && !weir__preflight(config, NULL, weir__log_diagnostic, (void *)(uintptr_t)log, &deployment->facts))
        return false;
    errno = 0;
    bool good =
        weir__runtime_dir_admit(folder, deployment->facts.workers.group_id); /* a reload may change the workers' user */
    good = good && delivery_prepare(deployment, folder);
    deployment->number = number;
    /* Before the first publication nginx starts without rules. */
    bool unpublished = config->published && access(config->rules_path, F_OK) != 0;
    if (good && (!config->rules_path || unpublished)) {
        weir_text text = unpublished ? (weir_text){none, sizeof none - 1} : config->rules_text;
        snprintf(rules_name, sizeof rules_name, "rules.%u.yaml", number);
        snprintf(deployment->rules_file, sizeof deployment->rules_file, "%s/%s", folder->path, rules_name);
        good = weir__runtime_dir_write(folder, rules_name, text.data, text.len, deployment->facts.workers.group_id);
    }
    bool by_workers = config->published && !unpublished && *deployment->facts.workers.user;
    if (by_workers && !weir__workers_can_read(&deployment->facts, config->rules_path)) {
        weir__logf(log, WEIR__LOG_ERROR,
                   "the workers run as %s, which cannot read the active rules %s; give it read access",
                   deployment->facts.workers.user, config->rules_path);
        return false;
    }
    getrlimit(RLIMIT_NOFILE, &files);
    struct weir__nginx_setting setting = {
        .nginx = &serving->nginx,
        .rules_file = *deployment->rules_file ? deployment->rules_file : config->rules_path,
        .rules_by_workers = by_workers,
        .open_files = files.rlim_max > 1000000 ? 1000000 : (long)files.rlim_max,
        .test_only = test_only,
        .number = number,
    };
    conf_free(deployment);
    deployment->conf = deployment->config.nginx_conf =
        good ? weir__nginx_conf(config, &deployment->facts, &setting) : NULL;
    good = deployment->conf &&
           weir__runtime_dir_write(folder, WEIR__NGINX_CONF_NEXT, deployment->conf, strlen(deployment->conf), 0);
    if (!good)
        weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s", folder->path, strerror(errno ? errno : ENOMEM));
    return good;
}

enum weir__nginx_test weir__deployment_test(const struct weir__deployment *deployment,
                                            const struct weir__serving *serving, int interrupt)
{
    const char *folder = serving->folder.path;
    char path[512], output[16384], formatted[WEIR__LOG_MESSAGE_MAX];
    snprintf(path, sizeof path, "%s/" WEIR__NGINX_CONF_NEXT, folder);
    enum weir__nginx_test result =
        weir__nginx_test_conf(&serving->nginx, folder, path, interrupt, output, sizeof output);
    for (const char *at = output; result == WEIR__NGINX_TEST_FAILED && *at;) {
        size_t len = strcspn(at, "\n");
        struct weir__nginx_message line = weir__nginx_message_parse((weir_text){at, len});
        if (line.level == WEIR__NGINX_ERROR || line.level == WEIR__NGINX_FATAL || line.level == WEIR__NGINX_OTHER) {
            weir__nginx_message_format(line.message, deployment->conf, formatted, sizeof formatted);
            weir__logf(&serving->log, WEIR__LOG_ERROR, "%s", formatted);
        }
        at += len + (at[len] == '\n');
    }
    return result;
}

/* ---- Logging ---- */

static void log_route(const struct weir__route *route, const struct weir__logger *log)
{
    struct weir__buffer servers = {0};
    for (size_t i = 0; i < route->server_count; i++) {
        const struct weir__server *server = &route->servers[i];
        const char *scheme = !server->host ? "" : server->https ? "https://" : "http://";
        weir__buffer_printf(&servers, "%s%s%s", i ? ", " : "", scheme, server->address);
    }
    weir__logf(log, WEIR__LOG_INFO, "%s%s goes to %s", route->path, route->kind == WEIR__ROUTE_EXACT ? "" : "*",
               servers.failed || !servers.len ? "" : servers.data);
    weir__buffer_free(&servers);
}

static void log_listener(const struct weir__listener *listener, const char *what, const char *path,
                         const struct weir__logger *log)
{
    const char *scheme = listener->kind == WEIR__RESP ? "redis" : listener->kind == WEIR__GRPC ? "grpc" : "http";
    weir__logf(log, WEIR__LOG_INFO, "%s on %s%s://%s%s%s", what, scheme, listener->tls.certificate ? "s" : "",
               listener->host ? "" : "0.0.0.0:", listener->address, path);
}

void weir__deployment_log_admin(const struct weir__config *config, const struct weir__logger *log)
{
    if (config->admin.listener)
        log_listener(config->admin.listener, "dashboard and rules service", "/", log);
}

void weir__deployment_log(const struct weir__deployment *deployment, const struct weir__logger *log)
{
    static const char *const names[] = {"gateway", "Envoy's rate-limit service", "HTTP service", "Redis protocol"};
    const struct weir__config *config = &deployment->config;
    for (size_t i = 0; i < config->listener_count; i++)
        log_listener(&config->listeners[i], names[config->listeners[i].kind], "", log);
    for (size_t i = 0; i < config->route_count; i++)
        log_route(&config->routes[i], log);
    weir__logf(log, WEIR__LOG_INFO, "%zu rule%s from %s, counters in %s", deployment->facts.rules,
               deployment->facts.rules == 1 ? "" : "s", config->rules_path ? config->rules_path : config->file,
               config->segment_path);
    if (config->store.url)
        weir__logf(log, WEIR__LOG_INFO, "store %s", config->store.shown);
    for (const char *line = deployment->facts.hosts; *line;) {
        size_t len = strcspn(line, "\n");
        weir__logf(log, WEIR__LOG_INFO, "%.*s", (int)len, line);
        line += len + (line[len] == '\n');
    }
    if (config->queue.wanted)
        weir__logf(log, WEIR__LOG_INFO, "requests deferred by on_limit: queue are kept in %s",
                   config->queue.database ? config->queue.database : "the store");
    if (config->metrics)
        log_listener(config->metrics, "metrics", "/metrics", log);
    weir__deployment_log_admin(config, log);
    if (config->origin.url)
        weir__logf(log, WEIR__LOG_INFO, "rules are polled from %s", config->origin.shown);
}
