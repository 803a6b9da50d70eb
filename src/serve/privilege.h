/*
 * What a process may do. Where root starts weir serve or weir agent, the process that root started stays root, with few
 * capabilities: it reads keys and passwords, binds ports and looks after its children. The agent, which reads bytes
 * from outside, is a child that becomes a user of its own first and cannot get anything back. docs/serve.md has a
 * table.
 */
#ifndef WEIR_SERVE_PRIVILEGE_H
#define WEIR_SERVE_PRIVILEGE_H

#include "serve/preflight.h"
#include "base/log.h"

/*
 * For the agent's process, before it reads anything from outside and while it has one thread: becomes that user without
 * any capability, sets no_new_privs and filters system calls that it never needs. False after it was logged; the
 * process must end then.
 */
bool weir__privilege_drop(const struct weir__agent_user *user, const struct weir__logger *log);

/*
 * For a root process that reads weir.yaml: memory that it frees is overwritten from now on, so that none of the secrets
 * in weir.yaml is left in the copy of its memory that the agent begins with.
 */
void weir__wipe_freed_memory(void);
/* For the agent's process, before weir__privilege_drop: overwrites what of that memory is left, and ends it. */
void weir__wipe_inherited_memory(void);

/* For the process that stays root: no_new_privs, and only the capabilities that it and nginx need. Logs a failure. */
void weir__privilege_limit(const struct weir__logger *log);

#endif
