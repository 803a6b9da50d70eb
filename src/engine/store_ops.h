/*
 * The engine's interface to the store library (libweir-store, src/remote). The engine calls the blocking client through
 * a table of functions, so that libweir references neither hiredis nor OpenSSL. weir_store_use (<weir/store.h>), in the
 * store library, registers the table; weir_open refuses weir_options.store without it (WEIR_ESTORELIB).
 */
#ifndef WEIR_ENGINE_STORE_OPS_H
#define WEIR_ENGINE_STORE_OPS_H

#include "engine/store_options.h"
#include "engine/store_request.h"

enum weir__store_state { WEIR__STORE_NEW, WEIR__STORE_UP, WEIR__STORE_DOWN, WEIR__STORE_PROBING };

/* Totals of a client. */
struct weir__client_stats {
    uint64_t requests, replied, failed; /* submitted; completed without and with an error */
    uint64_t slow;                      /* of the failed: missed their deadline */
    uint64_t refused;                   /* of the failed: refused by the open breaker, not sent */
    uint64_t commands, bytes_out, bytes_in;
    uint64_t connects, disconnects;
    uint64_t script_loads, redirects, refunds;
    uint64_t opened; /* times a breaker opened */
    enum weir__store_state state;
    int last_error; /* of the last failure of a server */
};

struct weir__blocking_client;

/* Functions of remote/client.h, which documents them. */
struct weir__store_ops {
    const char *version; /* WEIR_VERSION: the two libraries share structures, so they must be of the same version */
    struct weir__blocking_client *(*open)(const struct weir__store_options *options);
    void (*close)(struct weir__blocking_client *client);
    int (*request)(struct weir__blocking_client *client, struct weir__store_request *request);
    void (*refund)(struct weir__blocking_client *client, const struct weir__store_request *request);
    void (*flush_refunds)(struct weir__blocking_client *client, int64_t most_us);
    void (*stats)(struct weir__blocking_client *client, struct weir__client_stats *stats);
};

/* NULL: none is registered. */
const struct weir__store_ops *weir__store_ops(void);

/* Exported, for libweir-store only. `ops` must stay. 0, or WEIR_ESTORELIB: the versions differ. */
__attribute__((visibility("default"))) int weir_store_register(const struct weir__store_ops *ops);

#endif
