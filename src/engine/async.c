/* Asynchronous checks: see strict.h and <weir/store.h>. */
#include "engine/leased.h"
#include "engine/strict.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_AT_FIRST 4
#define OPS_MAX           65536 /* of one request */

int weir_async_new(weir *engine, weir_async **async)
{
    if (!engine || !async)
        return WEIR_EINVAL;
    weir_async *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return WEIR_ENOMEM;
    fresh->engine = engine;
    if (weir__async_reserve(fresh, CAPACITY_AT_FIRST) != 0) {
        weir_async_free(fresh);
        return WEIR_ENOMEM;
    }
    *async = fresh;
    return 0;
}

void weir_async_free(weir_async *async)
{
    if (!async)
        return;
    weir__async_drop_spends(async);
    free(async->spent);
    free(async->request.ops);
    free(async->request.groups);
    free(async);
}

void weir_async_clear(weir_async *async)
{
    struct weir__store_op *ops = async->request.ops;
    struct weir__group *groups = async->request.groups;
    weir__async_drop_spends(async);
    async->request = async->back = (struct weir__store_request){.ops = ops, .groups = groups};
    async->next = async->skipped_in_prepare = async->promised_count = 0;
    async->dice = 0;
}

static void *grown(void *memory, size_t count, size_t size, bool *failed)
{
    void *larger = realloc(memory, count * size);
    *failed |= !larger;
    return larger ? larger : memory;
}

int weir__async_reserve(weir_async *async, size_t more)
{
    size_t needed = async->request.op_count + more;
    if (needed <= async->capacity)
        return 0;
    if (needed > OPS_MAX)
        return WEIR_ETOOMANY;
    size_t capacity = async->capacity ? async->capacity : CAPACITY_AT_FIRST;
    while (capacity < needed)
        capacity *= 2;
    bool failed = false;
    async->request.ops = grown(async->request.ops, capacity, sizeof *async->request.ops, &failed);
    async->request.groups = grown(async->request.groups, capacity, sizeof *async->request.groups, &failed);
    async->back.ops = async->request.ops;
    async->back.groups = async->request.groups;
    if (failed)
        return WEIR_ENOMEM; /* arrays that have grown are only larger than `capacity` */
    async->capacity = (uint32_t)capacity;
    return 0;
}

struct weir__store_op *weir__async_add(weir_async *async, bool new_group, bool after_first)
{
    struct weir__store_request *request = &async->request;
    uint32_t at = request->op_count++;
    if (new_group)
        request->groups[request->group_count++] = (struct weir__group){.first = at, .after_first = after_first};
    request->groups[request->group_count - 1].count++;
    struct weir__store_op *added = &request->ops[at];
    memset(added, 0, sizeof *added);
    added->tag = request->group_count - 1;
    return added;
}

static bool is_like(const struct weir__store_op *a, const struct weir__store_op *b)
{
    return a->cost == b->cost && a->kind == b->kind && a->name_len == b->name_len &&
           memcmp(a->name, b->name, a->name_len) == 0;
}

struct weir__store_op *weir__async_find(weir_async *async, const struct weir__store_op *like)
{
    uint32_t count = async->request.op_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (async->next + i) % count;
        struct weir__store_op *op = &async->request.ops[at];
        if (op->read || !is_like(op, like))
            continue;
        op->read = true;
        async->next = at + 1;
        return op;
    }
    return NULL;
}

/* An op's error is its group's: nothing was taken for the group. */
int weir__async_error(const weir_async *async, const struct weir__store_op *of)
{
    const struct weir__store_request *request = &async->request;
    int error = request->error;
    const struct weir__group *group = &request->groups[of->tag];
    for (uint32_t i = 0; i < group->count && !error; i++)
        error = request->ops[group->first + i].error;
    return error;
}

struct weir__store_request *weir_async_request(weir_async *async)
{
    return &async->request;
}

/* Each op in its own group: they are independent. */
struct weir__store_request *weir_async_rollback(weir_async *async)
{
    struct weir__store_request *request = &async->request, *back = &async->back;
    for (uint32_t i = 0; i < request->op_count; i++) {
        struct weir__store_op *from = &request->ops[i];
        if (request->error || from->kind != WEIR__OP_TAKE || !from->taken || from->keep)
            continue;
        struct weir__store_op *to = &back->ops[back->op_count];
        if (to != from)
            memcpy(to, from, sizeof *to);
        back->groups[back->op_count] = (struct weir__group){.first = back->op_count, .count = 1};
        back->group_count = ++back->op_count;
    }
    request->op_count = request->group_count = 0;
    return back->op_count ? back : NULL;
}
