/* The log of weir serve and weir agent: text lines, or one JSON object per line. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

enum weir__log_level { WEIR__LOG_INFO, WEIR__LOG_WARNING, WEIR__LOG_ERROR };

struct weir__logger {
    int file; /* a descriptor; 2 is standard error */
    bool json;
    bool plain; /* text without the time, as for a user at a terminal */
};

/* Logs one message, cut at WEIR__LOG_MESSAGE_MAX bytes. Bytes that are not printable become \\xHH. */
#define WEIR__LOG_MESSAGE_MAX 2048
__attribute__((format(printf, 3, 4))) void weir__logf(const struct weir__logger *log, enum weir__log_level level,
                                                      const char *format, ...);
/* Writes text unchanged, such as a line of nginx's access log with its newline. */
void weir__log_raw(const struct weir__logger *log, weir_text text);
/* A weir_diagnose whose context is a struct weir__logger. */
void weir__log_diagnostic(void *context, const weir_diagnostic *diagnostic);

/* Opens `path` for appending (NULL: standard error). False: errno has the reason, and the log is unchanged. */
bool weir__logger_open(struct weir__logger *log, const char *path, bool json);
void weir__logger_close(struct weir__logger *log);

/*
 * ---- Writing without waiting for a disk (log_writer.c) ----
 *
 * One producer puts lines into a ring of fixed size, a thread writes them. While a write(2) hangs (NFS without its
 * server, a full pipe, a frozen file system) the ring fills up, and lines that find no room are dropped and counted.
 */

#define WEIR__LOG_RING_BYTES (1 << 20)
#define WEIR__LOG_LINE_MAX   16384
#define WEIR__LOG_KINDS      2 /* kinds of lines, counted separately */

struct weir__log_writer;

/* Starts the thread, with all signals blocked; in each process after its fork. NULL: no memory, or no thread. */
struct weir__log_writer *weir__log_writer_start(void);
/* One line for a descriptor. False: it was dropped, and counted. One thread at a time; `writer` may be NULL. */
bool weir__log_writer_put(struct weir__log_writer *writer, int file, unsigned kind, const char *line, size_t len);
/* Closes the descriptor once every line that was put for it is written. False: there is no room; it stays open. */
bool weir__log_writer_close(struct weir__log_writer *writer, int file);
/* For the producer: half of the ring is free, so no write hangs, or not for long. */
bool weir__log_writer_keeps_up(const struct weir__log_writer *writer);
/* Lines of this kind that found no room, or whose write failed; *error: the errno of the last of these, 0: none. */
uint64_t weir__log_writer_dropped(const struct weir__log_writer *writer, unsigned kind, int *error);
/*
 * Waits until all is written, but no longer than this. Then the writer is freed; after a write that still hangs it is
 * left to the end of the process.
 */
void weir__log_writer_end(struct weir__log_writer *writer, int64_t patience_ms);

#endif
