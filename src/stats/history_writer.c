/* The agent's history writer, which also ages hot keys. See stats.h. */
#include "stats/stats.h"
#include "base/sidecar.h"
#include "stats/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define AGE_SECONDS 300 /* half-life of the weights of hot keys */
#define ROWS_MIN    64
#define ROWS_MAX    4096
#define PATH_SIZE   4200 /* of the path of a segment, with an ending */

struct weir__history_writer {
    struct weir__snapshot snapshot; /* for the panels' figures */
    struct weir__mapped mapped;
    struct weir__history history;
    struct weir__hot_sampler hot; /* hot keys to age; not open: not there yet */
    uint64_t last;                /* second */
    int lock;
    int error; /* of the last tick */
};

/* ---- Opening ---- */

static uint32_t rows_for(size_t rules)
{
    size_t rows = rules + rules / 4 + 16; /* removed rules keep their rows for a while */
    return (uint32_t)(rows < ROWS_MIN ? ROWS_MIN : rows > ROWS_MAX ? ROWS_MAX : rows);
}

uint64_t weir__history_writer_bytes(size_t rules)
{
    return weir__row_file_bytes(&weir__history_format, rows_for(rules));
}

static int history_attach(struct weir__history_writer *o, const struct weir__file_spec *spec)
{
    int error = weir__mapped_open(spec, &o->mapped);
    if (!error && !weir__history_attach(o->mapped.memory, o->mapped.bytes, &o->history))
        error = WEIR_EDAMAGED;
    return error;
}

/* Opens the history of a segment; one with too few rows for the rules is unlinked and created anew. */
static int history_open_for(struct weir__history_writer *o, const char *segment_path, size_t rules, unsigned owner)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s.history", segment_path);
    struct weir__file_spec spec = {.path = path,
                                   .bytes = weir__history_writer_bytes(rules),
                                   .owner = owner,
                                   .format = weir__row_file_format,
                                   .check = weir__row_file_check,
                                   .plan = &weir__history_format};
    weir__mapped_close(&o->mapped);
    o->history = (struct weir__history){0};
    int error = history_attach(o, &spec);
    if (error || o->history.rows >= rules || rules > ROWS_MAX)
        return error;
    weir__mapped_close(&o->mapped);
    unlink(path);
    return history_attach(o, &spec);
}

/*
 * An agent that root started cannot create files beside the segment: it asks the supervisor to create the history and
 * waits up to a second.
 */
static int history_open(struct weir__history_writer *o)
{
    enum { ROUNDS = 20 };
    const struct timespec moment = {0, 50 * 1000 * 1000};
    unsigned owner = o->snapshot.engine->segment->mapped.owner;
    weir_engine_stats stats;
    int error = weir_engine_stats_read(o->snapshot.engine, &stats);
    if (error)
        return error;
    error = history_open_for(o, o->snapshot.segment, stats.rules, owner);
    bool lacking = error || (o->history.rows < stats.rules && stats.rules <= ROWS_MAX);
    if (!lacking || !weir__sidecar_request_history(stats.rules))
        return error;
    for (int round = 0; round < ROUNDS && (error || o->history.rows < stats.rules); round++) {
        nanosleep(&moment, NULL);
        error = history_open_for(o, o->snapshot.segment, stats.rules, owner);
    }
    return error;
}

int weir__history_writer_prepare(const char *segment_path, size_t rules)
{
    struct weir__history_writer o = {.lock = -1};
    int error = history_open_for(&o, segment_path, rules, geteuid());
    weir__mapped_close(&o.mapped);
    return error;
}

/* Takes the segment's writer lock. The lock file stays when the history is replaced. */
static int lock_segment(struct weir__history_writer *o)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s.observer", o->snapshot.segment);
    o->lock = weir__lock_open(path, o->snapshot.engine->segment->mapped.owner);
    if (o->lock < 0)
        return errno == EPERM ? WEIR_EOWNER : WEIR_EPERM;
    return flock(o->lock, LOCK_EX | LOCK_NB) == 0 ? 0 : WEIR_EBUSY;
}

int weir__history_writer_open(weir *engine, const char *segment_path, struct weir__history_writer **writer,
                              const char **ending)
{
    struct weir__history_writer *o = calloc(1, sizeof *o);
    if (!o)
        return WEIR_ENOMEM;
    o->lock = -1;
    weir__snapshot_open(&o->snapshot, engine, segment_path);
    *ending = ".observer";
    int error = lock_segment(o);
    if (!error) {
        *ending = ".history";
        error = history_open(o);
    }
    if (error) {
        weir__history_writer_close(o);
        return error;
    }
    *writer = o;
    return 0;
}

void weir__history_writer_close(struct weir__history_writer *writer)
{
    if (!writer)
        return;
    weir__mapped_close(&writer->hot.mapped);
    weir__mapped_close(&writer->mapped);
    weir__snapshot_close(&writer->snapshot);
    if (writer->lock >= 0)
        close(writer->lock);
    free(writer);
}

/* ---- Hot keys ---- */

/* Attaches to the current .hot file, which the sampling processes create. */
static void hot_reattach(struct weir__history_writer *o)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s.hot", o->snapshot.segment);
    weir__mapped_close(&o->hot.mapped);
    /* Never creates it. */
    if (o->snapshot.hot_file.memory && o->snapshot.hot.rule_slots)
        (void)!weir__hot_sampler_attach(path, o->snapshot.engine->segment->mapped.owner, &o->hot);
}

static void hot_halve(const struct weir__hot *hot, int times)
{
    for (uint32_t i = 0; i < hot->rule_slots; i++)
        for (int time = 0; time < times && weir__load64(&hot->rule_slot[i].rule); time++)
            weir__hot_age(&hot->rule_slot[i]);
}

/*
 * Halves the weights once per AGE_SECONDS. Weights from before this writer ran have no known duration and are dropped.
 */
static void hot_age(struct weir__history_writer *o, uint64_t passed)
{
    uint64_t *seconds = &o->hot.hot.header->seconds, stands = weir__load64(seconds);
    if (!stands)
        hot_halve(&o->hot.hot, 64);
    stands += passed;
    for (int round = 0; round < 64 && stands >= (uint64_t)2 * AGE_SECONDS; round++) {
        hot_halve(&o->hot.hot, 1);
        stands /= 2;
    }
    weir__store64(seconds, stands);
}

/* ---- Once a second ---- */

static void add_rule(struct weir__history_writer *o, const struct weir__rule_snapshot *rule)
{
    const struct weir__hot_rule *rule_slot = weir__snapshot_hot_keys(&o->snapshot, rule->id);
    struct weir__rule_stats_shard sums = {.allowed = rule->stats.allowed,
                                          .delayed = rule->stats.delayed,
                                          .denied = rule->stats.denied,
                                          .shed = rule->stats.shed};
    weir__history_add(&o->history, o->last, rule->id, &sums,
                      rule_slot ? weir__hot_peak(rule_slot, weir__snapshot_minute(&o->snapshot))
                                : WEIR__HISTORY_UNSEEN);
}

/* Creates a truncated history anew. WEIR_ELOST: it was truncated; or why that fails. */
static int history_remake(struct weir__history_writer *o)
{
    bool lost = weir__load32(&o->mapped.lost) != 0;
    int error = lost || !o->mapped.memory ? history_open(o) : 0;
    return error ? error : lost ? WEIR_ELOST : 0;
}

int weir__history_writer_tick(struct weir__history_writer *writer)
{
    uint64_t second = weir__snapshot_second(weir_clock(writer->snapshot.engine->segment));
    if (second <= writer->last)
        return writer->error;
    uint64_t before = writer->snapshot.hot_file.inode;
    uint64_t passed = writer->last ? second - writer->last : 1;
    writer->last = second;
    weir__snapshot_refresh(&writer->snapshot);
    if (!writer->hot.mapped.memory || writer->snapshot.hot_file.inode != before ||
        weir__load32(&writer->hot.mapped.lost))
        hot_reattach(writer);
    if (writer->hot.mapped.memory)
        hot_age(writer, passed);
    writer->error = history_remake(writer);
    if (!writer->mapped.memory)
        return writer->error;
    weir__history_begin(&writer->history, second);
    for (const struct weir__rule_snapshot *rule = writer->snapshot.rules.first; rule; rule = rule->next)
        add_rule(writer, rule);
    weir__history_end(&writer->history, second);
    return writer->error;
}
