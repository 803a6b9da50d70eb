/* Looking after nginx: starting, reloading, stopping, and saying what it says. */
#ifndef WEIR_SERVE_SUPERVISOR_H
#define WEIR_SERVE_SUPERVISOR_H

#include "serve/deployment.h"

/* What weir.yaml and the certificates are on disk, to be seen when they have changed; 0: weir.yaml is not there. */
uint64_t weir__config_fingerprint(const struct weir__config *config);

/*
 * Runs until told to end. Takes the deployment, which has been tried in the folder, and was read when the files were as
 * `print` says. Returns the exit code.
 */
int weir__supervisor_run(struct weir__deployment *deployment, uint64_t print, const struct weir__nginx *nginx,
                         struct weir__runtime_dir *folder, struct weir__logger *log, int signals);

#endif
