/* The admin listener: HTTP by libmicrohttpd around src/control, and the dashboard's files. */
#ifndef WEIR_AGENT_ADMIN_H
#define WEIR_AGENT_ADMIN_H

#include "agent/config.h"
#include "control/control.h"

struct weir__admin;

/* Listens and answers, in threads of its own. NULL, and why. */
struct weir__admin *weir__admin_start(const struct weir__listener *listener, struct weir__control *control, char *why,
                                      size_t why_size);
/* Requests under way are answered first. NULL is allowed. */
void weir__admin_stop(struct weir__admin *admin);

#endif
