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

#define WEIR__HOSTS_MAX          1024 /* hosts in a list; in the store there is room for no more */
#define WEIR__HEARTBEAT_MAX      1024 /* bytes of what a host tells of itself */
#define WEIR__HOST_ID            16   /* digits */
#define WEIR__HEARTBEAT_NAME_MAX 64
#define WEIR__HEARTBEAT_EVERY_MS 2000
#define WEIR__HOSTS_FORGET_MS    (5 * 60 * 1000)

/* The store, as a host sees it. */
enum weir__host_store {
    WEIR__HOST_STORE_NONE,
    WEIR__HOST_STORE_UNKNOWN,
    WEIR__HOST_STORE_UP,
    WEIR__HOST_STORE_UNAVAILABLE
};

/* What a host tells of itself. Texts are UTF-8 of anybody's: whoever shows them makes them harmless. */
struct weir__heartbeat {
    char id[WEIR__HOST_ID + 1]; /* of its segment */
    char name[WEIR__HEARTBEAT_NAME_MAX + 1];
    char version[25];
    struct weir__rates rates; /* under its enforced rules */
    double level;             /* of load, 0 to 100; negative: it has none, or nobody says */
    enum weir__host_store store;
    uint64_t rules; /* what those in force say (weir__rules_checksum); 0: unknown */
    int64_t rule_count;
    int64_t every_ms; /* how often it tells */
};

/* As JSON in ASCII, with a zero byte. Its length; 0: it does not fit, or there is no memory. */
size_t weir__heartbeat_format(const struct weir__heartbeat *heartbeat, char *to, size_t size);
/* What anybody may have written. False: it is nothing of the kind. What is missing or beyond reason is unknown. */
bool weir__heartbeat_parse(const char *text, size_t len, struct weir__heartbeat *heartbeat);
const char *weir__host_store_name(enum weir__host_store store);
/* A host that has told nothing for so long is silent. */
int64_t weir__heartbeat_timeout_ms(const struct weir__heartbeat *heartbeat);

/* What this host has to tell. */
void weir__heartbeat_of_self(struct weir__heartbeat *heartbeat, const struct weir__snapshot *snapshot, bool has_store);

/* ---- The file ---- */

enum weir__host_via { WEIR__HOST_SELF, WEIR__HOST_VIA_STORE, WEIR__HOST_VIA_RULES };

/* A host that was heard of. */
struct weir__received_heartbeat {
    struct weir__heartbeat heartbeat;
    int64_t ago_ms; /* when the list was made */
    enum weir__host_via via;
};

#define WEIR__HOSTS_WHY 160

struct weir__host_list {
    int64_t written_ms; /* by weir__coarse_ms: monotonic, since boot */
    enum weir__host_store store;
    char why[WEIR__HOSTS_WHY]; /* it is away; "" */
    int64_t left_out;          /* hosts beyond what there is room for */
    size_t count;
    struct weir__received_heartbeat *hosts; /* this one first; from malloc */
};

/* The text of a list, from malloc; NULL: no memory. And back, whatever it is: false, and the list is empty. */
char *weir__host_list_format(const struct weir__host_list *list, size_t *len);
bool weir__host_list_parse(const char *text, size_t len, struct weir__host_list *list);
/* The same of the file beside a segment; one of another user (weir__file_is_trusted) is not read. */
bool weir__host_list_read(const char *path, unsigned segment_owner, struct weir__host_list *list);
void weir__host_list_free(struct weir__host_list *list);

/* ---- For who looks ---- */

struct weir__host_status {
    struct weir__heartbeat heartbeat;
    int64_t received_ms; /* ago */
    enum weir__host_via via;
    bool silent;
    bool differs; /* its rules are not those of most hosts */
};

struct weir__membership {
    char path[4096];
    bool has_store;

    /* By weir__membership_refresh. */
    struct weir__host_status *hosts; /* the first is this one */
    size_t count, silent, differ;
    int64_t left_out;
    enum weir__host_store store;
    char why[WEIR__HOSTS_WHY];
    bool agent; /* the list is no older than an agent lets it become */
};

void weir__membership_open(struct weir__membership *membership, const char *segment_path, bool has_store);
/* Looks anew. The sight must have looked lately. Without memory: nobody is there. */
void weir__membership_refresh(struct weir__membership *membership, const struct weir__snapshot *snapshot);
void weir__membership_close(struct weir__membership *membership);

#endif
