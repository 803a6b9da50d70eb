/* Opening, closing and the tick of the rules service. See control.h. */
#include "base/clock.h"
#include "control/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SESSION_MS     INT64_C(43200000) /* 12 hours */
#define RETRY_MS       1000              /* between two attempts to open the database */
#define THROTTLE_BYTES (1 << 20)         /* of the login throttle: some 60,000 addresses at once */

void weir__control_log(const struct weir__control *control, enum weir__log_level level, const char *format, ...)
{
    char line[512], shown[sizeof line];
    va_list arguments;
    if (!control->host->log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    control->host->log(control->host->context, level,
                       weir__printable((weir_text){line, strlen(line)}, shown, sizeof shown));
}

void weir__control_state(struct weir__control *control, int error, const char *why)
{
    if (error && error != control->error)
        weir__control_log(control, WEIR__LOG_WARNING, "the rules database: %s (%s)", weir__db_strerror(error), why);
    else if (!error && control->error)
        weir__control_log(control, WEIR__LOG_INFO, "the rules database is available again");
    control->error = error;
}

void weir__control_note(struct weir__control *control, bool up)
{
    pthread_mutex_lock(&control->published_lock);
    control->up = up;
    pthread_mutex_unlock(&control->published_lock);
}

int64_t weir__control_revision(struct weir__control *control)
{
    pthread_mutex_lock(&control->published_lock);
    int64_t revision = control->published.revision;
    pthread_mutex_unlock(&control->published_lock);
    return revision;
}

bool weir__control_ready(struct weir__control *control)
{
    char why[WEIR__DB_WHY_BYTES];
    int64_t now = weir__wall_ms();
    if (control->db && control->db->lost) {
        weir__db_close(control->db);
        control->db = NULL;
    }
    if (control->db) {
        control->db->error = 0;
        return true;
    }
    if (control->tried_ms && now - control->tried_ms < RETRY_MS && now >= control->tried_ms)
        return false;
    /* If a set is published, the database existed: do not create an empty one in its place. */
    int error = weir__db_open(control->url, control->published.revision == 0, &control->db, why);
    if (error) /* that it is available is known after the first statement */
        weir__control_state(control, error, why);
    control->tried_ms = weir__wall_ms(); /* at the end: an attempt may take longer than the pause */
    return !error;
}

int weir__control_open(const struct weir__control_options *options, struct weir__control **control)
{
    static const struct weir__control_host no_host;
    struct weir__control *made = calloc(1, sizeof *made);
    if (!made)
        return WEIR__DB_MEMORY;
    weir__fair_lock_init(&made->database_lock);
    weir__fair_lock_init(&made->compile_lock);
    weir__fair_lock_init(&made->dry_run_lock);
    pthread_mutex_init(&made->published_lock, NULL);
    made->host = options->host ? options->host : &no_host;
    made->session_ms = options->session_ms ? options->session_ms : SESSION_MS;
    made->login_links = options->login_links;
    made->key_texts = options->key_texts ? options->key_texts : WEIR__OPERATOR;
    made->url = strdup(options->url);
    made->path = options->published_path ? strdup(options->published_path) : NULL;
    weir_segment_options throttle = {.size = THROTTLE_BYTES, .no_slab = true};
    bool throttled = weir_segment_open(&throttle, &made->throttle) == 0;
    made->files = options->files ? weir__files_view_open(options->files, made->host) : NULL;
    if (!made->url || (options->published_path && !made->path) || !throttled || (options->files && !made->files)) {
        weir__control_close(made);
        return WEIR__DB_MEMORY;
    }
    weir__published_load(made);
    /* Writes the file if the process ended between the commit and the write. */
    (void)weir__control_tick(made);
    if (made->error == WEIR__DB_URL) {
        weir__control_close(made);
        return WEIR__DB_URL;
    }
    *control = made;
    return 0;
}

void weir__control_close(struct weir__control *control)
{
    if (!control)
        return;
    weir__files_view_close(control->files);
    weir__db_close(control->db);
    weir_segment_close(control->throttle);
    weir__fair_lock_destroy(&control->database_lock);
    weir__fair_lock_destroy(&control->compile_lock);
    weir__fair_lock_destroy(&control->dry_run_lock);
    pthread_mutex_destroy(&control->published_lock);
    free(control->published.text);
    free(control->url);
    free(control->path);
    free(control);
}

int weir__control_tick(struct weir__control *control)
{
    if (control->files)
        weir__files_view_tick(control->files);
    weir__fair_lock_acquire(&control->database_lock);
    bool ready = weir__control_ready(control);
    if (ready) {
        weir__published_follow(control);
        weir__control_state(control, control->db->error, control->db->why);
    }
    int error = control->error;
    weir__control_note(control, !error);
    weir__published_retry(control);
    weir__fair_lock_release(&control->database_lock);
    return error;
}
