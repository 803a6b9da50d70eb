/*
 * What a host tells of itself, and the list of all hosts in a file: whatever the bytes are, they are refused, or what
 * is read of them stays within its bounds and comes back the same when it is written and read again.
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

static void check_told(const struct weir__told *told)
{
    char text[WEIR__FLEET_TEXT_MAX + 1];
    struct weir__told again;
    check(strlen(told->id) == WEIR__FLEET_ID && memchr(told->name, 0, sizeof told->name) &&
          memchr(told->version, 0, sizeof told->version));
    check(told->level <= 100 && told->store <= WEIR__FLEET_STORE_AWAY && told->every_ms > 0 && told->rule_count >= 0);
    check(told->rates.allowed >= 0 && told->rates.denied >= 0 && isfinite(told->rates.shed));
    check(weir__told_patience_ms(told) > 0);
    size_t len = weir__told_write(told, text, sizeof text);
    check(len && weir__told_read(text, len, &again));
    check(strcmp(again.name, told->name) == 0 && again.rules == told->rules && again.every_ms == told->every_ms &&
          again.store == told->store && again.rates.known == told->rates.known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__told told;
    struct weir__fleet_list list, again;
    if (weir__told_read((const char *)data, size, &told))
        check_told(&told);
    if (!weir__fleet_parse((const char *)data, size, &list))
        return 0;
    check(list.count <= WEIR__FLEET_MAX && list.written_ms >= 0 && list.left_out >= 0);
    for (size_t i = 0; i < list.count; i++)
        check_told(&list.hosts[i].told);
    size_t len = 0;
    char *text = weir__fleet_text(&list, &len);
    check(text && weir__fleet_parse(text, len, &again) && again.count == list.count);
    free(text);
    weir__fleet_list_free(&again);
    weir__fleet_list_free(&list);
    return 0;
}
