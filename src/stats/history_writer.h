/*
 * What the agent does so that others see: once a second it writes what was counted under each rule into the history,
 * and every five minutes it halves the weights of hot keys, so that their lists are of the recent past.
 */
#ifndef WEIR_STATS_HISTORY_WRITER_H
#define WEIR_STATS_HISTORY_WRITER_H

#include <weir/weir.h>

struct weir__history_writer;

/* The size of a new history for so many rules. */
uint64_t weir__history_writer_bytes(size_t rules);

/*
 * Beside the engine's segment. 0; WEIR_EBUSY: another process does it already; or why the history cannot be made. What
 * lasts longer than the observer: the engine. *ending: of the file that an error is about.
 */
int weir__history_writer_open(weir *engine, const char *segment_path, struct weir__history_writer **writer,
                              const char **ending);
/*
 * To be called several times a second; does nothing but once in each. 0, WEIR_ELOST: the history's file was cut short
 * and is made anew, or why it cannot be made; the same until the next second.
 */
int weir__history_writer_tick(struct weir__history_writer *writer);
/* For root, before an agent of another user starts: makes the history if there is none or if it has too few rows. */
int weir__history_writer_prepare(const char *segment_path, size_t rules);
/* NULL is allowed. */
void weir__history_writer_close(struct weir__history_writer *writer);

#endif
