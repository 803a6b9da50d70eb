/* weir segment: changes the size of a segment while it is in use; converts one of an older layout. */
#include "base/duration.h"
#include "base/json_writer.h"
#include "cli/cli.h"
#include "cli/diagnose.h"

#include <inttypes.h>
#include <string.h>

enum { WRONG = 2 };

/* The segment that the command is about. NULL after an error was printed. */
static const char *segment_of(const char *given)
{
    const char *file = given ? given : weir__input_default();
    if (!file)
        fputs("weir segment: which segment? Give its path or a weir.yaml\n", stderr);
    return file ? weir__input_segment(file) : NULL;
}

static const char *size_text(uint64_t bytes, char buffer[WEIR__DURATION_TEXT])
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    int unit = 0;
    for (; unit < 3 && bytes && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    snprintf(buffer, WEIR__DURATION_TEXT, "%" PRIu64 "%s", bytes, units[unit]);
    return buffer;
}

static int report_error(const char *path, int error, const char *wanted, const weir_resize *r)
{
    char one[WEIR__DURATION_TEXT], two[WEIR__DURATION_TEXT], three[WEIR__DURATION_TEXT];
    fprintf(stderr, "weir: %s: ", path);
    if (error == WEIR_ESIZE)
        fprintf(stderr, "%s is not possible: it can have 1, 2, 4, 8 or 16 times the %s it was made with; nearest is %s",
                wanted, size_text(r->first, one), size_text(r->size, two));
    else if (error == WEIR_EFULL)
        fprintf(stderr, "%s is too small for the %" PRIu64 " keys in it; %s would fit (it has %s)", wanted, r->live,
                size_text(r->size, one), size_text(r->size_before, two));
    else if (error == WEIR_EBUSY)
        fprintf(stderr,
                "not all keys could be moved, as too many change; all are counted as before. Repeat the command");
    else if (error == WEIR_ENOSPC && r->size_before) /* else it could not be opened */
        fprintf(stderr, "no space for %s more on its file system; it keeps its %s",
                size_text(r->size - r->size_before, three), size_text(r->size_before, one));
    else
        fprintf(stderr, "%s", weir_strerror(error));
    fprintf(stderr, " (%s)\n", weir_error_name(error));
    return 1;
}

static void print_json(const char *path, const weir_resize *r)
{
    struct weir__buffer out = {0};
    weir__json_add(&out, "{\"path\":%s,\"size_before\":%d,\"size\":%d,\"live\":%d,\"moved\":%d}", path,
                   (int64_t)r->size_before, (int64_t)r->size, (int64_t)r->live, (int64_t)r->moved);
    printf("%.*s\n", (int)out.len, out.failed ? "" : out.data);
    weir__buffer_free(&out);
}

int weir__cmd_segment_resize(struct weir__given *given)
{
    const char *wanted = given->arguments[0];
    char before[WEIR__DURATION_TEXT], now[WEIR__DURATION_TEXT];
    weir_resize result;
    int64_t size;
    if (!weir__parse_size(weir__text_of(wanted), &size) || size <= 0) {
        fprintf(stderr, "weir segment resize: '%s' is not a size such as 128MiB\n", wanted);
        return WRONG;
    }
    const char *path = segment_of(given->arguments[1]);
    if (!path)
        return 1;
    int error = weir_segment_resize(path, (uint64_t)size, &result);
    if (error)
        return report_error(path, error, wanted, &result);
    size_text(result.size_before, before);
    size_text(result.size, now);
    if (given->json)
        print_json(path, &result);
    else if (result.size == result.size_before)
        printf("%s has %s already%s\n", path, now,
               result.moved ? "; a resize that was interrupted is complete now" : "");
    else
        printf("%s: %s, was %s; all %" PRIu64 " keys keep their counters. All processes use it already.\n"
               "A new segment, as after a reboot, has the size in weir.yaml or weir_segment: change that, too.\n",
               path, now, before, result.live);
    return 0;
}

int weir__cmd_segment_convert(struct weir__given *given)
{
    unsigned layout;
    const char *path = segment_of(given->arguments[0]);
    if (!path)
        return 1;
    int result = weir_segment_convert(path, &layout);
    if (result == WEIR_EVERSION)
        fprintf(
            stderr,
            "weir: %s: its layout %u cannot be converted. The version of weir that made it can use it; or remove the "
            "file: all its counters, blocks and permits begin anew then (WEIR_EVERSION)\n",
            path, layout);
    else if (result > 0)
        printf("%s: converted from layout %u; all that was in it is kept\n", path, layout);
    else if (weir__option(given, "quiet") && (!result || result == WEIR_ENOENT))
        return 0; /* a new one will be made */
    else if (result)
        fprintf(stderr, "weir: %s: %s (%s)\n", path, weir_strerror(result), weir_error_name(result));
    else
        printf("%s has layout %u, that of this version: there is nothing to convert\n", path, layout);
    return result < 0;
}
