/* The agent's whole process: see agent_main.h. */
#include "serve/agent_main.h"
#include "serve/agent_threads.h"
#include "serve/signal_action.h"

#include <poll.h>

#define LOOK_MS 500 /* between two looks whether to begin anew */

/* Without a store there is nothing to do here but to wait for the end. */
static enum weir__exchange_end wait_for_end(int signals, const struct weir__exchange_watch *watch)
{
    for (;;) {
        struct pollfd wait = {.fd = signals, .events = POLLIN};
        bool asked = false;
        poll(&wait, 1, LOOK_MS);
        for (enum weir__wish wish; (wish = weir__next_wish(signals)) != WEIR__WISH_NONE;) {
            if (wish == WEIR__WISH_STOP)
                return WEIR__EXCHANGE_STOPPED;
            asked = true;
        }
        if (watch && watch->changed(watch->context, asked))
            return WEIR__EXCHANGE_CHANGED;
    }
}

enum weir__exchange_end weir__process_run(const struct weir__config *config, const struct weir__logger *log,
                                          int signals, const struct weir__exchange_watch *watch)
{
    struct weir__keeper *keeper = weir__keeper_start(config, log);
    if (!keeper)
        return WEIR__EXCHANGE_FAILED;
    enum weir__exchange_end end =
        config->store.url ? weir__exchange_run(config, log, signals, watch) : wait_for_end(signals, watch);
    weir__keeper_stop(keeper);
    return end;
}
