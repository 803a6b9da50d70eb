/*
 * Heartbeats of hosts, and the list of all hosts in a file: any bytes are refused, or the result stays within its
 * bounds and is the same after formatting and parsing it again.
 */
#include "stats/membership.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_heartbeat(const struct weir__heartbeat *heartbeat)
{
    char text[WEIR__HEARTBEAT_MAX + 1];
    struct weir__heartbeat again;
    check(strlen(heartbeat->id) == WEIR__HOST_ID && memchr(heartbeat->name, 0, sizeof heartbeat->name) &&
          memchr(heartbeat->version, 0, sizeof heartbeat->version));
    check(heartbeat->level <= 100 && heartbeat->store <= WEIR__HOST_STORE_UNAVAILABLE && heartbeat->every_ms > 0 &&
          heartbeat->rule_count >= 0);
    check(heartbeat->rates.allowed >= 0 && heartbeat->rates.denied >= 0 && isfinite(heartbeat->rates.shed));
    check(weir__heartbeat_timeout_ms(heartbeat) > 0);
    size_t len = weir__heartbeat_format(heartbeat, text, sizeof text);
    check(len && weir__heartbeat_parse(text, len, &again));
    check(strcmp(again.name, heartbeat->name) == 0 && again.rules == heartbeat->rules &&
          again.every_ms == heartbeat->every_ms && again.store == heartbeat->store &&
          again.rates.known == heartbeat->rates.known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__heartbeat heartbeat;
    struct weir__host_list list, again;
    if (weir__heartbeat_parse((const char *)data, size, &heartbeat))
        check_heartbeat(&heartbeat);
    if (!weir__host_list_parse((const char *)data, size, &list))
        return 0;
    check(list.count <= WEIR__HOSTS_MAX && list.written_ms >= 0 && list.left_out >= 0);
    for (size_t i = 0; i < list.count; i++)
        check_heartbeat(&list.hosts[i].heartbeat);
    size_t len = 0;
    char *text = weir__host_list_format(&list, &len);
    check(text && weir__host_list_parse(text, len, &again) && again.count == list.count);
    free(text);
    weir__host_list_free(&again);
    weir__host_list_free(&list);
    return 0;
}
