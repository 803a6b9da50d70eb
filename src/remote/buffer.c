/* A text that grows. */
#include "remote/script.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 4096

char *weir__buffer_grow(struct weir__buffer *buffer, size_t len)
{
    size_t size = buffer->size ? buffer->size : FIRST_SIZE;
    if (buffer->failed)
        return NULL;
    while (size - buffer->len < len && size <= SIZE_MAX / 2)
        size *= 2;
    char *more = size - buffer->len < len ? NULL : realloc(buffer->data, size);
    if (!more) {
        buffer->failed = true;
        buffer->size = buffer->len; /* so that nobody finds room any more */
        return NULL;
    }
    buffer->data = more;
    buffer->size = size;
    return more + buffer->len;
}

void weir__buffer_add(struct weir__buffer *buffer, const void *data, size_t len)
{
    char *to = len ? weir__buffer_room(buffer, len) : NULL;
    if (!to)
        return;
    memcpy(to, data, len);
    buffer->len += len;
}

void weir__buffer_free(struct weir__buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct weir__buffer){0};
}
