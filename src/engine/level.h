/* The file of the load page (table/load.h), by custom the segment's path and ".load". */
#ifndef WEIR_ENGINE_LEVEL_H
#define WEIR_ENGINE_LEVEL_H

#include "engine/mapped.h"
#include "table/load.h"

/* Opens or makes it; NULL: anonymous memory. One that is damaged is replaced. */
int weir__level_open(const char *path, unsigned mode, struct weir__mapped *mapped);
/* What is there, for those who only look: WEIR_ENOENT, WEIR_EDAMAGED ... */
int weir__level_attach(const char *path, struct weir__mapped *mapped);

static inline struct weir__load *weir__level_page(const struct weir__mapped *mapped)
{
    return mapped->memory;
}

#endif
