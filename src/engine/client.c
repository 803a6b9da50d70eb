/* Who a request's client is, for those who write it down. */
#include "engine/engine.h"

int weir_client(weir *engine, const weir_query *query, uint8_t address[16])
{
    if (!engine || !query || !address || (query->attribute_count && !query->attributes && !query->lookup) ||
        (query->peer && query->peer_len != 4 && query->peer_len != 16))
        return WEIR_EINVAL;
    int at;
    struct weir__values values;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    weir__values_begin(&values, &ruleset->rules->attributes, query);
    const struct weir__address *client = weir__value_client(&values);
    weir__hazard_release(&engine->hazards, at);
    if (!client)
        return 0;
    int len = weir__address_is4(client) ? 4 : 16;
    memcpy(address, client->bytes + sizeof client->bytes - (size_t)len, (size_t)len);
    return len;
}
