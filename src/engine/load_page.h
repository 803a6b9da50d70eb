/* The file of the load page (table/load_page.h), by convention SEGMENT.load. */
#ifndef WEIR_ENGINE_LOAD_PAGE_H
#define WEIR_ENGINE_LOAD_PAGE_H

#include "engine/mapped_file.h"
#include "table/load_page.h"

/* Opens or creates the file at `where` (path, mode, owner, read_only); path NULL: anonymous memory. */
int weir__load_page_open(const struct weir__making *where, struct weir__mapped *mapped);

static inline struct weir__load_page *weir__load_page_of(const struct weir__mapped *mapped)
{
    return mapped->memory;
}

#endif
