/*
 * The dashboard's files: web/ builds them, and tools/embed.py writes them into the generated dashboard_files.c. Without
 * npm at build time there is one page, which explains that.
 */
#ifndef WEIR_CONTROL_DASHBOARD_H
#define WEIR_CONTROL_DASHBOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Content-Security-Policy: scripts, styles and requests to this listener only, nothing inline, in no frame. */
#define WEIR__DASHBOARD_POLICY                                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "   \
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

struct weir__dashboard_file {
    const char *path; /* "/" for the page itself */
    const char *type;
    const char *etag; /* with its quotes */
    const unsigned char *bytes;
    size_t size;
    const unsigned char *packed; /* gzip; NULL if that is not smaller */
    size_t packed_size;
    bool forever; /* its name changes with its content, so that it may be kept for good */
};

extern const struct weir__dashboard_file weir__dashboard_files[];
extern const size_t weir__dashboard_count;

/* The file of a path as the client sent it, without query; NULL if there is none. Nothing is decoded or resolved. */
static inline const struct weir__dashboard_file *weir__dashboard_find(const char *path)
{
    for (size_t i = 0; i < weir__dashboard_count; i++)
        if (strcmp(weir__dashboard_files[i].path, path) == 0)
            return &weir__dashboard_files[i];
    return NULL;
}

#endif
