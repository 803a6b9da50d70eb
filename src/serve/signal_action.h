/* What somebody who sends a signal wants. */
#ifndef WEIR_SERVE_SIGNAL_ACTION_H
#define WEIR_SERVE_SIGNAL_ACTION_H

enum weir__signal_action {
    WEIR__ACTION_NONE, /* nothing has come */
    WEIR__ACTION_RELOAD,
    WEIR__ACTION_STOP
};

/* A descriptor that can be read when a signal has come, from now on; -1: errno says why. None ends the process then. */
int weir__signals_open(void);
/* What came first of that which has not been asked for yet. */
enum weir__signal_action weir__signal_next(int signals);

#endif
