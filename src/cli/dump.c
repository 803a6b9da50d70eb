/* weir dump: what is in a segment, for people or as JSON. Reads only, also while others write. */
#include "cli/cli.h"
#include "cli/input.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct dump {
    weir_segment *segment;
    weir_time now;
    weir_stats stats;
    weir_report report;
    int damage; /* what validation returned */
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

/* Name and value of each number: the same for text and JSON. */
struct dump_number {
    const char *name;
    uint64_t value;
};

static int numbers(const struct dump *d, struct dump_number *out)
{
    const struct dump_number list[] = {
        {"bytes", d->stats.bytes},
        {"slots", d->stats.slots},
        {"chunks", d->stats.chunks},
        {"allowed", d->stats.allowed},
        {"delayed", d->stats.delayed},
        {"denied", d->stats.denied},
        {"never_fits", d->stats.never_fits},
        {"blocked", d->stats.blocked},
        {"soft", d->stats.soft},
        {"errors", d->stats.errors},
        {"created", d->stats.created},
        {"evicted_live", d->stats.evicted_live},
        {"evicted_denied", d->stats.evicted_denied},
        {"slab_full", d->stats.slab_full},
        {"auth_failures", d->stats.auth_failures},
        {"moved", d->stats.displaced},
        {"retries", d->stats.retries},
        {"live", d->report.live},
        {"tentative", d->report.tentative},
        {"moving", d->report.moving},
        {"future", d->report.future},
        {"duplicates", d->report.duplicates},
        {"bad_state", d->report.bad_state},
    };
    memcpy(out, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

static void print_text(struct dump *dump)
{
    struct dump_number list[32];
    int count = numbers(dump, list);
    for (int i = 0; i < count; i++)
        printf("%-13s %" PRIu64 "\n", list[i].name, list[i].value);
    printf("%-13s %.1f %%\n", "full", 100.0 * (double)dump->report.live / (double)dump->stats.slots);
    printf("%-13s %s\n", "sound", dump->damage ? weir_strerror(dump->damage) : "yes");
    if (weir_segment_each(dump->segment, dump->now, visit_text, dump) > 0)
        printf("... more with --all\n");
}

static void print_json(struct dump *dump)
{
    struct dump_number list[32];
    int count = numbers(dump, list);
    printf("{");
    for (int i = 0; i < count; i++)
        printf("\"%s\":%" PRIu64 ",", list[i].name, list[i].value);
    printf("\"sound\":%s,\"entries\":[", dump->damage ? "false" : "true");
    int more = weir_segment_each(dump->segment, dump->now, visit_json, dump);
    printf("],\"more\":%s}\n", more > 0 ? "true" : "false");
}

static const char usage[] =
    "usage: weir dump [--json] [--all] SEGMENT|FILE\n"
    "Shows statistics and the first 20 entries of a segment, or all of them; FILE is the weir.yaml that\n"
    "names it. Of keys there are only hashes: weir top shows the heaviest by name. Exits with 1 if it is\n"
    "damaged.\n";

int weir__cmd_dump(int argc, char **argv)
{
    struct dump dump = {.most = 20};
    const char *path = NULL;
    int json = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = 1;
        } else if (strcmp(argv[i], "--all") == 0) {
            dump.most = UINT64_MAX;
        } else if (argv[i][0] != '-' && !path) {
            path = argv[i];
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s", usage);
            return 0;
        } else {
            fprintf(stderr, "%s", usage);
            return 2;
        }
    }
    if (!path) {
        fprintf(stderr, "%s", usage);
        return 2;
    }

    struct weir__findings findings = {.to = stderr};
    char room[4096];
    path = weir__input_segment(path, &findings, room);
    if (!path)
        return 1;
    weir_segment_options options = {.path = path, .flags = WEIR_OPEN_READONLY};
    int error = weir_segment_open(&options, &dump.segment);
    if (error) {
        fprintf(stderr, "weir: %s: %s (%s)\n", path, weir_strerror(error), weir_error_name(error));
        return 1;
    }
    (void)!weir_segment_guard(
        dump.segment); /* it may be cut short meanwhile; without a guard that ends us, and no more */
    dump.now = weir_clock(dump.segment);
    error = weir_stats_read(dump.segment, &dump.stats);
    dump.damage = error ? error : weir_segment_validate(dump.segment, dump.now, &dump.report);
    if (json)
        print_json(&dump);
    else
        print_text(&dump);
    if (weir_segment_lost(dump.segment)) {
        fprintf(stderr, "weir: %s: the file was cut short while it was read; what was shown is not what was in it\n",
                path);
        dump.damage = WEIR_ELOST;
    }
    weir_segment_close(dump.segment);
    if (fflush(stdout)) {
        perror("weir: standard output");
        return 1;
    }
    return dump.damage ? 1 : 0;
}
