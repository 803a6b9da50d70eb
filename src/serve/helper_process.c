/* Helper processes with a deadline. See privilege.h. */
#include "serve/privilege.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STEP_MS = 5, /* between two checks whether the helper has ended */
    KILLED_MS =
        500 /* for a killed helper to end; one that waits for a disk takes longer and is reaped by its parent later */
};

void weir__close_descriptors(int keep, int keep_too)
{
    struct rlimit files = {.rlim_cur = 1024};
    const int kept[] = {keep < keep_too ? keep : keep_too, keep < keep_too ? keep_too : keep, INT_MAX};
    unsigned from = STDERR_FILENO + 1;
    getrlimit(RLIMIT_NOFILE, &files);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (kept[i] < (int)from)
            continue;
        if (kept[i] > (int)from && syscall(SYS_close_range, from, (unsigned)kept[i] - 1, 0) != 0)
            for (unsigned fd = from; fd < (unsigned)kept[i] && fd < files.rlim_cur; fd++) /* Linux before 5.9 */
                close((int)fd);
        from = (unsigned)kept[i] + 1;
    }
}

/* True when the child has ended within `ms`. */
static bool wait_for(pid_t child, int64_t ms, int *status)
{
    for (int64_t end = weir__monotonic_ms() + ms;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child)
            break;
        if (weir__monotonic_ms() >= end)
            return false;
        poll(NULL, 0, STEP_MS);
    }
    kill(-child, SIGKILL); /* its session: a helper that was taken over may have left children */
    return waitpid(child, status, 0) == child;
}

int weir__helper_fork(int64_t deadline_ms, int keep, int keep_too)
{
    int status = 0;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        setsid(); /* without the terminal of the user who started weir serve */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        weir__close_descriptors(keep, keep_too);
        return WEIR__IN_HELPER;
    }
    if (!wait_for(child, deadline_ms, &status)) {
        kill(child, SIGKILL);
        wait_for(child, KILLED_MS, &status);
        errno = ETIMEDOUT;
        return -1;
    }
    errno = ECHILD;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
