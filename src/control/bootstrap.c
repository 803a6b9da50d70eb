/* The first rules of a host, and the import of rule files into an empty database. See control.h. */
#include "base/clock.h"
#include "base/file.h"
#include "control/call.h"

#include <curl/curl.h>
#include <errno.h>
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
    json_t *problems = json_array();
    bool is_new = false;
    if (!weir__document_read(&arena, (weir_text){one->text, one->len}, &document, problems)) {
        /* The rules compile: the only error left is a name that the service reserves. */
        const char *why = json_string_value(json_object_get(json_array_get(problems, 0), "message"));
        weir__control_log(call->control, "%s cannot be imported: %s", one->name, why ? why : "");
        weir__fail_invalid(call, "a document cannot be imported");
    } else if (is_shadow(&document) == shadow) {
        char *text = shadow ? weir__yaml_write(document.root, "shadow") : NULL;
        if (shadow && (!text || !weir__document_read(&arena, weir__text_of(text), &document, problems)))
            weir__fail_memory(call);
        is_new = add(call, &document, shadow);
        free(text);
    }
    weir__arena_free(&arena);
    json_decref(problems);
    return is_new;
}

/* Adds all documents and publishes them, if the database is empty. Returns how many they are. */
static size_t import_all(struct weir__call *call, const char *path, const struct weir__documents *from,
                         struct weir__publication *made)
{
    size_t count = 0;
    if (weir__db_count(call->db, "SELECT count(*) FROM documents"))
        return 0;
    for (int shadow = 0; shadow < 2; shadow++) /* enforced rules first: a shadow rule may have the name of one */
        for (size_t i = 0; i < from->count && !call->failed; i++)
            count += add_one(call, &from->list[i], shadow == 1);
    if (call->failed || !weir__publication_make(call, made))
        return 0;
    weir__audit(call, "import", path, json_pack("{s:I}", "documents", (json_int_t)count));
    return count;
}

int weir__control_import(struct weir__control *control, const char *path, const char *who, weir_diagnose *diagnose,
                         void *context, size_t *documents)
{
    struct weir__rest_request request = {.address = ""};
    struct weir__rest_reply reply;
    struct weir__publication made = {.last = true, .reason = REASON};
    struct weir__documents from = {0};
    weir_rules *rules = NULL;
    *documents = 0;
    int error = weir_rules_load(path, diagnose, context, &rules);
    weir_rules_free(rules);
    if (!error && !weir__documents_read(&from, path, diagnose, context))
        error = WEIR_ERULES;
    if (error) {
        weir__documents_free(&from);
        return WEIR__IMPORT_WRONG + error;
    }
    struct weir__call call = weir__call_open(control, &request, &reply);
    snprintf(call.who, sizeof call.who, "%s", who);
    weir__fair_lock_acquire(&control->database_lock);
    if (weir__control_ready(control)) {
        call.db = control->db;
        weir__db_begin(call.db);
        size_t count = import_all(&call, path, &from, &made);
        error = weir__db_end(call.db, !call.failed);
        *documents = error || call.failed ? 0 : count;
        if (*documents)
            weir__published_set(control, made.revision, call.now_ms, made.digest, &made.set);
        if (!error && call.failed)
            error = WEIR__IMPORT_WRONG + WEIR_ERULES;
        call.db = NULL;
    } else {
        error = control->error;
    }
    weir__fair_lock_release(&control->database_lock);
    weir__call_close(&call);
    weir__set_free(&made.set);
    weir__documents_free(&from);
    weir__rest_free(&reply);
    return error;
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

/* The path of the rules that weir.yaml names; inline rules are written to a file. NULL after a logged error. */
static const char *path_of(const struct weir__config *config, char path[PATH_BYTES], const struct weir__logger *log)
{
    if (config->import_path)
        return config->import_path;
    snprintf(path, PATH_BYTES, "%s/imported.yaml", config->state_path);
    if (weir__file_write(path, config->import_text.data, config->import_text.len))
        return path;
    weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s", path, strerror(errno));
    return NULL;
}

static void log_line(void *context, const char *message)
{
    weir__logf(context, WEIR__LOG_WARNING, "rules service: %s", message);
}

static int import_named(const struct weir__config *config, struct weir__control *control, size_t *documents,
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
    int error = import_named(config, control, &documents, log);
    if (error < WEIR__IMPORT_WRONG)
        weir__logf(log, WEIR__LOG_ERROR, "the rules that %s names cannot be imported into the rules service: %s",
                   config->file, weir_strerror(error - WEIR__IMPORT_WRONG));
    if (!error && documents)
        weir__logf(log, WEIR__LOG_INFO,
                   "imported the rules that %s names into the rules service; from now on they are changed there",
                   config->file);
    return error;
}

/*
 * Makes them active without the database: joined to a set by a service in memory, as the database will, so that the
 * import changes nothing. Errors of weir__control_import.
 */
static int import_meanwhile(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__control_host host = {.context = (void *)(uintptr_t)log, .log = log_line};
    struct weir__control_options options = {.url = "sqlite::memory:", .host = &host};
    struct weir__control *control = NULL;
    size_t documents;
    int error = weir__control_open(&options, &control);
    if (!error)
        error = import_named(config, control, &documents, log);
    if (!error &&
        (!weir__file_make_folder(config->rules_path) ||
         weir__file_replace(config->rules_path, meanwhile, control->published.text, control->published.len) != 0))
        error = WEIR__DB_GONE; /* the next write logs the reason */
    weir__control_close(control);
    if (!error)
        weir__logf(log, WEIR__LOG_WARNING, "the rules that %s names are active until the rules service has some",
                   config->file);
    return error;
}

/* ---- Bootstrap ---- */

/* Writes the database's published rules, or else those that weir.yaml names. Errors of weir__control_import. */
static int publish_first(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__control_host host = {.context = (void *)(uintptr_t)log, .log = log_line};
    struct weir__control_options options = {
        .url = config->admin.database, .published_path = config->rules_path, .host = &host};
    struct weir__control *control = NULL;
    if (!weir__file_make_folder(config->rules_path))
        return WEIR__DB_GONE; /* the next write logs the reason */
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
                       "the rules that %s names are no longer read: the rules service has its own, and weir rules "
                       "apply changes them",
                       config->file);
        return true;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int error = WEIR__DB_GONE;
    if (config->origin.url) {
        struct weir__rules_poller *poller = weir__rules_poller_new(config, log, NULL, NULL);
        if (poller)
            (void)!weir__rules_poller_poll(poller);
        weir__rules_poller_free(poller);
    } else {
        error = publish_first(config, log);
    }
    if (!error || any_known(config->rules_path))
        return true;
    if (error < WEIR__IMPORT_WRONG)
        return false; /* the error was logged */
    weir__logf(log, WEIR__LOG_WARNING, "no rules are known yet; all requests pass until there are some");
    int len = snprintf(text, sizeof text, "%srules: []\n", none);
    if (weir__file_write(config->rules_path, text, (size_t)len))
        return true;
    weir__logf(log, WEIR__LOG_ERROR, "%s cannot be written: %s; choose another folder under state", config->rules_path,
               strerror(errno));
    return false;
}
