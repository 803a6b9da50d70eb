/*
 * Sources and storage of the load level: any text in place of the kernel's files is refused or parsed, and any bytes in
 * the load page yield numbers within their bounds, on which every operation works.
 *
 * Input: for the page 2 bytes where, then bytes that overwrite it; all of it as a text of the kernel's, too.
 */
#include "../src/overload/procfs.c"
#include "table/load_page.h"

#include <stdlib.h>

#define NOW INT64_C(1000000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void use(struct weir__load_page *load)
{
    struct weir__load_view view;
    struct weir__upstream_sums sums;
    weir__load_page_read(load, NOW, &view);
    check(view.level <= WEIR__LOAD_FULL && view.throttle <= WEIR__LOAD_FULL);
    check(view.elastic_level <= WEIR__LOAD_FULL && view.elastic_level >= view.level);
    for (int i = 0; i < WEIR__LOAD_CLASSES; i++)
        check(view.shed[i] <= WEIR__LOAD_FULL);
    for (int i = 0; i < WEIR__SIGNALS; i++)
        check(view.signal[i] <= WEIR__LOAD_FULL || view.signal[i] == WEIR__SIGNAL_NONE);
    check(view.known || (view.level == 0 && view.throttle == WEIR__LOAD_FULL));
    check(weir__load_page_baseline(load, NOW + 3 * WEIR__LOAD_BASELINE_NS) == 0 ||
          weir__load_page_baseline(load, NOW) == 0);
    unsigned shard = weir__load_page_join(load, 7, NOW);
    weir__load_page_in_flight(load, shard, 1);
    weir__load_page_upstream(load, shard, 5, true);
    weir__load_page_in_flight(load, shard, -1);
    check(weir__load_page_heartbeat(load, shard, 7, NOW, 3) == (shard < WEIR__LOAD_SHARDS));
    weir__load_page_sum(load, NOW, &sums);
    check(sums.workers <= WEIR__LOAD_SHARDS && (shard == WEIR__LOAD_NO_SHARD || sums.workers > 0));
    weir__load_page_leave(load, shard, 7);
    /* What is written next is read as it is. */
    view = weir__load_view_neutral();
    view.level = 321;
    weir__load_page_write(load, NOW, &view);
    weir__load_page_read(load, NOW, &view);
    check(view.known && view.level == 321);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__load_page load;
    char *text = strndup((const char *)data, size); /* exactly as long as the text, for the sanitizer */
    uint64_t a = 0, b = 0;
    check(text != NULL);
    (void)weir__procfs_stalled(text, &a);
    (void)weir__procfs_running(text, &a);
    if (weir__procfs_busy(text, &a, &b))
        check(a <= b);
    free(text);
    if (size < 2)
        return 0;
    memset(&load, 0, sizeof load);
    check(!weir__row_file_format(&load, sizeof load, &weir__load_format));
    size_t at = (size_t)(data[0] | data[1] << 8) % sizeof load;
    memcpy((char *)&load + at, data + 2, size - 2 < sizeof load - at ? size - 2 : sizeof load - at);
    if (!weir__row_file_check(&load, sizeof load, &weir__load_format))
        use(&load);
    return 0;
}
