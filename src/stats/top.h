/*
 * weir top: what a host does, in a terminal. Drawing (top_view.c, top_hosts.c) knows no terminal but its width and
 * height, and is what --once prints; top.c has the keys, the signals and the loop.
 */
#ifndef WEIR_STATS_TOP_H
#define WEIR_STATS_TOP_H

#include "stats/membership.h"

#include <stdio.h>

enum weir__top_sort {
    WEIR__BY_NAME,
    WEIR__BY_ALLOWED,
    WEIR__BY_DENIED,
    WEIR__BY_DELAYED,
    WEIR__BY_SHED,
    WEIR__BY_SHARE,
    WEIR__BY_LEVEL, /* of hosts, as the next; rules have none and are by name then */
    WEIR__BY_SEEN
};
enum weir__top_page { WEIR__TOP_RULES, WEIR__TOP_HOSTS };
enum weir__top_list { WEIR__TOP_DENIED, WEIR__TOP_ADMITTED, WEIR__TOP_NEAR, WEIR__TOP_LISTS };

struct weir__top {
    struct weir__snapshot *snapshot;
    const struct weir__membership *membership; /* that has looked */
    enum weir__top_page page;
    enum weir__top_sort sort;
    enum weir__top_list list;
    size_t chosen;                       /* line of the rule whose keys are shown */
    char chosen_name[WEIR_NAME_MAX + 1]; /* it stays chosen when the order changes; "": by the line */
    bool chosen_shadow;
    bool paused;
    size_t host;         /* line of the host that is marked */
    size_t rules, hosts; /* out: how many there were */
};

struct weir__top_screen {
    FILE *to;
    int width, height; /* height 0: as long as it takes */
    bool plain;        /* without escapes */
};

/* One picture of what the sight saw. Nobody's text reaches the terminal but in printable characters. */
void weir__top_draw(struct weir__top *top, const struct weir__top_screen *screen);

#endif
