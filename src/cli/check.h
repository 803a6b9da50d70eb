/*
 * `weir check`: plays a request against rules. check_args.c reads the command line and makes the request, check.c plays
 * it, check_print.c prints the decision and its reason.
 */
#ifndef WEIR_CLI_CHECK_H
#define WEIR_CLI_CHECK_H

#include "cli/cli.h"
#include "cli/text.h"

enum { WEIR__CHECK_OUTCOMES = 256, WEIR__CHECK_TEXT = 16384 };

/* The command line of weir check, the requests that it simulates, and the last decision. */
struct weir__check {
    const struct weir__given *given;
    const char *rules, *segment;
    bool has_at, has_cost;
    int64_t at_ns, every_ns, repeat, cost;

    /* A request … */
    const char *method, *ip;
    const char *target; /* its part from the path on */
    const char *host;   /* of the URL or of a header; may be NULL */
    weir_attribute *attributes;
    size_t attribute_count;
    bool accepts_problem;

    /* … or descriptors */
    const char *domain; /* NULL: a request */
    int64_t hits;       /* 0: not given */
    weir_descriptor *descriptors;
    size_t descriptor_count;

    /* The engine and the clock of the simulation */
    weir *engine;
    weir_segment *counters;
    const char *path;        /* of the counters; NULL: fresh ones */
    struct weir__file *file; /* of the counters, if it is a weir.yaml; else NULL */
    bool dry;
    weir_time start;
    size_t rule_count;

    /* The last decision */
    weir_result result;
    weir_outcome *outcomes; /* one a rule that matched, or one a descriptor */
    size_t outcome_count;
    char text[WEIR__CHECK_TEXT]; /* of the outcomes */
};

/* False after an error was printed. Free the attributes in any case. */
bool weir__check_parse(struct weir__check *check, const struct weir__given *given);

/* ---- check_print.c: the last decision ---- */

/* One line, for --repeat; `number` from 1. */
void weir__check_line(int64_t number, int64_t since_ns, const struct weir__check *check);
/* One request of --repeat. */
json_t *weir__check_line_json(const struct weir__check *check);
/* Prints a request, its decision and the reasons. */
void weir__check_print(const struct weir__check *check);
/* The decision and the reasons. */
json_t *weir__check_json(const struct weir__check *check);

#endif
