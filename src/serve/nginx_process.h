/* nginx as a program: where it is, whether it likes a configuration, and starting it. */
#ifndef WEIR_SERVE_NGINX_PROCESS_H
#define WEIR_SERVE_NGINX_PROCESS_H

#include "base/log.h"

#include <sys/types.h>

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

#endif
