/* The first rules of a host: see bootstrap.h. */
#include "control/bootstrap.h"
#include "control/publish_file.h"
#include "control/rules_poller.h"
#include "control/published.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* First line of a rules file that is active only until the database has rules. */
static const char none[] = "# No rules are known yet.\n";
static const char meanwhile[] = "# The rules of weir.yaml, until the rules service has published some.\n";

/* ---- What is there ---- */

/* True if the rules file comes from the database or another host, and is not provisional. */
static bool any_known(const char *path)
{
    char begin[sizeof meanwhile] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return access(path, F_OK) == 0;
    (void)!fread(begin, 1, sizeof begin - 1, file);
    fclose(file);
    return strncmp(begin, none, sizeof none - 1) != 0 && strncmp(begin, meanwhile, sizeof meanwhile - 1) != 0;
}

static bool names_rules(const struct weir__config *config)
{
    return config->import_path || config->import_text.len;
}

bool weir__bootstrap_is_due(const struct weir__config *config)
{
    return config->admin.listener && names_rules(config) && !any_known(config->rules_path);
}

/* ---- What weir.yaml names ---- */

#define PATH_BYTES 4200

/* Where the rules are that weir.yaml names, as a file: if they stand in it, they are written into one. NULL: told. */
static const char *path_of(const struct weir__config *config, char path[PATH_BYTES], const struct weir__logger *log)
{
    if (config->import_path)
        return config->import_path;
    snprintf(path, PATH_BYTES, "%s/imported.yaml", config->state_path);
    if (weir__publish(path, config->import_text.data, config->import_text.len))
        return path;
    weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s", path, strerror(errno));
    return NULL;
}

static void log_line(void *context, const char *message)
{
    weir__logf(context, WEIR__LOG_WARNING, "rules service: %s", message);
}

static int import(const struct weir__config *config, struct weir__control *control, size_t *documents,
                  const struct weir__logger *log)
{
    char path[PATH_BYTES];
    const char *from = path_of(config, path, log);
    *documents = 0;
    return from ? weir__control_import(control, from, "weir.yaml", weir__log_diagnostic, (void *)(uintptr_t)log,
                                       documents)
                : WEIR__IMPORT_WRONG + WEIR_ESYS;
}

int weir__bootstrap_import(const struct weir__config *config, struct weir__control *control,
                           const struct weir__logger *log)
{
    size_t documents;
    int error = import(config, control, &documents, log);
    if (error < WEIR__IMPORT_WRONG)
        weir__logf(log, WEIR__LOG_ERROR, "the rules that %s names cannot come into the rules service: %s", config->file,
                   weir_strerror(error - WEIR__IMPORT_WRONG));
    if (!error && documents)
        weir__logf(log, WEIR__LOG_INFO,
                   "the rules that %s names are in the rules service now: from here on they are changed there",
                   config->file);
    return error;
}

/*
 * Puts them in force without the database: put together as it would, in memory, so that nothing changes when it takes
 * them. An error as of weir__control_import.
 */
static int import_meanwhile(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__control_host host = {.context = (void *)(uintptr_t)log, .log = log_line};
    struct weir__control_options options = {.url = "sqlite::memory:", .host = &host};
    struct weir__control *control = NULL;
    size_t documents;
    int error = weir__control_open(&options, &control);
    if (!error)
        error = import(config, control, &documents, log);
    if (!error &&
        (!weir__publish_folder(config->rules_path) ||
         weir__file_replace(config->rules_path, meanwhile, control->published.text, control->published.len) != 0))
        error = WEIR__DB_GONE; /* what comes next says why it cannot be written */
    weir__control_close(control);
    if (!error)
        weir__logf(log, WEIR__LOG_WARNING, "the rules that %s names are active until the rules service has some",
                   config->file);
    return error;
}

/* ---- Before anything runs ---- */

static void poll_first(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__rules_poller *poller = weir__rules_poller_new(config, log);
    if (poller)
        (void)!weir__rules_poller_poll(poller);
    weir__rules_poller_free(poller);
}

/* What the database has in force, or else what weir.yaml names. An error of weir__control_import: there is nothing. */
static int publish_first(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__control_host host = {.context = (void *)(uintptr_t)log, .log = log_line};
    struct weir__control_options options = {
        .url = config->admin.database, .published_path = config->rules_path, .host = &host};
    struct weir__control *control = NULL;
    if (!weir__publish_folder(config->rules_path))
        return WEIR__DB_GONE; /* what comes next says why */
    int error = weir__control_open(&options, &control);
    if (!error)
        error = weir__control_tick(control);
    if (!error && names_rules(config) && !weir__control_revision(control))
        error = weir__bootstrap_import(config, control, log);
    bool known = !error && weir__control_revision(control);
    weir__control_close(control);
    if (error >= WEIR__IMPORT_WRONG && !known && names_rules(config))
        return import_meanwhile(config, log);
    return error || known ? error : WEIR__DB_GONE;
}

bool weir__bootstrap(const struct weir__config *config, const struct weir__logger *log)
{
    char text[128];
    if (!config->published)
        return true;
    if (any_known(config->rules_path)) {
        if (names_rules(config))
            weir__logf(log, WEIR__LOG_INFO,
                       "the rules that %s names are not read any more: the rules service has its own, and weir rules "
                       "apply changes them",
                       config->file);
        return true;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (config->origin.url)
        poll_first(config, log);
    int error = config->origin.url ? WEIR__DB_GONE : publish_first(config, log);
    if (!error || any_known(config->rules_path))
        return true;
    if (error < WEIR__IMPORT_WRONG)
        return false; /* errors were reported */
    weir__logf(log, WEIR__LOG_WARNING, "no rules are known yet: everything passes until there are some");
    int len = snprintf(text, sizeof text, "%srules: []\n", none);
    if (weir__publish(config->rules_path, text, (size_t)len))
        return true;
    weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s; choose another folder under state", config->rules_path,
               strerror(errno));
    return false;
}
