/*
 * An upgrade of weir serve (docs/guide/upgrading.md): the supervisor executes the program that is at its path now, in
 * place. Process id, children and descriptors stay; the new program gets a description of them in the variable
 * WEIR_TAKEOVER, which is JSON. Members that it does not know are ignored, so that a format has room to grow.
 */
#ifndef WEIR_SERVE_TAKEOVER_H
#define WEIR_SERVE_TAKEOVER_H

#include "serve/agent.h"
#include "serve/deployment.h"
#include "serve/serve.h"

struct weir__takeover {
    char version[64]; /* of the program before */
    pid_t master;
    pid_t ending[WEIR__ENDING_MAX]; /* 0: none */
    int output[2];
    unsigned number, older;           /* of deployments */
    uint64_t programs;                /* weir__nginx_fingerprint of what the master runs */
    struct weir__agent_process agent; /* pid 0: it is not running */
    char segment[4096];
    char log_path[4096]; /* "": standard error */
    bool log_json;
};

/* The path of this program as it was started, absolute, with its symbolic links: another file may be there later. */
void weir__program_path(char path[4096]);
/* Runs `program serve --check` for the file; as weir__nginx_test_conf (nginx_process.c). */
enum weir__nginx_test weir__program_test(const char *program, const char *file, int interrupt, char *output,
                                         size_t size);
/* Executes the program, which takes over everything in `serving`. Returns only after a failure: errno has the reason,
 * and nothing has changed. */
void weir__takeover_exec(const struct weir__takeover *takeover, const struct weir__serving *serving);
/* True if this process was executed by weir__takeover_exec. */
bool weir__takeover_pending(void);
/* Fills in `takeover` and what `serving` has of the program before. False after a logged error: there is nothing to
 * take over. */
bool weir__takeover_receive(struct weir__takeover *takeover, struct weir__serving *serving);

#endif
