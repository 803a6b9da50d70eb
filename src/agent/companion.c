/* The agent under weir serve. */
#define _GNU_SOURCE /* strsignal */
#include "agent/companion.h"
#include "agent/keeper.h"
#include "agent/process.h"
#include "agent/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAUSE_MS = 100, /* after the first failure */
    PAUSE_MAX_MS = 5000,
    STEADY_MS = 10000, /* what ran for so long has not failed in a row */
    LAST_MS = 3000     /* for the last exchange */
};

/* In a process group of its own, so that a terminal's Ctrl-C does not end it before the workers; and not without us. */
_Noreturn static void be_the_agent(const struct weir__config *config, const struct weir__journal *journal, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_NAME, "weir-agent");
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int signals = weir__take_signals();
    if (signals < 0 || getppid() != parent)
        _exit(1);
    enum weir__exchange_end end = weir__process_run(config, journal, signals, NULL);
    _exit(end == WEIR__EXCHANGE_STOPPED ? 0 : 1);
}

void weir__companion_tend(struct weir__companion *companion, const struct weir__config *config,
                          const struct weir__journal *journal, int64_t now_ms)
{
    if (companion->pid || !weir__keeper_needed(config) || now_ms < companion->due_ms)
        return;
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        be_the_agent(config, journal, parent);
    if (child < 0) {
        weir__say(journal, WEIR__ERROR, "the agent cannot be started: %s", strerror(errno));
        companion->due_ms = now_ms + PAUSE_MAX_MS;
        return;
    }
    companion->pid = child;
    companion->started_ms = now_ms;
}

void weir__companion_renew(struct weir__companion *companion)
{
    companion->due_ms = 0;
    companion->pause_ms = 0;
    companion->renewing = companion->pid != 0;
    if (companion->pid)
        kill(companion->pid, SIGTERM);
}

bool weir__companion_ended(struct weir__companion *companion, pid_t child, int status,
                           const struct weir__journal *journal, int64_t now_ms)
{
    if (!companion->pid || child != companion->pid)
        return false;
    companion->pid = 0;
    if (companion->renewing) {
        companion->renewing = false;
        return true;
    }
    if (now_ms - companion->started_ms >= STEADY_MS)
        companion->pause_ms = 0;
    companion->pause_ms = companion->pause_ms ? companion->pause_ms * 2 : PAUSE_MS;
    if (companion->pause_ms > PAUSE_MAX_MS)
        companion->pause_ms = PAUSE_MAX_MS;
    companion->due_ms = now_ms + companion->pause_ms;
    if (WIFSIGNALED(status))
        weir__say(journal, WEIR__WARNING, "the agent was killed by signal %d (%s); it is started again",
                  WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        weir__say(journal, WEIR__WARNING, "the agent ended (exit %d); it is started again", WEXITSTATUS(status));
    return true;
}

void weir__companion_stop(struct weir__companion *companion)
{
    if (!companion->pid)
        return;
    kill(companion->pid, SIGTERM);
    for (int waited = 0; waited < LAST_MS; waited += 10) {
        if (waitpid(companion->pid, NULL, WNOHANG) != 0) {
            companion->pid = 0;
            return;
        }
        poll(NULL, 0, 10);
    }
    kill(companion->pid, SIGKILL);
    waitpid(companion->pid, NULL, 0);
    companion->pid = 0;
}
