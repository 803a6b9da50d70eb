/* weir top: the loop, the keys and the terminal. See top.h. */
#include "stats/top.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/signals.h"
#include "stats/open_host.h"
#include "stats/stats.h"

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

static void refresh(struct weir__opened_host *host, struct weir__top *top)
{
    if (!top->paused) {
        if (host->snapshot.now.mono_ns)
            weir__snapshot_save_totals(&host->snapshot);
        (void)weir_reload(host->engine);
        weir__snapshot_refresh(&host->snapshot);
        weir__membership_refresh(&host->membership, &host->snapshot);
    }
    draw(top);
}

static int live(struct weir__opened_host *host, int64_t interval_ms)
{
    struct weir__top top = {.snapshot = &host->snapshot, .membership = &host->membership, .sort = WEIR__BY_DENIED};
    enum { KEYS, SIGNALS, INPUTS };
    /* Signals are read like keys, so that none is lost between two waits. */
    const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
    struct pollfd input[INPUTS] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                   {.fd = weir__signals_take(taken, sizeof taken / sizeof *taken), .events = POLLIN}};
    bool going = true;
    if (tcgetattr(STDIN_FILENO, &before) != 0 || input[SIGNALS].fd < 0 || !enter())
        return 1;
    int64_t due = 0;
    while (going) {
        int64_t left = due - weir__monotonic_ms();
        if (left <= 0) {
            refresh(host, &top);
            due = weir__monotonic_ms() + interval_ms;
            continue;
        }
        if (poll(input, INPUTS, (int)left) <= 0)
            continue;
        going = take_signals(input[SIGNALS].fd);
        if (input[KEYS].revents)
            going = going && (input[KEYS].revents & POLLIN) && read_keys(&top);
        draw(&top);
    }
    leave();
    close(input[SIGNALS].fd);
    return 0;
}

/* Takes two snapshots to compute rates, unless a history has them. */
static int once(struct weir__opened_host *host, const struct weir__top_options *options)
{
    if (!host->snapshot.history.rows) {
        struct timespec wait = {options->interval_ms / 1000, options->interval_ms % 1000 * 1000000};
        weir__snapshot_save_totals(&host->snapshot);
        nanosleep(&wait, NULL);
        weir__snapshot_refresh(&host->snapshot);
    }
    weir__membership_refresh(&host->membership, &host->snapshot);
    if (options->json) {
        char *json = NULL;
        int error = weir__stats_json_all(&host->snapshot, &host->membership, options->keys, &json);
        if (error)
            fprintf(stderr, "weir top: %s\n", weir_strerror(error));
        else
            puts(json);
        free(json);
        return error ? 1 : fflush(stdout) != 0;
    }
    const char *columns = getenv("COLUMNS");
    long width = columns ? strtol(columns, NULL, 10) : 0;
    struct weir__top top = {.snapshot = &host->snapshot,
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
    if (weir__open_host(&host, options->what, options->rules, diagnose, context))
        code = options->once ? once(&host, options) : live(&host, options->interval_ms);
    weir__close_host(&host);
    return code;
}
