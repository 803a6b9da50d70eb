/*
 * The agent's history writer: once a second it appends each rule's counts to the history file, and every five minutes
 * it halves the weights of hot keys, so that their lists cover the recent past.
 */
#ifndef WEIR_STATS_HISTORY_WRITER_H
#define WEIR_STATS_HISTORY_WRITER_H

#include <weir/weir.h>

struct weir__history_writer;

/* The size in bytes of a new history file for this many rules. */
uint64_t weir__history_writer_bytes(size_t rules);

/*
 * Opens the history beside the engine's segment. 0; WEIR_EBUSY: another process writes it already; or why it cannot be
 * opened, with *ending the file name's ending. The engine must outlive the writer.
 */
int weir__history_writer_open(weir *engine, const char *segment_path, struct weir__history_writer **writer,
                              const char **ending);
/*
 * Call it several times a second; it writes once a second. 0; WEIR_ELOST: the history's file was truncated and is
 * created anew; or why that failed. Returns the same until the next second.
 */
int weir__history_writer_tick(struct weir__history_writer *writer);
/* For root, before an agent of another user starts: makes the history if there is none or if it has too few rows. */
int weir__history_writer_prepare(const char *segment_path, size_t rules);
/* NULL is allowed. */
void weir__history_writer_close(struct weir__history_writer *writer);

#endif
