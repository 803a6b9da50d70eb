/*
 * Helper processes: short-lived children of the supervisor that do one piece of work under a deadline. The supervisor
 * uses one wherever the work runs as a user, or on files, that an attacker who took over the agent or a worker
 * controls: such a helper may be stopped, killed or crash, and the supervisor goes on.
 */
#ifndef WEIR_SERVE_HELPER_PROCESS_H
#define WEIR_SERVE_HELPER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct weir__helper {
    int (*work)(void *context); /* runs in the helper; returns its exit code, 0 to 255 */
    void *context;
    int keep[2]; /* descriptors that the helper keeps in addition to 0, 1 and 2; 0: none */
    int64_t deadline_ms;
};

/*
 * Returns what `work` returned. -1: the helper could not be started, crashed, or was killed at its deadline; errno has
 * the reason (ETIMEDOUT for the deadline). The helper has a session of its own and none of the parent's other
 * descriptors.
 */
int weir__helper_run(const struct weir__helper *helper);

/* Closes all descriptors above 2 but these two; 0: none. */
void weir__close_descriptors(int keep, int keep_too);

#endif
