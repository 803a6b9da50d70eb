/*
 * What the agent does so that others see: once a second it writes what was counted under each rule into the history,
 * and every five minutes it halves the weights of hot keys, so that their lists are of the recent past.
 */
#ifndef WEIR_STATS_HISTORY_WRITER_H
#define WEIR_STATS_HISTORY_WRITER_H

#include <weir/weir.h>

struct weir__observer;

/* The size of a new history for so many rules. */
uint64_t weir__observer_bytes(size_t rules);

/*
 * Beside the engine's segment. 0; WEIR_EBUSY: another process does it already; or why the history cannot be made. What
 * lasts longer than the observer: the engine. *ending: of the file that an error is about.
 */
int weir__observer_open(weir *engine, const char *segment_path, struct weir__observer **observer, const char **ending);
/*
 * To be called several times a second; does nothing but once in each. 0, WEIR_ELOST: the history's file was cut short
 * and is made anew, or why it cannot be made; the same until the next second.
 */
int weir__observer_look(struct weir__observer *observer);
/* For root, before an agent of another user starts: makes the history if there is none or if it has too few rows. */
int weir__observer_prepare(const char *segment_path, size_t rules);
/* NULL is allowed. */
void weir__observer_close(struct weir__observer *observer);

#endif
