/* The published set, in memory and on disk. See call.h. */
#include "base/file.h"
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HEAD_BEGIN WEIR__PUBLISHED_HEAD
#define HEAD_BYTES 256

/* ---- In memory and on disk ---- */

/* Formats the first line of the file. */
static void format_head(const struct weir__published_rules *set, char head[HEAD_BYTES])
{
    snprintf(head, HEAD_BYTES, HEAD_BEGIN "%" PRId64 ", %" PRId64 ", sha256 %s\n", set->revision, set->at_ms,
             set->digest);
}

/* Parses the first line of a file. Returns the text behind it; NULL: it is damaged, or not of a published set. */
static char *read_head(char *text, size_t len, struct weir__published_rules *found)
{
    char head[HEAD_BYTES], *end = strchr(text, '\n');
    if (strncmp(text, HEAD_BEGIN, sizeof HEAD_BEGIN - 1) != 0 || !end)
        return NULL;
    char *body = end + 1;
    found->len = len - (size_t)(body - text);
    found->revision = strtoll(text + sizeof HEAD_BEGIN - 1, &end, 10);
    found->at_ms = *end == ',' ? strtoll(end + 1, NULL, 10) : 0;
    weir__digest("", body, found->len, found->digest);
    format_head(found, head); /* as it is if nothing is damaged */
    return found->revision > 0 && strncmp(text, head, strlen(head)) == 0 ? body : NULL;
}

void weir__published_load(struct weir__control *control)
{
    struct weir__published_rules found = {0};
    size_t len = 0;
    char *text = control->path ? weir__file_read(control->path, &len) : NULL;
    const char *body = text ? read_head(text, len, &found) : NULL;
    if (!body) {
        free(text);
        return;
    }
    found.text = memmove(text, body, found.len + 1);
    memcpy(found.known_as, found.digest, sizeof found.known_as);
    control->published = found;
    control->written = true;
}

/* The database lock is held, so that one thread writes; hosts that poll meanwhile get the set in memory. */
static void write_file(struct weir__control *control, const struct weir__published_rules *set)
{
    char head[HEAD_BYTES];
    if (!control->path)
        return;
    format_head(set, head);
    int error = weir__file_replace(control->path, head, set->text, set->len);
    if (error && !control->unwritable)
        weir__control_log(control, WEIR__LOG_WARNING, "%s cannot be written: %s; the old rules stay active; retrying",
                          control->path, strerror(-error));
    control->unwritable = error != 0;
    pthread_mutex_lock(&control->published_lock);
    control->written = !error;
    pthread_mutex_unlock(&control->published_lock);
    if (!error && control->host->published)
        control->host->published(control->host->context, set->revision);
}

void weir__published_set(struct weir__control *control, int64_t revision, int64_t at_ms, const char *known_as,
                         struct weir__set *set)
{
    struct weir__published_rules now = {
        .revision = revision, .at_ms = at_ms, .text = set->text.data, .len = set->text.len};
    set->text.data = NULL;
    weir__digest("", now.text, now.len, now.digest);
    snprintf(now.known_as, sizeof now.known_as, "%s", known_as);
    pthread_mutex_lock(&control->published_lock);
    char *before = control->published.text;
    control->published = now;
    control->written = false;
    control->stale = false;
    pthread_mutex_unlock(&control->published_lock);
    free(before);
    write_file(control, &control->published);
}

void weir__published_retry(struct weir__control *control)
{
    if (control->published.revision && !control->written)
        write_file(control, &control->published);
}

/* ---- The database's newest ---- */

static void take_over(struct weir__control *control, const struct weir__published_rules *newest)
{
    struct weir__set set = {0};
    size_t rules = 0;
    json_t *problems = json_array();
    weir__set_of(control->db, newest->revision, &set);
    bool read = !control->db->error, good = read && weir__set_compile(&set, NULL, problems, &rules) == 0;
    if (read && !good && control->unusable != newest->revision)
        weir__control_log(control, WEIR__LOG_WARNING,
                          "revision %" PRId64 " of the database cannot be used; the old rules stay active",
                          newest->revision);
    if (read)
        control->unusable = good ? 0 : newest->revision;
    if (good)
        weir__published_set(control, newest->revision, newest->at_ms, newest->digest, &set);
    weir__set_free(&set);
    json_decref(problems);
}

void weir__published_follow(struct weir__control *control)
{
    struct weir__db *db = control->db;
    struct weir__published_rules newest = {0};
    weir__db_run_with(db, "SELECT revision, at, digest FROM revisions ORDER BY revision DESC LIMIT 1", NULL, 0);
    if (db->error)
        return;
    if (weir__db_next(db)) {
        newest.revision = weir__db_number(db, 0);
        newest.at_ms = weir__db_number(db, 1);
        snprintf(newest.digest, sizeof newest.digest, "%s", weir__db_text(db, 2).data);
    }
    bool equal = newest.revision == control->published.revision;
    bool same = equal && strcmp(newest.digest, control->published.known_as) == 0;
    /* A restored copy lacks the revisions published after it was made. Revision numbers only grow; times come from
     * hosts whose clocks differ, and only order two revisions of one number. */
    bool older =
        newest.revision < control->published.revision || (equal && !same && newest.at_ms < control->published.at_ms);
    if (older && !control->stale)
        weir__control_log(control, WEIR__LOG_WARNING,
                          "the database's newest revision is %" PRId64 ", but %" PRId64 " is published: was it "
                          "restored from an old copy? The published rules stay until a rollback to a revision",
                          newest.revision, control->published.revision);
    pthread_mutex_lock(&control->published_lock);
    control->stale = older;
    pthread_mutex_unlock(&control->published_lock);
    if (!same && !older && newest.revision)
        take_over(control, &newest);
}
