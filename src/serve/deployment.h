/*
 * A deployment: one weir.yaml that was read, checked and written for nginx; the runtime directory that nginx's files
 * are in; and the supervisor, which runs deployments.
 */
#ifndef WEIR_SERVE_DEPLOYMENT_H
#define WEIR_SERVE_DEPLOYMENT_H

#include "serve/listening.h"
#include "serve/nginx.h"
#include "serve/privilege.h"

#include <stdbool.h>

/* ---- Preflight checks of what weir.yaml names (preflight.c) ---- */

/* Rules, certificates, segment, users, folders of logs, ports, free space. */
struct weir__facts {
    size_t rules;
    char hosts[3072];             /* over which hosts the rules count: lines, see weir__rules_hosts */
    const char *upstream_ca;      /* file of CA certificates; NULL: not needed */
    struct weir__workers workers; /* `user` "": this process's, and no other group */
};

/* True if the workers' user can read the rules: workers reload them themselves. */
bool weir__workers_can_read(const struct weir__facts *facts, const char *path);

/* Reports everything that keeps this configuration from running to `diagnose`. `ours`: the sockets of this weir serve,
 * whose ports are in use by it; NULL: ports that are in use are accepted. True: no errors. Changes nothing on disk. */
bool weir__preflight(const struct weir__config *config, const struct weir__listening *ours, weir_diagnose *diagnose,
                     void *context, struct weir__facts *facts);

/* ---- The runtime directory (runtime_dir.c) ---- */

struct weir__runtime_dir {
    char path[256]; /* "": none */
    int lock;       /* flock held while the directory is in use: other weir serve do not remove it as stale */
    int itself;     /* the directory, with a flock: systemd-tmpfiles does not clean it by age */
};

/* Creates a runtime directory, and removes stale ones of killed processes. `group` (not 0), the workers', may search
 * it. False: errno has the reason. */
bool weir__runtime_dir_make(struct weir__runtime_dir *folder, unsigned group);
/* Lets another group search it. False: errno has the reason. */
bool weir__runtime_dir_admit(const struct weir__runtime_dir *folder, unsigned group);
/* Replaces a file in it that the group (not 0) may read. False: errno has the reason. */
bool weir__runtime_dir_write(const struct weir__runtime_dir *folder, const char *name, const char *text,
                             unsigned long len, unsigned group);
/* False: it was removed or emptied, or its name belongs to something else. */
bool weir__runtime_dir_exists(const struct weir__runtime_dir *folder);
/* Creates it again, empty and by the same name. False: errno has the reason; the caller may retry. */
bool weir__runtime_dir_restore(struct weir__runtime_dir *folder, unsigned group);
/* Keeps errno. */
void weir__runtime_dir_remove(struct weir__runtime_dir *folder);

/* ---- Deployments (deployment.c) ---- */

struct weir__deployment {
    struct weir__config config;
    struct weir__facts facts;
    char rules_file[512]; /* copy of the rules in weir.yaml, which nginx reads; "": rules have their own file */
    unsigned number;      /* in the name of rules_file */
    char *conf;           /* text of nginx.conf */
};

/* Reads weir.yaml and runs the preflight checks. NULL after a report. `ours` as in weir__preflight. */
struct weir__deployment *weir__deployment_read(const char *file, const struct weir__listening *ours,
                                               weir_diagnose *diagnose, void *context);
void weir__deployment_free(struct weir__deployment *deployment);

/* Names in the runtime directory: nginx.conf under test, and the active one. */
#define WEIR__NGINX_CONF_NEXT "next-nginx.conf"
#define WEIR__NGINX_CONF_FILE "nginx.conf"

/* The state of a running weir serve, from its start to its end. */
struct weir__serving {
    const char *file;   /* weir.yaml */
    char program[4096]; /* this program's path */
    struct weir__nginx nginx;
    struct weir__runtime_dir folder;
    struct weir__listening listening;
    struct weir__logger log;
    int signals; /* of weir__signals_open */
};

/* Writes nginx.conf (as WEIR__NGINX_CONF_NEXT) and the rules into the runtime directory. `number`: unique for each
 * deployment. False after a logged error. */
bool weir__deployment_write(struct weir__deployment *deployment, const struct weir__serving *serving, unsigned number,
                            bool test_only);
/* Runs nginx -t on what was written, until `interrupt` (-1: none) becomes readable; logs nginx's errors. */
enum weir__nginx_test weir__deployment_test(const struct weir__deployment *deployment,
                                            const struct weir__serving *serving, int interrupt);
/* Logs the address of the dashboard, if there is one. */
void weir__deployment_log_admin(const struct weir__config *config, const struct weir__logger *log);
/* Logs listeners, routes, rules and services, one a line. */
void weir__deployment_log(const struct weir__deployment *deployment, const struct weir__logger *log);

/* ---- The supervisor (supervisor.c) ---- */

/* A fingerprint of weir.yaml, certificates, keys and password files on disk; 0: weir.yaml does not exist. */
uint64_t weir__config_fingerprint(const struct weir__config *config);

/* Masters of nginx that finish their last requests; when there are more, the oldest is cut short. */
enum { WEIR__ENDING_MAX = 16 };

/* Runs a tested deployment, and frees it, until a signal stops it. `print`: the fingerprint from when it was read.
 * Returns the exit code. */
int weir__supervisor_run(struct weir__deployment *deployment, uint64_t print, struct weir__serving *serving);
/* Runs what another version of this program has handed over, with weir.yaml read anew. Returns the exit code. */
struct weir__takeover;
int weir__supervisor_take_over(const struct weir__takeover *takeover, struct weir__serving *serving);

#endif
