/* The read-only view of a host. See snapshot.h. */
#include "stats/snapshot.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STALE_SECONDS 5 /* an older end of the history means that no agent writes it */

/* ---- Files ---- */

/* Maps the file anew if it was created, replaced or removed. True: it was. */
static bool remap_if_replaced(const struct weir__snapshot *snapshot, struct weir__mapped *file, const char *ending)
{
    char path[4096];
    struct stat at;
    if (snprintf(path, sizeof path, "%s%s", snapshot->segment, ending) >= (int)sizeof path)
        return false;
    bool there = lstat(path, &at) == 0;
    if (there ? file->memory && at.st_dev == file->device && at.st_ino == file->inode && !weir__load32(&file->lost)
              : !file->memory)
        return false;
    weir__mapped_close(file);
    struct weir__making how = {.path = path, .read_only = true, .owner = snapshot->engine->segment->owner};
    if (there)
        (void)!weir__mapped_open(&how, file);
    return true;
}

void weir__snapshot_refresh(struct weir__snapshot *snapshot)
{
    const struct weir__mapped *hot = &snapshot->hot_file, *history = &snapshot->history_file,
                              *ledger = &snapshot->ledger_file;
    snapshot->now = weir_clock(snapshot->engine->segment);
    if (remap_if_replaced(snapshot, &snapshot->hot_file, ".hot") &&
        (!hot->memory || !weir__hot_attach(hot->memory, hot->bytes, &snapshot->hot)))
        snapshot->hot = (struct weir__hot){0};
    if (remap_if_replaced(snapshot, &snapshot->history_file, ".history") &&
        (!history->memory || !weir__history_attach(history->memory, history->bytes, &snapshot->history)))
        snapshot->history = (struct weir__history){0};
    if (remap_if_replaced(snapshot, &snapshot->ledger_file, ".ledger") &&
        (!ledger->memory || weir__ledger_attach(ledger->memory, ledger->bytes, &snapshot->deltas.ledger) != 0))
        snapshot->deltas = (struct weir__delta_ledger){.opened_ms = weir__coarse_ms()};
    const struct weir__mapped *load = &snapshot->load_file;
    if (remap_if_replaced(snapshot, &snapshot->load_file, ".load"))
        snapshot->load = load->memory && weir__load_page_valid(load->memory, load->bytes) ? load->memory : NULL;
}

int weir__snapshot_open(struct weir__snapshot *snapshot, weir *engine, const char *segment_path)
{
    *snapshot = (struct weir__snapshot){.engine = engine, .segment = strdup(segment_path)};
    if (!snapshot->segment)
        return WEIR_ENOMEM;
    snapshot->deltas.opened_ms = weir__coarse_ms();
    weir__snapshot_refresh(snapshot);
    return 0;
}

void weir__snapshot_close(struct weir__snapshot *snapshot)
{
    weir__mapped_close(&snapshot->hot_file);
    weir__mapped_close(&snapshot->history_file);
    weir__mapped_close(&snapshot->ledger_file);
    weir__mapped_close(&snapshot->load_file);
    free(snapshot->previous);
    free(snapshot->segment);
    *snapshot = (struct weir__snapshot){0};
}

/* ---- Rules ---- */

struct rule_visitor {
    int (*visit)(void *context, const struct weir__rule_snapshot *rule);
    void *context;
};

static int visit_rule(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    const struct rule_visitor *rule_visitor = context;
    struct weir__rule_snapshot rule = {.info = *info, .stats = *stats};
    rule.id = weir__rule_id((weir_text){info->name, strlen(info->name)}, info->shadow);
    return rule_visitor->visit(rule_visitor->context, &rule);
}

/* For a reader that has only the segment: rule statistics have the id of their rule, not its name. */
static int visit_unnamed(const struct weir__snapshot *snapshot, const struct rule_visitor *rule_visitor)
{
    const struct weir__table *table = &snapshot->engine->segment->table;
    int stop = 0;
    for (uint64_t i = 0; i < table->rule_stats_count && !stop; i++) {
        char name[24];
        struct weir__rule_snapshot rule = {.info = {.name = name, .key = "", .file = "", .limit = -1},
                                           .id = weir__load64(&table->rule_stats[i].shard[0].word)};
        snprintf(name, sizeof name, "#%016" PRIx64, rule.id);
        if (!rule.id)
            continue;
        weir__rule_stats_sum(&table->rule_stats[i], &rule.stats);
        stop = rule_visitor->visit(rule_visitor->context, &rule);
    }
    return stop;
}

int weir__snapshot_each_rule(const struct weir__snapshot *snapshot,
                             int (*visit)(void *context, const struct weir__rule_snapshot *rule), void *context)
{
    struct rule_visitor rule_visitor = {visit, context};
    return snapshot->unnamed ? visit_unnamed(snapshot, &rule_visitor)
                             : weir_rules_each(snapshot->engine, visit_rule, &rule_visitor);
}

/* ---- Rates ---- */

static int save_rule(void *context, const struct weir__rule_snapshot *rule)
{
    struct weir__snapshot *snapshot = context;
    if (snapshot->previous_count == snapshot->previous_room) {
        size_t room = 2 * snapshot->previous_room + 64;
        struct weir__saved_totals *more = realloc(snapshot->previous, room * sizeof *more);
        if (!more)
            return 1;
        snapshot->previous = more;
        snapshot->previous_room = room;
    }
    snapshot->previous[snapshot->previous_count++] = (struct weir__saved_totals){rule->id, rule->stats};
    return 0;
}

void weir__snapshot_save_totals(struct weir__snapshot *snapshot)
{
    snapshot->previous_count = 0;
    snapshot->previous_at = snapshot->now;
    (void)weir__snapshot_each_rule(snapshot, save_rule, snapshot);
}

static double a_second(uint64_t now, uint64_t previous, double seconds)
{
    return now > previous ? (double)(now - previous) / seconds : 0;
}

static struct weir__rates since_saved(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule)
{
    double seconds = (double)(snapshot->now.mono_ns - snapshot->previous_at.mono_ns) / 1e9;
    for (size_t i = 0; i < snapshot->previous_count && seconds > 0; i++) {
        const weir_rule_stats *previous = &snapshot->previous[i].stats;
        if (snapshot->previous[i].id == rule->id)
            return (struct weir__rates){a_second(rule->stats.allowed, previous->allowed, seconds),
                                        a_second(rule->stats.delayed, previous->delayed, seconds),
                                        a_second(rule->stats.denied, previous->denied, seconds),
                                        a_second(rule->stats.shed, previous->shed, seconds), true};
    }
    return (struct weir__rates){0};
}

bool weir__snapshot_has_ledger(const struct weir__snapshot *snapshot)
{
    return snapshot->deltas.ledger.entries && weir__load64(&snapshot->deltas.ledger.header->heartbeat_ms) != 0;
}

const struct weir__hot_rule *weir__snapshot_hot_keys(const struct weir__snapshot *snapshot, uint64_t rule)
{
    return snapshot->hot.rule_slots ? weir__hot_lookup(&snapshot->hot, rule) : NULL;
}

size_t weir__snapshot_keys(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                           enum weir__key_list list, struct weir__hot_key *keys, size_t max)
{
    const weir_segment *segment = snapshot->engine->segment;
    if (list == WEIR__KEYS_NEAR)
        return weir__hot_nearest(rule_slot, weir__snapshot_minute(snapshot), WEIR__HOT_KEYS_MINUTES,
                                 weir__hot_sampler_hash, segment, keys, max);
    return weir__hot_top(rule_slot, list == WEIR__KEYS_DENIED ? WEIR__HOT_DENIED : WEIR__HOT_ADMITTED,
                         weir__hot_sampler_hash, segment, keys, max);
}

uint64_t weir__snapshot_uses(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                             uint64_t tenths[WEIR__HOT_USES])
{
    return weir__hot_uses(rule_slot, weir__snapshot_minute(snapshot), WEIR__HOT_KEYS_MINUTES, tenths);
}

bool weir__snapshot_load(const struct weir__snapshot *snapshot, struct weir__load_view *view,
                         struct weir__upstream_sums *sums)
{
    *view = weir__load_view_neutral();
    *sums = (struct weir__upstream_sums){0};
    if (!snapshot->load)
        return false;
    weir__load_page_read(snapshot->load, snapshot->now.mono_ns, view);
    weir__load_page_sum(snapshot->load, snapshot->now.mono_ns, sums);
    return view->known;
}

void weir__snapshot_host_name(const struct weir__snapshot *snapshot, char name[WEIR__HOST_NAME])
{
    memset(name, 0, WEIR__HOST_NAME);
    if (snapshot->host_name)
        snprintf(name, WEIR__HOST_NAME, "%s", snapshot->host_name);
    else
        (void)gethostname(name, WEIR__HOST_NAME - 1);
}

uint32_t weir__snapshot_minute(const struct weir__snapshot *snapshot)
{
    return (uint32_t)(snapshot->now.mono_ns / (60 * WEIR_SECOND));
}

struct weir__rates weir__snapshot_rates(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule,
                                        size_t seconds)
{
    struct weir__history_second list[60];
    struct weir__rates rates = {0};
    size_t most = sizeof list / sizeof *list, count = 0;
    if (snapshot->history.rows &&
        weir__load64(&snapshot->history.header->last) + STALE_SECONDS >= weir__snapshot_second(snapshot->now))
        count = weir__history_read(&snapshot->history, rule->id, list, seconds < most ? seconds : most);
    for (size_t i = 0; i < count; i++) {
        rates.allowed += list[i].allowed;
        rates.delayed += list[i].delayed;
        rates.denied += list[i].denied;
        rates.shed += list[i].shed;
    }
    if (!count)
        return since_saved(snapshot, rule);
    return (struct weir__rates){rates.allowed / (double)count, rates.delayed / (double)count,
                                rates.denied / (double)count, rates.shed / (double)count, true};
}

void weir__rates_add(struct weir__rates *sum, const struct weir__rule_snapshot *rule, const struct weir__rates *rates)
{
    if (rule->info.shadow)
        return;
    sum->known |= rates->known;
    sum->allowed += rates->allowed;
    sum->delayed += rates->delayed;
    sum->denied += rates->denied;
    sum->shed += rates->shed;
}
