/*
 * Signals as actions. nginx's signals are accepted, too: SIGUSR1 (reopen logs, as logrotate sends it) reloads, SIGQUIT
 * stops, SIGUSR2 (replace the binary) upgrades. By default each of them would end the process, and the gateway with it.
 */
#include "base/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

int weir__signals_take(const int *numbers, size_t count)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < count; i++)
        sigaddset(&set, numbers[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int weir__signals_open(void)
{
    static const int taken[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};
    return weir__signals_take(taken, sizeof taken / sizeof *taken);
}

enum weir__signal_action weir__signal_next(int signals)
{
    struct signalfd_siginfo signal;
    if (read(signals, &signal, sizeof signal) == (ssize_t)sizeof signal) {
        if (signal.ssi_signo == SIGUSR2)
            return WEIR__ACTION_UPGRADE;
        return signal.ssi_signo == SIGHUP || signal.ssi_signo == SIGUSR1 ? WEIR__ACTION_RELOAD : WEIR__ACTION_STOP;
    }
    return WEIR__ACTION_NONE;
}
