/* Registers the store library with the engine. */
#include "engine/store_ops.h"
#include "remote/blocking_client.h"

#include <weir/store.h>

int weir_store_use(void)
{
    static const struct weir__store_ops ops = {.version = WEIR_VERSION,
                                               .open = weir__blocking_client_new,
                                               .close = weir__blocking_client_free,
                                               .request = weir__blocking_client_request,
                                               .refund = weir__blocking_client_refund,
                                               .flush_refunds = weir__blocking_client_flush_refunds,
                                               .stats = weir__blocking_client_stats};
    return weir_store_register(&ops);
}
