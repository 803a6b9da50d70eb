/*
 * The agent's sync thread: opens engine and store and runs rounds until stopped. It may be killed at any moment: unsent
 * deltas stay in the ledger.
 */
#include "base/log.h"
#include "base/clock.h"
#include "base/signals.h"
#include "config/config.h"
#include "sync/sync.h"
#include "remote/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK_MS      5000   /* wait for the previous agent to release the ledger */
#define WATCH_US     500000 /* between two heartbeats at most, and checks for changes of the rules */
#define LOG_AGAIN_MS 60000  /* between two warnings */

struct exchanger {
    const struct weir__config *config;
    const struct weir__logger *log;
    struct weir__store_options store;
    char ledger[4096];
    weir *engine;
    struct weir__blocking_client *client;
    struct weir__sync *sync; /* NULL: no eventual rule */
    int lock;
    uint64_t full, full_logged_ms;
    struct weir__sidecar_log sidecar_log;
};

/* ---- The store ---- */

/* Reads the store's options from weir.yaml. False: wrong, which was logged. */
static bool store_read(struct exchanger *x)
{
    char url[8192], why[256] = "";
    bool good = weir__store_url(&x->config->store, url, sizeof url, why, sizeof why) &&
                weir__store_parse(url, &x->store, why, sizeof why) == 0;
    if (good && x->store.deadline_us < WEIR__SYNC_TIMEOUT_US)
        x->store.deadline_us = WEIR__SYNC_TIMEOUT_US;
    if (!good)
        weir__logf(x->log, WEIR__LOG_ERROR, "store: %s", why);
    return good;
}

static void changed(void *context, bool up, int error, const char *where)
{
    const struct exchanger *x = context;
    if (up)
        weir__logf(x->log, WEIR__LOG_INFO, "store %s available; synchronizing", where);
    else
        weir__logf(x->log, WEIR__LOG_WARNING,
                   "store %s unavailable (%s); this host keeps its counts and sends them later", where,
                   weir_strerror(error));
}

static int send_request(void *context, struct weir__store_request *request)
{
    return weir__blocking_client_request(context, request);
}

/* ---- Opening ---- */

/* At most one agent per ledger. The previous one may still be in its last round. */
static bool lock_ledger(struct exchanger *x)
{
    x->lock = open(x->ledger, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    for (int waited = 0; x->lock >= 0 && flock(x->lock, LOCK_EX | LOCK_NB) != 0; waited += 50) {
        if (waited >= LOCK_MS) {
            weir__logf(x->log, WEIR__LOG_ERROR, "cannot synchronize %s: another agent has locked it", x->ledger);
            return false;
        }
        poll(NULL, 0, 50);
    }
    if (x->lock < 0)
        weir__logf(x->log, WEIR__LOG_ERROR, "cannot open ledger %s: %s", x->ledger, strerror(errno));
    return x->lock >= 0;
}

static void unlock_ledger(struct exchanger *x)
{
    if (x->lock >= 0)
        close(x->lock);
    x->lock = -1;
}

/* Starts synchronizing when the first eventual rule appears. */
static bool begin(struct exchanger *x)
{
    weir_ledger_stats unused;
    if (x->sync || weir_ledger_stats_read(x->engine, &unused) != 0)
        return true;
    struct weir__sync_options options = {.engine = x->engine,
                                         .naming = {x->store.prefix, x->store.hash_keys},
                                         .interval_ms = (uint64_t)x->store.sync_interval_us / 1000,
                                         .timeout_us = x->store.deadline_us,
                                         .cluster = x->store.kind == WEIR__CLUSTER,
                                         .send_request = send_request,
                                         .send_context = x->client};
    bool locked = lock_ledger(x);
    x->sync = locked ? weir__sync_new(&options) : NULL;
    if (locked && !x->sync)
        weir__logf(x->log, WEIR__LOG_ERROR, "%s", weir_strerror(WEIR_ENOMEM));
    if (!x->sync)
        unlock_ledger(x); /* so that the next try does not find its own lock */
    return x->sync != NULL;
}

static bool open_all(struct exchanger *x)
{
    const struct weir__config *config = x->config;
    if (!store_read(x))
        return false;
    snprintf(x->ledger, sizeof x->ledger, "%s.ledger", config->segment_path);
    x->sidecar_log = (struct weir__sidecar_log){config->segment_path, x->log};
    weir_options options = {.flags = WEIR_NO_CONNECT, .segment.flags = WEIR_OPEN_CREATE};
    if (weir__agent_engine_open(config, options, &x->sidecar_log, &x->engine) != 0)
        return false;
    x->client = weir__blocking_client_new(&x->store);
    if (!x->client) {
        weir__logf(x->log, WEIR__LOG_ERROR, "%s", weir_strerror(WEIR_ENOMEM));
        return false;
    }
    weir__blocking_client_on_change(x->client, changed, x);
    return begin(x);
}

static void close_all(struct exchanger *x)
{
    weir__sync_free(x->sync);
    if (x->client)
        weir__blocking_client_free(x->client);
    weir_close(x->engine);
    unlock_ledger(x);
}

/* ---- Running ---- */

/* Logs, at most once a minute, that the ledger has no free entry. */
static void log_full(struct exchanger *x)
{
    uint64_t full = weir__load64(&x->engine->deltas.ledger.header->full), now = weir__coarse_ms();
    if (full == x->full || (x->full_logged_ms && now - x->full_logged_ms < LOG_AGAIN_MS))
        return;
    weir__logf(x->log, WEIR__LOG_WARNING,
               "ledger %s is full: %" PRIu64 " counts were not shared with other hosts; stop weir, remove the file "
               "and configure a larger segment",
               x->ledger, full - x->full);
    x->full = full;
    x->full_logged_ms = now;
}

/* Runs so many slices of the round; 0: a whole round. */
static int exchange(struct exchanger *x, unsigned slices)
{
    struct weir__client_stats stats;
    weir__watch(x->engine);
    if (!begin(x))
        return WEIR_ESYS;
    if (!x->sync || weir__load32(&x->engine->deltas.mapped.lost)) /* a truncated ledger has nothing to exchange */
        return 0;
    int error = slices ? weir__sync_step(x->sync, slices) : weir__sync_round(x->sync);
    weir__blocking_client_stats(x->client, &stats);
    weir__store64(&x->engine->deltas.ledger.header->bytes_out, stats.bytes_out);
    weir__store64(&x->engine->deltas.ledger.header->bytes_in, stats.bytes_in);
    log_full(x);
    return error;
}

/* Waits until `when`. True: a signal stops the thread. */
static bool is_stopped_until(int signals, int64_t when)
{
    int64_t left = when - weir__monotonic_us();
    struct timespec most = {left > 0 ? left / 1000000 : 0, left > 0 ? left % 1000000 * 1000 : 0};
    struct pollfd wait = {.fd = signals, .events = POLLIN};
    bool stopped = false;
    if (ppoll(&wait, 1, &most, NULL) > 0)
        for (enum weir__signal_action next; (next = weir__signal_next(signals)) != WEIR__ACTION_NONE;)
            stopped |= next == WEIR__ACTION_STOP;
    return stopped;
}

/* Advances *due to the next step; returns how many slices it has. */
static unsigned plan(const struct exchanger *x, int64_t *due, int64_t now)
{
    unsigned slices = x->sync ? weir__sync_slices(x->sync) : 1;
    int64_t gap = x->store.sync_interval_us / slices;
    *due += gap;
    if (*due >= now)
        return 1;
    if (slices == 1) { /* a slow store is not polled more often */
        *due = now + gap;
        return 1;
    }
    int64_t missed = (now - *due) / gap;
    *due += missed * gap;
    return missed < slices ? (unsigned)missed + 1 : slices;
}

/*
 * Waits until `due`, updating the heartbeat: the data plane takes an agent without one for dead. False: the thread must
 * end.
 */
static bool wait_for_due(struct exchanger *x, int signals, int64_t due)
{
    for (;;) {
        int64_t now = weir__monotonic_us();
        if (is_stopped_until(signals, due < now + WATCH_US ? due : now + WATCH_US))
            return false;
        if (weir__monotonic_us() >= due)
            return true;
        weir__watch(x->engine);
        if (begin(x) && x->sync && !weir__load32(&x->engine->deltas.mapped.lost))
            weir__sync_beat(x->sync);
    }
}

bool weir__exchange_run(const struct weir__config *config, const struct weir__logger *log, int signals)
{
    struct exchanger x = {.config = config, .log = log, .lock = -1};
    int64_t due = weir__monotonic_us();
    unsigned slices = 1;
    bool good = open_all(&x);
    if (good) {
        do {
            (void)!exchange(&x, slices); /* failures are logged when the state changes */
            slices = plan(&x, &due, weir__monotonic_us());
        } while (wait_for_due(&x, signals, due));
        (void)!exchange(&x, 0); /* what remains is left for the next agent */
        if (x.sync && !weir__load32(&x.engine->deltas.mapped.lost))
            (void)!weir__sync_return_leases(x.sync);
    }
    close_all(&x);
    return good;
}

int weir__exchange_once(const struct weir__config *config, const struct weir__logger *log)
{
    struct exchanger x = {.config = config, .log = log, .lock = -1};
    int error = open_all(&x) ? exchange(&x, 0) : WEIR_ESYS;
    if (error && x.sync)
        weir__logf(log, WEIR__LOG_ERROR, "%s (%s)", weir_strerror(error), weir_error_name(error));
    close_all(&x);
    return error;
}

/* ---- The engines of the agent ---- */

const char *weir__segment_advice(int error)
{
    switch (error) {
    case WEIR_ENOENT:
        return "there is no segment; is weir serve running?";
    case WEIR_EVERSION:
        return "it was made by another version of weir; 'weir segment convert' converts it while weir is stopped";
    case WEIR_EDAMAGED:
    case WEIR_ETRUNCATED:
        return "it is damaged; remove the file, and the counters in it are lost";
    case WEIR_ENOTSEG:
        return "the file is not a weir segment; choose another path or remove the file";
    default:
        return weir_strerror(error);
    }
}

/* A weir_diagnose that logs only what concerns sidecar files of the segment; workers log the rest. */
static void log_sidecar(void *context, const weir_diagnostic *diagnostic)
{
    const struct weir__sidecar_log *to = context;
    size_t len = strlen(to->segment);
    if (diagnostic->file && strncmp(diagnostic->file, to->segment, len) == 0 && diagnostic->file[len] == '.')
        weir__logf(to->log, diagnostic->severity == WEIR_IS_ERROR ? WEIR__LOG_ERROR : WEIR__LOG_WARNING, "%s: %s",
                   diagnostic->file, diagnostic->message);
}

int weir__agent_engine_open(const struct weir__config *config, weir_options options, struct weir__sidecar_log *to,
                            weir **engine)
{
    char ledger[4096], keys[4096], load[4096], url[8192], why[256] = "";
    bool connects = !(options.flags & WEIR_NO_CONNECT);
    options.store = config->store.url;
    if (options.store && connects) {
        options.store = url;
        if (!weir__store_url(&config->store, url, sizeof url, why, sizeof why) || weir_store_use() != 0) {
            weir__logf(to->log, WEIR__LOG_ERROR, "store: %s", why);
            return WEIR_ESTOREURL;
        }
    }
    snprintf(ledger, sizeof ledger, "%s.ledger", config->segment_path);
    snprintf(keys, sizeof keys, "%s.keys", config->segment_path);
    snprintf(load, sizeof load, "%s.load", config->segment_path);
    options.segment.path = config->segment_path;
    options.segment.size = (uint64_t)config->segment_bytes;
    options.segment.flags |= WEIR_OPEN_TRUSTED; /* no REBUILD: nginx may have a damaged segment mapped */
    options.flags |= WEIR__SKIP_MAPS;
    options.rules_path = config->rules_path;
    options.rules_text = config->rules_path ? NULL : config->rules_text.data;
    options.default_consistency = config->store.consistency;
    /* With a ledger: a reset under an eventual rule must reach the other hosts, or their deltas would undo it. */
    options.ledger = options.store ? ledger : NULL;
    options.key_commands = options.store ? keys : NULL;
    options.load = config->load.on && connects ? load : NULL;
    options.diagnose = log_sidecar;
    options.diagnose_context = to;
    int error = weir_open(&options, engine);
    if (error) {
        weir__logf(to->log, WEIR__LOG_ERROR, "%s: %s (%s)", config->segment_path, weir__segment_advice(error),
                   weir_error_name(error));
        return error;
    }
    int unguarded = weir_segment_guard(weir_engine_segment(*engine));
    if (unguarded)
        weir__logf(to->log, WEIR__LOG_WARNING, "%s has no SIGBUS guard: %s; truncating the file would end this process",
                   config->segment_path, weir_strerror(unguarded));
    return 0;
}
