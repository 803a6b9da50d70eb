/*
 * weir top: a live view of this host, or of all that share its store, in the terminal. top_view.c draws to any stream
 * of a given width and height, also for
 * --once; top.c has keys, signals and the loop.
 */
#ifndef WEIR_STATS_TOP_H
#define WEIR_STATS_TOP_H

#include "stats/membership.h"

#include <stdio.h>

enum weir__top_sort {
    WEIR__BY_ALLOWED, /* the first ones as in struct weir__rates */
    WEIR__BY_DELAYED,
    WEIR__BY_DENIED,
    WEIR__BY_SHED,
    WEIR__BY_NAME,
    WEIR__BY_SHARE,
    WEIR__BY_LEVEL, /* hosts only, as the next; rules are sorted by name then */
    WEIR__BY_SEEN
};
enum weir__top_page { WEIR__TOP_RULES, WEIR__TOP_HOSTS };

#define WEIR__TOP_KEYS 20 /* of a rule and list, that are shown */

struct weir__top {
    const json_t *stats;                       /* the statistics (weir__gather_finish), with WEIR__TOP_KEYS hot keys */
    bool stale;                                /* the last query had no result */
    const struct weir__membership *membership; /* refreshed */
    enum weir__top_page page;
    enum weir__top_sort sort;
    enum weir__key_list list;
    size_t chosen;                       /* line of the rule whose keys are shown */
    char chosen_name[WEIR_NAME_MAX + 1]; /* stays chosen when the order changes; "": by line */
    bool chosen_shadow;
    bool paused;
    size_t host;         /* line of the selected host */
    size_t rules, hosts; /* out: numbers of rules and hosts */

    FILE *to;          /* where it is drawn */
    int width, height; /* height 0: unlimited */
    bool plain;        /* without escapes */

    /* While it is drawn. */
    int line; /* next line */
    struct weir__top_row *rows;
    bool sheds; /* shows the SHED column: requests were shed, or there is a load level */
};

/* Draws the statistics. Untrusted text is escaped to printable characters. */
void weir__top_draw(struct weir__top *top);

#endif
