/* Reads the rules that a command was given, and shows errors and warnings about them. See diagnose.h. */
#include "cli/diagnose.h"
#include "base/buffer.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "serve/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAB = 8, EXCERPT = 100, BEFORE_CARET = 60, READ_BYTES = 65536 };

/* A character of a source line at this column; a tab is blanks up to the next stop. */
static struct weir__shown source_next(const char *text, size_t left, size_t column)
{
    static const char blanks[TAB + 1] = "        ";
    size_t width = TAB - column % TAB;
    return *text == '\t' ? (struct weir__shown){1, blanks, width, width} : weir__shown_next(text, left);
}

/* The part of the line around character number `character` (from 1), and a caret under it. */
static void show_source(FILE *to, int line, const char *source, int character)
{
    struct weir__shown next;
    size_t len = strcspn(source, "\r\n"), caret = 0, at = 0;
    for (int i = 1; i < character && at < len; i++) {
        next = source_next(source + at, len - at, caret);
        at += next.taken;
        caret += next.width;
    }
    size_t from = caret > BEFORE_CARET + 10 ? caret - BEFORE_CARET : 0;
    fprintf(to, "%5d | %s", line, from ? "…" : "");
    size_t column = 0;
    for (at = 0; at < len && column < from + EXCERPT; at += next.taken) {
        next = source_next(source + at, len - at, column);
        if (column >= from)
            fwrite(next.text, 1, next.len, to);
        else if (column + next.width > from)
            from = column + next.width; /* a wide character or a tab across the edge is left out whole */
        column += next.width;
    }
    fprintf(to, "%s\n      | ", at < len ? "…" : "");
    if (caret >= from)
        fprintf(to, "%*s", (int)(caret - from) + (from ? 1 : 0), "");
    fputs("^\n", to);
}

static void show(FILE *to, const weir_diagnostic *d, bool error)
{
    bool colour = weir__has_colour(to);
    if (colour)
        fputs("\033[1m", to);
    if (d->file && *d->file)
        weir__print_text(to, d->file);
    else
        fputs("rules", to);
    if (d->line > 0)
        fprintf(to, ":%d:%d", d->line, d->column > 0 ? d->column : 1);
    fprintf(to, ": %s%s%s: ", colour ? (error ? "\033[31m" : "\033[35m") : "", error ? "error" : "warning",
            colour ? "\033[0m" : "");
    weir__print_line(to, "%s%s%s%s", d->message, d->suggestion ? "; did you mean '" : "",
                     d->suggestion ? d->suggestion : "", d->suggestion ? "'?" : "");
    if (d->source && d->line > 0)
        show_source(to, d->line, d->source, d->column);
    /* The default of most commands: the user is probably in another folder, or has no weir.yaml yet. */
    if (error && d->line <= 0 && d->file && strcmp(d->file, "weir.yaml") == 0 && access(d->file, F_OK) != 0)
        fputs(access("/etc/weir/weir.yaml", F_OK) == 0
                  ? "that of this host's service is in /etc/weir: cd /etc/weir, or name its path\n"
                  : "run this in the folder of your weir.yaml, or name its path; weir init writes a new one\n",
              to);
}

void weir__add_finding(void *context, const weir_diagnostic *diagnostic)
{
    struct weir__findings *findings = context;
    bool error = diagnostic->severity == WEIR_IS_ERROR;
    json_t **kept = &findings->kept[diagnostic->severity];
    if (!error && findings->errors_only)
        return;
    if (error)
        findings->errors++;
    else
        findings->warnings++;
    if (findings->to) {
        show(findings->to, diagnostic, error || findings->strict);
        return;
    }
    *kept = *kept ? *kept : weir__must(json_array());
    json_array_append_new(*kept,
                          json_pack("{s:o, s:i, s:i, s:s, s:o, s:o}", "file", weir__json_of_text(diagnostic->file),
                                    "line", diagnostic->line, "column", diagnostic->column, "severity",
                                    error ? "error" : "warning", "message", weir__json_of_text(diagnostic->message),
                                    "suggestion", weir__json_of_text(diagnostic->suggestion)));
}

json_t *weir__findings_json(struct weir__findings *findings, enum weir_severity severity)
{
    json_t *kept = findings->kept[severity];
    findings->kept[severity] = NULL;
    return kept ? kept : json_array();
}

void weir__find_failure(struct weir__findings *findings, const char *path, int error)
{
    bool system = (error == WEIR_ERULESPATH || error == WEIR_ESYS) && errno != 0;
    char message[512];
    snprintf(message, sizeof message, "%s%s%s", weir_strerror(error), system ? ": " : "",
             system ? strerror(errno) : "");
    weir_diagnostic failure = {.severity = WEIR_IS_ERROR, .file = path, .message = message};
    if (findings->errors == 0)
        weir__add_finding(findings, &failure);
}

bool weir__is_stream(const char *path)
{
    struct stat at;
    return strcmp(path, "-") == 0 || (stat(path, &at) == 0 && (S_ISFIFO(at.st_mode) || S_ISCHR(at.st_mode)));
}

char *weir__read_all(const char *path, size_t max, size_t *len)
{
    bool opened = strcmp(path, "-") != 0;
    FILE *from = opened ? fopen(path, "r") : stdin;
    struct weir__buffer text = {0};
    char *room;
    size_t got;
    if (!from)
        return NULL;
    do {
        room = weir__must(weir__buffer_room(&text, READ_BYTES + 1));
        got = fread(room, 1, READ_BYTES, from);
        text.len += got;
        room[got] = '\0';
    } while (got == READ_BYTES && text.len <= max); /* less: the end, or an error */
    int why = text.len > max ? EFBIG : ferror(from) ? errno : 0;
    if (opened)
        fclose(from);
    *len = text.len;
    if (!why)
        return text.data;
    weir__buffer_free(&text);
    errno = why;
    return NULL;
}

/* ---- The rules that a command was given ---- */

void weir__input_find(void *context, const weir_diagnostic *diagnostic)
{
    struct weir__input *input = context;
    weir_diagnostic located = *diagnostic;
    bool other = diagnostic->file && *diagnostic->file == '/'; /* a file that the rules name */
    if (input->text && !other)
        located.file = input->name;
    weir__add_finding(input->findings, &located);
}

static bool read_stream(struct weir__input *input, const char *path)
{
    input->text = input->read = weir__read_all(path, WEIR__INPUT_MAX, &input->len);
    if (!input->text)
        weir__find_failure(input->findings, input->name, WEIR_ERULESPATH);
    return input->text != NULL;
}

bool weir__input_open(struct weir__input *input, const char *path)
{
    input->name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    errno = 0;
    if (weir__is_stream(path))
        return read_stream(input, path);
    if (!weir__is_weir_yaml(path)) {
        input->path = path;
        return true;
    }
    input->file = weir__file_open(path, WEIR__FILE_RULES, weir__input_find, input);
    if (!input->file)
        return false;
    input->path = input->file->rules_path;
    input->text = input->file->rules_text.data;
    input->len = input->file->rules_text.len;
    return true;
}

void weir__input_close(struct weir__input *input)
{
    free(input->read);
    weir__file_close(input->file);
}

const char *weir__input_default(void)
{
    return access("weir.yaml", F_OK) == 0 ? "weir.yaml" : NULL;
}

const char *weir__input_segment(const char *path)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    if (!weir__is_weir_yaml(path))
        return path;
    struct weir__file *file = weir__file_open(path, WEIR__FILE_RULES, weir__add_finding, &findings);
    const char *segment = file ? weir__format("%s", file->segment) : NULL;
    weir__file_close(file);
    return segment;
}
