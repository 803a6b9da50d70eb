/* Opens a host read-only for weir top and weir advise, by its weir.yaml or its segment. */
#ifndef WEIR_STATS_OPEN_HOST_H
#define WEIR_STATS_OPEN_HOST_H

#include "base/file.h"
#include "stats/advise.h"
#include "config/config.h"
#include "stats/membership.h"

struct weir__opened_host {
    struct weir__config config; /* of weir.yaml, if it was one */
    struct weir__file_owner
        owner; /* of published rules, which the agent writes: root acts as this user until the end */
    weir *engine;
    struct weir__snapshot snapshot;
    struct weir__membership membership; /* refreshed by its user */
    struct weir__rule_source source;
};

/*
 * `what` is a weir.yaml or a segment; `rules` is a path, or NULL: those of weir.yaml, none for a segment. False:
 * `diagnose` got the reason; it should leave warnings to weir lint. Call weir__close_host in any case.
 */
bool weir__open_host(struct weir__opened_host *host, const char *what, const char *rules, weir_diagnose *diagnose,
                     void *context);
void weir__close_host(struct weir__opened_host *host);

#endif
