/* A ring of log lines and the thread that writes them. See log.h. */
#include "base/log.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/atomic.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOSE UINT32_MAX /* as a length: the descriptor is closed */
#define END   (UINT32_MAX - 1)
#define STACK (128 * 1024)

struct record {
    uint32_t len, kind;
    int32_t file;
};

enum state { RUNNING, ENDED, ABANDONED };

struct weir__log_writer {
    pthread_t thread;
    sem_t filled, ended;               /* counts records; posted by the thread as its last act */
    uint64_t head, tail;               /* bytes that were ever taken out and put in: the thread's, the producer's */
    uint64_t dropped[WEIR__LOG_KINDS]; /* the producer's */
    uint64_t failed[WEIR__LOG_KINDS];  /* the thread's */
    uint32_t error;                    /* errno of the last failure; the thread's */
    uint32_t state;                    /* of enum state: decides which side frees the writer */
    char line[WEIR__LOG_LINE_MAX];     /* the thread's */
    char ring[WEIR__LOG_RING_BYTES];
};

static void destroy(struct weir__log_writer *writer)
{
    sem_destroy(&writer->filled);
    sem_destroy(&writer->ended);
    free(writer);
}

/* ---- The ring ---- */

static void copy_in(struct weir__log_writer *writer, uint64_t at, const void *from, size_t len)
{
    size_t begin = (size_t)(at % WEIR__LOG_RING_BYTES), first = WEIR__LOG_RING_BYTES - begin;
    first = len < first ? len : first;
    memcpy(writer->ring + begin, from, first);
    memcpy(writer->ring, (const char *)from + first, len - first);
}

static void copy_out(const struct weir__log_writer *writer, uint64_t at, void *to, size_t len)
{
    size_t begin = (size_t)(at % WEIR__LOG_RING_BYTES), first = WEIR__LOG_RING_BYTES - begin;
    first = len < first ? len : first;
    memcpy(to, writer->ring + begin, first);
    memcpy((char *)to + first, writer->ring, len - first);
}

static bool put(struct weir__log_writer *writer, const struct record *record, const char *line, size_t len)
{
    uint64_t tail = writer->tail;
    /* Acquires: pairs with the thread's store of the head, so that what it has copied out may be overwritten. */
    if (sizeof *record + len > WEIR__LOG_RING_BYTES - (tail - weir__load64(&writer->head)))
        return false;
    copy_in(writer, tail, record, sizeof *record);
    copy_in(writer, tail + sizeof *record, line, len);
    writer->tail = tail + sizeof *record + len;
    sem_post(&writer->filled); /* releases what was copied in; pairs with the thread's sem_wait */
    return true;
}

bool weir__log_writer_put(struct weir__log_writer *writer, int file, unsigned kind, const char *line, size_t len)
{
    struct record record = {(uint32_t)len, kind, file};
    if (!writer)
        return false;
    if (len <= WEIR__LOG_LINE_MAX && file >= 0 && put(writer, &record, line, len))
        return true;
    weir__count(&writer->dropped[kind], 1);
    return false;
}

bool weir__log_writer_close(struct weir__log_writer *writer, int file)
{
    return writer && put(writer, &(struct record){.len = CLOSE, .file = file}, "", 0);
}

bool weir__log_writer_keeps_up(const struct weir__log_writer *writer)
{
    return writer && writer->tail - weir__load64(&writer->head) < WEIR__LOG_RING_BYTES / 2;
}

uint64_t weir__log_writer_dropped(const struct weir__log_writer *writer, unsigned kind, int *error)
{
    *error = writer ? (int)weir__load32(&writer->error) : 0;
    return writer ? weir__load64(&writer->dropped[kind]) + weir__load64(&writer->failed[kind]) : 0;
}

/* ---- The thread ---- */

static void *write_all(void *context)
{
    struct weir__log_writer *writer = context;
    for (;;) {
        struct record record;
        while (sem_wait(&writer->filled) != 0)
            continue;
        copy_out(writer, writer->head, &record, sizeof record);
        size_t len = record.len <= WEIR__LOG_LINE_MAX ? record.len : 0;
        copy_out(writer, writer->head + sizeof record, writer->line, len);
        weir__store64(&writer->head, writer->head + sizeof record + len);
        if (record.len == END)
            break;
        int error = record.len == CLOSE ? 0 : weir__write_fully(record.file, writer->line, len);
        if (record.len == CLOSE)
            close(record.file);
        if (error) {
            weir__store32(&writer->error, (uint32_t)error);
            weir__count(&writer->failed[record.kind], 1);
        }
    }
    if (weir__cas32(&writer->state, &(uint32_t){RUNNING}, ENDED))
        sem_post(&writer->ended);
    else
        destroy(writer); /* abandoned by weir__log_writer_end */
    return NULL;
}

struct weir__log_writer *weir__log_writer_start(void)
{
    sigset_t all, before;
    pthread_attr_t how;
    struct weir__log_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    sem_init(&writer->filled, 0, 0);
    sem_init(&writer->ended, 0, 0);
    pthread_attr_init(&how);
    pthread_attr_setstacksize(&how, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&writer->thread, &how, write_all, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&how);
    if (!error)
        return writer;
    free(writer);
    return NULL;
}

void weir__log_writer_end(struct weir__log_writer *writer, int64_t patience_ms)
{
    if (!writer)
        return;
    struct timespec until = weir__deadline(patience_ms * 1000);
    int failed = -1;
    if (put(writer, &(struct record){.len = END}, "", 0)) /* a full ring: its thread hangs */
        while ((failed = sem_clockwait(&writer->ended, CLOCK_MONOTONIC, &until)) != 0 && errno == EINTR)
            continue;
    pthread_t thread = writer->thread;
    if (failed && weir__cas32(&writer->state, &(uint32_t){RUNNING}, ABANDONED)) {
        pthread_detach(thread); /* a hanging write; the thread frees the writer if it comes to its end */
        return;
    }
    pthread_join(thread, NULL);
    destroy(writer);
}
