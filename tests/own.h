/*
 * Paths in a private directory of a test program, which is removed when it ends. A name made of the process ID may
 * exist already: left behind by a killed process, perhaps of another user.
 */
#ifndef WEIR_TESTS_OWN_H
#define WEIR_TESTS_OWN_H

#include "test.h"

#include <sys/statvfs.h>
#include <unistd.h>

static char own_folder[32];
static pid_t own_process;

static inline void own_end(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", own_folder);
    if (own_process == getpid()) /* not in a forked child that exits */
        CHECK_EQ(system(command), 0);
}

/* In shared memory, where segments live and no disk delays anything, if there is room: containers may have 64 MiB. */
static inline const char *own_root(void)
{
    struct statvfs shared;
    bool roomy = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &shared) == 0 &&
                 (uint64_t)shared.f_bavail * shared.f_frsize >= UINT64_C(512) << 20;
    return roomy ? "/dev/shm" : "/tmp";
}

static inline void own_path(char *path, size_t size, const char *name)
{
    if (!own_folder[0]) {
        snprintf(own_folder, sizeof own_folder, "%s/weir-test-XXXXXX", own_root());
        if (!mkdtemp(own_folder)) {
            perror(own_folder);
            exit(2);
        }
        own_process = getpid();
        atexit(own_end);
    }
    snprintf(path, size, "%s/%s", own_folder, name);
}

#endif
