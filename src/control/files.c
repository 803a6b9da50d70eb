/* Rules in files: their documents in a service in memory, for reading. See call.h. */
#include "base/hash.h"
#include "control/import.h"

#include <stdio.h>
#include <stdlib.h>

#define AUTHOR "files"

struct weir__files_view *weir__files_view_open(const struct weir__named_rules *named,
                                               const struct weir__control_host *host)
{
    struct weir__control_options options = {.url = "sqlite::memory:", .host = host};
    struct weir__files_view *view = calloc(1, sizeof *view);
    if (!view)
        return NULL;
    *view = (struct weir__files_view){.named = named, .places = json_object(), .errors = json_array()};
    if (!view->places || !view->errors || weir__control_open(&options, &view->memory) != 0) {
        weir__files_view_close(view);
        return NULL;
    }
    view->memory->shows = view;
    return view;
}

void weir__files_view_close(struct weir__files_view *view)
{
    if (!view)
        return;
    weir__control_close(view->memory);
    json_decref(view->places);
    json_decref(view->errors);
    free(view);
}

void weir__add_place(const struct weir__control *control, const char *name, json_t *object)
{
    if (control->shows)
        json_object_update(object, json_object_get(control->shows->places, name));
}

/* ---- Reading ---- */

static void add_error(void *context, const weir_diagnostic *what)
{
    json_t *errors = context;
    if (what->severity != WEIR_IS_ERROR)
        return;
    weir__add_problem(errors, NULL, NULL, what);
    json_t *added = json_array_get(errors, json_array_size(errors) - 1);
    json_object_set_new(added, "file", json_string(what->file ? what->file : ""));
}

/* Replaces documents, places and published set by those of `next`, unless it is NULL; and the errors, which it takes
 * over. */
static void replace(struct weir__files_view *view, struct weir__control *next, json_t *places, json_t *errors)
{
    struct weir__control *memory = view->memory;
    weir__fair_lock_acquire(&memory->database_lock);
    pthread_mutex_lock(&memory->published_lock);
    json_decref(view->errors);
    view->errors = errors;
    if (next) {
        struct weir__db *db = memory->db;
        struct weir__published_rules published = memory->published;
        memory->db = next->db;
        memory->published = next->published;
        next->db = db;
        next->published = published;
        json_decref(view->places);
        view->places = json_incref(places);
    }
    pthread_mutex_unlock(&memory->published_lock);
    weir__fair_lock_release(&memory->database_lock);
    if (next && memory->host->shown) /* only this thread changes the set */
        memory->host->shown(memory->host->context, (weir_text){memory->published.text, memory->published.len});
}

/* Logs the first error. Workers log those of files that they read; the agent may be unable to read them. */
static void log_errors(const struct weir__files_view *view, const json_t *errors)
{
    const json_t *first = json_array_get(errors, 0);
    const char *file = json_string_value(json_object_get(first, "file"));
    const char *message = json_string_value(json_object_get(first, "message"));
    int line = (int)json_integer_value(json_object_get(first, "line"));
    char place[16] = "";
    if (line > 0)
        snprintf(place, sizeof place, ":%d", line);
    if (first)
        weir__control_log(view->memory, WEIR__LOG_WARNING, "%s%s: %s; the documents shown are those before", file,
                          place, message);
    else
        weir__control_log(view->memory, WEIR__LOG_INFO, "the documents shown are those of the files again");
}

/* Adds the documents to a service in memory. NULL: they cannot be shown, and `errors` has a reason if it is known. */
static struct weir__control *build(const struct weir__files_view *view, struct weir__import *import)
{
    struct weir__control_options options = {.url = "sqlite::memory:"};
    struct weir__control *next = NULL;
    if (weir__control_open(&options, &next) != 0)
        return NULL;
    next->published.revision = view->memory->published.revision; /* numbers go on */
    (void)weir__import_run(next, import, AUTHOR);
    if (next->published.text)
        return next;
    weir__control_close(next);
    return NULL;
}

/* Names and texts of the files: documents are shown with the names. */
static uint64_t hash_of(const struct weir__sources *files)
{
    uint64_t hash = files->fingerprint.content;
    for (size_t i = 0; i < files->count; i++)
        hash = weir__hash_text(weir__text_of(files->list[i].name), hash);
    return hash;
}

/* Reads the files, and shows them if they are good. */
static void show(struct weir__files_view *view)
{
    json_t *errors = json_array();
    struct weir__import import = {.name = view->named->path ? view->named->path : view->named->file,
                                  .reason = "",
                                  .diagnose = add_error,
                                  .context = errors,
                                  .before = view->memory,
                                  .places = json_object()};
    int error = weir__named_rules_read(view->named, true, add_error, errors, &import.from, &import.rules);
    const struct weir__sources *files = &import.from.files;
    bool same = !error && view->shown && view->shown == hash_of(files);
    struct weir__control *next = error || same ? NULL : build(view, &import);
    bool good = same || next, failed = !good && json_array_size(errors) == 0;
    if (failed) {
        weir_diagnostic what = {
            .severity = WEIR_IS_ERROR, .file = import.name, .message = weir_strerror(error ? error : WEIR_ENOMEM)};
        add_error(errors, &what);
    }
    if (!json_equal(errors, view->errors))
        log_errors(view, errors);
    if (good)
        view->shown = hash_of(files);
    view->seen = files->fingerprint;
    view->seen.young |= files->passing || failed; /* no memory: the next look tries again */
    replace(view, next, import.places, errors);
    weir__control_close(next);
    weir__documents_free(&import.from);
    json_decref(import.places);
}

void weir__files_view_tick(struct weir__files_view *view)
{
    const char *path = view->named->path; /* rules inside of weir.yaml change with the configuration */
    struct weir__fingerprint now = path ? weir__sources_look(path) : view->seen;
    if (view->read && now.sum == view->seen.sum && now.error == view->seen.error && !view->seen.young)
        return;
    view->read = true;
    show(view);
    if (path && !view->seen.sum) { /* they could not be read: not again before they change */
        now.young = view->seen.young;
        view->seen = now;
    }
}
