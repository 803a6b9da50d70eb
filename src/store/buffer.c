/* A text that grows. */
#include "store/script.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 4096

void weir__buffer_add(struct weir__buffer *buffer, const void *data, size_t len)
{
    if (buffer->failed || !len)
        return;
    if (len > buffer->size - buffer->len) {
        size_t size = buffer->size ? buffer->size : FIRST_SIZE;
        while (size - buffer->len < len && size <= SIZE_MAX / 2)
            size *= 2;
        char *more = size - buffer->len < len ? NULL : realloc(buffer->data, size);
        if (!more) {
            buffer->failed = true;
            return;
        }
        buffer->data = more;
        buffer->size = size;
    }
    memcpy(buffer->data + buffer->len, data, len);
    buffer->len += len;
}

void weir__buffer_free(struct weir__buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct weir__buffer){0};
}
