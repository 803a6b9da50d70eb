/*
 * Paths in a private directory of a test program, which is removed when it ends. A name made of the process ID may
 * exist already: left behind by a killed process, perhaps of another user.
 */
#ifndef WEIR_TESTS_PRIVATE_DIR_H
#define WEIR_TESTS_PRIVATE_DIR_H

#include "test.h"

#include <sys/statvfs.h>
#include <unistd.h>

static char private_dir[32];
static pid_t private_process;

static inline void private_dir_end(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", private_dir);
    if (private_process == getpid()) /* not in a forked child that exits */
        CHECK_EQ(system(command), 0);
}

/* In shared memory, where segments live and no disk delays anything, if there is room: containers may have 64 MiB. */
static inline const char *private_root(void)
{
    struct statvfs shared;
    bool roomy = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &shared) == 0 &&
                 (uint64_t)shared.f_bavail * shared.f_frsize >= UINT64_C(512) << 20;
    return roomy ? "/dev/shm" : "/tmp";
}

static inline void private_path(char *path, size_t size, const char *name)
{
    if (!private_dir[0]) {
        snprintf(private_dir, sizeof private_dir, "%s/weir-test-XXXXXX", private_root());
        if (!mkdtemp(private_dir)) {
            perror(private_dir);
            exit(2);
        }
        private_process = getpid();
        atexit(private_dir_end);
    }
    snprintf(path, size, "%s/%s", private_dir, name);
}

#endif
