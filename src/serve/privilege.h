/* Privileges of the processes that serve.h lists: reducing root's, dropping them in the agent, and handing over to the
 * agent what only root can read, bind or create. docs/reference/serve.md has a table. */
#ifndef WEIR_SERVE_PRIVILEGE_H
#define WEIR_SERVE_PRIVILEGE_H

#include "base/file.h"
#include "base/log.h"
#include "config/config.h"

#include <sys/types.h>

/* The user that the agent becomes. */
struct weir__agent_user {
    bool drops; /* false: this process is not root, and the agent keeps its user */
    uid_t user;
    gid_t group;
    gid_t workers; /* the workers' group; the agent is a member */
    char name[64];
};

/* Finds `agent_user` of weir.yaml; else the user weir, if it exists; else the workers' user. False: no such user, or it
 * is root; `why` has the reason. */
bool weir__agent_user_find(const struct weir__config *config, struct weir__agent_user *user, char *why, size_t size);

/* In the agent's process, while it has one thread and before it reads anything from outside: becomes `user` without
 * capabilities, sets no_new_privs and installs the system call filter. False after a logged error: the process must
 * exit. */
bool weir__privilege_drop(const struct weir__agent_user *user, const struct weir__logger *log);

/* In a root process, before it reads weir.yaml: has free() overwrite memory, so that a fork inherits no secrets in
 * freed memory. */
void weir__wipe_freed_memory(void);
/* In the agent's process, before weir__privilege_drop: overwrites freed memory that the allocator caches, and switches
 * that off. */
void weir__wipe_inherited_memory(void);

/* In the supervisor: sets no_new_privs; as root, keeps only the capabilities that it and nginx need. Logs a failure. */
void weir__privilege_limit(const struct weir__logger *log);

/* ---- What the agent gets from root (handover.c) ---- */

/* In the supervisor, before the agent starts: creates the segment and its sidecar files, and lets the agent's group
 * write them; root stays their owner, as other users' files are refused. Hands the state folder over if it is root's
 * and holds only weir's files. False after a logged error. */
bool weir__handover_share(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log);
/* Whether this user can write to the state folder. False after a logged error. */
bool weir__handover_writable(const char *state, const struct weir__logger *log);
/* Warns of root's files in the agent's state folder, with the command that hands them over: the supervisor does not, as
 * the agent may have moved them there. Logs nothing if `known`. True: there are some. */
bool weir__handover_warn(const struct weir__config *config, const struct weir__agent_user *user, bool known,
                         const struct weir__logger *log);
/* Lets the agent's group write the file, if it is a regular file of root that weir made. `create`: O_CREAT or 0. */
bool weir__handover_file(const char *path, const struct weir__agent_user *user, int create);

/* In the agent's process, before it drops privileges: reads tokens, passwords, certificates and keys into its copy of
 * the configuration, and binds the admin port. What cannot be read stays a path; its user reports that. */
void weir__handover_take(struct weir__config *config, const struct weir__agent_user *user,
                         const struct weir__logger *log);
/* After weir__privilege_drop: checks that the agent can write to the state folder. False after a logged error. */
bool weir__handover_check(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log);

/* The path of a database by its URL; NULL: it is none of SQLite's, or `url` is NULL. */
const char *weir__database_path(const char *url);
/*
 * As whom root opens a segment and the rules for a command: the segment's owner, whose files must not become root's. If
 * that is root, and the rules are `published`, which the agent writes: the agent's user. None (user 0) if any user may
 * have put the segment there: it is refused then. False: there is no such user; `why` has the reason.
 */
bool weir__segment_file_owner(const struct weir__config *config, bool published, struct weir__file_owner *owner,
                              char *why, size_t size);

/* ---- Helper processes (helper_process.c) ---- */

/*
 * Short-lived children of the supervisor that do one piece of work under a deadline. The supervisor uses one wherever
 * the work runs as a user, or on files, that an attacker who took over the agent or a worker controls: such a helper
 * may be stopped, killed or crash, and the supervisor goes on.
 *
 * Forks: returns WEIR__IN_HELPER in the helper, which does the work and calls _exit(0 to 255). It has a session of its
 * own and none of the parent's descriptors but 0, 1, 2, `keep` and `keep_too` (0: none). Returns the exit code in the
 * parent. -1: the helper could not be started, crashed, or was killed at its deadline; errno has the reason (ETIMEDOUT
 * for the deadline).
 */
enum { WEIR__IN_HELPER = 256 };
int weir__helper_fork(int64_t deadline_ms, int keep, int keep_too);

/* Closes all descriptors above 2 but these; 0: none. */
void weir__close_descriptors(const int *keep, size_t count);

#endif
