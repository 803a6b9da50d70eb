/* Opening, creating and attaching segments. */
#include "engine/segment.h"
#include "base/hash.h"
#include "engine/mapped_file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static bool processor_fits(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_CMPXCHG16B);
#else
    return true;
#endif
}

/* Attaches a handle to a mapping. Unmaps and frees on failure. */
static int finish(weir_segment *made, struct weir__mapped *mapped, weir_segment **segment)
{
    int error = weir__segment_attach(mapped->memory, mapped->bytes, &made->table);
    if (!error)
        error = weir__mapped_fill_holes(mapped, made->table.bytes);
    if (error) {
        weir__mapped_close(mapped);
        free(made);
        return error;
    }
    made->memory = mapped->memory;
    made->bytes = mapped->bytes;
    made->read_only = mapped->read_only;
    made->owner = mapped->owner;
    *segment = made;
    return 0;
}

static int fill_plan(const weir_segment_options *options, struct weir__segment_spec *plan)
{
    *plan = (struct weir__segment_spec){.bytes = options->size, .slab_bytes = options->slab_bytes};
    if (!options->slab_bytes && !options->no_slab)
        plan->slab_bytes = options->size / 16;
    if (options->slab_bytes && options->no_slab)
        return WEIR_EINVAL;

    weir_time now = weir__clocks();
    plan->wall_ns = now.wall_ns;
    plan->boot_ns = now.mono_ns;
    weir__boot_id(plan->boot);
    return weir__random_fill(plan->secret, sizeof plan->secret);
}

static int format(void *memory, uint64_t bytes, const void *plan)
{
    (void)bytes; /* in the plan, too */
    return weir__segment_format(memory, plan);
}

static int create(const weir_segment_options *options, bool replace, weir_segment **segment)
{
    struct weir__segment_spec plan;
    struct weir__mapped mapped;
    int error = fill_plan(options, &plan);
    if (error)
        return error;
    /* Before any space is reserved; weir__segment_format checks again. */
    if (plan.bytes < WEIR__SIZE_MIN || plan.bytes > INT64_MAX || plan.slab_bytes > plan.bytes / 2)
        return WEIR_ESIZE;
    struct weir__making making = {.path = options->path,
                                  .bytes = plan.bytes,
                                  .mode = options->mode,
                                  .replace = replace,
                                  .format = format,
                                  .plan = &plan};
    weir_segment *made = calloc(1, sizeof *made); /* first: a failure must not leave a file behind */
    error = made ? weir__mapped_make(&making, &mapped) : WEIR_ENOMEM;
    if (!error)
        return finish(made, &mapped, segment);
    free(made);
    return error;
}

static int attach(const weir_segment_options *options, weir_segment **segment)
{
    struct weir__mapped mapped;
    struct weir__making how = {.path = options->path,
                               .read_only = options->flags & WEIR_OPEN_READONLY,
                               .trusted = options->flags & WEIR_OPEN_TRUSTED};
    weir_segment *made = calloc(1, sizeof *made);
    int error = made ? weir__mapped_attach(&how, &mapped) : WEIR_ENOMEM;
    if (error) {
        free(made);
        return error;
    }
    error = finish(made, &mapped, segment);
    if (!error)
        weir__clock_adopt(*segment);
    return error;
}

/*
 * Replaces a broken segment, one process at a time: the next one finds the new segment. The lock is given up after some
 * seconds, so that a stopped holder does not block the others for ever.
 */
static int rebuild(const weir_segment_options *options, weir_segment **segment)
{
    int lock = weir__mapped_lock(options->path);
    if (lock < 0)
        return weir__errno_error(errno);
    int error = attach(options, segment);
    if (weir__is_broken(error))
        error = create(options, true, segment);
    close(lock);
    return error;
}

int weir_segment_open(const weir_segment_options *options, weir_segment **segment)
{
    const int known =
        WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE | WEIR_OPEN_READONLY | WEIR_OPEN_REBUILD | WEIR_OPEN_TRUSTED;
    if (!options || !segment || (options->flags & ~known) || (options->path && !options->path[0]))
        return WEIR_EINVAL;
    bool make = options->flags & WEIR_OPEN_CREATE || !options->path;
    bool only_new = options->flags & WEIR_OPEN_EXCLUSIVE || !options->path;
    if ((make && options->flags & WEIR_OPEN_READONLY) ||
        (!make && options->flags & (WEIR_OPEN_REBUILD | WEIR_OPEN_EXCLUSIVE)))
        return WEIR_EINVAL;
    if (!processor_fits())
        return WEIR_ECPU;

    /* Twice: another process may create or remove it between the attach and the link. */
    int error = WEIR_ENOENT;
    for (int round = 0; round < 2; round++) {
        if (!only_new) {
            error = attach(options, segment);
            if (weir__is_broken(error) && options->flags & WEIR_OPEN_REBUILD)
                return rebuild(options, segment);
            if (error != WEIR_ENOENT || !make)
                return error;
        }
        error = create(options, false, segment);
        if (error != WEIR_EEXIST || only_new)
            return error;
    }
    return error;
}

unsigned weir__segment_owner(const weir_segment *segment)
{
    return segment->owner;
}

/*
 * XXH3 is not a cryptographic hash, but its value is never shown: it only mixes the 192 secret bytes and the purpose
 * into a key for a function that is one.
 */
int weir_segment_secret(const weir_segment *segment, const char *purpose, uint8_t secret[WEIR_SECRET_BYTES])
{
    char text[WEIR__SECRET_BYTES + 64];
    size_t len = purpose ? strlen(purpose) : 0;
    if (!segment || !len || !secret || len > sizeof text - WEIR__SECRET_BYTES)
        return WEIR_EINVAL;
    memcpy(text, segment->table.header->secret, WEIR__SECRET_BYTES);
    if (weir__lost(segment)) /* then the secret is all zeros */
        return WEIR_ELOST;
    for (size_t i = 0; i < len; i++) /* without its zero byte */
        text[WEIR__SECRET_BYTES + i] = purpose[i];
    for (uint64_t i = 0; i < WEIR_SECRET_BYTES / 8; i++) {
        uint64_t part = weir__hash_text((weir_text){text, WEIR__SECRET_BYTES + len}, i + 1);
        memcpy(secret + 8 * i, &part, 8);
    }
    return 0;
}

void weir_segment_close(weir_segment *segment)
{
    if (!segment)
        return;
    weir__unguard(segment);
    munmap(segment->memory, segment->bytes);
    free(segment);
}
