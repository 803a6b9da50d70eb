/* The first rules of a host, and the import of rule files into an empty database. See control.h. */
#include "base/clock.h"
#include "base/file.h"
#include "control/call.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Import ---- */

#define REASON "imported"

/* Adds a document and sets its stage. True: it is new, and not another stage of one that was added before. */
static bool add(struct weir__call *call, const struct weir__document *document, bool shadow)
{
    struct weir__stored found = weir__stored_find(call->db, document->name);
    bool is_new = !found.version;
    weir__stored_add(call, document, found.version + 1, REASON, false);
    *(shadow ? &found.shadow : &found.enforced) = found.version + 1;
    weir__stored_set_stage(call->db, &found);
    return is_new;
}

static bool is_shadow(const struct weir__document *document)
{
    const struct weir__node *shadow =
        document->kind == WEIR__KIND_RULE ? weir__node_get(document->root, "shadow") : NULL;
    return shadow && shadow->kind == WEIR__SCALAR && weir__text_is(shadow->text, "true");
}

/*
 * Adds a document if it is of the wanted stage. A shadow rule is imported into the shadow stage, without its member
 * `shadow`.
 */
static bool add_one(struct weir__call *call, const struct weir__rule_document *one, bool shadow)
{
    struct weir__arena arena = {0};
    struct weir__document document;
    bool is_new = false;
    if (!weir__document_read(&arena, (weir_text){one->text.data, one->text.len}, &document, call->problems)) {
        /* The rules compile: the only error left is a name that the service reserves. */
        const char *why = json_string_value(json_object_get(json_array_get(call->problems, 0), "message"));
        weir__control_log(call->control, WEIR__LOG_WARNING, "%s cannot be imported: %s", one->name, why ? why : "");
        weir__fail_invalid(call, "a document cannot be imported");
    } else if (is_shadow(&document) == shadow) {
        char *text = shadow ? weir__yaml_write(document.root, "shadow") : NULL;
        if (shadow && (!text || !weir__document_read(&arena, weir__text_of(text), &document, call->problems)))
            weir__fail_memory(call);
        is_new = add(call, &document, shadow);
        free(text);
    }
    weir__arena_free(&arena);
    return is_new;
}

struct import {
    const char *path;
    struct weir__documents from;
    size_t count; /* documents that were added */
};

/* Within the transaction: adds all documents and publishes them, if the database is empty. */
static void import_all(struct weir__call *call, struct weir__publication *made, void *context)
{
    struct import *import = context;
    import->count = 0; /* of an earlier attempt */
    if (weir__db_count(call->db, "SELECT count(*) FROM documents"))
        return;
    for (int shadow = 0; shadow < 2; shadow++) /* enforced rules first: a shadow rule may have the name of one */
        for (size_t i = 0; i < import->from.count && !call->failed; i++)
            import->count += add_one(call, &import->from.list[i], shadow == 1);
    if (!call->failed && weir__publication_make(call, made))
        weir__audit(call, "import", import->path, json_pack("{s:I}", "documents", (json_int_t)import->count));
}

static struct weir__import_result import_documents(struct weir__control *control, struct import *import,
                                                   const char *who)
{
    struct weir__rest_request request = {.address = ""};
    struct weir__rest_reply reply;
    struct weir__publication made = {.reason = REASON};
    struct weir__call call = weir__call_open(control, &request, &reply);
    snprintf(call.who, sizeof call.who, "%s", who);
    bool good = weir__call_take_database(&call) && weir__publication_run(&call, import_all, import, &made);
    weir__call_close(&call);
    bool wrong = reply.status == 422;
    weir__set_free(&made.set);
    weir__rest_free(&reply);
    return (struct weir__import_result){
        .rules_error = wrong ? WEIR_ERULES : 0, .no_database = !good && !wrong, .documents = good ? import->count : 0};
}

struct weir__import_result weir__control_import(struct weir__control *control, const char *path, const char *who,
                                                weir_diagnose *diagnose, void *context)
{
    struct import import = {.path = path};
    weir_rules *rules = NULL;
    struct weir__sources sources;
    struct weir__diagnostic_sink sink = {.diagnose = diagnose, .context = context};
    struct weir__import_result result = {.rules_error = weir__sources_load(path, diagnose, context, &sources)};
    if (!result.rules_error) {
        result.rules_error = weir__load_sources(sources.list, sources.count, &sink, NULL, &rules);
        weir__sources_free(&sources);
        weir_rules_free(rules);
    }
    if (!result.rules_error && !weir__documents_read(&import.from, path, diagnose, context))
        result.rules_error = WEIR_ERULES;
    if (!result.rules_error)
        result = import_documents(control, &import, who);
    weir__documents_free(&import.from);
    return result;
}

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

bool weir__bootstrap_is_due(const struct weir__config *config)
{
    return config->admin.listener && names_rules(config) && !any_known(config->rules_path);
}

/* ---- The rules that weir.yaml names ---- */

#define PATH_BYTES 4200

static void log_line(void *context, enum weir__log_level level, const char *message)
{
    weir__logf(context, level, "rules service: %s", message);
}

static void log_published(void *context, int64_t revision)
{
    weir__logf(context, WEIR__LOG_INFO, "revision %" PRId64 " of the rules is active", revision);
}

/* Rules inside of weir.yaml are written to a file first. */
static struct weir__import_result import_named(const struct weir__config *config, struct weir__control *control,
                                               const struct weir__logger *log)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/imported.yaml", config->state_path);
    if (!config->import_path && !weir__file_write(path, config->import_text.data, config->import_text.len)) {
        weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s", path, strerror(errno));
        return (struct weir__import_result){.rules_error = WEIR_ESYS};
    }
    return weir__control_import(control, config->import_path ? config->import_path : path, "weir.yaml",
                                weir__log_diagnostic, (void *)(uintptr_t)log);
}

struct weir__import_result weir__bootstrap_import(const struct weir__config *config, struct weir__control *control,
                                                  const struct weir__logger *log)
{
    struct weir__import_result result = import_named(config, control, log);
    if (result.rules_error)
        weir__logf(log, WEIR__LOG_ERROR, "the rules that %s names cannot be imported into the rules service: %s",
                   config->file, weir_strerror(result.rules_error));
    if (result.documents)
        weir__logf(log, WEIR__LOG_INFO,
                   "imported the rules that %s names into the rules service; from now on they are changed there",
                   config->file);
    return result;
}

/* ---- Bootstrap ---- */

enum outcome {
    NO_RULES,   /* there are none yet */
    HAS_RULES,  /* the rules file has some */
    WRONG_RULES /* those that weir.yaml names cannot be used, which was logged */
};

/*
 * Makes the rules that weir.yaml names active without the database: joined to a set by a service in memory, as the
 * database will, so that the import changes nothing.
 */
static enum outcome import_meanwhile(const struct weir__config *config, const struct weir__control_host *host,
                                     const struct weir__logger *log)
{
    struct weir__control_options options = {.url = "sqlite::memory:", .host = host};
    struct weir__control *control = NULL;
    if (weir__control_open(&options, &control) != 0)
        return NO_RULES;
    struct weir__import_result result = import_named(config, control, log);
    bool written =
        control->published.revision &&
        weir__file_replace(config->rules_path, meanwhile, control->published.text, control->published.len) == 0;
    weir__control_close(control);
    if (written)
        weir__logf(log, WEIR__LOG_WARNING, "the rules that %s names are active until the rules service has some",
                   config->file);
    return result.rules_error ? WRONG_RULES : written ? HAS_RULES : NO_RULES;
}

/* Writes the database's published rules, or else those that weir.yaml names. */
static enum outcome publish_first(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__control_host host = {.context = (void *)(uintptr_t)log, .log = log_line, .published = log_published};
    struct weir__control_options options = {
        .url = config->admin.database, .published_path = config->rules_path, .host = &host};
    struct weir__control *control = NULL;
    struct weir__import_result result = {0};
    if (!weir__file_make_folder(config->rules_path))
        return NO_RULES; /* the next write logs the reason */
    int error = weir__control_open(&options, &control);
    if (!error)
        error = weir__control_tick(control);
    if (!error && names_rules(config) && !weir__control_revision(control))
        result = weir__bootstrap_import(config, control, log);
    bool published = control && weir__control_revision(control);
    weir__control_close(control);
    if (published)
        return HAS_RULES;
    if (result.rules_error)
        return WRONG_RULES;
    return names_rules(config) ? import_meanwhile(config, &host, log) : NO_RULES;
}

bool weir__bootstrap(const struct weir__config *config, const struct weir__logger *log)
{
    char text[128];
    if (!config->published)
        return true;
    if (any_known(config->rules_path)) {
        if (names_rules(config))
            weir__logf(log, WEIR__LOG_INFO,
                       "the rules that %s names are no longer read: the rules service has its own, and weir rules "
                       "apply changes them",
                       config->file);
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
        outcome = publish_first(config, log);
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
