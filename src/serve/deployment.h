/* A configuration that is ready to run: read, looked at, written for nginx, and tested by it. */
#ifndef WEIR_SERVE_DEPLOYMENT_H
#define WEIR_SERVE_DEPLOYMENT_H

#include "serve/preflight.h"
#include "serve/nginx_process.h"
#include "serve/nginx_conf.h"
#include "serve/runtime_dir.h"

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

#endif
