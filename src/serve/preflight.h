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

/* Who nginx's workers are where root starts them. */
struct weir__workers {
    const char *name; /* that was looked for */
    char user[64], group[64];
    unsigned group_id;
};

/* False: there is no such user. */
bool weir__workers_of(const struct weir__config *config, struct weir__workers *workers);

/* True if the workers' user can read the rules: they do so by themselves when these change. */
bool weir__workers_can_read(const struct weir__facts *facts, const char *path);

/* A weir_diagnose for engines of the agent: logs only lines about files beside the segment; workers log the others. */
struct weir__sidecar_log {
    const char *segment;
    const struct weir__logger *log;
};
void weir__log_sidecar(void *context, const weir_diagnostic *told);
/* weir_segment_guard; a failure is logged. */
void weir__segment_guard_logged(weir_segment *segment, const char *path, const struct weir__logger *log);

/* The folder of a file, into `folder`. */
void weir__folder_of(const char *path, char *folder, size_t size);
/* Reports the first file, of the segment and those beside it, that finds no room beside those before it. */
struct weir__report;
void weir__preflight_space(const struct weir__config *config, const struct weir__facts *facts,
                           struct weir__report *report);

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

/* What to do about a segment that cannot be opened, in the words of weir.yaml rather than the library's. */
const char *weir__segment_advice(int error);

/*
 * Tells `diagnose` of everything that would keep this configuration from running, with its place. `running` is the one
 * that runs now, whose ports are taken by ourselves, or NULL. True: nothing was found. Changes nothing on disk.
 */
bool weir__preflight(const struct weir__config *config, const struct weir__config *running, weir_diagnose *diagnose,
                     void *context, struct weir__facts *facts);

#endif
