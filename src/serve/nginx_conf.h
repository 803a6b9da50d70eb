/* From weir.yaml to nginx's configuration. */
#ifndef WEIR_SERVE_NGINX_CONF_H
#define WEIR_SERVE_NGINX_CONF_H

#include "serve/preflight.h"

#include <stdio.h>

/* What the configuration needs to know besides weir.yaml. */
struct weir__nginx_setting {
    const char *module;        /* the .so */
    const char *stream_core;   /* nginx's own stream module, where it is one; else "" */
    const char *stream_module; /* ours for it */
    int version;               /* of nginx: 1022001 is 1.22.1 */
    const char *rules_file;    /* the path of the rules, or of what was cut out of weir.yaml */
    bool rules_by_workers;     /* the agent writes them: nginx's master, which is root, does not read them */
    long open_files;           /* that a worker may have */
    bool test_only;            /* only to be tested: neither the real segment nor real logs */
};

/* True if a listener speaks the Redis protocol, which needs nginx's stream and our module for it. */
bool weir__speaks_resp(const struct weir__config *config);

/* The whole text, to be freed; NULL: no memory. Paths in nginx's own folder are relative to its -p. */
char *weir__nginx_conf(const struct weir__config *config, const struct weir__facts *facts,
                       const struct weir__nginx_setting *setting);

/* ---- For its parts ---- */

/* A word in quotes. */
void weir__nginx_quoted(FILE *to, const char *text);

/* What a queue needs in http; in a gateway's server; and the first lines of the server that delivers through. */
void weir__nginx_queue_upstream(FILE *to, const struct weir__config *config);
void weir__nginx_queue_locations(FILE *to, const struct weir__config *config);
void weir__nginx_queue_delivery(FILE *to, const struct weir__config *config);

#endif
