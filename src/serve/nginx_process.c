/* Finds nginx and its modules, runs nginx -t, starts nginx. */
#include "serve/nginx.h"
#include "serve/takeover.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MODULE_NAME        "ngx_http_weir_module.so"
#define STREAM_MODULE_NAME "ngx_stream_weir_module.so"

/* ---- Finding ---- */

/* Finds a regular file with access `how` in one of several folders, separated by colons; `path` gets its absolute path.
 * False: `path` is empty. Not a directory: the build has one named nginx next to the command. */
static bool find_in(const char *folders, const char *name, int how, char path[4096])
{
    char given[4096];
    struct stat at;
    for (; folders && *folders; folders += strspn(folders, ":")) {
        int len = (int)strcspn(folders, ":"), used = snprintf(given, sizeof given, "%.*s/%s", len, folders, name);
        if (len > 0 && used < (int)sizeof given && access(given, how) == 0 && stat(given, &at) == 0 &&
            S_ISREG(at.st_mode) && realpath(given, path))
            return true;
        folders += len;
    }
    path[0] = 0;
    return false;
}

static bool find_program(char path[4096])
{
    const char *given = getenv("WEIR_NGINX");
    if (!given)
        return find_in(getenv("PATH"), "nginx", X_OK, path) ||
               find_in("/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin:/opt/nginx/sbin", "nginx", X_OK, path);
    snprintf(path, 4096, "%s", given);
    return access(given, X_OK) == 0;
}

/* A module of weir: beside this command, where it was built or installed, or among nginx's. */
static bool find_module(const char *name, char path[4096])
{
    static const char *const folders[] = {"/nginx", "/../lib/weir", "/../lib/nginx/modules"};
    const char *given = getenv("WEIR_MODULES");
    char own[4000];
    if (given)
        return find_in(given, name, R_OK, path);
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 32);
    own[len > 0 ? len : 0] = 0;
    char *slash = strrchr(own, '/');
    for (size_t i = 0; slash && i < sizeof folders / sizeof *folders; i++) {
        strcpy(slash, folders[i]);
        if (find_in(own, name, R_OK, path))
            return true;
    }
    return find_in("/usr/lib/nginx/modules", name, R_OK, path);
}

/* ---- Running ---- */

/* In the child: executes the program with standard output and error in `output`, and `death` as its parent-death
 * signal. It inherits the sockets of `listening`, unless that is NULL. */
static void become(char *const *argv, const struct weir__listening *listening, int output, pid_t parent, int death)
{
    sigset_t none;
    struct rlimit files;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, death) != 0 || getppid() != parent)
        _exit(126);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(126);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("NGINX"); /* names inherited sockets */
    if (!listening || weir__listening_pass_on(listening))
        execv(argv[0], argv);
    dprintf(2, "nginx: [emerg] %s cannot be run: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* -1: errno has the reason. */
static pid_t launch(char *const *argv, int death, const struct weir__listening *listening, int output)
{
    pid_t parent = getpid(), child = fork();
    if (child != 0)
        return child;
    setsid();   /* no worker can insert input into the terminal that weir serve was started from */
    umask(027); /* logs contain addresses and keys */
    become(argv, listening, output, parent, death);
    _exit(126);
}

static int reap(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum { KILLED = -1, INTERRUPTED = -2 };

/* Runs a program to its end. Returns its exit code; KILLED: by a signal or after 30 s; INTERRUPTED: `interrupt` became
 * readable, and it was killed. */
static int run(char *const *argv, int interrupt, char *output, size_t size)
{
    enum { PATIENCE_MS = 30000 }; /* nginx -t resolves names of hosts */
    int ends[2];
    bool interrupted = false;
    size_t used = 0;
    output[0] = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return KILLED;
    int from = ends[0];
    pid_t child = launch(argv, SIGKILL, NULL, ends[1]);
    close(ends[1]);
    if (child < 0) {
        close(from);
        return KILLED;
    }
    for (int64_t end = weir__monotonic_ms() + PATIENCE_MS;;) {
        struct pollfd wait[] = {{.fd = from, .events = POLLIN}, {.fd = interrupt, .events = POLLIN}};
        int64_t left = end - weir__monotonic_ms();
        int ready = left > 0 ? poll(wait, 2, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        interrupted = ready > 0 && wait[1].revents;
        char piece[1024];
        ssize_t got = ready > 0 && wait[0].revents && !interrupted ? read(from, piece, sizeof piece) : 0;
        if (got <= 0) {
            if (ready <= 0 || interrupted)
                kill(child, SIGKILL);
            break;
        }
        size_t keep = (size_t)got < size - 1 - used ? (size_t)got : size - 1 - used;
        memcpy(output + used, piece, keep);
        used += keep;
        output[used] = 0;
    }
    close(from);
    int code = reap(child);
    return interrupted ? INTERRUPTED : code;
}

static char *argument(const char *text)
{
    return (char *)(uintptr_t)text; /* execv does not write to it */
}

/* The result of a program that tests something. */
static enum weir__nginx_test test(char *const *argv, int interrupt, char *output, size_t size)
{
    int code = run(argv, interrupt, output, size);
    if (code == INTERRUPTED)
        return WEIR__NGINX_TEST_INTERRUPTED;
    if (code == KILLED && output[0] == 0)
        snprintf(output, size, "nginx: [emerg] %s %s did not end\n", argv[0], argv[1]);
    return code == 0 ? WEIR__NGINX_TEST_PASSED : WEIR__NGINX_TEST_FAILED;
}

enum weir__nginx_test weir__nginx_test_conf(const struct weir__nginx *nginx, const char *folder, const char *conf,
                                            int interrupt, char *output, size_t size)
{
    char *argv[] = {argument(nginx->program), argument("-t"), argument("-q"), argument("-p"),     argument(folder),
                    argument("-c"),           argument(conf), argument("-e"), argument("stderr"), NULL};
    return test(argv, interrupt, output, size);
}

enum weir__nginx_test weir__program_test(const char *program, const char *file, int interrupt, char *output,
                                         size_t size)
{
    char *argv[] = {argument(program),
                    argument("serve"),
                    argument("--check"),
                    argument("--takeover"),
                    argument(WEIR__TAKEOVER_FORMAT),
                    argument("--"),
                    argument(file),
                    NULL};
    return test(argv, interrupt, output, size);
}

pid_t weir__nginx_start(const struct weir__nginx *nginx, const char *folder, const char *conf,
                        const struct weir__listening *listening, int output)
{
    char *argv[] = {argument(nginx->program), argument("-p"), argument(folder),   argument("-c"),
                    argument(conf),           argument("-e"), argument("stderr"), NULL};
    /* On SIGTERM nginx stops its workers; they would survive a SIGKILL of the master. */
    return launch(argv, SIGTERM, listening, output);
}

uint64_t weir__nginx_fingerprint(const struct weir__nginx *nginx)
{
    const char *const files[] = {nginx->program, nginx->module, nginx->stream_core, nginx->stream_module};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct stat at = {.st_size = 0};
        if (*files[i])
            (void)!stat(files[i], &at);
        uint64_t values[] = {at.st_dev, at.st_ino, (uint64_t)at.st_size, (uint64_t)at.st_mtim.tv_sec,
                             (uint64_t)at.st_mtim.tv_nsec};
        for (size_t j = 0; j < sizeof values / sizeof *values; j++)
            sum = (sum ^ values[j]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return sum;
}

/* `nginx version: nginx/1.22.1` */
static bool find_version(struct weir__nginx *nginx, char *why, size_t size)
{
    char *argv[] = {nginx->program, argument("-v"), NULL}, output[1024];
    int code = run(argv, -1, output, sizeof output);
    const char *at = strstr(output, "nginx/");
    if (code != 0 || !at) {
        snprintf(why, size, "%s -v prints no version of nginx, but \"%.*s\" (exit code %d)", nginx->program,
                 (int)strcspn(output, "\n"), output, code);
        return false;
    }
    at += strlen("nginx/");
    int part[3] = {0};
    for (int i = 0; i < 3; i++) {
        char *end;
        part[i] = (int)strtol(at, &end, 10) % 1000;
        at = *end == '.' ? end + 1 : end;
    }
    nginx->version = part[0] * 1000000 + part[1] * 1000 + part[2];
    snprintf(nginx->version_text, sizeof nginx->version_text, "%d.%d.%d", part[0], part[1], part[2]);
    return true;
}

bool weir__nginx_find(struct weir__nginx *nginx, char *why, size_t size)
{
    *nginx = (struct weir__nginx){0};
    bool module = find_module(MODULE_NAME, nginx->module);
    find_module(STREAM_MODULE_NAME, nginx->stream_module);
    /* Distributions build stream as a dynamic module; compiled into nginx, there is no such file. */
    find_in("/usr/lib/nginx/modules:/usr/lib64/nginx/modules:/usr/share/nginx/modules", "ngx_stream_module.so", R_OK,
            nginx->stream_core);
    if (!find_program(nginx->program))
        snprintf(why, size, "nginx was not found%s%s; install it, or set WEIR_NGINX to its path",
                 nginx->program[0] ? " at " : "", nginx->program);
    else if (!find_version(nginx, why, size))
        return false;
    else if (!module)
        snprintf(why, size, MODULE_NAME " was not found; build it with make nginx, or set WEIR_MODULES to its folder");
    else
        return true;
    return false;
}
