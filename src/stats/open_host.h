/* Opening a host to look at it, for commands: by weir.yaml or by the path of a segment. Nothing is written. */
#ifndef WEIR_STATS_OPEN_HOST_H
#define WEIR_STATS_OPEN_HOST_H

#include "stats/advise.h"
#include "config/config.h"
#include "stats/membership.h"

struct weir__opened_host {
    struct weir__config config; /* of weir.yaml, if it was one */
    weir *engine;
    struct weir__snapshot snapshot;
    struct weir__membership membership; /* whoever wants it looks: weir__membership_refresh */
    struct weir__rule_source source;
};

/*
 * `what` is a weir.yaml or a segment; `rules` (NULL: those of weir.yaml; with a segment, none) is a path. `diagnose`
 * should leave warnings to weir lint. False after it was told to `diagnose` why not. Close it in any case.
 */
bool weir__open_host(struct weir__opened_host *host, const char *what, const char *rules, weir_diagnose *diagnose,
                     void *context);
void weir__close_host(struct weir__opened_host *host);

#endif
