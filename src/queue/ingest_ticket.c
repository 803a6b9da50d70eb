/* What is told of a ticket. To whoever has it, so nothing of the key and of the request itself. */
#include "queue/ingest_commit.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

/* RFC 3339, in UTC. */
static void time_text(int64_t ms, char to[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    char whole[24] = "";
    if (gmtime_r(&seconds, &parts))
        strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(to, 32, "%s.%03dZ", whole, (int)(ms % 1000));
}

static void set_time(json_t *to, const char *name, int64_t ms)
{
    char text[32];
    if (!ms)
        return;
    time_text(ms, text);
    json_object_set_new(to, name, json_string(text));
}

/* After a colon there may be addresses of the inside: for operators, not for who has a ticket. */
static weir_text what_of(weir_text why)
{
    const char *more = why.len ? memchr(why.data, ':', why.len) : NULL;
    return (weir_text){why.data, more ? (size_t)(more - why.data) : why.len};
}

int weir__ticket_json(void *room, const struct weir__deferred *item)
{
    bool over = item->state != WEIR__WAITING && item->state != WEIR__UNDER_WAY;
    json_t *told = json_object();
    json_object_set_new(told, "ticket", json_string(item->ticket));
    json_object_set_new(told, "state", json_string(weir__deferred_state_name(item->state)));
    json_object_set_new(told, "rule", json_stringn(item->rule.data, item->rule.len));
    set_time(told, "accepted", item->accepted_ms);
    set_time(told, "expires", over ? 0 : item->expires_ms);
    set_time(told, "ended", item->ended_ms);
    json_object_set_new(told, "attempts", json_integer(item->attempts));
    if (item->last_status)
        json_object_set_new(told, "last_status", json_integer(item->last_status));
    weir_text why = what_of(item->why);
    if (why.len)
        json_object_set_new(told, "why", json_stringn(why.data, why.len));
    size_t len = told ? json_dumpb(told, room, WEIR__TICKET_JSON_MAX - 1, JSON_COMPACT) : 0;
    ((char *)room)[len < WEIR__TICKET_JSON_MAX ? len : 0] = 0;
    json_decref(told);
    return 0;
}
