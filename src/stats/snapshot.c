/* What there is to see. See snapshot.h. */
#define _GNU_SOURCE /* gethostname */
#include "stats/snapshot.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STALE_SECONDS 5 /* a history that ended longer ago says nothing of the present */

/* ---- Files ---- */

/* True if it has changed: what was there is left, and mapped is what is there now, if anything is. */
static bool follow(const struct weir__sight *sight, struct weir__mapped *file, const char *ending)
{
    char path[4096];
    struct stat at;
    if (snprintf(path, sizeof path, "%s%s", sight->segment, ending) >= (int)sizeof path)
        return false;
    bool there = lstat(path, &at) == 0;
    if (there ? file->memory && at.st_dev == file->device && at.st_ino == file->inode && !weir__load32(&file->lost)
              : !file->memory)
        return false;
    weir__mapped_close(file);
    struct weir__making how = {.path = path, .read_only = true, .owner = sight->engine->segment->owner};
    if (there)
        (void)!weir__mapped_open(&how, file);
    return true;
}

void weir__sight_look(struct weir__sight *sight)
{
    const struct weir__mapped *hot = &sight->hot_file, *history = &sight->history_file, *ledger = &sight->ledger_file;
    sight->now = weir_clock(sight->engine->segment);
    if (follow(sight, &sight->hot_file, ".hot") &&
        (!hot->memory || !weir__hot_attach(hot->memory, hot->bytes, &sight->hot)))
        sight->hot = (struct weir__hot){0};
    if (follow(sight, &sight->history_file, ".history") &&
        (!history->memory || !weir__history_attach(history->memory, history->bytes, &sight->history)))
        sight->history = (struct weir__history){0};
    if (follow(sight, &sight->ledger_file, ".ledger") &&
        (!ledger->memory || weir__ledger_attach(ledger->memory, ledger->bytes, &sight->deltas.ledger) != 0))
        sight->deltas = (struct weir__delta_ledger){.opened_ms = weir__coarse_ms()};
    const struct weir__mapped *load = &sight->load_file;
    if (follow(sight, &sight->load_file, ".load"))
        sight->load = load->memory && weir__load_page_valid(load->memory, load->bytes) ? load->memory : NULL;
}

int weir__sight_open(struct weir__sight *sight, weir *engine, const char *segment_path)
{
    *sight = (struct weir__sight){.engine = engine, .segment = strdup(segment_path)};
    if (!sight->segment)
        return WEIR_ENOMEM;
    sight->deltas.opened_ms = weir__coarse_ms();
    weir__sight_look(sight);
    return 0;
}

void weir__sight_close(struct weir__sight *sight)
{
    weir__mapped_close(&sight->hot_file);
    weir__mapped_close(&sight->history_file);
    weir__mapped_close(&sight->ledger_file);
    weir__mapped_close(&sight->load_file);
    free(sight->before);
    free(sight->segment);
    *sight = (struct weir__sight){0};
}

/* ---- Rules ---- */

struct walk {
    int (*visit)(void *context, const struct weir__seen_rule *rule);
    void *context;
};

static int visit_rule(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    const struct walk *walk = context;
    struct weir__seen_rule rule = {.info = *info, .stats = *stats};
    rule.id = weir__rule_id((weir_text){info->name, strlen(info->name)}, info->shadow);
    return walk->visit(walk->context, &rule);
}

/* For who has only the segment: a tally knows its rule's id, not its name. */
static int visit_tallies(const struct weir__sight *sight, const struct walk *walk)
{
    const struct weir__table *table = &sight->engine->segment->table;
    int stop = 0;
    for (uint64_t i = 0; i < table->rule_stats_count && !stop; i++) {
        char name[24];
        struct weir__seen_rule rule = {.info = {.name = name, .key = "", .file = "", .limit = -1},
                                       .id = weir__load64(&table->rule_stats[i].shard[0].word)};
        snprintf(name, sizeof name, "#%016" PRIx64, rule.id);
        if (!rule.id)
            continue;
        weir__tally_sum(&table->rule_stats[i], &rule.stats);
        stop = walk->visit(walk->context, &rule);
    }
    return stop;
}

int weir__sight_rules(const struct weir__sight *sight, int (*visit)(void *context, const struct weir__seen_rule *rule),
                      void *context)
{
    struct walk walk = {visit, context};
    return sight->unnamed ? visit_tallies(sight, &walk) : weir_rules_each(sight->engine, visit_rule, &walk);
}

/* ---- Remembering ---- */

static int count_rule(void *context, const struct weir__seen_rule *rule)
{
    (void)rule;
    ++*(size_t *)context;
    return 0;
}

struct room {
    struct weir__sight *sight;
    size_t count;
};

static int remember_within(void *context, const struct weir__seen_rule *rule)
{
    const struct room *room = context;
    struct weir__sight *sight = room->sight;
    if (sight->before_count == room->count)
        return 1;
    sight->before[sight->before_count++] = (struct weir__remembered){rule->id, rule->stats};
    return 0;
}

void weir__sight_remember(struct weir__sight *sight)
{
    struct room room = {sight, 0};
    (void)weir__sight_rules(sight, count_rule, &room.count);
    free(sight->before);
    sight->before_count = 0;
    sight->before_at = sight->now;
    sight->before = calloc(room.count + 1, sizeof *sight->before);
    if (sight->before) /* rules may have become more meanwhile */
        (void)weir__sight_rules(sight, remember_within, &room);
}

static double a_second(uint64_t now, uint64_t before, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0;
}

static struct weir__rates since_remembered(const struct weir__sight *sight, const struct weir__seen_rule *rule)
{
    double seconds = (double)(sight->now.mono_ns - sight->before_at.mono_ns) / 1e9;
    for (size_t i = 0; i < sight->before_count && seconds > 0; i++) {
        const weir_rule_stats *before = &sight->before[i].stats;
        if (sight->before[i].id == rule->id)
            return (struct weir__rates){a_second(rule->stats.allowed, before->allowed, seconds),
                                        a_second(rule->stats.delayed, before->delayed, seconds),
                                        a_second(rule->stats.denied, before->denied, seconds),
                                        a_second(rule->stats.shed, before->shed, seconds), true};
    }
    return (struct weir__rates){0};
}

bool weir__sight_has_ledger(const struct weir__sight *sight)
{
    return sight->deltas.ledger.entries && weir__load64(&sight->deltas.ledger.header->heartbeat_ms) != 0;
}

const struct weir__hot_rule *weir__sight_panel(const struct weir__sight *sight, uint64_t rule)
{
    return sight->hot.rule_slots ? weir__hot_lookup(&sight->hot, rule) : NULL;
}

bool weir__sight_load(const struct weir__sight *sight, struct weir__load_view *view, struct weir__upstream_sums *sums)
{
    *view = weir__load_view_neutral();
    *sums = (struct weir__upstream_sums){0};
    if (!sight->load)
        return false;
    weir__load_page_read(sight->load, sight->now.mono_ns, view);
    weir__load_page_sum(sight->load, sight->now.mono_ns, sums);
    return view->known;
}

void weir__sight_host_name(const struct weir__sight *sight, char name[WEIR__HOST_NAME])
{
    memset(name, 0, WEIR__HOST_NAME);
    if (sight->host_name)
        snprintf(name, WEIR__HOST_NAME, "%s", sight->host_name);
    else
        (void)gethostname(name, WEIR__HOST_NAME - 1);
}

uint32_t weir__sight_minute(const struct weir__sight *sight)
{
    return (uint32_t)(sight->now.mono_ns / (60 * WEIR_SECOND));
}

struct weir__rates weir__sight_rates(const struct weir__sight *sight, const struct weir__seen_rule *rule,
                                     size_t seconds)
{
    struct weir__history_second list[60];
    struct weir__rates rates = {0};
    size_t most = sizeof list / sizeof *list, count = 0;
    if (sight->history.rows &&
        weir__load64(&sight->history.header->last) + STALE_SECONDS >= weir__sight_second(sight->now))
        count = weir__history_read(&sight->history, rule->id, list, seconds < most ? seconds : most);
    for (size_t i = 0; i < count; i++) {
        rates.allowed += list[i].allowed;
        rates.delayed += list[i].delayed;
        rates.denied += list[i].denied;
        rates.shed += list[i].shed;
    }
    if (!count)
        return since_remembered(sight, rule);
    return (struct weir__rates){rates.allowed / (double)count, rates.delayed / (double)count,
                                rates.denied / (double)count, rates.shed / (double)count, true};
}

void weir__rates_add(struct weir__rates *sum, const struct weir__seen_rule *rule, const struct weir__rates *rates)
{
    if (rule->info.shadow)
        return;
    sum->known |= rates->known;
    sum->allowed += rates->allowed;
    sum->delayed += rates->delayed;
    sum->denied += rates->denied;
    sum->shed += rates->shed;
}
