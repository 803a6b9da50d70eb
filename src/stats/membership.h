/*
 * Membership: which hosts exist, their status, and when each was last heard from. docs/reference/hosts.md
 * has the guarantees.
 *
 *   heartbeat         one host's status, and a list of hosts, as JSON; filled in for this host from its snapshot
 *   membership_store  exchange of heartbeats with the store (lua/hosts.lua)
 *   heartbeat_sender  the agent's loop: every two seconds both of these
 *   subscribers       heartbeats of hosts that poll their rules from this one
 *   membership        the readers' view of the .hosts file, which lists all known hosts: this host first
 */
#ifndef WEIR_STATS_MEMBERSHIP_H
#define WEIR_STATS_MEMBERSHIP_H

#include "base/log.h"
#include "config/config.h"
#include "stats/snapshot.h"

#include <jansson.h>
#include <pthread.h>

#define WEIR__HOSTS_MAX          1024 /* hosts in a list, and in the store */
#define WEIR__HEARTBEAT_MAX      1024 /* bytes of a heartbeat */
#define WEIR__HOST_ID            16   /* hexadecimal digits */
#define WEIR__HEARTBEAT_NAME_MAX 64
#define WEIR__HEARTBEAT_EVERY_MS 2000
#define WEIR__HOSTS_FORGET_MS    (5 * 60 * 1000)

/* The store's state as a host sees it. */
enum weir__host_store {
    WEIR__HOST_STORE_NONE,
    WEIR__HOST_STORE_UNKNOWN,
    WEIR__HOST_STORE_UP,
    WEIR__HOST_STORE_UNAVAILABLE
};

/* A host's status. The texts are untrusted UTF-8: escape them before display. */
struct weir__heartbeat {
    char id[WEIR__HOST_ID + 1]; /* of its segment */
    char name[WEIR__HEARTBEAT_NAME_MAX + 1];
    char version[25];
    struct weir__rates rates; /* under its enforced rules */
    double level;             /* load, 0 to 100; negative: unknown */
    enum weir__host_store store;
    uint64_t rules; /* checksum of the active rules (weir__rules_checksum); 0: unknown */
    int64_t rule_count;
    int64_t every_ms; /* interval between its heartbeats */
};

/* Formats JSON in ASCII, terminated. Returns its length; 0: it does not fit, or no memory. */
size_t weir__heartbeat_format(const struct weir__heartbeat *heartbeat, char *to, size_t size);
/* Parses untrusted text. False: not a heartbeat. Missing or implausible values become unknown. */
bool weir__heartbeat_parse(const char *text, size_t len, struct weir__heartbeat *heartbeat);
/* A host without a heartbeat for this long is silent. */
int64_t weir__heartbeat_timeout_ms(const struct weir__heartbeat *heartbeat);

/* The id of the host with this segment. */
void weir__host_id(const weir_segment *segment, char id[WEIR__HOST_ID + 1]);
/* Fills in this host's heartbeat. */
void weir__heartbeat_of_self(struct weir__heartbeat *heartbeat, const struct weir__snapshot *snapshot, bool has_store);

/* ---- The file ---- */

enum weir__host_via { WEIR__HOST_SELF, WEIR__HOST_VIA_STORE, WEIR__HOST_VIA_RULES };

/* A host as another one knows it. */
struct weir__host_status {
    struct weir__heartbeat heartbeat;
    int64_t ago_ms; /* when the heartbeat was received, before the list was made */
    enum weir__host_via via;

    /* Set by weir__membership_refresh. */
    bool silent;
    bool differs; /* its rules differ from those of most hosts */
};

#define WEIR__HOSTS_WHY 160

struct weir__host_list {
    int64_t written_ms; /* by weir__coarse_ms: monotonic, since boot */
    enum weir__host_store store;
    char why[WEIR__HOSTS_WHY]; /* why the store is unavailable; "": it is not */
    int64_t left_out;          /* hosts beyond WEIR__HOSTS_MAX */
    size_t count;
    struct weir__host_status *hosts; /* this one first; from malloc */
};

/* Formats a list as JSON, from malloc (NULL: no memory), and parses one (false: malformed, and the list is empty). */
char *weir__host_list_format(const struct weir__host_list *list, size_t *len);
bool weir__host_list_parse(const char *text, size_t len, struct weir__host_list *list);
void weir__host_list_free(struct weir__host_list *list);

/* ---- For readers ---- */

struct weir__membership {
    char path[4096];
    bool has_store;

    /* Set by weir__membership_refresh. */
    struct weir__host_status *hosts; /* the first is this one */
    size_t count, silent, differ;
    int64_t left_out;
    enum weir__host_store store;
    char why[WEIR__HOSTS_WHY];
    bool agent; /* an agent runs: the list is recent */
};

void weir__membership_open(struct weir__membership *membership, const char *segment_path, bool has_store);
/* Reads the file again. The snapshot must be recent. Without memory the list is empty. */
void weir__membership_refresh(struct weir__membership *membership, const struct weir__snapshot *snapshot);
void weir__membership_close(struct weir__membership *membership);
/* What weir__stats_json_hosts formats. NULL: no memory. */
json_t *weir__membership_json(const struct weir__membership *membership);

/* ---- Subscribers: hosts that poll their rules from this one, with their heartbeats; thread-safe ---- */

/* Zero but for the lock, which is PTHREAD_MUTEX_INITIALIZER. */
struct weir__subscribers {
    pthread_mutex_t lock;
    size_t count;
    struct weir__subscriber {
        struct weir__heartbeat heartbeat;
        int64_t received_ms; /* when */
    } list[WEIR__HOSTS_MAX];
};

/* Records a heartbeat. If the table is full, it replaces the host that has been silent longest, if one is silent. */
void weir__subscribers_record(struct weir__subscribers *subscribers, const struct weir__heartbeat *heartbeat,
                              int64_t now_ms);
/* Appends them to a list with room for WEIR__HOSTS_MAX; of a host that is listed already, the newer heartbeat stays. */
void weir__subscribers_append(struct weir__subscribers *subscribers, struct weir__host_list *list, int64_t now_ms);

/* ---- The agent's heartbeat sender: exchanges heartbeats with the store and writes the .hosts file ---- */

struct weir__heartbeat_sender;

/* True if other hosts can exist: a shared store, or an admin listener that hosts poll rules from. */
bool weir__heartbeat_sender_wanted(const struct weir__config *config);
/* NULL: no memory. The arguments must outlive the sender. */
struct weir__heartbeat_sender *weir__heartbeat_sender_new(const struct weir__config *config,
                                                          const struct weir__logger *log);
/*
 * Sends this host's heartbeat and receives the others', once; sets self->store. Call it every WEIR__HEARTBEAT_EVERY_MS.
 * Blocks for at most about a second.
 */
void weir__heartbeat_sender_run(struct weir__heartbeat_sender *sender, struct weir__heartbeat *self,
                                struct weir__subscribers *subscribers);
/* Removes this host from the store and frees the sender. NULL is allowed. */
void weir__heartbeat_sender_free(struct weir__heartbeat_sender *sender);

/* ---- Internal: JSON, and the exchange of heartbeats with the store ---- */

/* The script lua/hosts.lua and its SHA-1 for EVALSHA. */
extern const char weir__hosts_script[];
extern const char weir__hosts_script_sha[41];

json_t *weir__hundredths(double value);
/* Rates rounded to hundredths, or null if they are unknown. */
json_t *weir__rates_json(const struct weir__rates *rates);
extern const char *const weir__host_store_names[4], *const weir__host_via_names[3]; /* by their enums */

struct weir__heartbeat_store;

/* NULL: no memory. `patience_us`: time-out of a reply. */
struct weir__heartbeat_store *weir__heartbeat_store_new(const struct weir__store_options *options, int64_t patience_us);
void weir__heartbeat_store_free(struct weir__heartbeat_store *link);
/*
 * Sends the heartbeat and reads the other hosts' into `list`, replacing those that came from the store; with `list`
 * NULL only counts them. 0, or an error and its reason (WEIR__HOSTS_WHY bytes). *count: hosts in the store.
 */
int weir__heartbeat_store_exchange(struct weir__heartbeat_store *link, const struct weir__heartbeat *heartbeat,
                                   struct weir__host_list *list, int64_t *count, char *why);
/* Removes this host from the store; waits for half the time-out at most. */
void weir__heartbeat_store_leave(struct weir__heartbeat_store *link, const char *id);

#endif
