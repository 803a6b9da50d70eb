/*
 * The first rules: before anything runs there is a file with the rules in force, and what weir.yaml names comes into
 * the database of the rules service once there is one.
 */
#ifndef WEIR_CONTROL_BOOTSTRAP_H
#define WEIR_CONTROL_BOOTSTRAP_H

#include "config/config.h"
#include "base/log.h"
#include "control/control.h"

/* True if the rules of weir.yaml are still to come into the database: what is in force is not from there. */
bool weir__bootstrap_is_due(const struct weir__config *config);
/*
 * Brings them into the database, if that is empty. 0 also if it is not, or an error of weir__control_import. What came
 * of it is told, but not that the database is away.
 */
int weir__bootstrap_import(const struct weir__config *config, struct weir__control *control,
                           const struct weir__logger *log);

/*
 * Before nginx starts: ensures that there is a file with active rules. Fetches or imports them once; if that fails the
 * last good rules stay, and without any the file has no rules until a later attempt succeeds. False after a logged
 * error: the file cannot be written.
 */
bool weir__bootstrap(const struct weir__config *config, const struct weir__logger *log);

#endif
