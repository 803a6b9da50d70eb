/* What the script answers, checked; and what the server answers instead of it. */
#include "store/script_numbers.h"

#include "algo/algo.h"
#include "algo/arith.h"

#include <hiredis/hiredis.h>
#include <string.h>

/* No counter holds more, and none waits longer: its debt ends there, and what it may hold beside it. */
#define UNITS_MAX (4 * WEIR__USED_MAX)
#define TIME_MAX  (4 * WEIR__DEBT_MAX)

static void read_ask(struct weir__numbers *from, struct weir__ask *ask, int64_t now_us)
{
    weir_decision *d = &ask->decision;
    int64_t code = weir__number_read(from, WEIR_ESTORELIMIT, WEIR__CODE_END - 1);
    *d = (weir_decision){.limit = ask->limit.hard};
    ask->taken = false;
    ask->other_window = 0;
    ask->error = 0;
    if (code < 0) {
        ask->error = (int)code;
        from->broken |= code != WEIR_ESTOREWRONGTYPE && code != WEIR_ESTORECLOCK;
        return;
    }
    from->broken |= (code & 7) > WEIR_NEVER_FITS;
    d->verdict = (enum weir_verdict)(code & 3);
    d->flags = code & WEIR__CODE_SOFT ? WEIR_OVER_SOFT : 0;
    d->remaining = weir__number_read(from, -UNITS_MAX, ask->limit.hard);
    d->reset_after_ns = weir__us_to_ns(weir__number_read(from, 0, TIME_MAX));
    if (d->verdict == WEIR_DELAY)
        d->delay_ns = weir__us_to_ns(weir__number_read(from, 0, TIME_MAX));
    else if (d->verdict == WEIR_DENY)
        d->retry_after_ns = weir__us_to_ns(weir__number_read(from, 0, TIME_MAX));
    else if (d->verdict == WEIR_NEVER_FITS)
        d->retry_after_ns = -1;

    bool elsewhere = code & (WEIR__CODE_OVER | WEIR__CODE_AHEAD);
    ask->taken = code & WEIR__CODE_TAKEN;
    ask->other_window = code & WEIR__CODE_OVER ? -1 : code & WEIR__CODE_AHEAD ? 1 : 0;
    from->broken |= ask->taken && (!weir_passes(d) || elsewhere);
    from->broken |= elsewhere && (ask->how != WEIR__ASK_EXCHANGE || !weir__on_wall(&ask->limit));
    if (ask->how != WEIR__ASK_REFUND)
        ask->at_us = now_us;
}

int weir__script_read(const struct redisReply *reply, const struct weir__batch_part *parts, size_t count)
{
    if (!reply || reply->type != REDIS_REPLY_STRING || !reply->str)
        return WEIR_ESTOREGARBAGE;
    const unsigned char *text = (const unsigned char *)reply->str;
    struct weir__numbers from = {.at = text, .end = text + reply->len};
    (void)weir__numbers_begin(&from); /* how many there must be is known from what was asked */
    int64_t now_us = weir__number_read(&from, 0, WEIR__EXACT_MAX);
    for (size_t p = 0; p < count && !from.broken; p++) {
        const struct weir__group *group = &parts[p].question->groups[parts[p].group];
        for (uint32_t i = 0; i < group->count && !from.broken; i++)
            read_ask(&from, &parts[p].question->asks[group->first + i], now_us);
    }
    return from.broken || from.at != from.end ? WEIR_ESTOREGARBAGE : 0;
}

int weir__store_error(const char *text, size_t len)
{
    static const struct {
        const char *begins;
        int error;
    } known[] = {
        {"LOADING", WEIR_ESTORELOADING},
        {"BUSY", WEIR_ESTORESLOW},
        {"READONLY", WEIR_ESTOREREADONLY},
        {"NOREPLICAS", WEIR_ESTOREREADONLY},
        {"MISCONF", WEIR_ESTOREREADONLY},
        {"MASTERDOWN", WEIR_ESTORELOADING},
        {"OOM", WEIR_ESTOREOOM},
        {"CROSSSLOT", WEIR_ESTORECROSSSLOT},
        {"MOVED", WEIR_ESTORECROSSSLOT},
        {"ASK", WEIR_ESTORECROSSSLOT},
        {"TRYAGAIN", WEIR_ESTORECROSSSLOT},
        {"CLUSTERDOWN", WEIR_ESTOREDOWN},
        {"WRONGTYPE", WEIR_ESTOREWRONGTYPE},
        {"NOAUTH", WEIR_ESTOREAUTH},
        {"WRONGPASS", WEIR_ESTOREAUTH},
        {"NOPERM", WEIR_ESTOREAUTH},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t begins = strlen(known[i].begins);
        if (len >= begins && memcmp(text, known[i].begins, begins) == 0 && (len == begins || text[begins] == ' '))
            return known[i].error;
    }
    return WEIR_ESTOREERROR;
}
