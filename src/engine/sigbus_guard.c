/*
 * Survives the truncation of a segment's file by another process. The kernel then sends SIGBUS for accesses to pages
 * without a file. The handler marks the segment as lost and maps private memory over all of it, so that the interrupted
 * instruction continues with an empty table. The calls of the engine check the mark before they return a decision.
 *
 * The handler uses nothing but atomic loads and stores, mmap (on Linux a bare system call) and sigaction.
 */
#include "engine/segment.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#define SEGMENTS_MAX 16
#define SIDECARS_MAX 256
#define ALL_MAX      (SEGMENTS_MAX + SIDECARS_MAX)

static uint64_t guarded[ALL_MAX]; /* pointers to struct weir__mapped, segments first; 0: free */
/*
 * For each of those: the text of a loss that weir__sidecar_lost has not returned yet, or 0. The text outlives the
 * mapping, which another thread may close meanwhile.
 */
static uint64_t unreported[ALL_MAX];
static uint32_t installed;
static struct sigaction before;

static struct weir__mapped *guarded_at(int i)
{
    return (struct weir__mapped *)(uintptr_t)weir__load64(&guarded[i]);
}

/* True if the address is in a guarded segment or a sidecar file, which is replaced by private memory. */
static bool replace_at(uintptr_t address)
{
    for (int i = 0; i < ALL_MAX; i++) {
        struct weir__mapped *mapped = guarded_at(i);
        if (!mapped || address - (uintptr_t)mapped->memory >= mapped->mapped)
            continue;
        /* The mark first: a reader of the empty memory sees it, too. */
        weir__store32(&mapped->lost, 1);
        weir__store64(&unreported[i], (uint64_t)(uintptr_t)mapped->disabled);
        return mmap(mapped->memory, mapped->mapped, mapped->read_only ? PROT_READ : PROT_READ | PROT_WRITE,
                    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
    return false;
}

/* Calls the previous handler, or applies the default action. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
        return;
    }
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
        return;
    }
    bool was_sent = info->si_code <= 0;
    if (before.sa_handler == SIG_IGN && was_sent)
        return;
    /* The instruction is repeated and ends the process; a signal sent by a process must be raised again. */
    sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    if (was_sent)
        raise(number);
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    int before_call = errno;
    if (info->si_code <= 0 || !replace_at((uintptr_t)info->si_addr))
        pass_on(number, info, context);
    errno = before_call;
}

static int install(void)
{
    uint32_t no = 0;
    if (!weir__cas32(&installed, &no, 1))
        return 0;
    struct sigaction ours = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) == 0 && sigaction(SIGBUS, &ours, NULL) == 0)
        return 0;
    weir__store32(&installed, 0);
    return WEIR_ESYS;
}

/* Uses one of the slots [from, end). Its index; -1: none is free. */
static int guard(struct weir__mapped *mapped, int from, int end)
{
    for (int i = from; i < end; i++) {
        uint64_t none = 0;
        if (weir__cas64(&guarded[i], &none, (uint64_t)(uintptr_t)mapped))
            return i;
    }
    return -1;
}

int weir__mapped_guard(struct weir__mapped *mapped)
{
    for (int i = 0; i < SEGMENTS_MAX; i++)
        if (guarded_at(i) == mapped)
            return 0;
    int at = guard(mapped, 0, SEGMENTS_MAX);
    int error = at < 0 ? WEIR_EGUARDS : install();
    if (at >= 0 && error)
        weir__store64(&guarded[at], 0);
    return error;
}

int weir_segment_guard(weir_segment *segment)
{
    return segment ? weir__mapped_guard(&segment->mapped) : WEIR_EINVAL;
}

bool weir__sidecar_guard(struct weir__mapped *mapped)
{
    return guard(mapped, SEGMENTS_MAX, ALL_MAX) >= 0;
}

void weir__unguard(const struct weir__mapped *mapped)
{
    bool was_segment = false, other_segments = false;
    for (int i = 0; i < ALL_MAX; i++) {
        const struct weir__mapped *at = guarded_at(i);
        if (at == mapped) {
            weir__store64(&guarded[i], 0);
            was_segment |= i < SEGMENTS_MAX;
        } else if (at && i < SEGMENTS_MAX) {
            other_segments = true;
        }
    }
    struct sigaction now;
    /* The last segment removes the handler, unless another handler was installed after it. */
    if (was_segment && !other_segments && sigaction(SIGBUS, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
        now.sa_sigaction == on_bus && sigaction(SIGBUS, &before, NULL) == 0)
        weir__store32(&installed, 0);
}

bool weir_segment_lost(const weir_segment *segment)
{
    return segment && weir__lost(segment);
}

const char *weir__sidecar_lost(void)
{
    for (int i = 0; i < ALL_MAX; i++) {
        uint64_t text = weir__load64(&unreported[i]);
        if (text && weir__cas64(&unreported[i], &text, 0))
            return (const char *)(uintptr_t)text;
    }
    return NULL;
}
