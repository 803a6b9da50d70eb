/* The history's writer, and the one who ages hot keys. See history_writer.h. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "stats/history_writer.h"
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

struct weir__observer {
    struct weir__sight sight; /* for the panels' figures */
    struct weir__mapped mapped;
    struct weir__history history;
    char history_path[4096], hot_path[4096];
    struct weir__hot_sampler *hot; /* to be aged; NULL: not there yet */
    uint64_t last;                 /* second */
    int lock;
    int error; /* of the last look */
};

/* ---- Opening ---- */

static int format(void *memory, uint64_t bytes, const void *plan)
{
    (void)plan;
    return weir__history_make(memory, bytes) ? 0 : WEIR_ESIZE;
}

static int check(void *memory, uint64_t bytes)
{
    struct weir__history unused;
    return weir__history_attach(memory, bytes, &unused) ? 0 : WEIR_EDAMAGED;
}

static uint32_t rows_for(size_t rules)
{
    size_t rows = rules + rules / 4 + 16; /* rules that went keep theirs for a while */
    return (uint32_t)(rows < ROWS_MIN ? ROWS_MIN : rows > ROWS_MAX ? ROWS_MAX : rows);
}

uint64_t weir__observer_bytes(size_t rules)
{
    return weir__history_bytes(rows_for(rules));
}

static int history_attach(struct weir__observer *o, const struct weir__making *making)
{
    int error = weir__mapped_open(making, &o->mapped);
    if (!error && !weir__history_attach(o->mapped.memory, o->mapped.bytes, &o->history))
        error = WEIR_EDAMAGED;
    return error;
}

/*
 * The history, made anew if it has too few rows for the rules: removed first, so that one function opens it. What
 * cannot be removed stays.
 */
static int history_open_for(struct weir__observer *o, size_t rules, unsigned owner)
{
    struct weir__making making = {.path = o->history_path,
                                  .bytes = weir__observer_bytes(rules),
                                  .owner = owner,
                                  .format = format,
                                  .check = check};
    weir__mapped_close(&o->mapped);
    o->history = (struct weir__history){0};
    int error = history_attach(o, &making);
    if (error || o->history.rows >= rules || rules > ROWS_MAX)
        return error;
    weir__mapped_close(&o->mapped);
    unlink(o->history_path);
    return history_attach(o, &making);
}

/* An agent that root started may not make files there: root makes the history then, which is waited for. */
static int history_open(struct weir__observer *o)
{
    enum { ROUNDS = 20 };
    const struct timespec moment = {0, 50 * 1000 * 1000};
    unsigned owner = o->sight.engine->segment->owner;
    weir_engine_stats stats;
    int error = weir_engine_stats_read(o->sight.engine, &stats);
    if (error)
        return error;
    error = history_open_for(o, stats.rules, owner);
    bool lacking = error || (o->history.rows < stats.rules && stats.rules <= ROWS_MAX);
    if (!lacking || !weir__sidecar_request_history(stats.rules))
        return error;
    for (int round = 0; round < ROUNDS && (error || o->history.rows < stats.rules); round++) {
        nanosleep(&moment, NULL);
        error = history_open_for(o, stats.rules, owner);
    }
    return error;
}

int weir__observer_prepare(const char *segment_path, size_t rules)
{
    struct weir__observer o = {.lock = -1};
    if (snprintf(o.history_path, sizeof o.history_path, "%s.history", segment_path) >= (int)sizeof o.history_path)
        return WEIR_ESYS;
    int error = history_open_for(&o, rules, geteuid());
    weir__mapped_close(&o.mapped);
    return error;
}

/* One observer a segment. The file of the lock stays when the history is replaced. */
static int lock_it(struct weir__observer *o, const char *segment_path)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s.observer", segment_path) >= (int)sizeof path)
        return WEIR_ESYS;
    o->lock = weir__lock_open(path, o->sight.engine->segment->owner);
    if (o->lock < 0)
        return errno == EPERM ? WEIR_EOWNER : WEIR_EPERM;
    return flock(o->lock, LOCK_EX | LOCK_NB) == 0 ? 0 : WEIR_EBUSY;
}

int weir__observer_open(weir *engine, const char *segment_path, struct weir__observer **observer, const char **ending)
{
    struct weir__observer *o = calloc(1, sizeof *o);
    if (!o)
        return WEIR_ENOMEM;
    o->lock = -1;
    int error = weir__sight_open(&o->sight, engine, segment_path);
    *ending = ".observer";
    if (!error)
        error = lock_it(o, segment_path);
    const size_t most = sizeof o->history_path;
    if (!error && (snprintf(o->history_path, most, "%s.history", segment_path) >= (int)most ||
                   snprintf(o->hot_path, most, "%s.hot", segment_path) >= (int)most))
        error = WEIR_ESYS;
    if (!error) {
        *ending = ".history";
        error = history_open(o);
    }
    if (error) {
        weir__observer_close(o);
        return error;
    }
    *observer = o;
    return 0;
}

static void hot_leave(struct weir__observer *o)
{
    weir__hot_sampler_close(o->hot);
    o->hot = NULL;
}

void weir__observer_close(struct weir__observer *observer)
{
    if (!observer)
        return;
    hot_leave(observer);
    weir__mapped_close(&observer->mapped);
    if (observer->sight.engine)
        weir__sight_close(&observer->sight);
    if (observer->lock >= 0)
        close(observer->lock);
    free(observer);
}

/* ---- Hot keys ---- */

/* Follows the file that those who note use, as the sight sees it; it is theirs to make. */
static void hot_follow(struct weir__observer *o)
{
    hot_leave(o);
    /* Attached as by one who notes: this is never the one who makes it. */
    if (o->sight.hot_file.memory && o->sight.hot.rule_slots)
        (void)!weir__hot_sampler_attach(o->hot_path, o->sight.engine->segment->owner, &o->hot);
}

static void age_all(const struct weir__hot *hot, int times)
{
    for (uint32_t i = 0; i < hot->rule_slots; i++)
        for (int time = 0; time < times && weir__load64(&hot->rule_slot[i].rule); time++)
            weir__hot_age(&hot->rule_slot[i]);
}

/* What was noted while nobody counted the seconds says nothing about how fast it came, so it goes. */
static void hot_tend(struct weir__observer *o, uint64_t passed)
{
    uint64_t *seconds = &o->hot->hot.header->seconds, stands = weir__load64(seconds);
    if (!stands)
        age_all(&o->hot->hot, 64);
    stands += passed;
    for (int round = 0; round < 64 && stands >= (uint64_t)2 * AGE_SECONDS; round++) {
        age_all(&o->hot->hot, 1);
        stands /= 2;
    }
    weir__store64(seconds, stands);
}

/* ---- Once a second ---- */

struct second {
    struct weir__observer *observer;
    uint64_t number;
};

static int add_rule(void *context, const struct weir__seen_rule *rule)
{
    const struct second *second = context;
    struct weir__observer *o = second->observer;
    const struct weir__hot_rule *panel = weir__sight_panel(&o->sight, rule->id);
    struct weir__rule_stats_shard sums = {.allowed = rule->stats.allowed,
                                          .delayed = rule->stats.delayed,
                                          .denied = rule->stats.denied,
                                          .word = rule->stats.shed};
    weir__history_add(&o->history, second->number, rule->id, &sums,
                      panel ? weir__hot_peak(panel, weir__sight_minute(&o->sight)) : WEIR__HISTORY_UNSEEN);
    return 0;
}

/* A history that was cut short is made anew. WEIR_ELOST: it was; or why that fails. */
static int history_tend(struct weir__observer *o)
{
    bool lost = weir__load32(&o->mapped.lost) != 0;
    int error = lost || !o->mapped.memory ? history_open(o) : 0;
    return error ? error : lost ? WEIR_ELOST : 0;
}

int weir__observer_look(struct weir__observer *observer)
{
    struct second second = {observer, weir__sight_second(weir_clock(observer->sight.engine->segment))};
    if (second.number <= observer->last)
        return observer->error;
    uint64_t before = observer->sight.hot_file.inode;
    uint64_t passed = observer->last ? second.number - observer->last : 1;
    observer->last = second.number;
    weir__sight_look(&observer->sight);
    if (!observer->hot || observer->sight.hot_file.inode != before || weir__load32(&observer->hot->mapped.lost))
        hot_follow(observer);
    if (observer->hot)
        hot_tend(observer, passed);
    observer->error = history_tend(observer);
    if (!observer->mapped.memory)
        return observer->error;
    weir__history_begin(&observer->history, second.number);
    (void)weir__sight_rules(&observer->sight, add_rule, &second);
    weir__history_end(&observer->history, second.number);
    return observer->error;
}
