/* The load sampler: see overload.h. */
#include "overload/overload.h"
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK_STEPS 10   /* steps between two attempts to get the lock */
#define TEXT_MAX   4096 /* bytes read of a /proc file; the figures are at its start */

enum { CPU, MEMORY, STAT, LOADAVG, FILES };

struct weir__load_sampler {
    const struct weir__load_config *config;
    const struct weir__logger *log;
    weir *engine;
    struct weir__controller_settings settings;
    struct weir__controller controller;
    struct weir__signals signals;
    int file[FILES]; /* of /proc, kept open; -1: absent or not needed */
    int lock;        /* file of the lock; -1: cannot be opened */
    bool writes;     /* this agent has the lock */
    bool resumed;    /* the controller has its initial state */
    unsigned steps;
    unsigned processors;
};

/* Opens the files that the configured signals need. */
static void files_open(struct weir__load_sampler *sampler)
{
    static const char *const paths[FILES] = {"/proc/pressure/cpu", "/proc/pressure/memory", "/proc/stat",
                                             "/proc/loadavg"};
    const double *target = sampler->config->target;
    const bool needed[FILES] = {target[WEIR__SIGNAL_CPU] > 0, target[WEIR__SIGNAL_MEMORY] > 0,
                                target[WEIR__SIGNAL_CPU] > 0, target[WEIR__SIGNAL_RUN_QUEUE] > 0};
    for (int i = 0; i < FILES; i++)
        sampler->file[i] = needed[i] ? open(paths[i], O_RDONLY | O_CLOEXEC) : -1;
    if (needed[CPU] && sampler->file[CPU] < 0)
        weir__logf(sampler->log, WEIR__LOG_WARNING,
                   "load: %s is absent (kernel without PSI); the cpu signal is processor utilisation", paths[CPU]);
    if (needed[MEMORY] && sampler->file[MEMORY] < 0)
        weir__logf(sampler->log, WEIR__LOG_WARNING,
                   "load: %s is absent (kernel without PSI); there is no memory signal", paths[MEMORY]);
}

struct weir__load_sampler *weir__load_sampler_open(const struct weir__config *config, weir *engine,
                                                   const struct weir__logger *log)
{
    char path[4200];
    struct weir__load_sampler *sampler = engine->load ? calloc(1, sizeof *sampler) : NULL;
    if (!sampler) {
        weir__logf(log, WEIR__LOG_WARNING, "load: cannot open %s.load; the load level is unknown",
                   config->segment_path);
        return NULL;
    }
    const struct weir__load_config *load = &config->load;
    sampler->config = load;
    sampler->log = log;
    sampler->engine = engine;
    sampler->settings =
        (struct weir__controller_settings){.smooth_s = (double)load->smooth_ms / 1000,
                                           .adapt_to = (double)load->adapt_to / 100,
                                           .shed_above = load->shed_above ? (double)load->shed_above / 100 : 1};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    sampler->processors = processors > 0 ? (unsigned)processors : 1;
    snprintf(path, sizeof path, "%s.load.lock", config->segment_path);
    char why[256];
    sampler->lock = weir__lock_open(path, engine->segment->mapped.owner);
    int error = errno == EPERM ? WEIR_EOWNER : weir__errno_error(errno);
    if (sampler->lock < 0)
        weir__logf(log, WEIR__LOG_WARNING, "load: cannot open %s; the load level is unknown: %s", path,
                   weir__mapped_why(path, error, why, sizeof why));
    files_open(sampler);
    return sampler;
}

void weir__load_sampler_close(struct weir__load_sampler *sampler)
{
    if (!sampler)
        return;
    for (int i = 0; i < FILES; i++)
        if (sampler->file[i] >= 0)
            close(sampler->file[i]);
    if (sampler->lock >= 0)
        close(sampler->lock);
    free(sampler);
}

/* The start of the file; empty if it cannot be read. */
static const char *text_of(int file, char buffer[TEXT_MAX])
{
    ssize_t len = file >= 0 ? pread(file, buffer, TEXT_MAX - 1, 0) : -1;
    buffer[len > 0 ? len : 0] = 0;
    return buffer;
}

static struct weir__load_sample take_sample(const struct weir__load_sampler *sampler)
{
    char buffer[TEXT_MAX];
    struct weir__load_sample now = {.mono_ns = weir_clock(sampler->engine->segment).mono_ns,
                                    .processors = sampler->processors};
    now.has_cpu = weir__procfs_stalled(text_of(sampler->file[CPU], buffer), &now.cpu_us);
    now.has_memory = weir__procfs_stalled(text_of(sampler->file[MEMORY], buffer), &now.memory_us);
    if (!now.has_cpu)
        now.has_busy = weir__procfs_busy(text_of(sampler->file[STAT], buffer), &now.busy, &now.ticks);
    now.has_running = weir__procfs_running(text_of(sampler->file[LOADAVG], buffer), &now.running);
    weir__load_page_sum(sampler->engine->load, now.mono_ns, &now.upstream);
    return now;
}

/* True for the one agent that may write the load page. */
static bool may_write(struct weir__load_sampler *sampler)
{
    if (!sampler->writes && sampler->lock >= 0 && sampler->steps % LOCK_STEPS == 0)
        sampler->writes = flock(sampler->lock, LOCK_EX | LOCK_NB) == 0;
    sampler->steps++;
    return sampler->writes;
}

void weir__load_sampler_step(struct weir__load_sampler *sampler)
{
    double signal[WEIR__SIGNALS];
    struct weir__load_view view = weir__load_view_neutral();
    if (!may_write(sampler))
        return;
    int64_t before_ns = sampler->signals.last.mono_ns;
    struct weir__load_sample sample = take_sample(sampler);
    if (!sampler->signals.begun)
        weir__signals_resume(&sampler->signals,
                             (double)weir__load_page_baseline(sampler->engine->load, sample.mono_ns) / 1e6);
    double highest = weir__signals_update(&sampler->signals, sampler->config, &sample, signal);
    if (highest < 0)
        return; /* no signal is available, or this is the first sample: nothing to publish */
    if (!sampler->resumed) {
        weir__load_page_read(sampler->engine->load, sample.mono_ns, &view);
        weir__controller_resume(&sampler->controller, &sampler->settings, &view, highest);
        view = weir__load_view_neutral();
        sampler->resumed = true;
    }
    weir__controller_step(&sampler->controller, &sampler->settings, highest, weir__signals_sojourn(&sampler->signals),
                          (double)(sample.mono_ns - before_ns) / 1e9);
    weir__controller_view(&sampler->controller, &sampler->settings, &view);
    for (int i = 0; i < WEIR__SIGNALS; i++)
        if (signal[i] >= 0)
            view.signal[i] = signal[i] < 1 ? (uint32_t)(signal[i] * WEIR__LOAD_FULL + 0.5) : WEIR__LOAD_FULL;
    weir__load_page_set_baseline(sampler->engine->load, (uint64_t)(sampler->signals.baseline.baseline_s * 1e6));
    weir__load_page_write(sampler->engine->load, sample.mono_ns, &view);
}
