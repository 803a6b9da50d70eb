/* weir doctor: looks at this host as weir serve would find it. A table of checks; see serve.h. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/file.h"
#include "control/control.h"
#include "engine/mapped_file.h"
#include "remote/client.h"
#include "serve/agent.h"
#include "serve/deployment.h"
#include "serve/serve.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <unistd.h>

#define TMPFS_ID        0x01021994
#define STORE_US        INT64_C(2000000)   /* for the store to reply */
#define SKEW_US         INT64_C(1000000)   /* largest difference between the clocks of this host and the store */
#define HUGE_FROM_BYTES (INT64_C(1) << 30) /* segments from here on gain from huge pages */
enum {
    CONNECT_S = 2,
    HELPER_MS = 5000,
    BACKLOG = 511,
    FILES_LEAST = 4096,
    PROC_LINE = 512,
    LISTENS = 10 /* a state */
};

struct doctor {
    const char *file;
    weir__doctor_found *found;
    void *context;
    const char *check; /* that runs */
    struct weir__deployment deployment;
    struct weir__serving serving;
    bool config_read; /* weir.yaml was read */
    bool good;        /* and it has no errors: nginx can be tested with it */
    bool running;     /* a process of weir has a listener, or the agent's lock */
    uid_t users[5];   /* whose processes are believed to be weir's: any user can name a process so */
};

__attribute__((format(printf, 3, 4))) static void find(struct doctor *d, enum weir__doctor_level level,
                                                       const char *format, ...)
{
    char text[2048], shown[sizeof text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    d->found(d->context, level, d->check, weir__printable(weir__text_of(text), shown, sizeof shown));
}

static void find_diagnostic(void *context, const weir_diagnostic *what)
{
    char place[32] = "";
    if (what->line > 0)
        snprintf(place, sizeof place, ":%d:%d", what->line, what->column);
    find(context, what->severity == WEIR_IS_ERROR ? WEIR__DOCTOR_WRONG : WEIR__DOCTOR_WARNING, "%s%s: %s%s%s%s",
         what->file ? what->file : "", place, what->message, what->suggestion ? "; did you mean '" : "",
         what->suggestion ? what->suggestion : "", what->suggestion ? "'?" : "");
}

/* A log whose lines become findings. */
static struct weir__logger log_open(void)
{
    return (struct weir__logger){.file = memfd_create("doctor", MFD_CLOEXEC), .plain = true};
}

/* Returns the number of findings. */
static int log_find(struct doctor *d, struct weir__logger *log, enum weir__doctor_level level)
{
    char line[PROC_LINE * 4];
    int count = 0;
    FILE *lines = log->file >= 0 && lseek(log->file, 0, SEEK_SET) == 0 ? fdopen(log->file, "r") : NULL;
    for (; lines && fgets(line, sizeof line, lines); count++) {
        line[strcspn(line, "\n")] = 0;
        find(d, level, "%s", strncmp(line, "weir: ", 6) == 0 ? line + 6 : line);
    }
    if (lines)
        fclose(lines);
    else if (log->file >= 0)
        close(log->file);
    return count;
}

/* The first word of a small file; "" if it cannot be read. */
static const char *read_word(const char *path, char *word, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file || !fgets(word, (int)size, file))
        *word = 0;
    if (file)
        fclose(file);
    word[strcspn(word, " \n")] = 0;
    return word;
}

/* A field of a line, counted from 0. */
static const char *field(const char *line, int number)
{
    for (line += strspn(line, " "); number > 0; number--) {
        line += strcspn(line, " ");
        line += strspn(line, " ");
    }
    return line;
}

/* ---- weir.yaml ---- */

/* Root, this user, the owner of weir.yaml, and the users of the workers and of the agent. */
static void find_users(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    struct weir__workers workers;
    struct stat at;
    const char *const names[] = {weir__workers_of(config, &workers) ? workers.user : "root",
                                 config->agent_user ? config->agent_user : "weir"};
    d->users[0] = geteuid();
    d->users[1] = stat(d->file, &at) == 0 ? at.st_uid : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct passwd *found = getpwnam(names[i]);
        d->users[2 + i] = found ? found->pw_uid : 0;
    }
}

/* `user` gets the user of a process; false: that is not one of weir's. */
static bool is_of_user(const struct doctor *d, long pid, uid_t *user)
{
    char path[64];
    struct stat at;
    snprintf(path, sizeof path, "/proc/%ld", pid);
    bool found = false;
    *user = stat(path, &at) == 0 ? at.st_uid : (uid_t)-1;
    for (size_t i = 0; i < sizeof d->users / sizeof *d->users; i++)
        found |= d->users[i] == *user;
    return found;
}

static void check_file(struct doctor *d)
{
    struct weir__deployment *deployment = &d->deployment;
    if (access(d->file, F_OK) != 0 && errno == ENOENT) {
        find(d, WEIR__DOCTOR_WRONG,
             "%s: No such file; name yours, as in weir doctor /etc/weir/weir.yaml, or write one with weir init",
             d->file);
        return;
    }
    d->config_read = weir__config_load(&deployment->config, d->file, find_diagnostic, d) == 0;
    if (!d->config_read)
        return;
    find_users(d);
    d->good = weir__preflight(&deployment->config, NULL, find_diagnostic, d, &deployment->facts);
    if (d->good)
        find(d, WEIR__DOCTOR_OK, "%s with %zu rule%s", d->file, deployment->facts.rules,
             deployment->facts.rules == 1 ? "" : "s");
}

/* ---- nginx ---- */

static void check_nginx(struct doctor *d)
{
    struct weir__serving *serving = &d->serving;
    char why[512];
    if (!d->deployment.config.listener_count)
        return;
    if (!weir__nginx_find(&serving->nginx, why, sizeof why)) {
        find(d, WEIR__DOCTOR_WRONG, "%s", why);
        return;
    }
    if (!d->good) {
        find(d, WEIR__DOCTOR_UNKNOWN, "nginx -t was skipped, as %s has errors", d->file);
        return;
    }
    serving->log = log_open();
    serving->file = d->file;
    bool passed = weir__runtime_dir_make(&serving->folder, d->deployment.facts.workers.group_id) &&
                  weir__deployment_write(&d->deployment, serving, 0, true) &&
                  weir__deployment_test(&d->deployment, serving, -1) == WEIR__NGINX_TEST_PASSED;
    int error = errno;
    weir__runtime_dir_remove(&serving->folder);
    if (log_find(d, &serving->log, WEIR__DOCTOR_WRONG) == 0 && !passed)
        find(d, WEIR__DOCTOR_WRONG, "nginx -t could not run: %s", strerror(error));
    if (passed)
        find(d, WEIR__DOCTOR_OK, "%s, %s; it loads %s", serving->nginx.version_text, serving->nginx.program,
             serving->nginx.module);
}

/* ---- Processes and ports ---- */

/* The inode of a socket that listens on an address, as /proc/net/tcp has it; 0: none. */
static unsigned long listening_inode(const struct sockaddr *at)
{
    bool six = at->sa_family == AF_INET6;
    char wanted[33], line[PROC_LINE];
    const uint32_t *numbers =
        six ? (const uint32_t *)(const void *)&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr
            : &((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr;
    unsigned port = ntohs(six ? ((const struct sockaddr_in6 *)(const void *)at)->sin6_port
                              : ((const struct sockaddr_in *)(const void *)at)->sin_port);
    for (int i = 0; i < (six ? 4 : 1); i++)
        snprintf(wanted + (ptrdiff_t)8 * i, 9, "%08X", numbers[i]);
    bool all = strspn(wanted, "0") == strlen(wanted);
    FILE *table = fopen(six ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    unsigned long inode = 0;
    while (table && !inode && fgets(line, sizeof line, table)) {
        const char *local = field(line, 1), *colon = strchr(local, ':');
        if (!colon || strtoul(colon + 1, NULL, 16) != port || strtoul(field(line, 3), NULL, 16) != LISTENS)
            continue;
        bool its_all = strspn(local, "0") == (size_t)(colon - local);
        if (all || its_all || strncmp(local, wanted, strlen(wanted)) == 0)
            inode = strtoul(field(line, 9), NULL, 10);
    }
    if (table)
        fclose(table);
    return inode;
}

static const char *command_of(long pid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    return read_word(path, name, size);
}

static bool holds(const char *pid, const char *socket)
{
    char path[64], link[64];
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *folder = opendir(path);
    bool found = false;
    for (const struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid, entry->d_name);
        ssize_t len = readlink(path, link, sizeof link - 1);
        link[len > 0 ? len : 0] = 0;
        found = strcmp(link, socket) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

/* The process that has a socket: weir (*is_weir), if it is one of several. 0: none that this user can look at. */
static long holder_of(const struct doctor *d, unsigned long inode, char *name, size_t size, bool *is_weir)
{
    char socket[64];
    long found = 0;
    uid_t user = 0;
    snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    DIR *list = opendir("/proc");
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        if (!isdigit((unsigned char)*entry->d_name) || !holds(entry->d_name, socket))
            continue;
        found = strtol(entry->d_name, NULL, 10);
        bool named = strcmp(command_of(found, name, size), "weir") == 0, known = is_of_user(d, found, &user);
        *is_weir = named && known;
        if (*is_weir)
            break;
        if (named)
            snprintf(name, size, "weir, of user %u", user);
    }
    if (list)
        closedir(list);
    return found;
}

static void check_listener(struct doctor *d, const struct weir__listener *listener)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char name[64] = "", why[256];
    bool is_weir = false;
    hints.ai_family = listener->host ? AF_UNSPEC : AF_INET;
    int failed = getaddrinfo(listener->host, listener->port, &hints, &found);
    if (failed) {
        find(d, WEIR__DOCTOR_WRONG, "%s: %s", listener->address, gai_strerror(failed));
        return;
    }
    unsigned long inode = listening_inode(found->ai_addr);
    freeaddrinfo(found);
    long holder = inode ? holder_of(d, inode, name, sizeof name, &is_weir) : 0;
    int bound = inode ? -1 : weir__admin_bind(listener, why, sizeof why);
    if (bound >= 0)
        close(bound);
    d->running |= is_weir;
    if (is_weir)
        find(d, WEIR__DOCTOR_OK, "%s: weir (process %ld) listens on it", listener->address, holder);
    else if (holder)
        find(d, WEIR__DOCTOR_WRONG, "%s is taken by %s (process %ld); stop that, or choose another address",
             listener->address, name, holder);
    else if (inode)
        find(d, WEIR__DOCTOR_UNKNOWN, "%s is in use, by a process that only root can look at", listener->address);
    else if (bound < 0)
        find(d, WEIR__DOCTOR_WRONG, "%s%s", why,
             errno == EACCES ? "; ports below 1024 are for root: choose another" : "");
    else
        find(d, WEIR__DOCTOR_OK, "%s is free", listener->address);
}

static void check_ports(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    for (size_t i = 0; i < config->listener_count; i++)
        check_listener(d, &config->listeners[i]);
    if (config->metrics)
        check_listener(d, config->metrics);
    if (config->admin.listener)
        check_listener(d, config->admin.listener);
}

static void check_upstreams(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    for (size_t i = 0; i < config->route_count; i++)
        for (size_t j = 0; j < config->routes[i].server_count; j++) {
            const struct weir__server *server = &config->routes[i].servers[j];
            const char *colon = strrchr(server->address, ':');
            struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
            if (!server->host || !colon)
                continue;
            int failed = getaddrinfo(server->host, colon + 1, &hints, &found);
            int fd = failed ? -1 : socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            struct timeval most = {.tv_sec = CONNECT_S};
            if (failed)
                find(d, WEIR__DOCTOR_WARNING, "%s: %s", server->address, gai_strerror(failed));
            else if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) != 0 ||
                     connect(fd, found->ai_addr, found->ai_addrlen) != 0)
                find(d, WEIR__DOCTOR_WARNING, "%s cannot be reached: %s; requests to it get 502", server->address,
                     errno == EINPROGRESS ? "no reply" : strerror(errno));
            else
                find(d, WEIR__DOCTOR_OK, "%s accepts connections", server->address);
            if (fd >= 0)
                close(fd);
            if (found)
                freeaddrinfo(found);
        }
}

/* The process that holds the lock of the history, which every agent has; 0: none. */
static long agent_of(const struct doctor *d)
{
    char path[4200], line[PROC_LINE], name[64];
    struct stat at;
    struct statfs system;
    long found = 0;
    snprintf(path, sizeof path, "%s.observer", d->deployment.config.segment_path);
    FILE *locks = stat(path, &at) == 0 && statfs(path, &system) == 0 ? fopen("/proc/locks", "re") : NULL;
    while (locks && !found && fgets(line, sizeof line, locks)) {
        long pid = strtol(field(line, 4), NULL, 10);
        unsigned long numbers[3] = {0}; /* major:minor:inode, the first two in hexadecimal digits */
        char *at_number = (char *)(uintptr_t)field(line, 5);
        uid_t user;
        for (int i = 0; i < 3; i++, at_number += *at_number == ':')
            numbers[i] = strtoul(at_number, &at_number, i < 2 ? 16 : 10);
        if (strncmp(field(line, 1), "FLOCK", 5) != 0 || numbers[2] != at.st_ino || pid <= 0)
            continue;
        /* On some other file systems, such as Btrfs, stat has another device than the list. */
        bool here = system.f_type != TMPFS_ID || makedev((unsigned)numbers[0], (unsigned)numbers[1]) == at.st_dev;
        if (here && is_of_user(d, pid, &user) && strncmp(command_of(pid, name, sizeof name), "weir", 4) == 0)
            found = pid;
    }
    if (locks)
        fclose(locks);
    return found;
}

/* The state letter of a process, and its parent. */
static char state_of(long pid, long *parent)
{
    char path[64], line[PROC_LINE] = "", state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    const char *end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (end) {
        state = *field(end, 1);
        *parent = strtol(field(end, 2), NULL, 10);
    }
    if (file)
        fclose(file);
    return state;
}

static void check_agent(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    long parent = 0, pid = agent_of(d);
    char state = pid ? state_of(pid, &parent) : 0, path[64];
    struct stat at;
    d->running |= pid != 0;
    snprintf(path, sizeof path, "/proc/%ld", parent);
    if (pid && stat(path, &at) == 0 && at.st_uid != geteuid())
        find(d, WEIR__DOCTOR_UNKNOWN,
             "weir runs as the user with id %u, and this command as %u: run it as that user, since what is said about "
             "permissions and owners is about this one",
             at.st_uid, geteuid());
    if (!weir__agent_needed(config))
        find(d, WEIR__DOCTOR_OK, "%s needs none", d->file);
    else if (pid && (state == 'T' || state == 't' || state == 'Z'))
        find(d, WEIR__DOCTOR_WRONG,
             "process %ld is stopped: no exchange with the store, dashboard, history or queue; "
             "kill -CONT %ld",
             pid, pid);
    else if (pid)
        find(d, WEIR__DOCTOR_OK, "process %ld runs", pid);
    else if (!config->listener_count)
        find(d, WEIR__DOCTOR_WRONG, "it does not run: start weir agent %s", d->file);
    else if (d->running)
        find(d, WEIR__DOCTOR_WRONG,
             "weir serve runs without it: no exchange with the store, dashboard, history or queue; the log says why it "
             "does not start (journalctl -u weir)");
    else
        find(d, WEIR__DOCTOR_OK, "neither weir serve nor its agent runs");
}

/* ---- Files ---- */

/* A process maps the segment's file, which is no longer at its path. */
static bool maps_removed(const char *pid, const char *segment)
{
    char path[64], removed[4200], line[4400];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
    snprintf(removed, sizeof removed, "%s (deleted)\n", segment);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        const char *name = strchr(line, '/');
        found = name && strcmp(name, removed) == 0;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* The kernel keeps a removed file as long as a process maps it: requests go on, and commands see another file or none.
 */
static void check_segment(struct doctor *d)
{
    const char *segment = d->deployment.config.segment_path;
    char name[64];
    bool removed = false;
    uid_t user;
    DIR *list = opendir("/proc");
    for (const struct dirent *entry; list && !removed && (entry = readdir(list));) {
        long pid = strtol(entry->d_name, NULL, 10);
        removed = pid > 0 && is_of_user(d, pid, &user) && maps_removed(entry->d_name, segment);
        if (removed)
            find(d, WEIR__DOCTOR_WRONG,
                 "%s was removed while process %ld (%s) uses it: that process counts in the removed file, and weir "
                 "top, check and key do not see its counters; restart weir, which begins with new counters",
                 segment, pid, command_of(pid, name, sizeof name));
    }
    if (list)
        closedir(list);
    if (!removed && access(segment, F_OK) == 0)
        find(d, WEIR__DOCTOR_OK, "%s is in place", segment);
}

static void check_memory(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    char folder[4096], line[PROC_LINE * 2], point[256], kind[64], options[256], huge[256] = "";
    struct statfs at;
    uint64_t left = 0;
    size_t longest = 0;
    weir__folder_of(config->segment_path, folder, sizeof folder);
    if (statfs(folder, &at) != 0 || !weir__free_bytes(config->segment_path, &left)) {
        find(d, WEIR__DOCTOR_UNKNOWN, "%s: %s", folder, strerror(errno));
        return;
    }
    if (at.f_type != TMPFS_ID) {
        find(d, WEIR__DOCTOR_WARNING,
             "the segment is on a disk (%s): the kernel writes the counters there all the time; use /dev/shm", folder);
        return;
    }
    FILE *mounts = fopen("/proc/self/mounts", "re");
    while (mounts && fgets(line, sizeof line, mounts))
        if (sscanf(line, "%*s %255s %63s %255s", point, kind, options) == 3 && strlen(point) >= longest &&
            strncmp(folder, point, strlen(point)) == 0) {
            const char *given = strstr(options, "huge=");
            longest = strlen(point);
            snprintf(huge, sizeof huge, "%s", given ? given + 5 : "never");
            huge[strcspn(huge, ",")] = 0;
        }
    if (mounts)
        fclose(mounts);
    find(d, WEIR__DOCTOR_OK, "%s has %" PRIu64 " MiB left", folder, left >> 20);
    if (config->segment_bytes >= HUGE_FROM_BYTES && strcmp(huge, "never") == 0)
        find(d, WEIR__DOCTOR_WARNING,
             "no huge pages for a segment of %" PRId64
             " MiB; mount -o remount,huge=advise %s, before the segment is made",
             config->segment_bytes >> 20, folder);
}

/* As root, looks at the state folder as the agent's user. */
static void check_state(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    struct weir__agent_user user;
    struct stat at;
    char why[256];
    if (!config->state_path || !(config->published || config->admin.database || config->queue.wanted))
        return;
    if (stat(config->state_path, &at) != 0) {
        char above[4096];
        int error = errno;
        bool absent = error == ENOENT;
        snprintf(above, sizeof above, "%s", config->state_path);
        for (char *slash; absent && access(above, F_OK) != 0 && (slash = strrchr(above, '/')) && slash[1];)
            slash[slash == above] = 0;
        if (!absent)
            find(d, WEIR__DOCTOR_UNKNOWN, "%s: %s", config->state_path, strerror(error));
        else if (access(above, W_OK | X_OK) != 0)
            find(d, WEIR__DOCTOR_WRONG, "%s cannot be made in %s: %s; set state to another path", config->state_path,
                 above, strerror(errno));
        else
            find(d, WEIR__DOCTOR_OK, "%s: it is made at the start", config->state_path);
        return;
    }
    if (!weir__agent_user_find(config, &user, why, sizeof why))
        return; /* an error of weir.yaml */
    struct weir__logger log = log_open();
    weir__handover_warn(config, &user, false, &log);
    if (!user.drops)
        weir__handover_writable(config->state_path, &log);
    if (user.drops && at.st_uid != 0) { /* a folder of root's is handed over at the start */
        int code = weir__helper_fork(HELPER_MS, log.file, 0);
        if (code == WEIR__IN_HELPER) {
            weir__secrets_wipe();
            weir__wipe_inherited_memory();
            _exit(weir__privilege_drop(&user, &log) && weir__handover_check(config, &user, &log) ? 0 : 1);
        }
    }
    if (log_find(d, &log, WEIR__DOCTOR_WRONG) == 0)
        find(d, WEIR__DOCTOR_OK, "%s is writable for the agent%s%s", config->state_path, user.drops ? "'s user " : "",
             user.name);
}

/* ---- The host ---- */

static void check_clock(struct doctor *d)
{
    struct timex clock = {.modes = 0};
    int state = adjtimex(&clock);
    bool several = d->deployment.config.store.url;
    if (state < 0)
        find(d, WEIR__DOCTOR_UNKNOWN, "adjtimex: %s", strerror(errno));
    else if (state == TIME_ERROR || (clock.status & STA_UNSYNC))
        find(d, several ? WEIR__DOCTOR_WARNING : WEIR__DOCTOR_OK, "not synchronized%s",
             several ? ", which windows of the calendar over several hosts need; install chrony or systemd-timesyncd"
                     : ", which only matters for several hosts");
    else
        find(d, WEIR__DOCTOR_OK, "synchronized");
}

static void check_limits(struct doctor *d)
{
    char word[32];
    struct rlimit files;
    long backlog = strtol(read_word("/proc/sys/net/core/somaxconn", word, sizeof word), NULL, 10);
    if (!*word)
        find(d, WEIR__DOCTOR_UNKNOWN, "net.core.somaxconn cannot be read");
    else
        find(d, backlog < BACKLOG ? WEIR__DOCTOR_WARNING : WEIR__DOCTOR_OK, "net.core.somaxconn is %ld%s", backlog,
             backlog < BACKLOG ? ": connections are dropped when many arrive at once; sysctl -w "
                                 "net.core.somaxconn=4096"
                               : "");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        find(d, files.rlim_max < FILES_LEAST ? WEIR__DOCTOR_WARNING : WEIR__DOCTOR_OK,
             "open files of a process: up to %lu%s", (unsigned long)files.rlim_max,
             files.rlim_max < FILES_LEAST
                 ? ", and a request takes two; raise it: ulimit -Hn 65536, or LimitNOFILE of the unit"
                 : "");
}

/* ---- The store ---- */

/* The commands that docs/reference/store.md lists for a user of weir, with arguments that change nothing. */
static const char counter_commands[] =
    "set 1 PX 1000;get;psetex 1000 1;getrange 0 0;setrange 0 1;pexpire 1000;pttl;zrange 0 0;zcount 0 0;zcard;zscore 0;"
    "zadd 0 0;zrem 0;zremrangebyscore 0 0;zrangebyscore 0 0;hset 0 0;hdel 0;hlen;hexists 0;hgetall;hmget 0;"
    "rpush 0;llen;lrange 0 0;del";
static const char queue_commands[] =
    "set 1 PX 1000;hset 0 0;hget 0;hmget 0;hincrby 0 0;hexists 0;hdel 0;sadd 0;smembers;srem 0;zadd 0 0;zrem 0;"
    "zrange 0 0;zrangebyscore 0 0;zcard;xadd * 0 0;xrange - +;xpending 0;xclaim 0 0 0 0-1;xack 0 0-1;xdel 0-1;del";

struct store_reply {
    char version[32], refused[512];
    int64_t clock_us;
};

static int read_store(struct weir__store_request *request, const redisReply *reply)
{
    struct store_reply *to = request->owner;
    int64_t clock[2]; /* seconds and microseconds */
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 4)
        return WEIR_ESTOREGARBAGE;
    for (int i = 0; i < 4; i++)
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return WEIR_ESTOREGARBAGE;
    for (int i = 0; i < 2; i++)
        if (!weir__parse_int((weir_text){reply->element[2 + i]->str, reply->element[2 + i]->len}, &clock[i]) ||
            clock[i] < 0 || clock[i] > WEIR__TIME_MAX / WEIR_SECOND)
            return WEIR_ESTOREGARBAGE;
    snprintf(to->version, sizeof to->version, "%s", reply->element[0]->str);
    snprintf(to->refused, sizeof to->refused, "%s", reply->element[1]->str);
    to->clock_us = clock[0] * 1000000 + clock[1];
    return 0;
}

/* Runs lua/doctor.lua. 0, or an error of the library's with the server's text, if any, in `why`. */
static int query_store(struct weir__blocking_client *client, const char *key, const char *commands,
                       struct store_reply *reply, char *why, size_t size)
{
    const char *arguments[] = {"EVALSHA", weir__doctor_script_sha, "1", key, commands};
    char *command = NULL;
    long long len = redisFormatCommandArgv(&command, 5, arguments, NULL);
    if (len <= 0)
        return WEIR_ENOMEM;
    struct weir__raw_command raw = {
        .slot = key, .command = command, .command_len = (size_t)len, .script = weir__doctor_script, .read = read_store};
    struct weir__store_request request = {.raw = &raw, .owner = reply, .deadline_us = weir__monotonic_us() + STORE_US};
    int error = weir__blocking_client_request(client, &request);
    snprintf(why, size, "%s", raw.why);
    redisFreeCommand(command);
    return error;
}

static void find_store(struct doctor *d, const struct store_reply *reply, const char *name)
{
    const char *shown = d->deployment.config.store.shown;
    int64_t skew = weir__clock_ns(CLOCK_REALTIME) / 1000 - reply->clock_us;
    if (*reply->refused)
        find(
            d, WEIR__DOCTOR_WRONG,
            "%s: its user must not use these commands on %s*: %s; docs/reference/store.md has the line for ACL SETUSER",
            shown, name, reply->refused);
    else
        find(d, WEIR__DOCTOR_OK, "%s replies, %s%s; its user has the rights for %s*", shown,
             *reply->version ? "as Redis " : "a version before 7", reply->version, name);
    if (reply->clock_us && (skew > SKEW_US || skew < -SKEW_US))
        find(d, WEIR__DOCTOR_WARNING,
             "the clocks of this host and of %s differ by %" PRId64
             " s; synchronize both: windows of the calendar begin "
             "at different times",
             shown, (skew > 0 ? skew : -skew) / 1000000);
}

static void check_store(struct doctor *d)
{
    const struct weir__config *config = &d->deployment.config;
    struct weir__store_options options;
    char url[8192], why[256], name[128], key[160];
    if (!config->store.url)
        return;
    if (!weir__store_url(&config->store, url, sizeof url, why, sizeof why) ||
        weir__store_parse(url, &options, why, sizeof why) != 0) {
        find(d, WEIR__DOCTOR_WRONG, "%s: %s", config->store.shown, why);
        return;
    }
    explicit_bzero(url, sizeof url);
    options.deadline_us = STORE_US;
    struct weir__blocking_client *client = weir__blocking_client_new(&options);
    bool queue = config->queue.wanted && !config->queue.database;
    for (int i = 0; client && i < (queue ? 2 : 1); i++) {
        struct store_reply reply = {.clock_us = 0};
        snprintf(name, sizeof name, i ? "{%s:queue}" : "%s:", options.prefix);
        snprintf(key, sizeof key, "%s~doctor", name); /* no counter's name has a '~' there */
        int error = query_store(client, key, i ? queue_commands : counter_commands, &reply, why, sizeof why);
        if (!error)
            find_store(d, &reply, name);
        else
            find(d, WEIR__DOCTOR_WRONG, "%s, keys %s*: %s%s%s%s; docs/reference/store.md says what to do",
                 config->store.shown, name, weir_strerror(error), *why ? " (" : "", why, *why ? ")" : "");
        if (error)
            break;
    }
    weir__blocking_client_free(client);
    explicit_bzero(&options, sizeof options);
}

/* ---- All checks ---- */

/* In this order: the first reads the file, and those of the ports find out whether weir runs. */
static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} checks[] = {{"weir.yaml", check_file}, {"nginx", check_nginx},         {"ports", check_ports},
              {"agent", check_agent},    {"upstreams", check_upstreams}, {"segment", check_segment},
              {"memory", check_memory},  {"state", check_state},         {"store", check_store},
              {"clock", check_clock},    {"limits", check_limits}};

void weir__doctor(const char *file, weir__doctor_found *found, void *context)
{
    static struct doctor d; /* too large for a stack */
    d = (struct doctor){.file = file, .found = found, .context = context};
    for (size_t i = 0; i < sizeof checks / sizeof *checks && (i == 0 || d.config_read); i++) {
        d.check = checks[i].name;
        checks[i].run(&d);
    }
    weir__config_free(&d.deployment.config);
    free(d.deployment.conf);
}
