/*
 * Library calls that fail when the test wants it. The linker replaces the real ones (-Wl,--wrap=NAME, in the
 * Makefile), so the library under test is the one that ships.
 */
#ifndef WEIR_TESTS_FAILING_H
#define WEIR_TESTS_FAILING_H

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>

#define FAILING(type, name, parameters, arguments, failed, when)                                                       \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return (when) ? failed : __real_##name arguments;                                                              \
    }

#define FAILING_MALLOC(when)  FAILING(void *, malloc, (size_t size), (size), NULL, when)
#define FAILING_CALLOC(when)  FAILING(void *, calloc, (size_t count, size_t size), (count, size), NULL, when)
#define FAILING_REALLOC(when) FAILING(void *, realloc, (void *old, size_t size), (old, size), NULL, when)
#define FAILING_STRDUP(when)  FAILING(char *, strdup, (const char *text), (text), NULL, when)
#define FAILING_FSTAT(when)   FAILING(int, fstat, (int file, struct stat *at), (file, at), -1, when)

/* `when` can use path and flags. */
#define FAILING_OPEN(when)                                                                                             \
    int __real_open(const char *path, int flags, ...);                                                                 \
    int __wrap_open(const char *path, int flags, ...);                                                                 \
    int __wrap_open(const char *path, int flags, ...)                                                                  \
    {                                                                                                                  \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, unsigned) : 0;                                    \
        va_end(list);                                                                                                  \
        return (when) ? -1 : __real_open(path, flags, mode);                                                           \
    }

#endif
