/* Opening, creating and attaching segments. */
#include "engine/segment.h"
#include "base/hash.h"

#include <stdlib.h>
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

static uint64_t slab_bytes(const weir_segment_options *options)
{
    return options->slab_bytes || options->no_slab ? options->slab_bytes : options->size / 16;
}

/* Before any space is reserved; weir__segment_format checks again. */
static int check_sizes(const weir_segment_options *options)
{
    if (options->slab_bytes && options->no_slab)
        return WEIR_EINVAL;
    bool fits = options->size >= WEIR__SIZE_MIN && options->size <= INT64_MAX;
    return fits && slab_bytes(options) <= options->size / 2 ? 0 : WEIR_ESIZE;
}

static int format(void *memory, uint64_t bytes, const void *options)
{
    weir_time now = weir__clocks();
    struct weir__segment_spec plan = {
        .bytes = bytes, .slab_bytes = slab_bytes(options), .wall_ns = now.wall_ns, .boot_ns = now.mono_ns};
    weir__boot_id(plan.boot);
    int error = weir__random_fill(plan.secret, sizeof plan.secret);
    return error ? error : weir__segment_format(memory, &plan);
}

static int check(void *memory, uint64_t bytes, const void *options)
{
    struct weir__table unused;
    (void)options;
    return weir__segment_attach(memory, bytes, &unused);
}

static uint64_t used(const void *memory)
{
    const struct weir__header *header = memory;
    unsigned now = weir__doublings(header->geometry), before = weir__doublings_before(header->geometry);
    return header->bytes << (now > before ? now : before);
}

int weir_segment_open(const weir_segment_options *options, weir_segment **segment)
{
    const int known =
        WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE | WEIR_OPEN_READONLY | WEIR_OPEN_REBUILD | WEIR_OPEN_TRUSTED;
    if (!options || !segment || (options->flags & ~known) || (options->path && !options->path[0]))
        return WEIR_EINVAL;
    bool create = options->flags & WEIR_OPEN_CREATE || !options->path;
    if ((create && options->flags & WEIR_OPEN_READONLY) ||
        (!create && options->flags & (WEIR_OPEN_REBUILD | WEIR_OPEN_EXCLUSIVE)))
        return WEIR_EINVAL;
    if (!processor_fits())
        return WEIR_ECPU;
    struct weir__file_spec spec = {.path = options->path,
                                   .bytes = options->size,
                                   .mode = options->mode,
                                   .read_only = options->flags & WEIR_OPEN_READONLY,
                                   .trusted = options->flags & WEIR_OPEN_TRUSTED,
                                   .exclusive = options->flags & WEIR_OPEN_EXCLUSIVE,
                                   .rebuild = options->flags & WEIR_OPEN_REBUILD,
                                   .format = create ? format : NULL,
                                   .make_error = check_sizes(options),
                                   .plan = options,
                                   .check = check,
                                   .room = 1U << WEIR__DOUBLINGS_MAX,
                                   .used = used};
    weir_segment *made = calloc(1, sizeof *made); /* first: a failure must not leave a file behind */
    int error = made ? weir__mapped_open_segment(&spec, &made->mapped) : WEIR_ENOMEM;
    if (!error)
        error = weir__segment_attach(made->mapped.memory, made->mapped.mapped, &made->table);
    if (error) {
        weir_segment_close(made);
        return error;
    }
    weir__clock_adopt(made);
    *segment = made;
    return 0;
}

unsigned weir__segment_owner(const weir_segment *segment)
{
    return segment->mapped.owner;
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
    weir__mapped_close(&segment->mapped);
    free(segment);
}
