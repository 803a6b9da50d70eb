/*
 * `weir check`: what would happen to a request, and why. The parts are check_args.c (the command line), check_request.c
 * (from words to what the library asks for), check.c (playing it) and check_print.c (telling).
 */
#ifndef WEIR_CLI_CHECK_H
#define WEIR_CLI_CHECK_H

#include "base/json_writer.h"

#include <weir/weir.h>

enum { WEIR__CHECK_OUTCOMES = 256, WEIR__CHECK_TEXT = 16384 };

/* The parsed command line of weir check; freed by weir__check_drop. */
struct weir__check {
    const char *rules, *segment;
    bool json, take, exit_code, all;
    bool has_at, has_cost;
    int64_t at_ns, every_ns, repeat, cost;

    /* A request … */
    const char *method, *ip;
    char *url;    /* as given, owned */
    char *target; /* its part from the path on, owned */
    char *host;   /* of the URL or of a header; may be NULL; owned */
    weir_attribute *attributes;
    size_t attribute_count;
    bool accepts_problem;

    /* … or descriptors */
    const char *domain; /* NULL: a request */
    int64_t hits;       /* 0: not given */
    weir_descriptor *descriptors;
    size_t descriptor_count;

    char **arguments; /* as given: METHOD URL, or descriptors */
    size_t argument_count;
    char **owned; /* texts that attributes and descriptors point to */
    size_t owned_count, owned_room;
};

/* -1: go on; otherwise the exit code: what is wrong was said, or help was printed. */
int weir__check_parse(struct weir__check *check, int argc, char **argv);
void weir__check_drop(struct weir__check *check);

/* ---- check_request.c: each is false after a message on standard error ---- */

/* Adds "Name: value"; several of one name become one, as the library wants them. */
bool weir__check_add_header(struct weir__check *check, const char *line);
/* Adds "name=value", a named attribute. */
bool weir__check_add_named(struct weir__check *check, const char *pair);
/* Makes the request, or the descriptors, of the words, once all options are known. */
bool weir__check_finish(struct weir__check *check);

/* ---- check_print.c ---- */

/* What became of one request. */
struct weir__check_result {
    weir_result result;
    weir_outcome *outcomes; /* answer.outcomes of them, or one a descriptor */
    size_t outcome_count;
    size_t rules; /* in the set */
};

/* One line, for --repeat; `number` from 1. */
void weir__check_line(FILE *to, int64_t number, int64_t since_ns, const struct weir__check_result *result);
/* The same as a member of an open list. */
void weir__check_line_json(struct weir__json *json, const struct weir__check_result *result);
/* All about one. */
void weir__check_print(FILE *to, const struct weir__check *check, const struct weir__check_result *result);
/* The same as members of an open object. */
void weir__check_json(struct weir__json *json, const struct weir__check *check,
                      const struct weir__check_result *result);

#endif
