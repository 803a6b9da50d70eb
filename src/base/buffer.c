/* A growable byte buffer. */
#include "base/buffer.h"

#include <stdint.h>
#include <stdio.h>
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
    char *more = size - buffer->len < len ? NULL : realloc(buffer->borrowed ? NULL : buffer->data, size);
    if (!more) {
        buffer->failed = true;
        buffer->size = buffer->len; /* weir__buffer_room finds no room any more */
        return NULL;
    }
    if (buffer->borrowed)
        memcpy(more, buffer->data, buffer->len);
    buffer->borrowed = false;
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

void weir__buffer_vprintf(struct weir__buffer *buffer, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *to = len < 0 ? NULL : weir__buffer_room(buffer, (size_t)len + 1);
    if (to)
        buffer->len += (size_t)vsnprintf(to, (size_t)len + 1, format, arguments);
}

void weir__buffer_printf(struct weir__buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    weir__buffer_vprintf(buffer, format, arguments);
    va_end(arguments);
}

void weir__buffer_free(struct weir__buffer *buffer)
{
    if (!buffer->borrowed)
        free(buffer->data);
    *buffer = (struct weir__buffer){0};
}
