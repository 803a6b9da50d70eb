/*
 * weir serve --demo: a gateway with a dashboard before a small API, in a folder that is removed afterwards.
 *
 * This process starts the others and waits for the gateway to end. They are a process group of their own, so that
 * Ctrl-C reaches this process alone, and end with it. Started by root, the API and the clients are "nobody".
 */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "control/control.h"
#include "serve/serve.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <microhttpd.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/dev/shm/weir-demo"
enum {
    READY_MS = 60000,
    LOOK_MS = 100,
    REQUEST_MS = 80,
    YOUNG_S = 1 /* a folder of this age may be about to be locked */
};

WEIR__EMBED(demo_yaml, "examples/quickstart.yaml");

enum { GATEWAY, METRICS, ADMIN, API, PORTS };
static const int default_port[PORTS] = {8080, 9090, 9091, 9000};

struct demo {
    int port[PORTS];
    char folder[64];
    const char *file, *rules; /* weir.yaml and a rule file in it */
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- The folder ---- */

static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    return at ? weir__format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) : weir__format("%s", text);
}

/* False after an error was printed. */
static bool write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = file >= 0 && weir__write_fully(file, text, strlen(text)) == 0;
    if (!good)
        fprintf(stderr, "weir serve: %s: %s\n", path, strerror(errno));
    if (file >= 0)
        close(file);
    return good;
}

/* Removes the folders of demos that were killed: they are this user's, and nothing holds them. */
static void remove_stale(void)
{
    glob_t found;
    struct stat at;
    if (glob(FOLDER "-??????", GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int folder = open(found.gl_pathv[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder >= 0 && fstat(folder, &at) == 0 && at.st_uid == geteuid() && time(NULL) - at.st_ctime > YOUNG_S &&
            flock(folder, LOCK_EX | LOCK_NB) == 0)
            weir__remove_tree(found.gl_pathv[i]);
        if (folder >= 0)
            close(folder);
    }
    globfree(&found);
}

/* Writes the parts of the YAML: the rules, which are imported into the database, and the rest. False after an
 * error was printed. */
static bool make_folder(struct demo *demo)
{
    const char *rules = strstr(demo_yaml, "\nidentity:");
    remove_stale();
    for (int i = 0; i < 2 && !*demo->folder; i++) {
        snprintf(demo->folder, sizeof demo->folder, "%s-XXXXXX", i ? "/tmp/weir-demo" : FOLDER);
        if (!mkdtemp(demo->folder))
            *demo->folder = 0;
    }
    int locked =
        *demo->folder ? open(demo->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1; /* until this process ends */
    if (locked < 0 || flock(locked, LOCK_EX | LOCK_NB) != 0) {
        fprintf(stderr, "weir serve: cannot make a folder in /dev/shm or /tmp: %s\n", strerror(errno));
        return false;
    }
    char *text = weir__format("%.*s\nadmin: { listen: 127.0.0.1:%d, rules: database }\nstate: %s/state\n",
                              (int)(rules - demo_yaml), demo_yaml, demo->port[ADMIN], demo->folder);
    for (int i = 0; i < PORTS; i++)
        if (i != ADMIN)
            text = replaced(text, weir__format(":%d", default_port[i]), weir__format(":%d", demo->port[i]));
    text = replaced(text, "/dev/shm/weir-quickstart", weir__format("%s/segment", demo->folder));
    demo->file = weir__format("%s/weir.yaml", demo->folder);
    demo->rules = weir__format("%s/rules.yaml", demo->folder);
    /* Other users may search it: started by root, workers and agent have users of their own. */
    return chmod(demo->folder, 0755) == 0 && write_file(demo->file, text) && write_file(demo->rules, rules + 1);
}

/* False after an error was printed. Checked first: another process would reply in place of this one. */
static bool ports_are_free(const struct demo *demo)
{
    for (int i = 0; i < PORTS; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)demo->port[i]),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int on = 1;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool free = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                    bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0;
        if (!free)
            fprintf(stderr, "weir serve: port %d: %s; --port 8090 takes 8090 to 8093\n", demo->port[i],
                    strerror(errno));
        if (fd >= 0)
            close(fd);
        if (!free)
            return false;
    }
    return true;
}

/* ---- Processes ---- */

/* Runs this program with other arguments; `output` gets its standard output. Returns the exit code. */
static int run_weir(const char *const *arguments, char *output, size_t size)
{
    int ends[2], status = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t got; len + 1 < size && (got = read(ends[0], output + len, size - 1 - len)) > 0;)
        len += (size_t)got;
    output[len] = 0;
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Forks: 0 in the child, which ends with its parent. `reads_network`: it must not be root. */
static pid_t start_child(pid_t group, bool reads_network)
{
    sigset_t none;
    pid_t parent = getpid(), child = fork();
    if (child > 0)
        setpgid(child, group);
    if (child != 0)
        return child;
    setpgid(0, group);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (reads_network && !weir__become_unprivileged()) {
        fputs("weir serve: cannot drop the privileges of root\n", stderr);
        _exit(1);
    }
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent)
        _exit(1);
    return 0;
}

/* ---- The API ---- */

/* Replies with the request, as JSON. */
static enum MHD_Result api_reply(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                                 const char *version, const char *data, size_t *len, void **state)
{
    (void)context, (void)version, (void)data;
    bool begun = *state != NULL;
    *state = connection;
    if (!begun || *len) { /* the headers, or a part of the body */
        *len = 0;
        return MHD_YES;
    }
    json_t *reply = json_pack("{s:s, s:s, s:s?, s:s?}", "method", method, "path", path, "user",
                              MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-User-Id"), "client",
                              MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Forwarded-For"));
    char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL; /* NULL: a header that is not UTF-8 */
    json_decref(reply);
    if (!text)
        text = strdup("{}");
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text ? strlen(text) : 0, text, MHD_RESPMEM_MUST_FREE);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    enum MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return queued;
}

static void serve_api(const struct demo *demo)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)demo->port[API]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, api_reply, NULL, MHD_OPTION_SOCK_ADDR, &at,
                          MHD_OPTION_END))
        fprintf(stderr, "weir serve: the API on port %d does not start\n", demo->port[API]);
    for (;;)
        pause();
}

/* ---- Clients ---- */

static size_t discard(char *data, size_t size, size_t count, void *context)
{
    (void)data, (void)context;
    return size * count;
}

/* The status of a reply; 0: there is none. */
static long get(CURL *curl, const char *url, struct curl_slist *headers)
{
    long status = 0;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 5000L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* Some twelve requests a second, of users who are not equally busy. */
static void send_traffic(const struct demo *demo)
{
    static const char *const users[] = {"ada", "ada", "ada", "ada", "grace", "grace", "linus", "edsger"};
    static const char *const plans[] = {"pro", "pro", "pro", "pro", "free", "free", "free", "free"};
    static const char *const paths[] = {"/api/items", "/api/items", "/api/orders", "/api/items/7",
                                        "/hello/1",   "/status",    "/api/search", "/hello/2"};
    CURL *curl = curl_easy_init();
    unsigned char random[2];
    while (curl) {
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return;
        char url[128], user[64], plan[64];
        snprintf(url, sizeof url, "http://127.0.0.1:%d%s", demo->port[GATEWAY], paths[random[0] % 8]);
        snprintf(user, sizeof user, "X-User-Id: %s", users[random[1] % 8]);
        snprintf(plan, sizeof plan, "X-Plan: %s", plans[random[1] % 8]);
        struct curl_slist *headers = curl_slist_append(curl_slist_append(NULL, user), plan);
        get(curl, url, headers);
        curl_slist_free_all(headers);
        pause_ms(REQUEST_MS);
    }
}

/* Waits until everything replies, and prints what to try. The login link goes to a terminal only, not into a log. */
static void print_hints(const struct demo *demo, bool traffic)
{
    const char *me = program_invocation_name, *how = NULL;
    char path[PATH_MAX]; /* the commands below work in any folder */
    if (strchr(me, '/') && realpath(me, path))
        me = path;
    char link[512] = "";
    CURL *curl = curl_easy_init();
    const char *wanted[] = {weir__format("http://127.0.0.1:%d/weir/status", demo->port[METRICS]),
                            weir__format("http://127.0.0.1:%d/healthz", demo->port[ADMIN])};
    for (int i = 0, waited = 0; curl && i < 2; waited += LOOK_MS)
        if (get(curl, wanted[i], NULL) == 200)
            i++;
        else if (waited >= READY_MS)
            return;
        else
            pause_ms(LOOK_MS);
    const char *const link_command[] = {"weir",     "token",  "link",   "demo",     "--role",
                                        "operator", "--json", "--file", demo->file, NULL};
    json_t *reply = NULL;
    if (isatty(STDOUT_FILENO) && run_weir(link_command, link, sizeof link) == 0)
        reply = json_loads(link, 0, NULL);
    const char *url = json_string_value(json_object_get(reply, "url"));
    how = weir__format("%s token link me --role operator --file %s", me, demo->file);
    if (!weir__dashboard_is_built())
        printf("\nDashboard:  none, as npm was not there when weir was built: install npm, make -B; the API is on port "
               "%d\n",
               demo->port[ADMIN]);
    else if (url)
        printf("\nDashboard:  %s\n            logs you in once, within 5 minutes; another link: %s\n", url, how);
    else
        printf("\nDashboard:  http://127.0.0.1:%d; a link that logs you in: %s\n", demo->port[ADMIN], how);
    printf("Gateway:    http://127.0.0.1:%d, with the rules that the dashboard shows, before a small API\n\n"
           "Try in another terminal:\n"
           "  curl -i 'http://127.0.0.1:%d/hello/[1-3]'                     # the third of a second gets 429\n"
           "  curl -i -H 'X-User-Id: ada' http://127.0.0.1:%d/api/items     # headers report what is left\n"
           "  %s why --segment %s     # why requests were denied\n"
           "  %s top %s               # what it decides, live\n"
           "%s%sCtrl-C stops everything and removes %s.\n\n",
           demo->port[GATEWAY], demo->port[GATEWAY], demo->port[GATEWAY], me, demo->file, me, demo->file,
           weir__dashboard_is_built()
               ? "In the dashboard: change the limit of a rule, publish it as a shadow, compare, enforce it.\n"
               : "",
           traffic ? "" : "With --traffic, it sends some requests of its own.\n", demo->folder);
    fflush(stdout);
    json_decref(reply);
    explicit_bzero(link, sizeof link);
}

/* ---- Running ---- */

/* Starts everything, and waits for the gateway. Returns its exit code. */
static int run(const struct demo *demo, bool traffic, const sigset_t *waited)
{
    enum { HINTS = 1 }; /* makes a login link, which needs this user */
    struct weir__findings findings = {.to = stderr};
    int status = 0;
    pid_t gateway = start_child(0, false);
    if (gateway == 0)
        _exit(weir__serve(demo->file, WEIR__SERVE_RUN, weir__add_finding, &findings));
    for (int i = 0; i < (traffic ? 3 : 2) && gateway > 0; i++) {
        if (start_child(gateway, i != HINTS) != 0)
            continue;
        if (i == 0)
            serve_api(demo);
        else if (i == HINTS)
            print_hints(demo, traffic);
        else
            send_traffic(demo);
        _exit(0);
    }
    while (gateway > 0) {
        int signal = sigwaitinfo(waited, NULL);
        if (signal == SIGCHLD) {
            for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
                if (ended == gateway) {
                    kill(-gateway, SIGTERM); /* the others */
                    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
                }
        } else if (signal > 0) {
            kill(gateway, signal == SIGHUP ? SIGTERM : signal);
        }
    }
    return 1;
}

int weir__serve_demo(struct weir__given *given)
{
    struct demo demo = {.folder = ""};
    int64_t port = 0;
    sigset_t waited;
    char output[4096];
    const char *word = weir__option(given, "port");
    if (word && !weir__read_int(word, 1024, 65532, &port)) {
        fputs("weir serve: --port is a number from 1024 to 65532: it takes that port and the next three\n", stderr);
        return 2;
    }
    for (int i = 0; i < PORTS; i++)
        demo.port[i] = port ? (int)port + i : default_port[i];
    sigemptyset(&waited); /* from here on a signal ends the demo and not this process, which removes the folder */
    for (int i = 0; i < 4; i++)
        sigaddset(&waited, (const int[]){SIGINT, SIGTERM, SIGHUP, SIGCHLD}[i]);
    sigprocmask(SIG_BLOCK, &waited, NULL);
    int code = 1;
    if (ports_are_free(&demo) && make_folder(&demo)) {
        const char *const import[] = {"weir", "rules", "import", "--file", demo.file, demo.rules, NULL};
        code = run_weir(import, output, sizeof output);
        code = code == 0 ? run(&demo, weir__option(given, "traffic"), &waited) : 1;
    }
    if (*demo.folder)
        weir__remove_tree(demo.folder);
    return code;
}
