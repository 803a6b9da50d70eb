/*
 * Simulates the agent's load sampler: writes the load page of a segment ten times a second.
 *
 *   press SEGMENT
 *
 * Each line on standard input sets the published state, in per mille: LEVEL THROTTLE HIGH NORMAL LOW, where the last
 * three are the shares that are shed; or "silent": stops writing, as if the agent had died. The program acknowledges
 * each line by "ok" after the load page has it.
 */
#include "engine/engine.h"

#include <weir/weir.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MS 100

/* Parses a line. False: malformed. */
static bool read_line(const char *line, struct weir__load_view *view, bool *silent)
{
    uint32_t *numbers[] = {&view->level, &view->throttle, &view->shed[WEIR_HIGH], &view->shed[WEIR_NORMAL],
                           &view->shed[WEIR_LOW]};
    *silent = strncmp(line, "silent", 6) == 0;
    view->known = true;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !*silent; i++) {
        char *end;
        *numbers[i] = (uint32_t)strtoul(line, &end, 10);
        if (end == line)
            return false;
        line = end;
    }
    return true;
}

int main(int argc, char **argv)
{
    char path[4096], line[256];
    struct weir__mapped mapped = {0};
    struct weir__load_view view = weir__load_view_neutral();
    weir_segment_options how = {.path = argc > 1 ? argv[1] : "", .flags = WEIR_OPEN_READONLY};
    weir_segment *segment;
    struct weir__file_spec where = {.path = path, .mode = 0666};
    bool silent = true;
    snprintf(path, sizeof path, "%s.load", how.path);
    if (weir_segment_open(&how, &segment) != 0 || weir__load_page_open(&where, &mapped) != 0)
        return 1;
    for (;;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        bool received = poll(&input, 1, INTERVAL_MS) > 0;
        if (received) {
            ssize_t len = read(STDIN_FILENO, line, sizeof line - 1);
            if (len <= 0)
                break;
            line[len] = 0;
            if (!read_line(line, &view, &silent))
                return 1;
        }
        if (!silent)
            weir__load_page_write(mapped.memory, weir_clock(segment).mono_ns, &view);
        if (received && write(STDOUT_FILENO, "ok\n", 3) != 3)
            return 1;
    }
    weir__mapped_close(&mapped);
    weir_segment_close(segment);
    return 0;
}
