/* Formats calls of the script. lua/main.lua documents the arguments. */
#include "remote/script.h"

#include "algo/algo.h"
#include "algo/arith.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_MIN  4096               /* bytes of a new buffer */
#define NUMBER_MAX  9                  /* bytes of a number: type and eight */
#define LOOSE_MAX   2000               /* numbers that are passed without a MessagePack array */
#define MARKED      5                  /* bytes of a 32-bit number in MessagePack */
#define ROW         7                  /* numbers of a limit */
#define TEXT_AROUND 8                  /* bytes that the Redis protocol adds to a string below 1000 bytes */
#define LATE_MAX    (INT64_C(1) << 44) /* microseconds: the script divides by it */
#define ROWS_LOOKED 16                 /* newest rows that are compared; a duplicate row only costs bytes */

/* ---- Numbers ---- */

void weir__number_add(struct weir__buffer *to, int64_t number)
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
            if (varies && op->kind != WEIR__OP_TAKE && op->kind != WEIR__OP_PEEK && op->kind != WEIR__OP_COUNT) {
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

/* ---- Rows: parameters of limits, deduplicated ---- */

struct rows {
    int64_t row[ROWS_LOOKED][ROW];
    uint32_t count;
};

/* Index of the op's row; *fresh: it is new. */
static uint32_t row_number(struct rows *rows, const struct weir__store_op *op, bool *fresh)
{
    int64_t row[ROW];
    fill_row(op, row);
    uint32_t looked = rows->count < ROWS_LOOKED ? rows->count : ROWS_LOOKED;
    *fresh = false;
    for (uint32_t i = 1; i <= looked; i++)
        if (memcmp(rows->row[(rows->count - i) % ROWS_LOOKED], row, sizeof row) == 0)
            return rows->count - i;
    *fresh = true;
    memcpy(rows->row[rows->count % ROWS_LOOKED], row, sizeof row);
    return rows->count++;
}

static const struct weir__group *group_of(const struct weir__group_ref *part)
{
    return &part->request->groups[part->group];
}

/*
 * Which of `refs` must have passed for this group to be taken rather than peeked at, counted from 1; 0: none. If the
 * request's first group is not among them, it has its replies: if it was denied, the group refers to itself, which
 * cannot have passed.
 */
static int64_t gate_of(const struct weir__group_ref *refs, size_t index)
{
    const struct weir__store_request *request = refs[index].request;
    if (!group_of(&refs[index])->after_first)
        return 0;
    for (size_t i = index; i-- > 0;)
        if (refs[i].request == request && refs[i].group == 0)
            return (int64_t)i + 1;
    for (uint32_t i = 0; i < request->groups[0].count; i++) {
        const struct weir__store_op *op = &request->ops[request->groups[0].first + i];
        if (op->error || !weir_passes(&op->decision))
            return (int64_t)index + 1;
    }
    return 0;
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

static uint32_t add_op(struct weir__buffer *to, const struct weir__store_op *op, uint32_t row)
{
    weir__number_add(to, 2 + (int64_t)ROW * row);
    weir__number_add(to, op->kind);
    weir__number_add(to, clamp(op->cost, WEIR__EXACT_MAX / 4));
    if (op->limit.algorithm == WEIR_CONCURRENCY) {
        weir__number_add(to, clamp((int64_t)op->lease[0], WEIR__EXACT_MAX));
        weir__number_add(to, clamp((int64_t)op->lease[1], WEIR__EXACT_MAX));
        return 5;
    }
    if (op->kind == WEIR__OP_REFUND) {
        int64_t at_us = clamp(op->at_us, WEIR__EXACT_MAX);
        weir__number_add(to, at_us > -WEIR__DEBT_MAX ? at_us : -WEIR__DEBT_MAX);
        return 4;
    }
    if (op->kind == WEIR__OP_EXCHANGE) {
        weir__number_add(to, clamp(op->level, WEIR__EXACT_MAX / 4));
        weir__number_add(to, left_of(op));
        weir__number_add(to, op->reseed ? 1 : op->own_delta ? 2 : 0);
        return 6;
    }
    return 3;
}

/* Appends the rows; returns their number. */
static uint32_t add_rows(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count)
{
    struct rows rows = {.count = 0};
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        for (uint32_t i = 0; i < group->count; i++) {
            bool fresh;
            uint32_t row = row_number(&rows, &refs[p].request->ops[group->first + i], &fresh);
            for (int j = 0; j < ROW && fresh; j++)
                weir__number_add(to, rows.row[row % ROWS_LOOKED][j]);
        }
    }
    return rows.count;
}

/* Appends the groups, with indices of the same rows; returns how many numbers were added. */
static uint32_t add_groups(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count)
{
    struct rows rows = {.count = 0};
    uint32_t numbers = 0;
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        weir__number_add(to, group->count);
        weir__number_add(to, gate_of(refs, p));
        numbers += 2;
        for (uint32_t i = 0; i < group->count; i++) {
            bool fresh;
            const struct weir__store_op *op = &refs[p].request->ops[group->first + i];
            numbers += add_op(to, op, row_number(&rows, op, &fresh));
        }
    }
    return numbers;
}

/* ---- The command ---- */

_Static_assert(WEIR__STORE_NAME_MAX < 1000, "the length of a name has three digits");

static void add_length(struct weir__buffer *to, char mark, uint64_t length)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%c%llu\r\n", mark, (unsigned long long)length);
    weir__buffer_add(to, text, (size_t)len);
}

static void add_text(struct weir__buffer *to, const char *text, size_t len)
{
    char *room = weir__buffer_room(to, len + TEXT_AROUND), *at = room;
    if (!room)
        return;
    *at++ = '$';
    if (len >= 100)
        *at++ = (char)('0' + len / 100 % 10);
    if (len >= 10)
        *at++ = (char)('0' + len / 10 % 10);
    *at++ = (char)('0' + len % 10);
    *at++ = '\r';
    *at++ = '\n';
    memcpy(at, text, len);
    at += len;
    *at++ = '\r';
    *at++ = '\n';
    to->len += (size_t)(at - room);
}

static void add_decimal(struct weir__buffer *to, uint64_t number)
{
    char text[24];
    add_text(to, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)number));
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
    uint64_t keys = sender_key ? 1 : 0;
    for (size_t p = 0; p < count; p++)
        keys += group_of(&refs[p])->count;
    /* Only the first command of a batch checks the previous number: small batches do not have the later commands. */
    bool ordered = sender_key && refs[0].request->slot == 0;
    add_length(to, '*', 3 + keys + 1 + (sending ? 1 : 0) + (sender_key ? 1 : 0) + (ordered ? 1 : 0));
    add_text(to, "EVALSHA", 7);
    add_text(to, weir__script_sha, 40);
    add_decimal(to, keys);
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = group_of(&refs[p]);
        for (uint32_t i = 0; i < group->count; i++) {
            const struct weir__store_op *op = &refs[p].request->ops[group->first + i];
            add_text(to, op->name, op->name_len);
        }
    }
    if (sender_key)
        add_text(to, sender_key, strlen(sender_key));
    add_array(to, refs, count);
    if (sending)
        add_decimal(to, sending->clock_us > 0 ? (uint64_t)sending->clock_us : 0);
    if (sender_key)
        add_decimal(to, sending->batch);
    if (ordered)
        add_decimal(to, sending->batch - 1);
}
