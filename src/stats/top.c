/* weir top: the loop, the keys and the terminal. See top.h. */
#include "stats/top.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/signals.h"
#include "stats/host_queries.h"
#include "stats/open_host.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define WIDTH_DEFAULT  80
#define HEIGHT_DEFAULT 24
#define WIDTH_MIN      20
#define WIDTH_MAX      1000

/* ---- The terminal ---- */

static struct termios before;

static void write_sequence(const char *sequence)
{
    (void)!write(STDOUT_FILENO, sequence, strlen(sequence));
}

static bool enter(void)
{
    struct termios raw = before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0)
        return false;
    write_sequence("\033[?1049h\033[?25l\033[2J");
    return true;
}

static void leave(void)
{
    write_sequence("\033[0m\033[?25h\033[?1049l");
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

/* One write per frame, to avoid tearing. */
static void draw(struct weir__top *top)
{
    char *text = NULL;
    size_t len = 0;
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    int width = known ? size.ws_col : WIDTH_DEFAULT;
    top->width = width < WIDTH_MIN ? WIDTH_MIN : width;
    top->height = known ? size.ws_row : HEIGHT_DEFAULT;
    top->to = open_memstream(&text, &len);
    if (!top->to)
        return;
    weir__top_draw(top);
    if (fclose(top->to) == 0)
        (void)!weir__write_fully(STDOUT_FILENO, text, len);
    free(text);
}

/* ---- Keys ---- */

static void choose(struct weir__top *top, int step)
{
    bool hosts = top->page == WEIR__TOP_HOSTS;
    size_t *line = hosts ? &top->host : &top->chosen;
    if (step < 0 ? *line > 0 : *line + 1 < (hosts ? top->hosts : top->rules))
        *line = step < 0 ? *line - 1 : *line + 1;
    if (!hosts)
        top->chosen_name[0] = 0; /* selected by line from now on */
}

/* False: quit. */
static bool press(struct weir__top *top, char key)
{
    static const struct {
        char key;
        enum weir__top_sort sort;
    } sorts[] = {{'n', WEIR__BY_NAME}, {'a', WEIR__BY_ALLOWED}, {'d', WEIR__BY_DENIED}, {'y', WEIR__BY_DELAYED},
                 {'e', WEIR__BY_SHED}, {'s', WEIR__BY_SHARE},   {'l', WEIR__BY_LEVEL},  {'t', WEIR__BY_SEEN}};
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
        if (sorts[i].key == key)
            top->sort = sorts[i].sort;
    if (key == 'h')
        top->list = (top->list + 1) % WEIR__KEY_LISTS;
    if (key == 'o')
        top->page = top->page == WEIR__TOP_RULES ? WEIR__TOP_HOSTS : WEIR__TOP_RULES;
    if (key == ' ')
        top->paused = !top->paused;
    if (key == 'j' || key == 'k')
        choose(top, key == 'j' ? 1 : -1);
    return key != 'q';
}

/* Reads typed keys; arrows arrive as ESC [ A and ESC [ B. */
static bool read_keys(struct weir__top *top)
{
    char keys[64];
    ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
    for (ssize_t i = 0; i < count; i++) {
        if (keys[i] == '\033' && i + 2 < count && (keys[i + 1] == '[' || keys[i + 1] == 'O')) {
            char arrow = keys[i + 2];
            i += 2;
            if (arrow == 'A' || arrow == 'B')
                choose(top, arrow == 'B' ? 1 : -1);
        } else if (!press(top, keys[i])) {
            return false;
        }
    }
    return count > 0; /* 0: the terminal is gone */
}

/* ---- The loop ---- */

/* False: quit. Ctrl-Z restores the terminal until SIGCONT. */
static bool take_signals(int signals)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP) {
            leave();
            raise(SIGSTOP);
            (void)enter();
        } else if (info.ssi_signo != SIGWINCH) {
            return false;
        }
    }
    return true;
}

/* What is shown: this host, and those that share its store. */
struct source {
    struct weir__opened_host *host;
    struct weir__host_queries *queries; /* NULL: no store */
    struct weir__host_query query;
    struct weir__gather *gather; /* NULL: no query is open */
    char *own;                   /* this host's reply */
    int own_error;
    json_t *stats; /* the last result */
};

/* Reads this host, and sends a query to the others. False: no memory. */
static bool begin_query(struct source *source)
{
    struct weir__opened_host *host = source->host;
    (void)weir_reload(host->engine);
    weir__snapshot_refresh(&host->snapshot);
    weir__membership_refresh(&host->membership, &host->snapshot);
    source->gather = weir__gather_begin(&host->membership, WEIR__QUERY_STATS, &source->query);
    if (!source->gather)
        return false;
    weir__gather_send(source->gather, source->queries);
    source->own_error = weir__stats_json_current(&host->snapshot, &source->query, &source->own);
    return true;
}

/* 0: there is a new result; else the last one stays. */
static int end_query(struct source *source)
{
    json_t *stats = NULL;
    int error = weir__gather_finish(source->gather, source->own, source->own_error, &stats);
    source->gather = NULL;
    source->own = NULL;
    if (error)
        return error;
    json_decref(source->stats);
    source->stats = stats;
    return 0;
}

static int read_once(struct source *source)
{
    if (!begin_query(source))
        return WEIR_ENOMEM;
    while (!weir__gather_step(source->gather))
        nanosleep(&(struct timespec){.tv_nsec = WEIR__GATHER_POLL_MS * 1000000}, NULL);
    return end_query(source);
}

static int report_error(const struct source *source, int error)
{
    const char *host = source->query.host;
    if (error == WEIR__HOST_UNKNOWN)
        fprintf(stderr, "weir top: no host is called '%s'; weir top --once --this-host lists them\n", host);
    else if (error == WEIR__HOST_NO_REPLY)
        fprintf(stderr, "weir top: no reply from %s: it is silent, or the store is unavailable\n", host);
    else
        fprintf(stderr, "weir top: %s\n", weir_strerror(error));
    return 1;
}

/* Begins a query when it is due, and shows its result when it is complete. Returns when to call it again. */
static int64_t refresh(struct source *source, struct weir__top *top, int64_t interval_ms, int64_t *due)
{
    int64_t now = weir__monotonic_ms();
    if (!source->gather && now >= *due) {
        *due = now + interval_ms;
        if (top->paused) {
            draw(top);
        } else {
            weir__snapshot_save_totals(&source->host->snapshot);
            (void)begin_query(source);
        }
    }
    if (source->gather && !weir__gather_step(source->gather))
        return now + WEIR__GATHER_POLL_MS;
    if (source->gather) {
        top->stale = end_query(source) != 0;
        top->stats = source->stats;
        draw(top);
    }
    return *due;
}

static int live(struct source *source, int64_t interval_ms)
{
    struct weir__top top = {.membership = &source->host->membership, .sort = WEIR__BY_DENIED};
    enum { KEYS, SIGNALS, INPUTS };
    /* Signals are read like keys, so that none is lost between two waits. */
    const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
    struct pollfd input[INPUTS] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                   {.fd = weir__signals_take(taken, sizeof taken / sizeof *taken), .events = POLLIN}};
    bool going = true;
    int error = read_once(source);
    if (error)
        return report_error(source, error);
    if (tcgetattr(STDIN_FILENO, &before) != 0 || input[SIGNALS].fd < 0 || !enter())
        return 1;
    int64_t due = weir__monotonic_ms() + interval_ms;
    top.stats = source->stats;
    draw(&top);
    while (going) {
        int64_t left = refresh(source, &top, interval_ms, &due) - weir__monotonic_ms();
        if (poll(input, INPUTS, left > 0 ? (int)left : 0) <= 0)
            continue;
        going = take_signals(input[SIGNALS].fd);
        if (input[KEYS].revents)
            going = going && (input[KEYS].revents & POLLIN) && read_keys(&top);
        draw(&top);
    }
    leave();
    close(input[SIGNALS].fd);
    if (source->gather)
        (void)end_query(source);
    return 0;
}

/* Takes two snapshots to compute rates, unless a history has them. */
static int once(struct source *source, const struct weir__top_options *options)
{
    struct weir__opened_host *host = source->host;
    if (!host->snapshot.history.rows) {
        struct timespec wait = {options->interval_ms / 1000, options->interval_ms % 1000 * 1000000};
        weir__snapshot_save_totals(&host->snapshot);
        nanosleep(&wait, NULL);
    }
    int error = read_once(source);
    if (error)
        return report_error(source, error);
    if (options->json) {
        json_t *hosts = weir__membership_json(&host->membership);
        json_object_update(source->stats, hosts);
        json_decref(hosts);
        (void)json_dumpf(source->stats, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
        putchar('\n');
        return fflush(stdout) != 0;
    }
    const char *columns = getenv("COLUMNS");
    long width = columns ? strtol(columns, NULL, 10) : 0;
    struct weir__top top = {.stats = source->stats,
                            .membership = &host->membership,
                            .sort = WEIR__BY_DENIED,
                            .to = stdout,
                            .width = width >= WIDTH_MIN && width <= WIDTH_MAX ? (int)width : WIDTH_DEFAULT,
                            .plain = true};
    weir__top_draw(&top);
    return fflush(stdout) != 0;
}

int weir__top_run(const struct weir__top_options *options, weir_diagnose *diagnose, void *context)
{
    struct weir__opened_host host;
    int code = 1;
    if (!options->once && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))) {
        fputs("weir top: this is no terminal; use --once or --once --json\n", stderr);
        return 2;
    }
    if (weir__open_host(&host, options->what, options->rules, diagnose, context)) {
        struct source source = {.host = &host,
                                .queries = options->this_host ? NULL : weir__host_queries_new(&host.config),
                                .query = {.n = options->json ? options->keys : WEIR__TOP_KEYS,
                                          .host = options->host,
                                          .this_host = options->this_host}};
        code = options->once ? once(&source, options) : live(&source, options->interval_ms);
        json_decref(source.stats);
        weir__host_queries_free(source.queries);
    }
    weir__close_host(&host);
    return code;
}
