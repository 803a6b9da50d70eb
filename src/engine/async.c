/* What checks want from the store. See async.h. */
#include "engine/async.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_AT_FIRST 4

int weir_ask_new(weir *engine, weir_ask **ask)
{
    if (!engine || !ask)
        return WEIR_EINVAL;
    weir_ask *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return WEIR_ENOMEM;
    fresh->engine = engine;
    if (weir__ask_reserve(fresh, ROOM_AT_FIRST) != 0) {
        weir_ask_free(fresh);
        return WEIR_ENOMEM;
    }
    *ask = fresh;
    return 0;
}

void weir_ask_free(weir_ask *ask)
{
    if (!ask)
        return;
    free(ask->question.asks);
    free(ask->question.groups);
    free(ask->fate);
    free(ask);
}

void weir_ask_clear(weir_ask *ask)
{
    struct weir__ask *asks = ask->question.asks;
    struct weir__group *groups = ask->question.groups;
    ask->question = ask->back = (struct weir__question){.asks = asks, .groups = groups};
    ask->next = ask->refused = 0;
    ask->dice = 0;
}

static void *grown(void *memory, size_t count, size_t size, bool *failed)
{
    void *larger = realloc(memory, count * size);
    *failed |= !larger;
    return larger ? larger : memory;
}

int weir__ask_reserve(weir_ask *ask, size_t more)
{
    size_t needed = ask->question.ask_count + more;
    if (needed <= ask->room)
        return 0;
    if (needed > WEIR__ASKS_MAX)
        return WEIR_ETOOMANY;
    size_t room = ask->room ? ask->room : ROOM_AT_FIRST;
    while (room < needed)
        room *= 2;
    bool failed = false;
    ask->question.asks = grown(ask->question.asks, room, sizeof *ask->question.asks, &failed);
    ask->question.groups = grown(ask->question.groups, room, sizeof *ask->question.groups, &failed);
    ask->fate = grown(ask->fate, room, sizeof *ask->fate, &failed);
    ask->back.asks = ask->question.asks;
    ask->back.groups = ask->question.groups;
    if (failed)
        return WEIR_ENOMEM; /* what has grown is only larger than it says */
    ask->room = (uint32_t)room;
    return 0;
}

struct weir__ask *weir__ask_add(weir_ask *ask, bool new_group, bool after_first)
{
    struct weir__question *question = &ask->question;
    uint32_t at = question->ask_count++;
    if (new_group)
        question->groups[question->group_count++] = (struct weir__group){.first = at, .after_first = after_first};
    question->groups[question->group_count - 1].count++;
    struct weir__ask *added = &question->asks[at];
    memset(added, 0, sizeof *added);
    added->tag = question->group_count - 1;
    ask->fate[at] = WEIR__ASK_OPEN;
    return added;
}

static bool is_like(const struct weir__ask *a, const struct weir__ask *b)
{
    return a->cost == b->cost && a->how == b->how && a->name_len == b->name_len &&
           memcmp(a->name, b->name, a->name_len) == 0;
}

struct weir__ask *weir__ask_find(weir_ask *ask, const struct weir__ask *like)
{
    uint32_t count = ask->question.ask_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (ask->next + i) % count;
        if (ask->fate[at] != WEIR__ASK_OPEN || !is_like(&ask->question.asks[at], like))
            continue;
        ask->fate[at] = WEIR__ASK_USED;
        ask->next = at + 1;
        return &ask->question.asks[at];
    }
    return NULL;
}

/* One that fails fails all of its group: nothing was taken for it. */
int weir__ask_error(const weir_ask *ask, const struct weir__ask *of)
{
    const struct weir__question *question = &ask->question;
    int error = question->error;
    const struct weir__group *group = &question->groups[of->tag];
    for (uint32_t i = 0; i < group->count && !error; i++)
        error = question->asks[group->first + i].error;
    return error;
}

void weir__ask_keep(weir_ask *ask, const struct weir__ask *of)
{
    ask->fate[of - ask->question.asks] = WEIR__ASK_KEPT;
}

struct weir__question *weir_ask_question(weir_ask *ask)
{
    return &ask->question;
}

/* Each in a group of its own: they have nothing to do with one another. */
struct weir__question *weir_ask_back(weir_ask *ask)
{
    struct weir__question *question = &ask->question, *back = &ask->back;
    for (uint32_t i = 0; i < question->ask_count; i++) {
        struct weir__ask *from = &question->asks[i];
        if (question->error || ask->fate[i] == WEIR__ASK_KEPT || from->how != WEIR__ASK_TAKE || !from->taken ||
            from->stays)
            continue;
        struct weir__ask *to = &back->asks[back->ask_count];
        if (to != from)
            memcpy(to, from, sizeof *to);
        back->groups[back->ask_count] = (struct weir__group){.first = back->ask_count, .count = 1};
        back->group_count = ++back->ask_count;
    }
    question->ask_count = question->group_count = 0;
    return back->ask_count ? back : NULL;
}
