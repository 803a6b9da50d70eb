/* Preflight checks of what weir.yaml names: rules, certificates, segment, users, folders of logs, ports, free space. */
#ifndef WEIR_SERVE_PREFLIGHT_H
#define WEIR_SERVE_PREFLIGHT_H

#include "config/config.h"

#include <sys/types.h>

struct weir__facts {
    size_t rules;
    const char *upstream_ca;  /* file of CA certificates; NULL: not needed */
    char user[64], group[64]; /* of the workers; "": this process's */
    unsigned group_id;        /* with user */
};

/* True if the workers' user can read the rules: workers reload them themselves. */
bool weir__workers_can_read(const struct weir__facts *facts, const char *path);

/* Copies the folder part of a path to `folder`. */
void weir__folder_of(const char *path, char *folder, size_t size);

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

/* Reports everything that keeps this configuration from running to `diagnose`. `running`: the active configuration,
 * whose ports are in use by this weir serve, or NULL. True: no errors. Changes nothing on disk. */
bool weir__preflight(const struct weir__config *config, const struct weir__config *running, weir_diagnose *diagnose,
                     void *context, struct weir__facts *facts);

#endif
