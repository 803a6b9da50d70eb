/* weir demo: plays the same traffic against each algorithm and draws it. */
#include "cli/cli.h"

#include <unistd.h>

enum { COLUMNS = 60, COLUMN_MS = 50, LIMIT = 10 };

static const struct act {
    const char *title;
    weir_params params;
} acts[] = {
    {"token bucket: 10 a second, a burst of 10", {.algorithm = WEIR_TOKEN_BUCKET}},
    {"leaky bucket: a queue of 10 that lets out 10 a second (drawn when they leave)",
     {.algorithm = WEIR_LEAKY_BUCKET, .delay = true}},
    {"fixed window: 10 in each second of the clock", {.algorithm = WEIR_FIXED_WINDOW}},
    {"sliding window log: 10 in any second", {.algorithm = WEIR_SLIDING_WINDOW_LOG}},
    {"sliding window counter: 10 in about any second", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER}},
};

enum { ACTS = sizeof acts / sizeof *acts };

/* Requests in a column: a burst just before an edge of the clock, one just after it, and a steady stream. */
static int demand(int column)
{
    if (column == 18 || column == 20)
        return 9;
    return column >= 30 ? 1 : column % 10 == 5;
}

/* One line of the drawing: bars of up to nine, nothing for none. */
static void draw(const char *name, const int *count, int columns, int total)
{
    static const char *const bar[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█", "█"};
    printf("  %-8s", name);
    for (int i = 0; i < COLUMNS; i++)
        fputs(i < columns ? bar[count[i] > 9 ? 9 : count[i]] : " ", stdout);
    printf(" %3d\n", total);
}

static int play(weir_segment *segment, const struct act *act, uint64_t id, bool live)
{
    int allowed[COLUMNS] = {0}, denied[COLUMNS] = {0}, passed = 0, refused = 0;
    weir_params params = act->params;
    weir_limit limit;

    params.limit = LIMIT;
    params.window_ns = WEIR_SECOND;
    params.id = id;
    int error = weir_limit_init(&limit, &params);
    printf("%s\n", act->title);
    for (int column = 0; column < COLUMNS && !error; column++) {
        /* A simulated clock: three seconds of traffic, the same each time. */
        int64_t at = WEIR_DAY + (int64_t)column * COLUMN_MS * 1000000;
        for (int i = 0; i < demand(column) && !error; i++) {
            weir_decision d;
            error = weir_take(segment, &limit, "demo", 4, 1, (weir_time){at, at}, &d);
            if (error)
                break;
            int leaves = column + (int)(d.delay_ns / (COLUMN_MS * INT64_C(1000000)));
            if (weir_passes(&d) && leaves < COLUMNS)
                allowed[leaves]++;
            denied[column] += !weir_passes(&d);
            passed += weir_passes(&d);
            refused += !weir_passes(&d);
        }
        if (!live && column < COLUMNS - 1)
            continue;
        if (live && column)
            fputs("\033[2A", stdout);
        draw("allowed", allowed, column + 1, passed);
        draw("denied", denied, column + 1, refused);
        fflush(stdout);
        if (live)
            usleep(32000);
    }
    printf("          0 s%*s1 s%*s2 s%*s3 s\n\n", 17, "", 17, "", 14, "");
    return error;
}

int weir__cmd_demo(struct weir__given *given)
{
    (void)given;
    weir_segment_options options = {.size = 1 << 20};
    weir_segment *segment;
    int error = weir_segment_open(&options, &segment);
    if (error) {
        fprintf(stderr, "weir: %s\n", weir_strerror(error));
        return 1;
    }
    printf("One second of the clock is %d columns. Bursts of 9 come just before and at 1 s, then 20 a second from "
           "1.5 s.\n\n",
           1000 / COLUMN_MS);
    for (int i = 0; i < ACTS && !error; i++)
        error = play(segment, &acts[i], (uint64_t)i, isatty(STDOUT_FILENO));
    if (error)
        fprintf(stderr, "weir: %s\n", weir_strerror(error));
    else
        printf("Note the fixed window at 1 s: it lets nearly twice the limit through within a tenth of a second.\n");
    weir_segment_close(segment);
    return error ? 1 : 0;
}
