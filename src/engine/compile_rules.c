/* Loading rules: the files, the compiler of src/rules, and what it needs from the system (time zones). */
#include "engine/compile_rules.h"
#include "algo/algo.h"

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

bool weir__store_limit_fits(const weir_limit *limit)
{
    /* The bounds within which the script's division, in steps, is exact. weir_limit_init refuses other limits. */
    return limit->made == WEIR__LIMIT_MADE && limit->window_us <= WEIR__WINDOW_MAX &&
           limit->period_us <= WEIR__WINDOW_MAX && limit->cap <= WEIR__USED_MAX && limit->limit <= WEIR__USED_MAX;
}

/* What the reader of rules cannot know: whether the store can do what they want of it. */
static void check_consistency(const weir_rules *rules, bool storeless, struct weir__diagnostics *report)
{
    static const char *const names[] = {"local", "eventual", "strict"};
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (!rule->consistency_given || rule->consistency == WEIR__LOCAL)
            continue;
        bool fits = true;
        for (size_t j = 0; j < rule->quota_count; j++)
            fits &= rule->quotas[j].kind != WEIR__LIMITED || weir__store_limit_fits(&rule->quotas[j].limit);
        if (!fits)
            weir__report_error(report, rule->consistency_place, "consistency: %s: %s", names[rule->consistency],
                               weir_strerror(WEIR_ESTORELIMIT));
        else if (storeless)
            weir__report_warning(report, rule->consistency_place, "consistency: %s acts as local: there is no store",
                                 names[rule->consistency]);
    }
}

int weir__load_sources(const struct weir__source *sources, size_t count, const struct weir__audience *audience,
                       weir_rules **rules)
{
    struct weir__diagnostics report = {
        .diagnose = audience->diagnose, .context = audience->context, .sources = sources, .source_count = count};
    static const struct weir__surroundings around = {open_zone, weir_zone_close};
    weir_rules *made;
    int error = weir__rules_compile(&report, &around, &made);
    if (error)
        return error;
    check_consistency(made, audience->storeless, &report);
    if (report.errors) {
        weir_rules_free(made);
        return WEIR_ERULES;
    }
    *rules = made;
    return 0;
}

/* One try. */
static int load_once(const char *path, const struct weir__audience *audience, struct weir__fingerprint *print,
                     weir_rules **rules)
{
    struct weir__sources sources;
    int error = weir__sources_read(path, audience->diagnose, audience->context, &sources);
    if (error)
        return error;
    error = weir__load_sources(sources.list, sources.count, audience, rules);
    if (print)
        *print = sources.fingerprint;
    weir__sources_free(&sources);
    return error;
}

int weir__load_path(const char *path, const struct weir__audience *audience, struct weir__fingerprint *print,
                    weir_rules **rules)
{
    enum { TRIES = 50 };
    for (int try = 1;; try++) {
        int error = load_once(path, audience, print, rules);
        if (error != WEIR_ERULESBUSY)
            return error;
        if (try == TRIES) {
            weir__sources_report_busy(path, audience->diagnose, audience->context);
            return error;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

int weir_rules_load(const char *path, weir_diagnose *diagnose, void *context, weir_rules **rules)
{
    if (!path || !rules)
        return WEIR_EINVAL;
    return weir__load_path(path, &(struct weir__audience){diagnose, context, false}, NULL, rules);
}

int weir_rules_parse(const char *name, const char *text, size_t len, weir_diagnose *diagnose, void *context,
                     weir_rules **rules)
{
    if (!name || (!text && len) || !rules)
        return WEIR_EINVAL;
    struct weir__source source = {name, {text, len}};
    return weir__load_sources(&source, 1, &(struct weir__audience){diagnose, context, false}, rules);
}
