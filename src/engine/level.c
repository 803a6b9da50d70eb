/* The file of the load page. See level.h. */
#include "engine/level.h"

static int format(void *memory, uint64_t bytes, const void *plan)
{
    (void)plan;
    return weir__load_make(memory, bytes) ? 0 : WEIR_ESIZE;
}

static int check(void *memory, uint64_t bytes)
{
    return weir__load_sound(memory, bytes) ? 0 : WEIR_EDAMAGED;
}

int weir__level_open(const char *path, unsigned mode, struct weir__mapped *mapped)
{
    struct weir__making making = {
        .path = path, .bytes = sizeof(struct weir__load), .mode = mode, .format = format, .check = check};
    return weir__mapped_open(&making, mapped);
}

int weir__level_attach(const char *path, struct weir__mapped *mapped)
{
    int error = weir__mapped_attach(path, true, mapped);
    if (error)
        return error;
    error = check(mapped->memory, mapped->bytes);
    if (error)
        weir__mapped_close(mapped);
    return error;
}
