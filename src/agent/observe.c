/* The history's writer, and the one who ages hot keys. See observe.h. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "agent/observe.h"
#include "agent/sight.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define AGE_SECONDS 300 /* half-life of the weights of hot keys */
#define ROWS_MIN    64
#define ROWS_MAX    4096

struct weir__observer {
    struct weir__sight sight; /* for the panels' figures */
    struct weir__mapped mapped;
    struct weir__history history;
    char hot_path[4096];
    struct weir__noting *hot; /* to be aged; NULL: not there yet */
    uint64_t last;            /* second */
    int lock;
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

/* The history, made anew if it has too few rows for the rules. */
static int history_open(struct weir__observer *o, const char *path, size_t rules)
{
    struct weir__making making = {
        .path = path, .bytes = weir__history_bytes(rows_for(rules)), .format = format, .check = check};
    int error = weir__mapped_open(&making, &o->mapped);
    if (!error && !weir__history_attach(o->mapped.memory, o->mapped.bytes, &o->history))
        error = WEIR_EDAMAGED;
    if (error || o->history.rows >= rules || rules > ROWS_MAX)
        return error;
    weir__mapped_close(&o->mapped);
    making.replace = true;
    error = weir__mapped_make(&making, &o->mapped);
    if (!error && !weir__history_attach(o->mapped.memory, o->mapped.bytes, &o->history))
        error = WEIR_EDAMAGED;
    return error;
}

/* One observer a segment. The file of the lock stays when the history is replaced. */
static int lock_it(struct weir__observer *o, const char *segment_path)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s.observer", segment_path) >= (int)sizeof path)
        return WEIR_ESYS;
    o->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (o->lock < 0)
        return WEIR_EPERM;
    return flock(o->lock, LOCK_EX | LOCK_NB) == 0 ? 0 : WEIR_EBUSY;
}

int weir__observer_open(weir *engine, const char *segment_path, struct weir__observer **observer)
{
    char path[4096];
    weir_engine_stats stats;
    struct weir__observer *o = calloc(1, sizeof *o);
    if (!o)
        return WEIR_ENOMEM;
    o->lock = -1;
    int error = weir_engine_stats_read(engine, &stats);
    if (!error)
        error = weir__sight_open(&o->sight, engine, segment_path);
    if (!error)
        error = lock_it(o, segment_path);
    if (!error && (snprintf(path, sizeof path, "%s.history", segment_path) >= (int)sizeof path ||
                   snprintf(o->hot_path, sizeof o->hot_path, "%s.hot", segment_path) >= (int)sizeof o->hot_path))
        error = WEIR_ESYS;
    if (!error)
        error = history_open(o, path, stats.rules);
    if (error) {
        weir__observer_close(o);
        return error;
    }
    weir__guard_beside(engine->segment, &o->mapped);
    *observer = o;
    return 0;
}

static void hot_leave(struct weir__observer *o)
{
    if (o->hot)
        weir__leave_beside(o->sight.engine->segment, &o->hot->mapped);
    weir__noting_close(o->hot);
    o->hot = NULL;
}

void weir__observer_close(struct weir__observer *observer)
{
    if (!observer)
        return;
    hot_leave(observer);
    if (observer->mapped.memory)
        weir__leave_beside(observer->sight.engine->segment, &observer->mapped);
    weir__mapped_close(&observer->mapped);
    if (observer->sight.engine)
        weir__sight_close(&observer->sight);
    if (observer->lock >= 0)
        close(observer->lock);
    free(observer);
}

/* ---- Hot keys ---- */

/* Follows the file that those who note use, as the sight sees it; it is theirs to make. */
static void hot_follow(struct weir__observer *o, const struct weir__beside *seen)
{
    struct weir__noting *fresh = NULL;
    hot_leave(o);
    if (!seen->mapped.memory || !o->sight.hot.panels)
        return;
    /* Attached as by one who notes: this is never the one who makes it. */
    if (weir__noting_attach(o->hot_path, &fresh) != 0)
        return;
    o->hot = fresh;
    weir__guard_beside(o->sight.engine->segment, &o->hot->mapped);
}

static void age_all(const struct weir__hot *hot, int times)
{
    for (uint32_t i = 0; i < hot->panels; i++)
        for (int time = 0; time < times && weir__load64(&hot->panel[i].rule); time++)
            weir__hot_age(&hot->panel[i]);
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
    const struct weir__hot_panel *panel = weir__sight_panel(&o->sight, rule->id);
    struct weir__tally_stripe sums = {.allowed = rule->stats.allowed,
                                      .delayed = rule->stats.delayed,
                                      .denied = rule->stats.denied,
                                      .word = rule->stats.shed};
    weir__history_add(&o->history, second->number, rule->id, &sums,
                      panel ? weir__hot_most(panel, weir__sight_minute(&o->sight)) : WEIR__HISTORY_UNSEEN);
    return 0;
}

void weir__observer_look(struct weir__observer *observer)
{
    struct second second = {observer, weir__sight_second(weir_clock(observer->sight.engine->segment))};
    if (second.number <= observer->last)
        return;
    ino_t before = observer->sight.hot_file.inode;
    uint64_t passed = observer->last ? second.number - observer->last : 1;
    observer->last = second.number;
    weir__sight_look(&observer->sight);
    if (!observer->hot || observer->sight.hot_file.inode != before)
        hot_follow(observer, &observer->sight.hot_file);
    if (observer->hot)
        hot_tend(observer, passed);
    weir__history_begin(&observer->history, second.number);
    (void)weir__sight_rules(&observer->sight, add_rule, &second);
    weir__history_end(&observer->history, second.number);
}
