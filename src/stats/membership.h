/*
 * The fleet: which hosts there are, how each is, and when it was last heard of. docs/seeing.md, "Hosts", says what
 * holds.
 *
 *   fleet_told       what one host tells of itself, as text and back
 *   fleet_self       the same of this host, from its sight
 *   fleet_file       all that were heard of, in a file beside the segment that the agent writes and all who look read
 *   fleet_store      telling the store and hearing from it who else is there (lua/hosts.lua)
 *   fleet_teller     the agent's part: every two seconds both of these
 *   fleet            the looker's part: this host, which is always there, and those of the file
 */
#ifndef WEIR_STATS_MEMBERSHIP_H
#define WEIR_STATS_MEMBERSHIP_H

#include "stats/snapshot.h"

#define WEIR__FLEET_MAX       1024 /* hosts in a list; in the store there is room for no more */
#define WEIR__FLEET_TEXT_MAX  1024 /* bytes of what a host tells of itself */
#define WEIR__FLEET_ID        16   /* digits */
#define WEIR__FLEET_NAME_MAX  64
#define WEIR__FLEET_EVERY_MS  2000
#define WEIR__FLEET_FORGET_MS (5 * 60 * 1000)

/* The store, as a host sees it. */
enum weir__fleet_store {
    WEIR__FLEET_NO_STORE,
    WEIR__FLEET_STORE_UNKNOWN,
    WEIR__FLEET_STORE_UP,
    WEIR__FLEET_STORE_AWAY
};

/* What a host tells of itself. Texts are UTF-8 of anybody's: whoever shows them makes them harmless. */
struct weir__told {
    char id[WEIR__FLEET_ID + 1]; /* of its segment */
    char name[WEIR__FLEET_NAME_MAX + 1];
    char version[25];
    struct weir__rates rates; /* under its enforced rules */
    double level;             /* of load, 0 to 100; negative: it has none, or nobody says */
    enum weir__fleet_store store;
    uint64_t rules; /* what those in force say (weir__rules_checksum); 0: unknown */
    int64_t rule_count;
    int64_t every_ms; /* how often it tells */
};

/* As JSON in ASCII, with a zero byte. Its length; 0: it does not fit, or there is no memory. */
size_t weir__told_write(const struct weir__told *told, char *to, size_t size);
/* What anybody may have written. False: it is nothing of the kind. What is missing or beyond reason is unknown. */
bool weir__told_read(const char *text, size_t len, struct weir__told *told);
const char *weir__fleet_store_name(enum weir__fleet_store store);
/* A host that has told nothing for so long is silent. */
int64_t weir__told_patience_ms(const struct weir__told *told);

/* What this host has to tell. */
void weir__told_self(struct weir__told *told, const struct weir__sight *sight, bool has_store);

/* ---- The file ---- */

enum weir__fleet_via { WEIR__FLEET_HERE, WEIR__FLEET_BY_STORE, WEIR__FLEET_BY_RULES };

/* A host that was heard of. */
struct weir__heard {
    struct weir__told told;
    int64_t ago_ms; /* when the list was made */
    enum weir__fleet_via via;
};

#define WEIR__FLEET_WHY 160

struct weir__fleet_list {
    int64_t written_ms; /* by weir__coarse_ms: monotonic, since boot */
    enum weir__fleet_store store;
    char why[WEIR__FLEET_WHY]; /* it is away; "" */
    int64_t left_out;          /* hosts beyond what there is room for */
    size_t count;
    struct weir__heard *hosts; /* this one first; from malloc */
};

/* The text of a list, from malloc; NULL: no memory. And back, whatever it is: false, and the list is empty. */
char *weir__fleet_text(const struct weir__fleet_list *list, size_t *len);
bool weir__fleet_parse(const char *text, size_t len, struct weir__fleet_list *list);
/* The same of the file beside a segment; one of another user (weir__file_is_trusted) is not read. */
bool weir__fleet_load(const char *path, unsigned segment_owner, struct weir__fleet_list *list);
void weir__fleet_list_free(struct weir__fleet_list *list);

/* ---- For who looks ---- */

struct weir__fleet_host {
    struct weir__told told;
    int64_t heard_ms; /* ago */
    enum weir__fleet_via via;
    bool silent;
    bool differs; /* its rules are not those of most hosts */
};

struct weir__fleet {
    char path[4096];
    bool has_store;

    /* By weir__fleet_look. */
    struct weir__fleet_host *hosts; /* the first is this one */
    size_t count, silent, differ;
    int64_t left_out;
    enum weir__fleet_store store;
    char why[WEIR__FLEET_WHY];
    bool agent; /* the list is no older than an agent lets it become */
};

void weir__fleet_open(struct weir__fleet *fleet, const char *segment_path, bool has_store);
/* Looks anew. The sight must have looked lately. Without memory: nobody is there. */
void weir__fleet_look(struct weir__fleet *fleet, const struct weir__sight *sight);
void weir__fleet_close(struct weir__fleet *fleet);

#endif
