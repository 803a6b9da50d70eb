/* The first rules of a host. See control.h. */
#include "base/file.h"
#include "control/call.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Provisional rules ---- */

/* First line of a rules file that is active only until the database has rules. */
static const char none[] = "# No rules are known yet.\n";
static const char meanwhile[] = "# The rules of weir.yaml, until the rules service has published some.\n";

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

/* ---- The rules that weir.yaml names ---- */

static void log_line(void *context, enum weir__log_level level, const char *message)
{
    weir__logf(context, level, "rules service: %s", message);
}

static void log_published(void *context, int64_t revision)
{
    weir__logf(context, WEIR__LOG_INFO, "revision %" PRId64 " of the rules is active", revision);
}

/* Imports them into a service in memory. Returns an error of the library's, which was logged. */
static int import_named(const struct weir__config *config, struct weir__control *control,
                        const struct weir__logger *log)
{
    struct weir__named_rules named = {config->import_path, config->import_text, config->file};
    struct weir__documents documents;
    size_t rules;
    void *to = (void *)(uintptr_t)log;
    int error = weir__named_rules_read(&named, false, weir__log_diagnostic, to, &documents, &rules);
    if (!error)
        error =
            weir__control_import(control, &named, &documents, "weir.yaml", NULL, weir__log_diagnostic, to).rules_error;
    weir__documents_free(&documents);
    if (error)
        weir__logf(log, WEIR__LOG_ERROR, "the rules that %s names cannot be rules of the rules service: %s",
                   config->file, weir_strerror(error));
    return error;
}

/* ---- Bootstrap ---- */

enum outcome {
    NO_RULES,   /* there are none yet */
    HAS_RULES,  /* the rules file has some */
    WRONG_RULES /* those that weir.yaml names cannot be used, which was logged */
};

/*
 * Makes the rules that weir.yaml names active while the database has none: joined to a set by a service in memory, as
 * `weir rules import` will, so that the import changes nothing.
 */
static enum outcome import_meanwhile(const struct weir__config *config, const struct weir__control_host *host,
                                     const struct weir__logger *log)
{
    struct weir__control_options options = {.url = "sqlite::memory:", .host = host};
    struct weir__control *control = NULL;
    if (weir__control_open(&options, &control) != 0)
        return NO_RULES;
    int error = import_named(config, control, log);
    bool written =
        control->published.revision &&
        weir__file_replace(config->rules_path, meanwhile, control->published.text, control->published.len) == 0;
    weir__control_close(control);
    if (written)
        weir__logf(log, WEIR__LOG_WARNING,
                   "the rules that %s names are active until the rules service has some: weir rules import --file %s",
                   config->file, config->file);
    return error ? WRONG_RULES : written ? HAS_RULES : NO_RULES;
}

/* Opens the rules service, which writes the published rules of its database to `path`. True: it has some. */
static bool write_published(const struct weir__config *config, const char *path, const struct weir__control_host *host)
{
    struct weir__control_options options = {.url = config->admin.database, .published_path = path, .host = host};
    struct weir__control *control = NULL;
    if (!weir__file_make_folder(path) || weir__control_open(&options, &control) != 0)
        return false; /* the next write logs the reason */
    bool published = weir__control_revision(control) != 0;
    weir__control_close(control);
    return published;
}

static void log_unread(const struct weir__config *config, const struct weir__logger *log)
{
    if (names_rules(config))
        weir__logf(log, WEIR__LOG_INFO,
                   "the rules that %s names are not read: the rules service has its own, and weir rules apply changes "
                   "them",
                   config->file);
}

/* Writes the database's published rules, or else those that weir.yaml names. */
static enum outcome publish_first(const struct weir__config *config, const struct weir__control_host *host,
                                  const struct weir__logger *log)
{
    if (write_published(config, config->rules_path, host)) {
        log_unread(config, log);
        return HAS_RULES;
    }
    return names_rules(config) ? import_meanwhile(config, host, log) : NO_RULES;
}

bool weir__bootstrap(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__control_host host = {.context = (void *)(uintptr_t)log, .log = log_line, .published = log_published};
    char text[128], path[4200];
    if (!config->published && config->admin.database && config->admin.rules == WEIR__RULES_UNSTATED) {
        snprintf(path, sizeof path, "%s/published.yaml", config->state_path);
        (void)write_published(config, path, &host);
    }
    if (!config->published)
        return true;
    if (any_known(config->rules_path)) {
        log_unread(config, log);
        return true;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    enum outcome outcome = NO_RULES;
    if (config->origin.url) {
        struct weir__rules_poller *poller = weir__rules_poller_new(config, log, NULL, NULL);
        if (poller)
            (void)!weir__rules_poller_poll(poller);
        weir__rules_poller_free(poller);
    } else {
        outcome = publish_first(config, &host, log);
    }
    if (outcome == HAS_RULES || any_known(config->rules_path))
        return true;
    if (outcome == WRONG_RULES)
        return false;
    weir__logf(log, WEIR__LOG_WARNING, "no rules are known yet; all requests pass until there are some");
    int len = snprintf(text, sizeof text, "%srules: []\n", none);
    if (weir__file_write(config->rules_path, text, (size_t)len))
        return true;
    weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s; choose another folder under state", config->rules_path,
               strerror(errno));
    return false;
}
