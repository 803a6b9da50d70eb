/* Log lines written by a thread: all of them in order, none waits for a blocked reader, and lost ones are counted. */
#include "../../private_dir.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TEST(lines_are_written_in_order)
{
    enum { LINES = 50000 }; /* several times the ring */
    char path[64], line[256], read_back[256];
    private_path(path, sizeof path, "log");
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), error;
    struct weir__log_writer *writer = weir__log_writer_start();
    CHECK(writer != NULL);
    for (int i = 0; i < LINES; i++) {
        int len = snprintf(line, sizeof line, "%d %0*d\n", i, 1 + i % 97, 0);
        while (!weir__log_writer_put(writer, file, 0, line, (size_t)len))
            usleep(100);
    }
    CHECK(weir__log_writer_close(writer, file));
    weir__log_writer_dropped(writer, 0, &error);
    CHECK_EQ(error, 0);
    weir__log_writer_end(writer, 30000);
    CHECK(fcntl(file, F_GETFD) < 0); /* closed */
    FILE *log = fopen(path, "r");
    int found = 0;
    for (; fgets(read_back, sizeof read_back, log); found++)
        CHECK_EQ(atoi(read_back), found);
    CHECK_EQ(found, LINES);
    fclose(log);
    unlink(path);
}

/* A pipe without a reader simulates a disk that hangs. */
TEST(blocked_write_delays_nothing)
{
    enum { LINES = 100000 };
    char line[100];
    int ends[2], error, taken = 0;
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    memset(line, 'x', sizeof line);
    struct weir__log_writer *writer = weir__log_writer_start();
    int64_t begun = now_ms();
    for (int i = 0; i < LINES; i++)
        taken += weir__log_writer_put(writer, ends[1], 1, line, sizeof line);
    CHECK(now_ms() - begun < 5000);
    CHECK(taken > WEIR__LOG_RING_BYTES / 200 && taken < LINES);
    CHECK_EQ(weir__log_writer_dropped(writer, 1, &error), LINES - taken);
    CHECK_EQ(weir__log_writer_dropped(writer, 0, &error), 0);
    /* It continues as soon as the pipe is read. */
    char room[65536];
    CHECK(read(ends[0], room, sizeof room) > 0);
    while (!weir__log_writer_put(writer, ends[1], 1, line, sizeof line))
        usleep(1000);
    begun = now_ms();
    weir__log_writer_end(writer, 200); /* which does not wait forever, either */
    CHECK(now_ms() - begun < 5000);
    close(ends[0]); /* now the thread ends, by EPIPE */
}

TEST(lines_that_cannot_be_written_are_counted)
{
    int error = 0, file = open("/dev/full", O_WRONLY | O_CLOEXEC);
    static char longest[WEIR__LOG_LINE_MAX + 1];
    struct weir__log_writer *writer = weir__log_writer_start();
    CHECK(weir__log_writer_put(writer, file, 0, "a\n", 2));
    CHECK(!weir__log_writer_put(writer, file, 0, longest, sizeof longest));
    CHECK(!weir__log_writer_put(writer, -1, 0, "a\n", 2));
    for (int i = 0; i < 5000 && weir__log_writer_dropped(writer, 0, &error) < 3; i++)
        usleep(1000);
    CHECK_EQ(weir__log_writer_dropped(writer, 0, &error), 3);
    CHECK_EQ(error, ENOSPC);
    weir__log_writer_end(writer, 10000);
    CHECK(!weir__log_writer_put(NULL, file, 0, "a\n", 2));
    CHECK(!weir__log_writer_close(NULL, file));
    weir__log_writer_end(NULL, 0);
    close(file);
}

/* The thread blocks all signals of the process: this one would end it. */
TEST(writer_thread_receives_no_signals)
{
    sigset_t one;
    struct weir__log_writer *writer = weir__log_writer_start();
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(sigtimedwait(&one, NULL, &(struct timespec){5, 0}), SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &one, NULL), 0);
    weir__log_writer_end(writer, 10000);
}

__attribute__((constructor)) static void ignore_pipes(void)
{
    signal(SIGPIPE, SIG_IGN);
}

TEST_MAIN
