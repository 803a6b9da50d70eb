/* Unix signals as actions of weir serve and weir agent. */
#ifndef WEIR_BASE_SIGNALS_H
#define WEIR_BASE_SIGNALS_H

enum weir__signal_action {
    WEIR__ACTION_NONE, /* no signal is pending */
    WEIR__ACTION_RELOAD,
    WEIR__ACTION_STOP
};

/*
 * Blocks the signals, so that none of them ends the process, and returns a descriptor that is readable while one is
 * pending. -1: errno has the reason.
 */
int weir__signals_open(void);
/* Takes the next pending signal. */
enum weir__signal_action weir__signal_next(int signals);

#endif
