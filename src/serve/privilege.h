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

/* ---- What the agent gets from root (handover.c) ---- */

/*
 * Root's part, before the agent is started: makes what is missing of the segment and of the files beside it that the
 * agent writes, and lets the agent's group write all of them; they stay root's, so that no other user's are taken for
 * them. The state folder, if it is root's and holds nothing but weir's files, becomes the agent's. False after it was
 * logged.
 */
bool weir__handover_share(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log);
/*
 * Logs files of root's in the agent's state folder, with the command that hands them over: root itself does not, since
 * the agent may have moved them there. Nothing is logged if they are `known`. True: there are some. To be called now
 * and then.
 */
bool weir__handover_warn(const struct weir__config *config, const struct weir__agent_user *user, bool known,
                         const struct weir__logger *log);
/* For commands that root runs: makes a missing database in the agent's folder, empty and the agent's. */
void weir__handover_create(const char *path);
/* Lets the agent's group write the file, if it is a plain one of root's. */
bool weir__handover_file(const char *path, const struct weir__agent_user *user);

/*
 * The agent's part, while it is still root and has read nothing from outside: reads tokens, passwords, certificates and
 * keys into the configuration, which is the process's own copy, and binds the admin listener's port. Whatever cannot be
 * read stays a path: its user reports that.
 */
void weir__handover_take(struct weir__config *config, const struct weir__agent_user *user,
                         const struct weir__logger *log);
/* After weir__privilege_drop: can the agent write where it must? False after it was logged. */
bool weir__handover_check(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log);

#endif
