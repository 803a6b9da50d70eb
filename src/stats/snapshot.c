/* The read-only view of a host. See snapshot.h. */
#include "stats/snapshot.h"
#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULES_BYTES   ((size_t)256 << 20)
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
    struct weir__file_spec how = {.path = path, .read_only = true, .owner = snapshot->engine->segment->mapped.owner};
    if (there)
        (void)!weir__mapped_open(&how, file);
    return true;
}

/* ---- Rules ---- */

static int add_rule(struct weir__snapshot *snapshot, const weir_rule_info *info, const weir_rule_stats *stats,
                    uint64_t id)
{
    struct weir__rule_list *list = &snapshot->rules;
    struct weir__rule_snapshot *rule = weir__arena_take(&list->arena, sizeof *rule);
    weir_text name = weir__arena_copy(&list->arena, weir__text_of(info->name)), domain = {0};
    if (info->domain)
        domain = weir__arena_copy(&list->arena, weir__text_of(info->domain));
    if (list->arena.failed)
        return 1;
    *rule = (struct weir__rule_snapshot){.info = *info, .stats = *stats, .id = id};
    rule->info.name = name.data;
    rule->info.domain = domain.data;
    rule->info.key = rule->info.file = "";
    *(list->last ? &list->last->next : &list->first) = rule;
    list->last = rule;
    list->count++;
    return 0;
}

static int add_named(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    return add_rule(context, info, stats, weir__rule_id(weir__text_of(info->name), info->shadow));
}

/* For a reader that has only the segment: rule statistics have the id of their rule, not its name. */
static void add_unnamed(struct weir__snapshot *snapshot)
{
    const struct weir__table *table = &snapshot->engine->segment->table;
    for (uint64_t i = 0; i < table->rule_stats_count; i++) {
        char name[24];
        uint64_t id = weir__load64(&table->rule_stats[i].shard[0].rule_id);
        weir_rule_stats stats = {0};
        snprintf(name, sizeof name, "#%016" PRIx64, id);
        weir__rule_stats_sum(&table->rule_stats[i], &stats);
        if (id && !weir__rule_stats_is_warnings(&table->rule_stats[i]))
            (void)add_rule(snapshot, &(weir_rule_info){.name = name, .limit = -1}, &stats, id);
    }
}

static void free_rules(struct weir__rule_list *list)
{
    weir__arena_free(&list->arena);
    *list = (struct weir__rule_list){.arena.bytes_max = RULES_BYTES};
}

void weir__snapshot_save_totals(struct weir__snapshot *snapshot)
{
    free_rules(&snapshot->previous);
    snapshot->previous = snapshot->rules;
    snapshot->previous_at = snapshot->now;
    snapshot->rules = (struct weir__rule_list){0};
}

/* ---- Refreshing ---- */

void weir__snapshot_refresh(struct weir__snapshot *snapshot)
{
    const struct weir__mapped *hot = &snapshot->hot_file, *history = &snapshot->history_file,
                              *ledger = &snapshot->ledger_file;
    snapshot->now = weir_clock(snapshot->engine->segment);
    free_rules(&snapshot->rules);
    if (snapshot->unnamed)
        add_unnamed(snapshot);
    else
        (void)weir_rules_each(snapshot->engine, add_named, snapshot);
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
        snapshot->load =
            load->memory && !weir__row_file_check(load->memory, load->bytes, &weir__load_format) ? load->memory : NULL;
}

void weir__snapshot_open(struct weir__snapshot *snapshot, weir *engine, const char *segment_path)
{
    *snapshot = (struct weir__snapshot){.engine = engine, .deltas.opened_ms = weir__coarse_ms()};
    snprintf(snapshot->segment, sizeof snapshot->segment, "%s", segment_path);
    weir__snapshot_refresh(snapshot);
}

void weir__snapshot_close(struct weir__snapshot *snapshot)
{
    weir__mapped_close(&snapshot->hot_file);
    weir__mapped_close(&snapshot->history_file);
    weir__mapped_close(&snapshot->ledger_file);
    weir__mapped_close(&snapshot->load_file);
    free_rules(&snapshot->rules);
    free_rules(&snapshot->previous);
    *snapshot = (struct weir__snapshot){0};
}

/* ---- Rates ---- */

const char *const weir__rate_names[4] = {"allowed", "delayed", "denied", "shed"};

struct weir__rates weir__snapshot_totals(const struct weir__rule_snapshot *rule)
{
    const weir_rule_stats *stats = &rule->stats;
    return (struct weir__rates){.allowed = (double)stats->allowed,
                                .delayed = (double)stats->delayed,
                                .denied = (double)stats->denied,
                                .shed = (double)stats->shed};
}

void weir__rates_add(struct weir__rates *sum, const struct weir__rates *rates)
{
    sum->known |= rates->known;
    for (int i = 0; i < 4; i++)
        sum->of[i] += rates->of[i];
}

static struct weir__rates since_saved(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule)
{
    struct weir__rates rates = weir__snapshot_totals(rule), before;
    double seconds = (double)(snapshot->now.mono_ns - snapshot->previous_at.mono_ns) / 1e9;
    const struct weir__rule_snapshot *previous = snapshot->previous.first;
    while (previous && previous->id != rule->id)
        previous = previous->next;
    if (!previous || seconds <= 0)
        return (struct weir__rates){0};
    before = weir__snapshot_totals(previous);
    for (int i = 0; i < 4; i++)
        rates.of[i] = fmax(rates.of[i] - before.of[i], 0) / seconds;
    rates.known = true;
    return rates;
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
    if (!count)
        return since_saved(snapshot, rule);
    for (size_t i = 0; i < count; i++) {
        rates.allowed += list[i].allowed;
        rates.delayed += list[i].delayed;
        rates.denied += list[i].denied;
        rates.shed += list[i].shed;
    }
    for (int i = 0; i < 4; i++)
        rates.of[i] /= (double)count;
    rates.known = true;
    return rates;
}
