/*
 * What the agent gets from the process that stays root: files that root made, folders that become the agent's, and what
 * only root can read or bind. Nothing here does anything where the agent stays the user it is.
 */
#ifndef WEIR_SERVE_HANDOVER_H
#define WEIR_SERVE_HANDOVER_H

#include "serve/privilege.h"

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
