/* nginx under weir serve: its program and processes, its configuration, and its messages. */
#ifndef WEIR_SERVE_NGINX_H
#define WEIR_SERVE_NGINX_H

#include "base/log.h"
#include "serve/preflight.h"

#include <stdio.h>
#include <sys/types.h>

/* ---- The program (nginx_process.c) ---- */

struct weir__nginx {
    char program[4096];
    char module[4096];        /* ours */
    char stream_core[4096];   /* nginx's, if stream is a module there; else "" */
    char stream_module[4096]; /* ours for it; "": not found */
    int version;              /* 1022001 is 1.22.1 */
    char version_text[32];
};

/* WEIR_NGINX and WEIR_MODULES come first. False: the reason is in `why`, and what was not found is empty. */
bool weir__nginx_find(struct weir__nginx *nginx, char *why, size_t size);

enum weir__nginx_test { WEIR__NGINX_TEST_PASSED, WEIR__NGINX_TEST_FAILED, WEIR__NGINX_TEST_INTERRUPTED };

/*
 * nginx -t. `output` gets what it said. INTERRUPTED: there is something to read from `interrupt` (-1: nothing ever
 * is), so the caller has more urgent things to do.
 */
enum weir__nginx_test weir__nginx_test_conf(const struct weir__nginx *nginx, const char *folder, const char *conf,
                                            int interrupt, char *output, size_t size);

/*
 * Starts nginx in a process group of its own, which ends when this process does. What it says can be read from
 * *output. -1: errno says why.
 */
pid_t weir__nginx_start(const struct weir__nginx *nginx, const char *folder, const char *conf, int *output);

/* ---- nginx.conf (nginx_conf.c, nginx_conf_queue.c) ---- */

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

/* ---- Messages in nginx's error log (nginx_message.c) ---- */

enum weir__nginx_level {
    WEIR__NGINX_OTHER,  /* no message of nginx's: a line of a log */
    WEIR__NGINX_NOTICE, /* and less */
    WEIR__NGINX_WARNING,
    WEIR__NGINX_ERROR,
    WEIR__NGINX_FATAL /* emerg: it does not start, or does not take a new configuration */
};

struct weir__nginx_message {
    enum weir__nginx_level level;
    weir_text message; /* without time, process and connection; a piece of the line */
};

struct weir__nginx_message weir__nginx_message_parse(weir_text line);

/* The message as a sentence for the author of weir.yaml; `conf` is the text of nginx's configuration. */
void weir__nginx_message_format(weir_text message, const char *conf, char *buffer, size_t size);

#endif
