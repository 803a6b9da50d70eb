/* weir dump: prints the contents of a segment as text or JSON. Only reads, also while other processes write. */
#include "cli/cli.h"
#include "cli/diagnose.h"

#include <inttypes.h>
#include <string.h>

struct dump {
    weir_segment *segment;
    weir_time now;
    weir_stats stats;
    weir_report report;
    int damage; /* the result of validation */
    uint64_t shown, most;
};

static const char *kind_name(enum weir_entry_kind kind)
{
    static const char *const names[] = {"counter", "tentative", "moving"};
    return names[kind];
}

static int visit_text(void *context, const weir_entry *e)
{
    struct dump *dump = context;
    if (dump->shown == dump->most)
        return 1;
    if (dump->shown++ == 0)
        printf("\n%-12s %-4s %-9s %-9s  %-5s %10s  %14s\n", "bucket", "slot", "tag", "kind", "clock", "used",
               "recovers in s");
    printf("%-12" PRIu64 " %-4d %09" PRIx64 " %-9s  %-5s %10" PRIu64 "  %14.3f\n", e->bucket, e->slot, e->tag,
           kind_name(e->kind), e->wall ? "wall" : "mono", e->used, (double)e->expires_in_us / 1e6);
    return 0;
}

static int visit_json(void *context, const weir_entry *e)
{
    struct dump *dump = context;
    if (dump->shown == dump->most)
        return 1;
    printf("%s{\"bucket\":%" PRIu64 ",\"slot\":%d,\"tag\":\"%09" PRIx64
           "\",\"kind\":\"%s\",\"clock\":\"%s\",\"live\":%s,\"used\":%" PRIu64 ",\"anchor_us\":%" PRId64
           ",\"expires_in_us\":%" PRId64 "}",
           dump->shown++ ? "," : "", e->bucket, e->slot, e->tag, kind_name(e->kind), e->wall ? "wall" : "mono",
           e->live ? "true" : "false", e->used, e->anchor_us, e->expires_in_us);
    return 0;
}

/* The numbers of a segment. */
static const struct dump_number {
    const char *name;
    size_t offset; /* of a uint64_t in struct dump */
} numbers[] = {
    {"bytes", offsetof(struct dump, stats.bytes)},
    {"slots", offsetof(struct dump, stats.slots)},
    {"chunks", offsetof(struct dump, stats.chunks)},
    {"allowed", offsetof(struct dump, stats.allowed)},
    {"delayed", offsetof(struct dump, stats.delayed)},
    {"denied", offsetof(struct dump, stats.denied)},
    {"never_fits", offsetof(struct dump, stats.never_fits)},
    {"blocked", offsetof(struct dump, stats.blocked)},
    {"soft", offsetof(struct dump, stats.soft)},
    {"errors", offsetof(struct dump, stats.errors)},
    {"created", offsetof(struct dump, stats.created)},
    {"evicted_live", offsetof(struct dump, stats.evicted_live)},
    {"evicted_denied", offsetof(struct dump, stats.evicted_denied)},
    {"slab_full", offsetof(struct dump, stats.slab_full)},
    {"auth_failures", offsetof(struct dump, stats.auth_failures)},
    {"moved", offsetof(struct dump, stats.displaced)},
    {"retries", offsetof(struct dump, stats.retries)},
    {"live", offsetof(struct dump, report.live)},
    {"tentative", offsetof(struct dump, report.tentative)},
    {"moving", offsetof(struct dump, report.moving)},
    {"future", offsetof(struct dump, report.future)},
    {"duplicates", offsetof(struct dump, report.duplicates)},
    {"bad_state", offsetof(struct dump, report.bad_state)},
};

static uint64_t number_at(const struct dump *dump, size_t i)
{
    uint64_t value;
    memcpy(&value, (const char *)dump + numbers[i].offset, sizeof value);
    return value;
}

static void print_text(struct dump *dump)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        printf("%-13s %" PRIu64 "\n", numbers[i].name, number_at(dump, i));
    printf("%-13s %.1f %%\n", "full", 100.0 * (double)dump->report.live / (double)dump->stats.slots);
    printf("%-13s %s\n", "sound", dump->damage ? weir_strerror(dump->damage) : "yes");
    if (weir_segment_each(dump->segment, dump->now, visit_text, dump) > 0)
        printf("... more with --all\n");
}

static void print_json(struct dump *dump)
{
    printf("{");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        printf("\"%s\":%" PRIu64 ",", numbers[i].name, number_at(dump, i));
    printf("\"sound\":%s,\"entries\":[", dump->damage ? "false" : "true");
    int more = weir_segment_each(dump->segment, dump->now, visit_json, dump);
    printf("],\"more\":%s}\n", more > 0 ? "true" : "false");
}

int weir__cmd_dump(struct weir__given *given)
{
    struct dump dump = {.most = weir__option(given, "all") ? UINT64_MAX : 20};
    const char *path = weir__input_segment(given->arguments[0]);
    if (!path)
        return 1;
    weir_segment_options how = {.path = path, .flags = WEIR_OPEN_READONLY};
    int error = weir_segment_open(&how, &dump.segment);
    if (error) {
        fprintf(stderr, "weir: %s: %s (%s)\n", path, weir_strerror(error), weir_error_name(error));
        return 1;
    }
    /* The file may be truncated meanwhile. Without the guard that ends this process, which does no harm. */
    (void)!weir_segment_guard(dump.segment);
    dump.now = weir_clock(dump.segment);
    error = weir_stats_read(dump.segment, &dump.stats);
    dump.damage = error ? error : weir_segment_validate(dump.segment, dump.now, &dump.report);
    if (given->json)
        print_json(&dump);
    else
        print_text(&dump);
    if (weir_segment_lost(dump.segment)) {
        fprintf(stderr, "weir: %s: the file was truncated while it was read; the output is not its content\n", path);
        dump.damage = WEIR_ELOST;
    }
    weir_segment_close(dump.segment);
    return dump.damage ? 1 : 0;
}
