/* What weir.yaml speaks of, looked at: rules, certificates, the segment, users, folders of logs, free ports. */
#ifndef WEIR_SERVE_PREFLIGHT_H
#define WEIR_SERVE_PREFLIGHT_H

#include "config/config.h"

#include <sys/types.h>

struct weir__facts {
    size_t rules;
    const char *upstream_ca;  /* where the certificates of authorities are; NULL: not needed */
    char user[64], group[64]; /* of the workers; "": ours */
    unsigned group_id;        /* with user */
};

/* True if the workers' user can read the rules: they do so by themselves when these change. */
bool weir__workers_can_read(const struct weir__facts *facts, const char *path);

/* The folder of a file, into `folder`. */
void weir__folder_of(const char *path, char *folder, size_t size);

/* The user that the agent becomes. */
struct weir__agent_user {
    bool drops; /* false: this process is not root, and the agent stays the user it is */
    uid_t user;
    gid_t group;
    gid_t workers; /* group of nginx's workers, which the agent is in, too */
    char name[64];
};

/*
 * `agent_user` of weir.yaml; else weir, if there is such a user; else the workers' user. False, and why: there is no
 * such user, or it is root.
 */
bool weir__agent_user_find(const struct weir__config *config, struct weir__agent_user *user, char *why, size_t size);

/*
 * Tells `diagnose` of everything that would keep this configuration from running, with its place. `running` is the one
 * that runs now, whose ports are taken by ourselves, or NULL. True: nothing was found. Changes nothing on disk.
 */
bool weir__preflight(const struct weir__config *config, const struct weir__config *running, weir_diagnose *diagnose,
                     void *context, struct weir__facts *facts);

#endif
