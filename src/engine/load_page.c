/* The file of the load page, and the public functions of weir/load.h. */
#include "engine/engine.h"

#include <unistd.h>
#include <weir/load.h>

int weir__load_page_open(const struct weir__file_spec *where, struct weir__mapped *mapped)
{
    struct weir__file_spec spec = *where;
    spec.bytes = sizeof(struct weir__load_page);
    spec.format = where->read_only ? NULL : weir__row_file_format;
    spec.check = weir__row_file_check;
    spec.plan = &weir__load_format;
    spec.disabled = where->read_only ? NULL : "the load level is 0 (.load)";
    return weir__mapped_open(&spec, mapped);
}

/* ---- The public calls ---- */

_Static_assert((int)WEIR_LOAD_SIGNALS == (int)WEIR__SIGNALS && WEIR_LOAD_CLASSES == WEIR__LOAD_CLASSES,
               "the public and the internal list of signals and classes are the same");

static int64_t now_of(const weir *engine)
{
    return weir__clock_fast(engine->segment).mono_ns;
}

int weir_load_read(weir *engine, weir_load *load)
{
    struct weir__load_view view;
    struct weir__upstream_sums sums;
    if (!engine || !load)
        return WEIR_EINVAL;
    if (!engine->load)
        return WEIR_ENOENT;
    int64_t now = now_of(engine);
    weir__load_page_read(engine->load, now, &view);
    weir__load_page_sum(engine->load, now, &sums);
    *load = (weir_load){.known = view.known,
                        .level = (int)view.level,
                        .throttle = (int)view.throttle,
                        .in_flight = sums.in_flight,
                        .workers = sums.workers};
    for (int i = 0; i < WEIR_LOAD_CLASSES; i++)
        load->shed[i] = (int)view.shed[i];
    for (int i = 0; i < WEIR_LOAD_SIGNALS; i++)
        load->signal[i] = view.signal[i] == WEIR__SIGNAL_NONE ? -1 : (int)view.signal[i];
    return 0;
}

const char *weir_load_signal_name(int signal)
{
    static const char *const names[WEIR_LOAD_SIGNALS] = {"cpu",     "memory", "run_queue",
                                                         "latency", "errors", "in_flight"};
    return signal >= 0 && signal < WEIR_LOAD_SIGNALS ? names[signal] : NULL;
}

const char *weir_load_class_name(int priority)
{
    static const char *const names[WEIR_LOAD_CLASSES] = {"critical", "high", "normal", "low"};
    return priority >= 0 && priority < WEIR_LOAD_CLASSES ? names[priority] : NULL;
}

/* Workers of an engine that was opened read-only report nothing. */
static bool may_report(const weir *engine)
{
    return engine && engine->load && !engine->segment->mapped.read_only;
}

/* The owner id has the time in it: process ids may be equal in two containers. */
void weir_load_join(weir *engine, weir_load_worker *worker)
{
    *worker = (weir_load_worker){.shard = WEIR__LOAD_NO_SHARD};
    if (!may_report(engine))
        return;
    int64_t now = now_of(engine);
    worker->owner = ((uint64_t)getpid() << 32 ^ (uint64_t)now) | 1;
    worker->shard = weir__load_page_join(engine->load, worker->owner, now);
}

void weir_load_heartbeat(weir *engine, weir_load_worker *worker)
{
    if (!may_report(engine))
        return;
    int64_t now = now_of(engine);
    if (weir__load_page_heartbeat(engine->load, worker->shard, worker->owner, now, worker->in_flight))
        return;
    worker->shard = weir__load_page_join(engine->load, worker->owner, now);
    (void)!weir__load_page_heartbeat(engine->load, worker->shard, worker->owner, now, worker->in_flight);
}

void weir_load_leave(weir *engine, weir_load_worker *worker)
{
    if (engine && engine->load)
        weir__load_page_leave(engine->load, worker->shard, worker->owner);
    worker->shard = WEIR__LOAD_NO_SHARD;
}

void weir_load_begin(weir *engine, weir_load_worker *worker)
{
    worker->in_flight++;
    if (engine->load)
        weir__load_page_in_flight(engine->load, worker->shard, 1);
}

void weir_load_end(weir *engine, weir_load_worker *worker)
{
    worker->in_flight--;
    if (engine->load)
        weir__load_page_in_flight(engine->load, worker->shard, -1);
}

void weir_load_upstream(weir *engine, const weir_load_worker *worker, int64_t took_ns, bool error)
{
    if (may_report(engine))
        weir__load_page_upstream(engine->load, worker->shard, took_ns / 1000, error);
}
