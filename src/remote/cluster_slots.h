/* The slots of a cluster: where a name belongs, and who owns what. */
#ifndef WEIR_REMOTE_CLUSTER_SLOTS_H
#define WEIR_REMOTE_CLUSTER_SLOTS_H

#include "remote/options.h"

struct redisReply;

#define WEIR__CLUSTER_SLOTS 16384
#define WEIR__SLOT_NODES    62 /* masters at most: each has a connection */
#define WEIR__SLOT_NOBODY   0xff

/* The slot of a key: CRC16 of its hash tag, or of all of it. */
unsigned weir__slot(const char *name, size_t len);

struct weir__slot_map {
    struct weir__store_host nodes[WEIR__SLOT_NODES];
    size_t count;
    uint8_t owner[WEIR__CLUSTER_SLOTS]; /* which of `nodes`, or WEIR__SLOT_NOBODY */
};

/*
 * Reads the answer of CLUSTER SLOTS; `queried` is the host that gave it, for a node that does not know its own address.
 * False: no such answer, more masters than fit, or no slot owned by anybody.
 */
bool weir__slots_read(const struct redisReply *reply, const char *queried, struct weir__slot_map *map);

/* Reads "slot host:port" of a MOVED or ASK error, text behind that word. An empty host: `queried`. */
bool weir__slots_redirect(const char *text, const char *queried, unsigned *slot, struct weir__store_host *to);

#endif
