/* Loading rules: the files, the compiler of src/rules, and what it needs from the system (time zones). */
#include "engine/load.h"

#include <errno.h>
#include <time.h>

/* As weir_zone_open, but WEIR_ESYS for what has nothing to do with the zone and passes by itself. */
static int open_zone(const char *name, weir_zone **zone)
{
    errno = 0;
    int error = weir_zone_open(name, zone);
    bool passing = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO;
    return error == WEIR_EZONE && passing ? WEIR_ESYS : error;
}

int weir__load_sources(const struct weir__source *sources, size_t count, weir_diagnose *diagnose, void *context,
                       weir_rules **rules)
{
    struct weir__report report = {.diagnose = diagnose, .context = context, .sources = sources, .source_count = count};
    static const struct weir__surroundings around = {open_zone, weir_zone_close};
    return weir__rules_compile(&report, &around, rules);
}

/* One try. */
static int load_once(const char *path, weir_diagnose *diagnose, void *context, struct weir__fingerprint *print,
                     weir_rules **rules)
{
    struct weir__sources sources;
    int error = weir__sources_read(path, diagnose, context, &sources);
    if (error)
        return error;
    error = weir__load_sources(sources.list, sources.count, diagnose, context, rules);
    if (print)
        *print = sources.fingerprint;
    weir__sources_free(&sources);
    return error;
}

int weir__load_path(const char *path, weir_diagnose *diagnose, void *context, struct weir__fingerprint *print,
                    weir_rules **rules)
{
    enum { TRIES = 50 };
    for (int try = 1;; try++) {
        int error = load_once(path, diagnose, context, print, rules);
        if (error != WEIR_ERULESBUSY)
            return error;
        if (try == TRIES) {
            weir__sources_tell_busy(path, diagnose, context);
            return error;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

int weir_rules_load(const char *path, weir_diagnose *diagnose, void *context, weir_rules **rules)
{
    if (!path || !rules)
        return WEIR_EINVAL;
    return weir__load_path(path, diagnose, context, NULL, rules);
}

int weir_rules_parse(const char *name, const char *text, size_t len, weir_diagnose *diagnose, void *context,
                     weir_rules **rules)
{
    if (!name || (!text && len) || !rules)
        return WEIR_EINVAL;
    struct weir__source source = {name, {text, len}};
    return weir__load_sources(&source, 1, diagnose, context, rules);
}
