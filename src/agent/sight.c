/* What there is to see. See sight.h. */
#include "agent/sight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STALE_SECONDS 5 /* a history that ended longer ago says nothing of the present */

/* ---- Files ---- */

static void leave(struct weir__sight *sight, struct weir__beside *file)
{
    if (!file->mapped.memory)
        return;
    weir__leave_beside(sight->engine->segment, &file->mapped);
    weir__mapped_close(&file->mapped);
}

/* True if it has changed: what was there is left, and mapped is what is there now, if anything is. */
static bool follow(struct weir__sight *sight, struct weir__beside *file, const char *ending)
{
    char path[4096];
    struct stat at;
    if (snprintf(path, sizeof path, "%s%s", sight->segment, ending) >= (int)sizeof path)
        return false;
    bool there = stat(path, &at) == 0;
    if (there ? file->mapped.memory && at.st_dev == file->device && at.st_ino == file->inode : !file->mapped.memory)
        return false;
    leave(sight, file);
    if (!there || weir__mapped_attach(path, true, &file->mapped) != 0)
        return true;
    file->device = at.st_dev;
    file->inode = at.st_ino;
    weir__guard_beside(sight->engine->segment, &file->mapped);
    return true;
}

void weir__sight_look(struct weir__sight *sight)
{
    const struct weir__mapped *hot = &sight->hot_file.mapped, *history = &sight->history_file.mapped,
                              *ledger = &sight->ledger_file.mapped;
    sight->now = weir_clock(sight->engine->segment);
    if (follow(sight, &sight->hot_file, ".hot") &&
        (!hot->memory || !weir__hot_attach(hot->memory, hot->bytes, &sight->hot)))
        sight->hot = (struct weir__hot){0};
    if (follow(sight, &sight->history_file, ".history") &&
        (!history->memory || !weir__history_attach(history->memory, history->bytes, &sight->history)))
        sight->history = (struct weir__history){0};
    if (follow(sight, &sight->ledger_file, ".ledger") &&
        (!ledger->memory || weir__ledger_attach(ledger->memory, ledger->bytes, &sight->book.ledger) != 0))
        sight->book = (struct weir__book){.opened_ms = weir__book_ms()};
}

int weir__sight_open(struct weir__sight *sight, weir *engine, const char *segment_path)
{
    *sight = (struct weir__sight){.engine = engine, .segment = strdup(segment_path)};
    if (!sight->segment)
        return WEIR_ENOMEM;
    sight->book.opened_ms = weir__book_ms();
    weir__sight_look(sight);
    return 0;
}

void weir__sight_close(struct weir__sight *sight)
{
    leave(sight, &sight->hot_file);
    leave(sight, &sight->history_file);
    leave(sight, &sight->ledger_file);
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

int weir__sight_rules(const struct weir__sight *sight, int (*visit)(void *context, const struct weir__seen_rule *rule),
                      void *context)
{
    struct walk walk = {visit, context};
    return weir_rules_each(sight->engine, visit_rule, &walk);
}

const struct weir__hot_panel *weir__sight_panel(const struct weir__sight *sight, uint64_t rule)
{
    return sight->hot.panels ? weir__hot_look(&sight->hot, rule) : NULL;
}

uint32_t weir__sight_minute(const struct weir__sight *sight)
{
    return (uint32_t)(sight->now.mono_ns / (60 * WEIR_SECOND));
}

struct weir__rates weir__sight_rates(const struct weir__sight *sight, uint64_t rule, size_t seconds)
{
    struct weir__history_second list[60];
    struct weir__rates rates = {0};
    size_t most = sizeof list / sizeof *list;
    if (!sight->history.rows ||
        weir__load64(&sight->history.header->last) + STALE_SECONDS < weir__sight_second(sight->now))
        return rates;
    size_t count = weir__history_read(&sight->history, rule, list, seconds < most ? seconds : most);
    for (size_t i = 0; i < count; i++) {
        rates.allowed += list[i].allowed;
        rates.delayed += list[i].delayed;
        rates.denied += list[i].denied;
    }
    if (!count)
        return rates;
    rates.allowed /= (double)count;
    rates.delayed /= (double)count;
    rates.denied /= (double)count;
    rates.known = true;
    return rates;
}
