/* nginx under weir serve: its program and processes, its configuration, and its messages. */
#ifndef WEIR_SERVE_NGINX_H
#define WEIR_SERVE_NGINX_H

#include "base/log.h"
#include "config/config.h"
#include "serve/listening.h"

#include <stdio.h>
#include <sys/types.h>

/* ---- The program (nginx_process.c) ---- */

struct weir__nginx {
    char program[4096];
    char module[4096];        /* ngx_http_weir_module.so */
    char stream_core[4096];   /* nginx's stream module; "": compiled into nginx */
    char stream_module[4096]; /* ngx_stream_weir_module.so; "": not found */
    int version;              /* 1022001 is 1.22.1 */
    char version_text[32];
};

/* Finds nginx and the modules; the environment variables WEIR_NGINX and WEIR_MODULES take precedence. False: `why` has
 * the reason; paths that were not found are empty. */
bool weir__nginx_find(struct weir__nginx *nginx, char *why, size_t size);

enum weir__nginx_test { WEIR__NGINX_TEST_PASSED, WEIR__NGINX_TEST_FAILED, WEIR__NGINX_TEST_INTERRUPTED };

/* Runs nginx -t; `output` gets what it printed. INTERRUPTED: `interrupt` (-1: none) became readable, and nginx -t was
 * killed. */
enum weir__nginx_test weir__nginx_test_conf(const struct weir__nginx *nginx, const char *folder, const char *conf,
                                            int interrupt, char *output, size_t size);

/* Starts nginx in its own session, with the listening sockets; it stops when this process dies. `output`: for its
 * standard error. -1: errno has the reason. */
pid_t weir__nginx_start(const struct weir__nginx *nginx, const char *folder, const char *conf,
                        const struct weir__listening *listening, int output);

/* A fingerprint of the files of nginx and of its modules: another one means that a new master has to load them. */
uint64_t weir__nginx_fingerprint(const struct weir__nginx *nginx);

/* ---- nginx.conf (nginx_conf.c) ---- */

/* What nginx.conf depends on in addition to weir.yaml. */
struct weir__nginx_setting {
    const struct weir__nginx *nginx;
    const char *rules_file; /* path of the rules, or of a copy of those in weir.yaml */
    bool rules_by_workers;  /* nginx's master, which is root, does not read them: the agent writes the file */
    long open_files;        /* limit of a worker */
    bool test_only;         /* for --check: without the real segment and logs */
    unsigned number;        /* of the deployment: no two masters of nginx have the same pid file */
};

/* Returns the text of nginx.conf, which the caller frees; NULL: no memory. Paths in the runtime directory are relative.
 */
struct weir__facts;
char *weir__nginx_conf(const struct weir__config *config, const struct weir__facts *facts,
                       const struct weir__nginx_setting *setting);

/* ---- Messages in nginx's error log (nginx_message.c) ---- */

enum weir__nginx_level {
    WEIR__NGINX_OTHER,  /* not a message of nginx: an access log line */
    WEIR__NGINX_NOTICE, /* notice, info, debug */
    WEIR__NGINX_WARNING,
    WEIR__NGINX_ERROR,
    WEIR__NGINX_FATAL /* emerg: nginx does not start, or rejects a new configuration */
};

struct weir__nginx_message {
    enum weir__nginx_level level;
    weir_text message; /* the part of the line after time, process and connection */
    long pid;          /* of the process; 0: the line has none */
};

struct weir__nginx_message weir__nginx_message_parse(weir_text line);

/* Formats a message for the author of weir.yaml; `conf` is the text of nginx.conf; NULL: unknown. */
void weir__nginx_message_format(weir_text message, const char *conf, char *buffer, size_t size);

#endif
