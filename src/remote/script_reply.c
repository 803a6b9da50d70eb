/* Parses and validates the script's replies, and error replies. */
#include "remote/script.h"

#include "algo/algo.h"
#include "algo/arith.h"

#include <endian.h>
#include <hiredis/hiredis.h>
#include <string.h>

/* Bounds of valid replies: twice the largest counter plus its largest debt. */
#define UNITS_MAX (4 * WEIR__USED_MAX)
#define TIME_MAX  (4 * WEIR__DEBT_MAX)

#define ERROR_LOOKED 512 /* bytes of an error text that are searched */

#define TIME_LEN 8
#define OP_LEN   (1 + 3 * 8) /* code, remaining, reset, wait */

static int64_t number_at(const char *text)
{
    uint64_t bits;
    memcpy(&bits, text, sizeof bits);
    return (int64_t)be64toh(bits);
}

static bool is_time(int64_t us)
{
    return us >= 0 && us <= TIME_MAX;
}

/* False: invalid. */
static bool read_op(const char *text, struct weir__store_op *op, int64_t now_us)
{
    int code = (unsigned char)text[0] < 0x80 ? (unsigned char)text[0] : (unsigned char)text[0] - 0x100;
    int64_t remaining = number_at(text + 1), reset_us = number_at(text + 9), wait_us = number_at(text + 17);
    int verdict = code & 7;
    bool passes = verdict <= WEIR_DELAY, elsewhere = code & (WEIR__CODE_OVER | WEIR__CODE_AHEAD);

    op->decision = (weir_decision){.limit = op->limit.hard};
    op->taken = false;
    op->other_window = 0;
    op->missed = 0;
    op->error = code < 0 ? code : 0;
    if (op->kind != WEIR__OP_REFUND)
        op->at_us = now_us;
    if (code < 0)
        return code == WEIR_ESTOREWRONGTYPE || code == WEIR_ESTORECLOCK;
    if (verdict > WEIR_NEVER_FITS || remaining > op->limit.hard || remaining < -UNITS_MAX || !is_time(reset_us) ||
        !is_time(wait_us) || (code & WEIR__CODE_TAKEN && (!passes || elsewhere)) ||
        (elsewhere && (op->kind != WEIR__OP_EXCHANGE || op->limit.algorithm != WEIR_FIXED_WINDOW)))
        return false;

    if (op->kind == WEIR__OP_EXCHANGE)
        op->missed = wait_us;
    weir_decision *d = &op->decision;
    d->verdict = (enum weir_verdict)verdict;
    d->flags = code & WEIR__CODE_SOFT ? WEIR_OVER_SOFT : 0;
    d->remaining = remaining;
    d->reset_after_ns = op->limit.algorithm == WEIR_CONCURRENCY ? -1 : weir__us_to_ns(reset_us);
    d->delay_ns = verdict == WEIR_DELAY ? weir__us_to_ns(wait_us) : 0;
    d->retry_after_ns = verdict == WEIR_DENY ? weir__us_to_ns(wait_us) : verdict == WEIR_NEVER_FITS ? -1 : 0;
    op->taken = code & WEIR__CODE_TAKEN;
    op->other_window = code & WEIR__CODE_OVER ? -1 : code & WEIR__CODE_AHEAD ? 1 : 0;
    return true;
}

int weir__script_read(const struct redisReply *reply, const struct weir__group_ref *refs, size_t count)
{
    size_t ops = 0;
    for (size_t p = 0; p < count; p++)
        ops += refs[p].request->groups[refs[p].group].count;
    if (!reply || reply->type != REDIS_REPLY_STRING || !reply->str || reply->len != TIME_LEN + ops * OP_LEN)
        return WEIR_ESTOREGARBAGE;
    const char *at = reply->str + TIME_LEN;
    int64_t now_us = number_at(reply->str);
    bool sound = now_us >= 0 && now_us <= WEIR__EXACT_MAX;
    for (size_t p = 0; p < count && sound; p++) {
        const struct weir__group *group = &refs[p].request->groups[refs[p].group];
        for (uint32_t i = 0; i < group->count && sound; i++, at += OP_LEN)
            sound = read_op(at, &refs[p].request->ops[group->first + i], now_us);
    }
    return sound ? 0 : WEIR_ESTOREGARBAGE;
}

/* The error code that a text begins with; 0: unknown. */
static int known_error(const char *text, size_t len)
{
    static const struct {
        const char *begins;
        int error;
    } known[] = {
        {"LOADING", WEIR_ESTORELOADING},
        {"BUSY", WEIR_ESTORESLOW},
        {"READONLY", WEIR_ESTOREREADONLY},
        {"NOREPLICAS", WEIR_ESTOREREADONLY},
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
        {"MISCONF", WEIR_ESTOREDISK},
        {"ERR max number of clients", WEIR_ESTORECLIENTS},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t begins = strlen(known[i].begins);
        if (len >= begins && memcmp(text, known[i].begins, begins) == 0 && (len == begins || text[begins] == ' '))
            return known[i].error;
    }
    return 0;
}

int weir__store_error(const char *text, size_t len)
{
    static const char wrapped[] = "ERR Error running script";
    int error = known_error(text, len);
    /*
     * Redis before 7 wraps the error of a script into a sentence: "ERR Error running script (…): @user_script: 1: -OOM
     * …".
     */
    if (len >= sizeof wrapped && memcmp(text, wrapped, sizeof wrapped - 1) == 0)
        for (size_t i = sizeof wrapped; i < len && i < ERROR_LOOKED && !error; i++)
            if (text[i - 1] == ' ' || text[i - 1] == '-')
                error = known_error(text + i, len - i);
    return error ? error : WEIR_ESTOREERROR;
}
