/* gRPC's frame: whether the message is compressed, its length in four bytes, the message. A unary call has one. */
#include "services/rls/rls_internal.h"

#define PREFIX ((size_t)5)

bool weir__rls_unframe(const uint8_t *bytes, size_t len, weir_text *message, struct weir__rls_reply *reply)
{
    if (len < PREFIX)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the call has no message");
    size_t size = (size_t)bytes[1] << 24 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 8 | bytes[4];
    if (bytes[0] == 1) {
        reply->compressed = true;
        return weir__rls_fail(reply, WEIR__GRPC_UNIMPLEMENTED, "compressed messages are not supported; send identity");
    }
    if (bytes[0] != 0)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message's first byte must be 0 or 1, but is %d",
                              bytes[0]);
    if (size > WEIR__RLS_MESSAGE_MAX)
        return weir__rls_fail(reply, WEIR__GRPC_RESOURCE_EXHAUSTED, "the message has %zu bytes; at most %zu are read",
                              size, WEIR__RLS_MESSAGE_MAX);
    if (size > len - PREFIX)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message ends after %zu of its %zu bytes",
                              len - PREFIX, size);
    if (size < len - PREFIX)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "%zu bytes follow the message; a call has one",
                              len - PREFIX - size);
    *message = (weir_text){(const char *)bytes + PREFIX, size};
    return true;
}

uint8_t *weir__rls_frame(struct weir__rls_memory *memory, size_t len, struct weir__rls_reply *reply)
{
    uint8_t *frame = weir__rls_take(memory, PREFIX + len);
    if (!frame)
        return NULL;
    frame[0] = 0;
    for (size_t i = 1; i < PREFIX; i++)
        frame[i] = (uint8_t)(len >> 8 * (PREFIX - 1 - i));
    reply->body = frame;
    reply->len = PREFIX + len;
    return frame + PREFIX;
}
