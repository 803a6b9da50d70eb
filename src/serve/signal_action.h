/* What somebody who sends a signal wants. */
#ifndef WEIR_SERVE_SIGNAL_ACTION_H
#define WEIR_SERVE_SIGNAL_ACTION_H

enum weir__wish {
    WEIR__WISH_NONE, /* nothing has come */
    WEIR__WISH_RELOAD,
    WEIR__WISH_STOP
};

/* A descriptor that can be read when a signal has come, from now on; -1: errno says why. None ends the process then. */
int weir__take_signals(void);
/* What came first of that which has not been asked for yet. */
enum weir__wish weir__next_wish(int signals);

#endif
