/* A configuration that is ready to run: read, looked at, written for nginx, and tested by it. */
#ifndef WEIR_SERVE_DEPLOYMENT_H
#define WEIR_SERVE_DEPLOYMENT_H

#include "serve/preflight.h"
#include "serve/nginx_process.h"
#include "serve/nginx_conf.h"
#include "serve/runtime_dir.h"

struct weir__plan {
    struct weir__config config;
    struct weir__facts facts;
    char rules_file[512]; /* what nginx reads the rules from, if they stand in weir.yaml */
    unsigned number;      /* of those rules */
    char *conf;           /* nginx's */
};

/* Reads and looks. NULL after everything that is wrong was told. `running` as in weir__inspect. */
struct weir__plan *weir__plan_read(const char *file, const struct weir__config *running, weir_diagnose *diagnose,
                                   void *context);
/* The same with `running` as the configuration itself: its ports may be taken, even by itself. */
struct weir__plan *weir__plan_read_only(const char *file, weir_diagnose *diagnose, void *context);
void weir__plan_free(struct weir__plan *plan);

/* The file in the folder that a plan is tried from, before it becomes WEIR__PLAN_CONF. */
#define WEIR__PLAN_NEXT "next-nginx.conf"
#define WEIR__PLAN_CONF "nginx.conf"

/* Writes what nginx needs into the folder. `number` keeps its rules apart from those of the plans before it. */
bool weir__plan_write(struct weir__plan *plan, const struct weir__nginx *nginx, const struct weir__private *folder,
                      unsigned number, bool trial, const struct weir__logger *log);
/* nginx -t on what was written; says what nginx says against it. */
enum weir__trial weir__plan_try(const struct weir__plan *plan, const struct weir__nginx *nginx,
                                const struct weir__private *folder, int interrupt, const struct weir__logger *log);
/* What is running, line by line. */
void weir__plan_tell(const struct weir__plan *plan, const struct weir__logger *log);

#endif
