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
        bool requested = false;
        poll(&wait, 1, LOOK_MS);
        for (enum weir__signal_action action; (action = weir__signal_next(signals)) != WEIR__ACTION_NONE;) {
            if (action == WEIR__ACTION_STOP)
                return WEIR__EXCHANGE_STOPPED;
            requested = true;
        }
        if (watch && watch->changed(watch->context, requested))
            return WEIR__EXCHANGE_CHANGED;
    }
}

enum weir__exchange_end weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals,
                                        const struct weir__exchange_watch *watch)
{
    struct weir__agent_threads *threads = weir__agent_threads_start(config, log);
    if (!threads)
        return WEIR__EXCHANGE_FAILED;
    enum weir__exchange_end end =
        config->store.url ? weir__exchange_run(config, log, signals, watch) : wait_for_end(signals, watch);
    weir__agent_threads_stop(threads);
    return end;
}
