/*
 * A deployment: one weir.yaml that was read, checked and written for nginx; the runtime directory that nginx's files
 * are in; and the supervisor, which runs deployments.
 */
#ifndef WEIR_SERVE_DEPLOYMENT_H
#define WEIR_SERVE_DEPLOYMENT_H

#include "serve/nginx.h"
#include "serve/preflight.h"

#include <stdbool.h>

/* ---- The runtime directory (runtime_dir.c) ---- */

struct weir__runtime_dir {
    char path[256]; /* "": none */
    int lock;       /* held as long as the folder is in use: tells other weir serve */
    int itself;     /* the folder, locked, too: tells those that clean /tmp by age, such as systemd-tmpfiles */
};

/*
 * Makes one, and removes those of processes that were killed. `group` (not 0) may go through it: that of the workers.
 * False: errno says why.
 */
bool weir__runtime_dir_make(struct weir__runtime_dir *folder, unsigned group);
/* Lets another group go through it. False: errno says why. */
bool weir__runtime_dir_admit(const struct weir__runtime_dir *folder, unsigned group);
/* Writes a file in it that the group (not 0) may read. False: errno says why. */
bool weir__runtime_dir_write(const struct weir__runtime_dir *folder, const char *name, const char *text,
                             unsigned long len, unsigned group);
/* False: somebody has removed it, or what is in it, or something else has its name. */
bool weir__runtime_dir_exists(const struct weir__runtime_dir *folder);
/* Makes it again after that, with nothing in it and by the same name. False: errno says why; it may be tried again. */
bool weir__runtime_dir_restore(struct weir__runtime_dir *folder, unsigned group);
void weir__runtime_dir_remove(struct weir__runtime_dir *folder);

/* ---- Deployments (deployment.c) ---- */

struct weir__deployment {
    struct weir__config config;
    struct weir__facts facts;
    char rules_file[512]; /* what nginx reads the rules from, if they stand in weir.yaml */
    unsigned number;      /* of those rules */
    char *conf;           /* nginx's */
};

/* Reads and looks. NULL after everything that is wrong was told. `running` as in weir__preflight. */
struct weir__deployment *weir__deployment_read(const char *file, const struct weir__config *running,
                                               weir_diagnose *diagnose, void *context);
/* The same with `running` as the configuration itself: its ports may be taken, even by itself. */
struct weir__deployment *weir__deployment_read_for_check(const char *file, weir_diagnose *diagnose, void *context);
void weir__deployment_free(struct weir__deployment *deployment);

/* The file in the folder that a deployment is tried from, before it becomes WEIR__NGINX_CONF_FILE. */
#define WEIR__NGINX_CONF_NEXT "next-nginx.conf"
#define WEIR__NGINX_CONF_FILE "nginx.conf"

/* Writes what nginx needs into the folder. `number` keeps its rules apart from those of the plans before it. */
bool weir__deployment_write(struct weir__deployment *deployment, const struct weir__nginx *nginx,
                            const struct weir__runtime_dir *folder, unsigned number, bool test_only,
                            const struct weir__logger *log);
/* nginx -t on what was written; says what nginx says against it. */
enum weir__nginx_test weir__deployment_test(const struct weir__deployment *deployment, const struct weir__nginx *nginx,
                                            const struct weir__runtime_dir *folder, int interrupt,
                                            const struct weir__logger *log);
/* What is running, line by line. */
void weir__deployment_log(const struct weir__deployment *deployment, const struct weir__logger *log);

/* ---- The supervisor (supervisor.c) ---- */

/* What weir.yaml and the certificates are on disk, to be seen when they have changed; 0: weir.yaml is not there. */
uint64_t weir__config_fingerprint(const struct weir__config *config);

/*
 * Runs until told to end. Takes the deployment, which has been tried in the folder, and was read when the files were as
 * `print` says. Returns the exit code.
 */
int weir__supervisor_run(struct weir__deployment *deployment, uint64_t print, const struct weir__nginx *nginx,
                         struct weir__runtime_dir *folder, struct weir__logger *log, int signals);

#endif
