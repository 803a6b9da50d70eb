/*
 * The supervisor's main loop: starts nginx and the agent, reloads when weir.yaml or a file that it names changes,
 * replaces nginx's master when it needs other listeners or when nginx or a module was replaced, executes another
 * version of this program, copies nginx's messages to the log, and stops. Each master has its own session, so that
 * Ctrl-C at a terminal reaches the supervisor alone and one signal ends all of nginx. As a child subreaper the
 * supervisor inherits orphaned workers.
 */
#include "serve/deployment.h"
#include "base/clock.h"
#include "serve/agent.h"
#include "serve/takeover.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WATCH_MS = 500,    /* between two checks for changed files */
    GRACE_MS = 10000,  /* SIGQUIT to SIGTERM: for requests in progress */
    HURRY_MS = 3000,   /* SIGTERM to SIGKILL */
    RELOAD_MS = 15000, /* for nginx to start workers with a new configuration */
    STEADY_MS = 500,   /* a new master whose workers live this long replaces the one before */
    LINE = 4096,
    PIPE = 1 << 20
};

enum phase { STARTING, RUNNING, RELOADING, STOPPING };

struct supervisor {
    struct weir__deployment *deployment, *next; /* the running one; the one that nginx is loading, or NULL */
    struct weir__serving *serving;
    struct weir__runtime_dir *folder; /* its runtime directory */
    struct weir__logger *log;         /* its log */
    struct weir__agent_process agent;
    int children;
    int output[2];     /* pipe for what all masters write; this process keeps the write end for the next master */
    pid_t master;      /* 0: it has exited */
    pid_t group;       /* the master's */
    pid_t starting;    /* a new master, which is to replace this one; 0: none */
    int64_t steady_ms; /* time at which it does; 0: it has not started its workers yet */
    pid_t ending[WEIR__ENDING_MAX];   /* masters that were replaced, also of processes that are left of them; 0: none */
    uint64_t programs, next_programs; /* fingerprints of nginx and modules: of the master, and of `starting` */
    enum phase phase;
    int64_t deadline; /* of the phase */
    int stop_level;   /* while STOPPING: index of the next signal */
    int code;
    unsigned number; /* of the last deployment */
    unsigned older;  /* of the one before, whose workers may still finish requests; UINT_MAX: none */
    uint64_t fingerprint, last_seen, next_fingerprint;
    bool reload_requested, upgrade_requested, gone_logged, folder_logged;
    int64_t watched_ms;
    char line[LINE + 1]; /* plus a newline for an unfinished last line */
    size_t line_len;
    bool in_long; /* skipping the rest of a line longer than LINE */
};

/* ---- Changes on disk ---- */

static uint64_t add_file(uint64_t sum, const char *path)
{
    struct weir__fingerprint fingerprint = path ? weir__sources_look(path) : (struct weir__fingerprint){0};
    return (sum ^ (fingerprint.error ? 1 : fingerprint.sum)) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Without rule files: workers watch those themselves. */
uint64_t weir__config_fingerprint(const struct weir__config *config)
{
    struct weir__fingerprint file = weir__sources_look(config->file);
    uint64_t sum = file.sum;
    if (file.error)
        return 0;
    for (size_t i = 0; i < config->listener_count; i++) {
        const struct weir__tls *tls = &config->listeners[i].tls;
        sum = add_file(add_file(add_file(sum, tls->certificate), tls->key), tls->client_ca);
    }
    if (config->admin.listener)
        sum = add_file(add_file(sum, config->admin.listener->tls.certificate), config->admin.listener->tls.key);
    for (size_t i = 0; i < config->store.setting_count; i++)
        if (weir__store_is_file(config->store.settings[i].name))
            sum = add_file(sum, config->store.settings[i].value);
    if (geteuid() == 0 && config->origin.token_file) /* an agent of another user cannot read it */
        sum = add_file(sum, config->origin.token_file);
    if (geteuid() == 0 && config->notify.secret_file)
        sum = add_file(sum, config->notify.secret_file);
    return sum | 1;
}

/* ---- Processes of nginx ---- */

/* The process groups of nginx: of the master, of one that is starting, and of those that are ending; 0: none. */
static pid_t group_of(const struct supervisor *s, size_t i)
{
    return i == 0 ? s->group : i == 1 ? s->starting : s->ending[i - 2];
}
enum { GROUPS = WEIR__ENDING_MAX + 2 };

/* Adds a master that finishes its requests. */
static void add_ending(struct supervisor *s, pid_t master)
{
    enum { LAST = WEIR__ENDING_MAX - 1 };
    if (s->ending[LAST])
        kill(-s->ending[LAST], SIGTERM);
    memmove(s->ending + 1, s->ending, LAST * sizeof *s->ending);
    s->ending[0] = master;
}

/* True if any process of nginx is left. Forgets masters that have ended with all their workers. */
static bool is_running(struct supervisor *s)
{
    bool alive = s->master || kill(-s->group, 0) == 0 || s->starting;
    for (size_t i = 0; i < WEIR__ENDING_MAX; i++) {
        if (s->ending[i] && kill(-s->ending[i], 0) != 0)
            s->ending[i] = 0;
        alive |= s->ending[i] != 0;
    }
    return alive;
}

/* ---- Stopping ---- */

static void signal_nginx(struct supervisor *s)
{
    static const int signals[] = {SIGQUIT, SIGTERM, SIGKILL};
    static const int patience[] = {GRACE_MS, HURRY_MS, HURRY_MS};
    enum { HARDEST = 2 };
    for (size_t i = 0; i < GROUPS; i++) {
        pid_t group = group_of(s, i);
        if (group && s->stop_level == 0 && (i > 0 || s->master))
            kill(group, signals[0]); /* the master signals its workers */
        else if (group)
            kill(-group, signals[s->stop_level]);
    }
    s->deadline = weir__monotonic_ms() + patience[s->stop_level];
    s->stop_level += s->stop_level < HARDEST;
}

static void stop(struct supervisor *s, int code)
{
    s->code = s->phase == STOPPING ? s->code : code;
    s->phase = STOPPING;
    weir__listening_close(&s->serving->listening); /* now, so that no client waits for nothing */
    signal_nginx(s);
}

/* ---- Reloading ---- */

static void remove_rules(const struct supervisor *s, unsigned number)
{
    char path[512];
    snprintf(path, sizeof path, "%s/rules.%u.yaml", s->folder->path, number);
    unlink(path);
}

static void drop_next(struct supervisor *s)
{
    if (s->next)
        remove_rules(s, s->next->number);
    weir__deployment_free(s->next);
    s->next = NULL;
    if (s->phase != STOPPING)
        s->phase = RUNNING;
    if (s->starting) { /* gracefully, as its workers may have accepted connections */
        kill(s->starting, SIGQUIT);
        add_ending(s, s->starting);
        s->starting = 0;
    }
    /* Closes the sockets of new listeners. After a takeover the running configuration is unknown: all stay. */
    if (s->deployment->conf && weir__listening_open(&s->serving->listening, &s->deployment->config, s->log))
        weir__listening_settle(&s->serving->listening);
}

/* Gives the nginx.conf that was written last its final name. False: errno has the reason. */
static bool conf_activate(const struct weir__runtime_dir *folder, char path[512])
{
    char from[512];
    snprintf(from, sizeof from, "%s/" WEIR__NGINX_CONF_NEXT, folder->path);
    snprintf(path, 512, "%s/" WEIR__NGINX_CONF_FILE, folder->path);
    return rename(from, path) == 0;
}

/*
 * Lets nginx load the nginx.conf that was written last. SIGHUP suffices unless there are new listeners, which a running
 * master cannot inherit, or nginx or a module was replaced, which it has loaded already: then a new master starts, and
 * the one before finishes its requests once the new one has proved itself. False: errno has the reason.
 */
static bool hand_over(struct supervisor *s)
{
    char path[512];
    s->next_programs = weir__nginx_fingerprint(&s->serving->nginx);
    bool same = s->next_programs == s->programs && !weir__listening_is_new(&s->serving->listening);
    if (!conf_activate(s->folder, path) || (same && kill(s->master, SIGHUP) != 0))
        return false;
    pid_t started =
        same ? 0 : weir__nginx_start(&s->serving->nginx, s->folder->path, path, &s->serving->listening, s->output[1]);
    if (started < 0)
        return false;
    s->starting = started;
    s->steady_ms = 0;
    s->phase = RELOADING;
    s->deadline = weir__monotonic_ms() + RELOAD_MS;
    return true;
}

/* Finds nginx and the modules anew, as they may have been upgraded. */
static bool find_nginx(struct supervisor *s)
{
    struct weir__nginx found;
    char why[512];
    if (weir__nginx_find(&found, why, sizeof why)) {
        s->serving->nginx = found;
        return true;
    }
    weir__logf(s->log, WEIR__LOG_ERROR, "%s", why);
    return false;
}

static void reload(struct supervisor *s)
{
    const char *file = s->serving->file;
    struct weir__nginx before = s->serving->nginx;
    enum weir__nginx_test tried = WEIR__NGINX_TEST_FAILED;
    s->reload_requested = false;
    uint64_t file_before = weir__sources_look(file).sum;
    if (find_nginx(s))
        s->next = weir__deployment_read(file, &s->serving->listening, weir__log_diagnostic, s->log);
    if (s->next) {
        s->next->number = ++s->number;
        /* Of the files that the new configuration names. If weir.yaml changed while it was read, it is read again. */
        s->next_fingerprint =
            weir__sources_look(file).sum == file_before ? weir__config_fingerprint(&s->next->config) : 0;
    }
    if (s->next && weir__deployment_write(s->next, s->serving, s->number, false))
        tried = weir__deployment_test(s->next, s->serving, s->serving->signals);
    if (tried == WEIR__NGINX_TEST_PASSED && weir__listening_open(&s->serving->listening, &s->next->config, s->log) &&
        hand_over(s))
        return;
    s->serving->nginx = before;
    s->reload_requested = tried == WEIR__NGINX_TEST_INTERRUPTED;
    if (!s->reload_requested)
        weir__logf(s->log, WEIR__LOG_ERROR, "%s rejected; the previous configuration stays active", file);
    drop_next(s);
}

/*
 * The runtime directory is gone. nginx runs on, but it can neither reload nor buffer large bodies on disk. Creates it
 * again with the running configuration, unless another user has taken its name.
 */
static void restore(struct supervisor *s)
{
    char pid[32], pid_file[32];
    const char *path = s->folder->path;
    int len = snprintf(pid, sizeof pid, "%ld\n", (long)s->master);
    snprintf(pid_file, sizeof pid_file, "nginx.%u.pid", s->deployment->number); /* nginx removes it */
    if (!weir__runtime_dir_restore(s->folder, s->deployment->facts.workers.group_id)) {
        if (!s->folder_logged)
            weir__logf(s->log, WEIR__LOG_ERROR,
                       "runtime directory %s was removed and cannot be created again: %s; retrying", path,
                       strerror(errno));
        s->folder_logged = true;
        return;
    }
    s->folder_logged = false;
    weir__logf(s->log, WEIR__LOG_WARNING, "runtime directory %s was removed; created again%s", path,
               s->deployment->config.queue.gateway ? ", but deferred requests wait until weir serve restarts" : "");
    if (!s->deployment->conf) { /* after a takeover the running configuration is unknown */
        s->reload_requested = true;
        return;
    }
    if (!weir__deployment_write(s->deployment, s->serving, ++s->number, false) ||
        !weir__runtime_dir_write(s->folder, pid_file, pid, (unsigned long)len, 0) || !hand_over(s))
        weir__logf(s->log, WEIR__LOG_ERROR, "runtime directory %s is incomplete: %s; the next reload retries", path,
                   strerror(errno));
}

/* nginx has started workers with the new configuration: makes it the running one. */
static void reloaded(struct supervisor *s)
{
    weir__listening_settle(&s->serving->listening);
    if (!s->next) {
        s->phase = RUNNING;
        return;
    }
    const struct weir__config *config = &s->next->config;
    if (!weir__logger_open(s->log, config->log_path, config->log_json))
        weir__logf(s->log, WEIR__LOG_ERROR, "%s cannot be opened: %s", config->log_path, strerror(errno));
    /* Old workers that finish their last requests still read the rules file they started with. */
    remove_rules(s, s->older);
    s->older = s->deployment->number;
    weir__deployment_free(s->deployment);
    s->deployment = s->next;
    s->next = NULL;
    s->fingerprint = s->last_seen = s->next_fingerprint;
    s->phase = RUNNING;
    weir__agent_restart(&s->agent);
    weir__logf(s->log, WEIR__LOG_INFO, "reloaded %s", config->file);
    weir__deployment_log(s->deployment, s->log);
}

/* ---- Upgrading ---- */

/* The new master has proved itself: the one before closes its listeners and finishes its requests. */
static void replace_master(struct supervisor *s)
{
    kill(s->master ? s->master : -s->group, SIGQUIT); /* to the workers, if it is dead */
    add_ending(s, s->group);
    s->master = s->group = s->starting;
    s->starting = 0;
    s->programs = s->next_programs;
    reloaded(s);
}

/* Executes the program that is at this one's path now; it takes over, and reloads. It is tested first. */
static void upgrade(struct supervisor *s)
{
    static struct weir__takeover takeover;
    const struct weir__serving *serving = s->serving;
    char output[16384];
    s->upgrade_requested = false;
    enum weir__nginx_test tried =
        weir__program_test(serving->program, serving->file, serving->signals, output, sizeof output);
    if (tried == WEIR__NGINX_TEST_INTERRUPTED) {
        s->upgrade_requested = true;
        return;
    }
    if (tried == WEIR__NGINX_TEST_FAILED) {
        for (char *line = output, *rest = NULL; (line = strtok_r(line, "\n", &rest)); line = NULL)
            weir__logf(s->log, WEIR__LOG_INFO, "%s", line);
        weir__logf(s->log, WEIR__LOG_ERROR, "no upgrade: %s cannot take over; weir %s goes on", serving->program,
                   weir_version());
        return;
    }
    const struct weir__config *config = &s->deployment->config;
    takeover = (struct weir__takeover){.master = s->master,
                                       .output = {s->output[0], s->output[1]},
                                       .number = s->number,
                                       .older = s->deployment->number,
                                       .programs = s->programs,
                                       .agent = s->agent,
                                       .log_json = s->log->json};
    memcpy(takeover.ending, s->ending, sizeof takeover.ending);
    snprintf(takeover.segment, sizeof takeover.segment, "%s", config->segment_path ? config->segment_path : "");
    snprintf(takeover.log_path, sizeof takeover.log_path, "%s", config->log_path ? config->log_path : "");
    weir__log_raw(s->log, (weir_text){s->line, s->line_len}); /* an incomplete line */
    s->line_len = 0;
    remove_rules(s, s->older);
    s->older = UINT_MAX;
    weir__takeover_exec(&takeover, serving);
    weir__logf(s->log, WEIR__LOG_ERROR, "no upgrade: %s cannot be executed: %s; weir %s goes on", serving->program,
               strerror(errno), weir_version());
}

static void watch_files(struct supervisor *s)
{
    int64_t now = weir__monotonic_ms();
    if (s->phase != RUNNING || (now - s->watched_ms < WATCH_MS && !s->reload_requested && !s->upgrade_requested))
        return;
    s->watched_ms = now;
    if (!weir__runtime_dir_exists(s->folder)) {
        restore(s);
        return;
    }
    uint64_t fingerprint = weir__config_fingerprint(&s->deployment->config);
    bool settled = fingerprint == s->last_seen; /* two equal fingerprints in a row: the file is not being written */
    s->last_seen = fingerprint;
    if (fingerprint == 0 && !s->gone_logged)
        weir__logf(s->log, WEIR__LOG_WARNING, "%s does not exist; the running configuration stays active",
                   s->deployment->config.file);
    if (fingerprint != 0 && s->gone_logged)
        weir__logf(s->log, WEIR__LOG_INFO, "%s exists again", s->deployment->config.file);
    s->gone_logged = fingerprint == 0;
    if (s->upgrade_requested) {
        upgrade(s);
        return;
    }
    if (s->reload_requested || (fingerprint != 0 && fingerprint != s->fingerprint && settled)) {
        s->fingerprint = fingerprint;
        reload(s);
    }
}

/* ---- nginx's messages ---- */

/* True for messages about the rules: preflight has reported those. */
static bool about_rules(const struct weir__deployment *deployment, weir_text message)
{
    return weir__text_skip(&message, *deployment->rules_file ? deployment->rules_file : deployment->config.rules_path);
}

static void started(struct supervisor *s, long pid)
{
    if (s->starting && pid == s->starting) {
        s->steady_ms = weir__monotonic_ms() + STEADY_MS;
    } else if (s->phase == RELOADING && !s->starting) {
        reloaded(s);
    } else if (s->phase == STARTING) {
        s->phase = RUNNING;
        s->log->plain = false;
        weir__listening_settle(&s->serving->listening);
        weir__systemd_notify("READY=1");
        weir__logf(s->log, WEIR__LOG_INFO, "weir %s with nginx %s is running", weir_version(),
                   s->serving->nginx.version_text);
        weir__deployment_log(s->deployment, s->log);
    }
}

/* A message of the new master: a worker that ends at once shows that it does not work. */
static void watch_starting(struct supervisor *s, weir_text message)
{
    static const char exited[] = " exited ";
    if (!weir__text_skip(&message, "worker process ") || !memmem(message.data, message.len, exited, sizeof exited - 1))
        return;
    weir__logf(s->log, WEIR__LOG_ERROR, "workers of the new nginx exit; the previous one goes on");
    drop_next(s);
}

/* True for nginx's warnings that every large request or response causes. */
static bool is_expected(weir_text message)
{
    return weir__text_skip(&message, "a client request body is buffered to a temporary file") ||
           weir__text_skip(&message, "an upstream response is buffered to a temporary file");
}

/* Logs good news of weir's modules: the store is available again, rules were reloaded (published rules: by the agent).
 */
static void log_notice(const struct supervisor *s, weir_text message)
{
    static const char reloaded_rules[] = "\" reloaded: ";
    if (weir__text_skip(&message, "weir: ") &&
        !(s->deployment->config.published &&
          memmem(message.data, message.len, reloaded_rules, sizeof reloaded_rules - 1)))
        weir__logf(s->log, WEIR__LOG_INFO, "%.*s", (int)message.len, message.data);
}

/* Handles one line; `text` includes its newline. */
static void handle_line(struct supervisor *s, weir_text text)
{
    struct weir__nginx_message line = weir__nginx_message_parse((weir_text){text.data, text.len - 1});
    char formatted[WEIR__LOG_MESSAGE_MAX];
    if (line.level == WEIR__NGINX_OTHER) {
        weir__log_raw(s->log, text);
        return;
    }
    if (s->phase == RELOADING && s->starting && line.pid == s->starting)
        watch_starting(s, line.message); /* may free s->next */
    const struct weir__deployment *deployment = s->next ? s->next : s->deployment;
    if (line.level == WEIR__NGINX_NOTICE) {
        if (weir__text_is(line.message, "start worker processes"))
            started(s, line.pid);
        else
            log_notice(s, line.message);
        return;
    }
    if (is_expected(line.message))
        return;
    bool changing = s->phase == STARTING || s->phase == RELOADING;
    if (changing && line.level == WEIR__NGINX_WARNING && about_rules(deployment, line.message))
        return;
    weir__nginx_message_format(line.message, deployment->conf, formatted, sizeof formatted);
    weir__logf(s->log, line.level == WEIR__NGINX_WARNING ? WEIR__LOG_WARNING : WEIR__LOG_ERROR, "%s", formatted);
    if (s->phase == RELOADING && !s->starting && line.level == WEIR__NGINX_FATAL) {
        weir__logf(s->log, WEIR__LOG_ERROR, "nginx rejected the new %s; the previous configuration stays active",
                   s->deployment->config.file);
        drop_next(s);
    }
}

/*
 * Reads nginx's output. A line longer than LINE is an access log line, with content from a client: it is copied in
 * pieces, none of which is parsed as a message of nginx. False: end of file.
 */
static bool read_output(struct supervisor *s)
{
    ssize_t got = read(s->output[0], s->line + s->line_len, LINE - s->line_len);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    s->line_len += (size_t)got;
    if (got == 0 && s->line_len > 0)
        s->line[s->line_len++] = '\n';
    size_t from = 0;
    for (const char *end; (end = memchr(s->line + from, '\n', s->line_len - from));) {
        weir_text text = {s->line + from, (size_t)(end - s->line) + 1 - from};
        if (s->in_long)
            weir__log_raw(s->log, text);
        else
            handle_line(s, text);
        s->in_long = false;
        from += text.len;
    }
    if (from == 0 && s->line_len == LINE) {
        weir__log_raw(s->log, (weir_text){s->line, LINE});
        s->in_long = true;
        from = LINE;
    }
    memmove(s->line, s->line + from, s->line_len - from);
    s->line_len -= from;
    return got > 0;
}

/* ---- The loop ---- */

/* Reads the last messages of a process; bounded, as others may go on writing. */
static void read_rest(struct supervisor *s)
{
    for (int i = 0; i < PIPE / LINE; i++)
        if (poll(&(struct pollfd){.fd = s->output[0], .events = POLLIN}, 1, 0) <= 0 || !read_output(s))
            break;
}

/* A master that was to replace the running one has exited. */
static void starting_ended(struct supervisor *s)
{
    pid_t child = s->starting;
    read_rest(s);
    if (s->starting != child) /* its last messages have said that it does not work */
        return;
    s->starting = 0;
    kill(-child, SIGQUIT); /* workers that it left */
    add_ending(s, child);
    if (s->phase == STOPPING)
        return;
    weir__logf(s->log, WEIR__LOG_ERROR, "nginx did not start with the new %s; the previous one goes on",
               s->serving->file);
    drop_next(s);
}

static void master_ended(struct supervisor *s, int status)
{
    s->master = 0;
    read_rest(s);
    if (s->phase == STOPPING)
        return;
    if (s->phase == RELOADING && s->steady_ms && s->starting) {
        replace_master(s);
        return;
    }
    if (WIFSIGNALED(status))
        weir__logf(s->log, WEIR__LOG_ERROR, "nginx killed by signal %d (%s); stopping", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else
        weir__logf(s->log, WEIR__LOG_ERROR,
                   s->phase == STARTING ? "nginx failed to start (exit code %d); stopping"
                                        : "nginx exited (exit code %d); stopping",
                   WEXITSTATUS(status));
    s->stop_level = 1;
    stop(s, 1);
}

/* Reaps children. False when no process of nginx is left. Children inherited through exec are reaped, not ended. */
static bool reap(struct supervisor *s)
{
    struct signalfd_siginfo unused;
    while (read(s->children, &unused, sizeof unused) > 0)
        continue;
    for (;;) {
        int status;
        pid_t child = waitpid(-1, &status, WNOHANG);
        if (child <= 0)
            return is_running(s);
        if (child == s->master)
            master_ended(s, status);
        else if (child == s->starting)
            starting_ended(s);
        else
            weir__agent_reaped(&s->agent, child, status);
        for (size_t i = 0; i < WEIR__ENDING_MAX; i++)
            if (child == s->ending[i] && WIFSIGNALED(status))
                kill(-child, SIGQUIT); /* workers that it left, in case that it did not signal them */
    }
}

static void handle_signals(struct supervisor *s)
{
    for (enum weir__signal_action action; (action = weir__signal_next(s->serving->signals)) != WEIR__ACTION_NONE;) {
        if (action != WEIR__ACTION_STOP) {
            s->upgrade_requested |= action == WEIR__ACTION_UPGRADE;
            s->reload_requested |= action == WEIR__ACTION_RELOAD;
            continue;
        }
        if (s->phase != STOPPING)
            weir__logf(s->log, WEIR__LOG_INFO, "stopping; requests in progress have %d s to finish", GRACE_MS / 1000);
        stop(s, 0);
    }
}

static void phase_timeout(struct supervisor *s)
{
    if (s->phase == STOPPING) {
        signal_nginx(s);
    } else if (s->phase == RELOADING) {
        weir__logf(s->log, WEIR__LOG_ERROR,
                   "nginx did not load the new %s within 15 s; the previous configuration stays active",
                   s->deployment->config.file);
        drop_next(s);
    }
}

static void loop(struct supervisor *s)
{
    for (;;) {
        struct pollfd wait[] = {{.fd = s->serving->signals, .events = POLLIN},
                                {.fd = s->children, .events = POLLIN},
                                {.fd = s->output[0], .events = POLLIN},
                                {.fd = s->agent.channel > 0 ? s->agent.channel : -1, .events = POLLIN},
                                {.fd = s->agent.output > 0 ? s->agent.output : -1, .events = POLLIN}};
        int64_t left = s->starting && s->steady_ms ? s->steady_ms - weir__monotonic_ms() : WATCH_MS;
        int ready = poll(wait, sizeof wait / sizeof *wait, (int)(left < 0 ? 0 : left));
        if (ready > 0 && wait[2].revents)
            read_output(s);
        if (ready > 0 && wait[0].revents)
            handle_signals(s);
        if (!reap(s))
            return;
        if (s->deadline && (s->phase == STOPPING || s->phase == RELOADING) && weir__monotonic_ms() > s->deadline)
            phase_timeout(s);
        if (s->phase == RELOADING && s->starting && s->steady_ms && weir__monotonic_ms() >= s->steady_ms)
            replace_master(s);
        watch_files(s);
        s->agent.config = &s->deployment->config;
        weir__agent_poll(&s->agent);
        if (s->phase == RUNNING)
            weir__agent_start_if_due(&s->agent);
    }
}

/* ---- Start ---- */

/* Runs until no process of nginx is left, and frees the deployments. */
static int run(struct supervisor *s)
{
    if (s->code == 0)
        loop(s);
    weir__agent_stop(&s->agent); /* after the workers, so that the last exchange has all their deltas */
    if (s->code == 0)
        weir__logf(s->log, WEIR__LOG_INFO, "stopped");
    for (int i = 0; i < 2; i++)
        if (s->output[i] >= 0)
            close(s->output[i]);
    if (s->children >= 0)
        close(s->children);
    weir__deployment_free(s->next);
    weir__deployment_free(s->deployment);
    return s->code;
}

static struct supervisor supervisor_of(struct weir__deployment *deployment, uint64_t print,
                                       struct weir__serving *serving)
{
    struct supervisor s = {.deployment = deployment,
                           .serving = serving,
                           .folder = &serving->folder,
                           .log = &serving->log,
                           .agent = {.log = &serving->log, .listening = &serving->listening},
                           .children = weir__signals_take(&(int){SIGCHLD}, 1),
                           .output = {-1, -1},
                           .older = UINT_MAX,
                           .fingerprint = print,
                           .last_seen = print};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return s;
}

int weir__supervisor_run(struct weir__deployment *deployment, uint64_t print, struct weir__serving *serving)
{
    struct supervisor s = supervisor_of(deployment, print, serving);
    char conf[512];
    s.programs = weir__nginx_fingerprint(&serving->nginx);
    if (s.children >= 0 && weir__listening_open(&serving->listening, &deployment->config, s.log) &&
        conf_activate(s.folder, conf) && pipe2(s.output, O_CLOEXEC | O_NONBLOCK) == 0) {
        /* Not blocking: nginx must not wait for a supervisor that waits for a disk. */
        fcntl(s.output[0], F_SETPIPE_SZ, PIPE); /* best effort: nginx writes on while a reload is tested */
        s.master = s.group = weir__nginx_start(&serving->nginx, s.folder->path, conf, &serving->listening, s.output[1]);
    }
    if (s.group <= 0) {
        weir__logf(s.log, WEIR__LOG_ERROR, "nginx failed to start: %s", strerror(errno));
        s.code = 1;
    }
    return run(&s);
}

/*
 * Begins with an empty deployment, and reloads: until that succeeds, nginx and the agent run on as they are, just as
 * after any file that is rejected.
 */
int weir__supervisor_take_over(const struct weir__takeover *takeover, struct weir__serving *serving)
{
    struct weir__deployment *running = calloc(1, sizeof *running);
    if (!running)
        return 1;
    running->config.file = serving->file;
    running->config.segment_path = takeover->segment;
    running->number = takeover->older;
    struct supervisor s = supervisor_of(running, 0, serving);
    s.phase = RUNNING;
    s.reload_requested = true;
    s.master = s.group = takeover->master;
    memcpy(s.ending, takeover->ending, sizeof s.ending);
    memcpy(s.output, takeover->output, sizeof s.output);
    s.number = takeover->number;
    s.programs = takeover->programs;
    s.agent = takeover->agent;
    s.agent.log = s.log;
    s.agent.listening = &serving->listening;
    s.agent.started_ms = weir__monotonic_ms();
    weir__logf(s.log, WEIR__LOG_INFO, "weir %s has taken over from weir %s; reloading", weir_version(),
               takeover->version);
    return run(&s);
}
