/* The admin listener: serves the REST API of src/control and the dashboard's files over HTTP, by libmicrohttpd. */
#ifndef WEIR_CONTROL_ADMIN_LISTENER_H
#define WEIR_CONTROL_ADMIN_LISTENER_H

#include "config/config.h"
#include "control/control.h"

struct weir__admin;

/*
 * Starts listening, in its own threads. NULL, and why. The first call that gets so far takes over the configuration's
 * socket.
 */
struct weir__admin *weir__admin_start(const struct weir__admin_config *config, int *socket,
                                      struct weir__control *control, char *why, size_t why_size);
/* A socket bound to the address, not listening yet; -1, and why. */
int weir__admin_bind(const struct weir__listener *listener, char *why, size_t why_size);
/* Finishes requests in flight first. NULL is allowed. */
void weir__admin_stop(struct weir__admin *admin);

#endif
