/* A growable byte buffer. */
#ifndef WEIR_BASE_BUFFER_H
#define WEIR_BASE_BUFFER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Zero it to begin. After a failed allocation `failed` is set, the contents are useless and nothing more is added. */
struct weir__buffer {
    char *data;
    size_t len, size;
    bool borrowed; /* `data` is the caller's memory, not malloc's */
    bool failed;
};

/* Begins in memory of the caller's, e.g. on the stack; malloc is called only when it is full. */
static inline void weir__buffer_borrow(struct weir__buffer *buffer, char *memory, size_t size)
{
    *buffer = (struct weir__buffer){.data = memory, .size = size, .borrowed = true};
}

/* Makes room for `len` more bytes. Returns where they go; NULL: no memory. */
char *weir__buffer_grow(struct weir__buffer *buffer, size_t len);
/* The same, inline for the common case. The caller adds to `len` what it has written. */
static inline char *weir__buffer_room(struct weir__buffer *buffer, size_t len)
{
    return len <= buffer->size - buffer->len ? buffer->data + buffer->len : weir__buffer_grow(buffer, len);
}

void weir__buffer_add(struct weir__buffer *buffer, const void *data, size_t len);
#define weir__buffer_add_literal(buffer, literal) weir__buffer_add((buffer), (literal), sizeof(literal) - 1)
/* Appends formatted text and a zero byte, which `len` does not count. */
void weir__buffer_printf(struct weir__buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void weir__buffer_vprintf(struct weir__buffer *buffer, const char *format, va_list arguments);
void weir__buffer_free(struct weir__buffer *buffer);

#endif
