/* The admin listener: HTTP by libmicrohttpd around src/control, and the dashboard's files. */
#ifndef WEIR_CONTROL_ADMIN_LISTENER_H
#define WEIR_CONTROL_ADMIN_LISTENER_H

#include "config/config.h"
#include "control/control.h"

struct weir__admin;

/* Listens and answers, in threads of its own. NULL, and why. A socket of the configuration's is used up by the first
 * call that gets so far. */
struct weir__admin *weir__admin_start(const struct weir__admin_config *config, int *socket,
                                      struct weir__control *control, char *why, size_t why_size);
/* A socket bound to the address, on which nobody listens yet; -1, and why. */
int weir__admin_bind(const struct weir__listener *listener, char *why, size_t why_size);
/* Requests under way are answered first. NULL is allowed. */
void weir__admin_stop(struct weir__admin *admin);

#endif
