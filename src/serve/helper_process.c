/* Helper processes with a deadline. See privilege.h. */
#include "serve/privilege.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STEP_MS = 5, /* between two checks whether the helper has ended */
    KILLED_MS =
        500 /* for a killed helper to end; one that waits for a disk takes longer and is reaped by its parent later */
};

void weir__close_descriptors(const int *keep, size_t count)
{
    int last = STDERR_FILENO;
    for (size_t i = 0; i < count; i++)
        last = keep[i] > last ? keep[i] : last;
    for (int fd = STDERR_FILENO + 1; fd < last; fd++) {
        bool kept = false;
        for (size_t i = 0; i < count; i++)
            kept |= keep[i] == fd;
        if (!kept)
            close(fd);
    }
    closefrom(last + 1);
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
        weir__close_descriptors((int[]){keep, keep_too}, 2);
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
