/* What the kernel says about load, read from the text of its files. True if it was there. */
#ifndef WEIR_OVERLOAD_PROCFS_H
#define WEIR_OVERLOAD_PROCFS_H

#include <weir/weir.h>

/* /proc/pressure/…: for how many microseconds since boot some task had to wait. */
bool weir__procfs_stalled(weir_text text, uint64_t *total_us);
/* /proc/stat: ticks of all processors since boot, and those of them that were not idle. */
bool weir__procfs_busy(weir_text text, uint64_t *busy, uint64_t *all);
/* /proc/loadavg: tasks that run or want to, this one among them. */
bool weir__procfs_running(weir_text text, uint64_t *running);

#endif
