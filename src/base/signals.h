/* Unix signals as actions of weir serve and weir agent. */
#ifndef WEIR_BASE_SIGNALS_H
#define WEIR_BASE_SIGNALS_H

#include <stddef.h>

enum weir__signal_action {
    WEIR__ACTION_NONE, /* no signal is pending */
    WEIR__ACTION_RELOAD,
    WEIR__ACTION_UPGRADE, /* execute the program that is at this one's path now */
    WEIR__ACTION_STOP
};

/*
 * Blocks signals, so that none of them ends the process, and returns a descriptor from which pending ones are read
 * (signalfd). -1: errno has the reason.
 */
int weir__signals_take(const int *numbers, size_t count);
/* Takes the signals that are actions. */
int weir__signals_open(void);
/* Takes the next pending signal. */
enum weir__signal_action weir__signal_next(int signals);

#endif
