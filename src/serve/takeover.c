/* Executes another version of this program in place, and takes over from one. See takeover.h. */
#include "serve/takeover.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "WEIR_TAKEOVER"

void weir__program_path(char path[4096])
{
    unsigned long started = getauxval(AT_EXECFN);
    const char *name = started ? (const char *)started : "";
    char here[2048];
    if (*name != '/' && *name && getcwd(here, sizeof here))
        snprintf(path, 4096, "%s/%s", here, name);
    else
        snprintf(path, 4096, "%s", name);
}

/* ---- Executing ---- */

/* Calls `act` for every descriptor that is handed over. */
static void each_descriptor(const struct weir__takeover *takeover, const struct weir__serving *serving,
                            void (*act)(int fd))
{
    const int single[] = {takeover->output[0],         takeover->output[1],     takeover->agent.channel,
                          takeover->agent.output,      serving->folder.lock,    serving->folder.itself,
                          serving->listening.admin.fd, serving->listening.queue};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (single[i] > 0)
            act(single[i]);
    for (size_t i = 0; i < serving->listening.count; i++)
        if (serving->listening.sockets[i].nginx_knows) /* as in describe() */
            act(serving->listening.sockets[i].fd);
}

static void keep_open(int fd)
{
    fcntl(fd, F_SETFD, 0);
}

static void close_on_exec(int fd)
{
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static json_t *describe(const struct weir__takeover *takeover, const struct weir__serving *serving)
{
    char programs[32];
    json_t *ending = json_array(), *sockets = json_array();
    for (size_t i = 0; i < WEIR__ENDING_MAX; i++)
        if (takeover->ending[i])
            json_array_append_new(ending, json_integer(takeover->ending[i]));
    for (size_t i = 0; i < serving->listening.count; i++)
        if (serving->listening.sockets[i].nginx_knows)
            json_array_append_new(sockets, json_integer(serving->listening.sockets[i].fd));
    snprintf(programs, sizeof programs, "%016llx", (unsigned long long)takeover->programs);
    return json_pack(
        "{s:I, s:s, s:s, s:I, s:o, s:[i,i], s:I, s:I, s:s, s:o, s:i, s:i, s:{s:s, s:i, s:i}, s:{s:s, s:b}, "
        "s:s, s:{s:I, s:i, s:i, s:I, s:I, s:b}}",
        "pid", (json_int_t)getpid(), "format", WEIR__TAKEOVER_FORMAT, "version", weir_version(), "master",
        (json_int_t)takeover->master, "ending", ending, "output", takeover->output[0], takeover->output[1], "number",
        (json_int_t)takeover->number, "older", (json_int_t)takeover->older, "programs", programs, "listening", sockets,
        "admin", serving->listening.admin.fd, "queue", serving->listening.queue, "folder", "path", serving->folder.path,
        "lock", serving->folder.lock, "itself", serving->folder.itself, "log", "path", takeover->log_path, "json",
        takeover->log_json, "segment", takeover->segment, "agent", "pid", (json_int_t)takeover->agent.pid, "channel",
        takeover->agent.channel, "output", takeover->agent.output, "group", (json_int_t)takeover->agent.user.group,
        "workers", (json_int_t)takeover->agent.user.workers, "drops", takeover->agent.user.drops);
}

void weir__takeover_exec(const struct weir__takeover *takeover, const struct weir__serving *serving)
{
    char *argv[] = {(char *)(uintptr_t)serving->program, (char *)(uintptr_t) "serve", (char *)(uintptr_t) "--",
                    (char *)(uintptr_t)serving->file, NULL};
    json_t *description = describe(takeover, serving);
    char *text = description ? json_dumps(description, JSON_COMPACT) : NULL;
    errno = description ? ENOMEM : EILSEQ; /* a path that is not UTF-8 */
    if (text && setenv(VARIABLE, text, 1) == 0) {
        each_descriptor(takeover, serving, keep_open);
        execv(argv[0], argv);
        int error = errno;
        each_descriptor(takeover, serving, close_on_exec);
        unsetenv(VARIABLE);
        errno = error;
    }
    free(text);
    json_decref(description);
}

/* ---- Taking over ---- */

bool weir__takeover_pending(void)
{
    return getenv(VARIABLE) != NULL;
}

static bool is_child(pid_t pid)
{
    siginfo_t unused;
    return pid > 0 && waitid(P_PID, (id_t)pid, &unused, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void copy(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
}

static bool read_description(const json_t *from, struct weir__takeover *takeover, struct weir__serving *serving)
{
    json_int_t pid, master, number, older, agent, group, workers;
    const char *format, *version, *programs, *folder, *log_path, *segment;
    json_t *ending, *sockets;
    int admin, log_json, drops;
    *takeover = (struct weir__takeover){.master = 0};
    if (json_unpack(
            (json_t *)(uintptr_t)from,
            "{s:I, s:s, s:s, s:I, s:o, s:[i,i], s:I, s:I, s:s, s:o, s:i, s:i, s:{s:s, s:i, s:i}, s:{s:s, s:b}, s:s, "
            "s:{s:I, s:i, s:i, s:I, s:I, s:b}}",
            "pid", &pid, "format", &format, "version", &version, "master", &master, "ending", &ending, "output",
            &takeover->output[0], &takeover->output[1], "number", &number, "older", &older, "programs", &programs,
            "listening", &sockets, "admin", &admin, "queue", &serving->listening.queue, "folder", "path", &folder,
            "lock", &serving->folder.lock, "itself", &serving->folder.itself, "log", "path", &log_path, "json",
            &log_json, "segment", &segment, "agent", "pid", &agent, "channel", &takeover->agent.channel, "output",
            &takeover->agent.output, "group", &group, "workers", &workers, "drops", &drops) != 0 ||
        strcmp(format, WEIR__TAKEOVER_FORMAT) != 0 || pid != (json_int_t)getpid() || !is_child((pid_t)master) ||
        strlen(folder) >= sizeof serving->folder.path)
        return false;
    takeover->master = (pid_t)master;
    takeover->number = (unsigned)number;
    takeover->older = (unsigned)older;
    takeover->agent.pid = is_child((pid_t)agent) ? (pid_t)agent : 0;
    takeover->agent.user = (struct weir__agent_user){.drops = drops, .group = (gid_t)group, .workers = (gid_t)workers};
    takeover->log_json = log_json;
    takeover->programs = strtoull(programs, NULL, 16);
    copy(takeover->version, sizeof takeover->version, version);
    copy(takeover->segment, sizeof takeover->segment, segment);
    copy(takeover->log_path, sizeof takeover->log_path, log_path);
    copy(serving->folder.path, sizeof serving->folder.path, folder);
    size_t i;
    const json_t *item;
    json_array_foreach(ending, i, item) if (i < WEIR__ENDING_MAX) takeover->ending[i] = (pid_t)json_integer_value(item);
    json_array_foreach(sockets, i, item)
    {
        size_t before = serving->listening.count;
        weir__listening_adopt(&serving->listening, (int)json_integer_value(item), false);
        if (serving->listening.count > before)
            serving->listening.sockets[before].nginx_knows = serving->listening.sockets[before].wanted = true;
    }
    if (admin > 0)
        weir__listening_adopt(&serving->listening, admin, true);
    each_descriptor(takeover, serving, close_on_exec);
    return true;
}

bool weir__takeover_receive(struct weir__takeover *takeover, struct weir__serving *serving)
{
    json_t *description = json_loads(getenv(VARIABLE), 0, NULL);
    bool good = description && read_description(description, takeover, serving);
    json_decref(description);
    unsetenv(VARIABLE);
    if (!good)
        weir__logf(&serving->log, WEIR__LOG_ERROR,
                   VARIABLE " does not describe a weir serve that this process was before; unset it");
    return good;
}
