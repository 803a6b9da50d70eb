/* Formats calls of the script, and parses and validates its replies. lua/main.lua documents the arguments. */
#include "remote/script.h"

#include "algo/algo.h"
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <endian.h>
#include <hiredis/hiredis.h>

#define NUMBER_MAX    9                  /* bytes of a number: type and eight */
#define LOOSE_MAX     2000               /* numbers that are passed without a MessagePack array */
#define MARKED        5                  /* bytes of a 32-bit number in MessagePack */
#define ROW           7                  /* numbers of a limit */
#define LATE_MAX      (INT64_C(1) << 44) /* microseconds: the script divides by it */
#define ROWS_COMPARED 16                 /* newest rows that are compared; a duplicate row only costs bytes */

/* ---- Numbers ---- */

/* Appends a number in MessagePack. */
static void add_number(struct weir__buffer *to, int64_t number)
{
    uint64_t bits = (uint64_t)number;
    unsigned bytes = 8;
    unsigned char mark = 0xd3, *at = (unsigned char *)weir__buffer_room(to, NUMBER_MAX);
    if (!at)
        return;
    if (number >= -32 && number <= 0x7f) {
        *at = (unsigned char)bits;
        to->len++;
        return;
    }
    if (number >= 0 && number <= UINT32_MAX) {
        bytes = number <= 0xff ? 1 : number <= 0xffff ? 2 : 4;
        mark = number <= 0xff ? 0xcc : number <= 0xffff ? 0xcd : 0xce;
    }
    *at++ = mark;
    for (unsigned i = bytes; i-- > 0;)
        *at++ = (unsigned char)(bits >> 8 * i);
    to->len += 1 + bytes;
}

/* ---- Limits ---- */

static int64_t clamp(int64_t number, int64_t most)
{
    return number > most ? most : number < -most ? -most : number;
}

/* The parameters of a limit. */
static void fill_row(const struct weir__store_op *op, int64_t row[ROW])
{
    const weir_limit *l = &op->limit;
    int64_t kind = WEIR__KIND_BUCKET, more[4] = {0};
    switch (l->algorithm) {
    case WEIR_FIXED_WINDOW:
        kind = WEIR__KIND_WINDOW;
        more[0] = l->window_us;
        more[1] = l->align == WEIR_ALIGN_FIRST_REQUEST;
        for (int i = 0; i < 4 && l->align == WEIR_ALIGN_CALENDAR; i++)
            more[i] = clamp(op->bounds_us[i], WEIR__EXACT_MAX);
        break;
    case WEIR_SLIDING_WINDOW_LOG:
        kind = WEIR__KIND_LOG;
        more[0] = l->window_us;
        more[1] = l->quantum_us;
        more[2] = l->count_rejected;
        more[3] = l->most;
        break;
    case WEIR_SLIDING_WINDOW_COUNTER:
        kind = l->buckets == 2 ? WEIR__KIND_COUNTER_2 : WEIR__KIND_COUNTER_N;
        more[0] = l->part_us;
        more[1] = l->buckets == 2 ? l->round_up : l->buckets;
        more[2] = weir__is_packed(l) ? UINT16_MAX : INT32_MAX; /* capacity of a part */
        break;
    case WEIR_CONCURRENCY:
        kind = WEIR__KIND_FLIGHT;
        more[0] = l->window_us;
        break;
    default:
        if (l->refill == WEIR_REFILL_INTERVAL) {
            kind = WEIR__KIND_INTERVAL;
            more[0] = l->window_us;
            more[1] = l->limit;
            more[2] = l->back_units;
        } else {
            more[0] = l->period_us;
            more[1] = l->period_units;
            more[2] = l->delay ? clamp(l->max_delay_us, WEIR__EXACT_MAX) : -1;
            /* Without a delay, which is meaningless for these. */
            bool varies = l->back_us != l->period_us || l->back_units != l->period_units;
            if (varies && op->kind != WEIR__OP_TAKE && op->kind != WEIR__OP_PEEK && op->kind != WEIR__OP_COUNT &&
                op->kind != WEIR__OP_LEASE) {
                more[2] = l->back_us;
                more[3] = l->back_units;
            }
        }
    }
    row[0] = kind;
    row[1] = l->cap;
    row[2] = l->hard;
    memcpy(row + 3, more, sizeof more);
}

static const struct weir__group *group_of(const struct weir__group_ref *part)
{
    return &part->request->groups[part->group];
}

/*
 * Which of `refs` must have passed for this group to be taken rather than peeked at, counted from 1; 0: none. A group
 * whose request has its first group elsewhere (split.c) refers to itself, which cannot have passed.
 */
static int64_t gate_of(const struct weir__group_ref *refs, size_t index)
{
    if (!group_of(&refs[index])->after_first)
        return 0;
    for (size_t i = index; i-- > 0;)
        if (refs[i].request == refs[index].request && refs[i].group == 0)
            return (int64_t)i + 1;
    return (int64_t)index + 1;
}

/*
 * Fixed windows: what is left of the host's; -1: none (aligned to the first request), -2: over. Others: how long the
 * delta accumulated.
 */
static int64_t left_of(const struct weir__store_op *op)
{
    if (weir__on_wall(&op->limit))
        return clamp(op->left_us, WEIR__EXACT_MAX / 4);
    if (op->limit.algorithm != WEIR_FIXED_WINDOW)
        return op->left_us > 0 ? clamp(op->left_us, LATE_MAX) : 0;
    return op->left_us > 0 ? clamp(op->left_us, op->limit.window_us) : op->left_us < 0 ? -2 : -1;
}

static uint32_t add_op(struct weir__buffer *to, const struct weir__store_op *op)
{
    add_number(to, 2 + (int64_t)ROW * op->row);
    add_number(to, op->kind);
    add_number(to, clamp(op->cost, WEIR__EXACT_MAX / 4));
    if (op->limit.algorithm == WEIR_CONCURRENCY) {
        add_number(to, clamp((int64_t)op->lease[0], WEIR__EXACT_MAX));
        add_number(to, clamp((int64_t)op->lease[1], WEIR__EXACT_MAX));
        return 5;
    }
    if (op->kind == WEIR__OP_REFUND) {
        int64_t at_us = clamp(op->at_us, WEIR__EXACT_MAX);
        add_number(to, at_us > -WEIR__DEBT_MAX ? at_us : -WEIR__DEBT_MAX);
        return 4;
    }
    if (op->kind == WEIR__OP_EXCHANGE) {
        add_number(to, clamp(op->level, WEIR__EXACT_MAX / 4));
        add_number(to, left_of(op));
        add_number(to, op->reseed ? 1 : op->own_delta ? 2 : 0);
        return 6;
    }
    if (op->kind == WEIR__OP_LEASE) {
        add_number(to, clamp((int64_t)op->units.sequence, WEIR__EXACT_MAX));
        add_number(to, (int64_t)op->units.previous);
        add_number(to, clamp((int64_t)op->units.host, WEIR__EXACT_MAX));
        add_number(to, op->units.unspent);
        add_number(to, op->units.returned);
        return 8;
    }
    return 3;
}

/* Appends the parameters of limits as rows, deduplicated, and sets op->row; returns the number of rows. */
static uint32_t add_rows(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count)
{
    int64_t rows[ROWS_COMPARED][ROW], row[ROW];
    uint32_t row_count = 0;
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        for (uint32_t i = 0; i < group->count; i++) {
            struct weir__store_op *op = &refs[p].request->ops[group->first + i];
            fill_row(op, row);
            op->row = row_count < ROWS_COMPARED ? 0 : row_count - ROWS_COMPARED;
            while (op->row < row_count && memcmp(rows[op->row % ROWS_COMPARED], row, sizeof row) != 0)
                op->row++;
            if (op->row < row_count)
                continue;
            memcpy(rows[row_count++ % ROWS_COMPARED], row, sizeof row);
            for (int j = 0; j < ROW; j++)
                add_number(to, row[j]);
        }
    }
    return row_count;
}

/* Appends the groups; returns how many numbers were added. */
static uint32_t add_groups(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count)
{
    uint32_t numbers = 0;
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        add_number(to, group->count);
        add_number(to, gate_of(refs, p));
        numbers += 2;
        for (uint32_t i = 0; i < group->count; i++)
            numbers += add_op(to, &refs[p].request->ops[group->first + i]);
    }
    return numbers;
}

/* ---- The command ---- */

void weir__redis_add_length(struct weir__buffer *to, char mark, size_t length)
{
    char *room = weir__buffer_room(to, WEIR__DIGITS_MAX + 3), *at = room;
    if (!room)
        return;
    *at++ = mark;
    at = weir__write_digits(at, length);
    *at++ = '\r';
    *at++ = '\n';
    to->len += (size_t)(at - room);
}

void weir__redis_add_text(struct weir__buffer *to, const char *text, size_t len)
{
    weir__redis_add_length(to, '$', len);
    if (len > 0)
        weir__buffer_add(to, text, len);
    weir__buffer_add(to, "\r\n", 2);
}

void weir__redis_add_int(struct weir__buffer *to, int64_t number)
{
    char text[WEIR__INT_TEXT_MAX];
    weir__redis_add_text(to, text, (size_t)(weir__write_int(text, number) - text));
}

static void add_unsigned(struct weir__buffer *to, uint64_t number)
{
    char text[WEIR__DIGITS_MAX];
    weir__redis_add_text(to, text, (size_t)(weir__write_digits(text, number) - text));
}

static void put_32(char *to, unsigned char mark, uint32_t number)
{
    to[0] = (char)mark;
    for (int i = 0; i < 4; i++)
        to[1 + i] = (char)(number >> (24 - 8 * i));
}

/* Appends all numbers as one argument. The lengths at its beginning are known at the end, so the numbers are moved. */
static void add_array(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count)
{
    enum { ROOM = 32 };
    static const char room[ROOM + MARKED + MARKED];
    size_t start = to->len;
    weir__buffer_add(to, room, sizeof room);
    uint32_t rows = add_rows(to, refs, count);
    uint32_t numbers = 1 + ROW * rows + add_groups(to, refs, count);
    if (to->failed)
        return;
    size_t begin = start + ROOM + (numbers > LOOSE_MAX ? 0 : MARKED);
    put_32(to->data + start + ROOM, 0xdd, numbers);
    put_32(to->data + start + ROOM + MARKED, 0xce, rows);
    char text[ROOM];
    size_t len = to->len - begin, text_len = (size_t)snprintf(text, sizeof text, "$%zu\r\n", len);
    memmove(to->data + start + text_len, to->data + begin, len);
    memcpy(to->data + start, text, text_len);
    to->len = start + text_len + len;
    weir__buffer_add(to, "\r\n", 2);
}

void weir__script_call(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count,
                       const struct weir__exchange_sender *sending)
{
    const char *sender_key = sending ? sending->key : NULL;
    uint32_t keys = sender_key ? 1 : 0;
    for (size_t p = 0; p < count; p++)
        keys += group_of(&refs[p])->count;
    /* Only the first command of a batch checks the previous number: small batches do not have the later commands. */
    bool ordered = sender_key && refs[0].request->slot == 0;
    weir__redis_add_length(to, '*', 3 + keys + 1 + (sending ? 1 : 0) + (sender_key ? 1 : 0) + (ordered ? 1 : 0));
    weir__redis_add_text(to, "EVALSHA", 7);
    weir__redis_add_text(to, weir__script_sha, 40);
    add_unsigned(to, keys);
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        for (uint32_t i = 0; i < group->count; i++) {
            const struct weir__store_op *op = &refs[p].request->ops[group->first + i];
            weir__redis_add_text(to, op->name, op->name_len);
        }
    }
    if (sender_key)
        weir__redis_add_text(to, sender_key, strlen(sender_key));
    add_array(to, refs, count);
    if (sending)
        add_unsigned(to, sending->clock_us > 0 ? (uint64_t)sending->clock_us : 0);
    if (sender_key)
        add_unsigned(to, sending->batch);
    if (ordered)
        add_unsigned(to, sending->batch - 1);
}

/* ---- Replies ---- */

/* Bounds of valid replies: twice the largest counter plus its largest debt. */
#define UNITS_MAX (4 * WEIR__USED_MAX)
#define TIME_MAX  (4 * WEIR__DEBT_MAX)

#define ERROR_LOOKED 512 /* bytes of an error text that are searched */

#define TIME_LEN 8
#define OP_LEN   (1 + 3 * 8) /* code, remaining, reset, wait */
#define MORE_LEN (2 * 8)     /* of a lease: units granted, duration */

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

static size_t reply_len(const struct weir__store_op *op)
{
    return op->kind == WEIR__OP_LEASE ? OP_LEN + MORE_LEN : OP_LEN;
}

/* False: invalid. */
static bool read_lease(const char *text, struct weir__store_op *op)
{
    int64_t granted = number_at(text), life_us = number_at(text + 8);
    op->units.known = granted & 1;
    op->units.granted = granted / 2;
    op->units.life_us = life_us;
    return granted >= 0 && granted / 2 <= UNITS_MAX && life_us >= 0 && life_us <= WEIR__UNITS_LIFE_US;
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

    if (op->kind == WEIR__OP_EXCHANGE || op->kind == WEIR__OP_LEASE)
        op->missed = wait_us;
    if (op->kind == WEIR__OP_LEASE && !read_lease(text + OP_LEN, op))
        return false;
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
    size_t bytes = 0;
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        for (uint32_t i = 0; i < group->count; i++)
            bytes += reply_len(&refs[p].request->ops[group->first + i]);
    }
    if (!reply || reply->type != REDIS_REPLY_STRING || !reply->str || reply->len != TIME_LEN + bytes)
        return WEIR_ESTOREGARBAGE;
    const char *at = reply->str + TIME_LEN;
    int64_t now_us = number_at(reply->str);
    bool sound = now_us >= 0 && now_us <= WEIR__EXACT_MAX;
    for (size_t p = 0; p < count && sound; p++) {
        const struct weir__group *group = &refs[p].request->groups[refs[p].group];
        for (uint32_t i = 0; i < group->count && sound; i++) {
            struct weir__store_op *op = &refs[p].request->ops[group->first + i];
            sound = read_op(at, op, now_us);
            at += reply_len(op);
        }
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
