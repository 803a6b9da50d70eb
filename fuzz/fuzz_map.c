/*
 * Maps of attributes: a file in CSV, or in YAML if its first byte is 'y', is refused with an error or has entries, of
 * which each line's beginning finds none or a valid value.
 */
#include "rules/map.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void hear(void *context, const weir_diagnostic *diagnostic)
{
    check(context != NULL && diagnostic->message && !diagnostic->source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool yaml = size > 0 && data[0] == 'y';
    struct weir__source source = {yaml ? "f.yaml" : "f.csv", {(const char *)data + yaml, size - yaml}};
    struct weir__diagnostics report = {.diagnose = hear, .context = &report, .sources = &source, .source_count = 1};
    struct weir__map *map = weir__map_read(&report, WEIR__TEXT("from"), WEIR__TEXT("to"));
    check((map != NULL) == (report.errors == 0));
    weir_text rest = source.text;
    while (map && rest.len) {
        weir_text line = weir__text_cut(&rest, '\n'), key = weir__text_cut(&line, yaml ? ':' : ',');
        weir_text value = weir__map_find(map, key);
        check(value.len <= WEIR__MAP_TEXT_MAX && (!value.len || weir__text_sound(value)));
        check(!value.len || weir__map_count(map) > 0);
    }
    weir__map_release(map);
    return 0;
}
