/* Rule files, and the texts that documents are cut out of. */
#include "control/call.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Documents ---- */

struct weir__rule_document *weir__documents_add(struct weir__documents *documents, enum weir__kind kind,
                                                const char *name, size_t name_len)
{
    if (documents->count == documents->room) {
        size_t room = documents->room ? 2 * documents->room : 16;
        struct weir__rule_document *list = realloc(documents->list, room * sizeof *list);
        if (!list)
            return NULL;
        documents->list = list;
        documents->room = room;
    }
    const char *prefix = kind == WEIR__KIND_DOMAIN ? WEIR__DOMAIN_PREFIX : "";
    char *full_name = malloc(strlen(prefix) + name_len + 1);
    if (!full_name)
        return NULL;
    strcpy(full_name, prefix);
    memcpy(full_name + strlen(prefix), name, name_len);
    full_name[strlen(prefix) + name_len] = '\0';
    struct weir__rule_document *document = &documents->list[documents->count++];
    *document = (struct weir__rule_document){.kind = kind, .name = full_name};
    return document;
}

/* Bytes of a line that are to be left out so that it begins where the document's first line does. */
static size_t indent_of(const struct weir__rule_file *file, size_t line, size_t most)
{
    size_t begin = file->lines[line], left = file->lines[line + 1] - begin, blanks = 0;
    while (blanks < most && blanks < left && file->text[begin + blanks] == ' ')
        blanks++;
    return blanks;
}

/* Lines that end in '\r' too are lines of the same text. */
static size_t put_line(char *to, const char *from, size_t len)
{
    while (len > 0 && (from[len - 1] == '\n' || from[len - 1] == '\r'))
        len--;
    memcpy(to, from, len);
    to[len] = '\n';
    return len + 1;
}

bool weir__documents_stretch(struct weir__documents *documents, struct weir__rule_document *document, size_t file,
                             size_t line, size_t column, size_t end, const char *head)
{
    const struct weir__rule_file *of = &documents->files[file];
    struct weir__stretch *stretches = realloc(document->stretches, (document->stretch_count + 1) * sizeof *stretches);
    if (!stretches)
        return false;
    document->stretches = stretches;
    size_t begin = of->lines[line] + column;
    char *text = realloc(document->text, document->len + strlen(head) + (end - begin) + 2);
    if (!text)
        return false;
    document->text = text;
    memcpy(text + document->len, head, strlen(head));
    size_t used = document->len + strlen(head), at = line;
    for (; at < of->line_count && (at == line || of->lines[at] < end); at++) {
        size_t from = at == line ? begin : of->lines[at] + indent_of(of, at, column);
        size_t to = of->lines[at + 1] < end ? of->lines[at + 1] : end;
        used += put_line(text + used, of->text + from, to > from ? to - from : 0);
    }
    text[used] = '\0';
    document->len = used;
    stretches[document->stretch_count++] = (struct weir__stretch){.file = file,
                                                                  .document_line = document->lines,
                                                                  .file_line = line,
                                                                  .count = at - line,
                                                                  .column = column,
                                                                  .head = strlen(head)};
    document->lines += at - line;
    return true;
}

/* ---- Telling ---- */

void weir__documents_diagnose(const struct weir__documents *documents, const struct weir__rule_document *document,
                              const weir_diagnostic *what, weir_diagnose *diagnose, void *context)
{
    weir_diagnostic moved = *what;
    const struct weir__stretch *stretch = &document->stretches[0];
    size_t line = what->line > 0 ? (size_t)what->line - 1 : 0;
    for (size_t i = 0; i < document->stretch_count; i++)
        if (document->stretches[i].document_line <= line)
            stretch = &document->stretches[i];
    const struct weir__rule_file *file = &documents->files[stretch->file];
    line -= stretch->document_line;
    if (line >= stretch->count)
        line = stretch->count - 1; /* the end of a document may be behind its last line */
    size_t at = stretch->file_line + line;
    /* Blanks before, and what was put there, are a byte each. */
    size_t moved_by = line == 0 ? stretch->column : indent_of(file, at, stretch->column);
    size_t head = line == 0 ? stretch->head : 0, column = what->column > 0 ? (size_t)what->column : 1;
    moved.file = file->path;
    moved.line = (int)at + 1;
    moved.column = (int)(column + moved_by > head ? column + moved_by - head : 1);
    moved.source = file->text + file->lines[at];
    if (diagnose)
        diagnose(context, &moved);
}

/* ---- Files ---- */

static bool diagnose_failure(const char *path, const char *message, weir_diagnose *diagnose, void *context)
{
    if (diagnose)
        diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = path, .message = message});
    return false;
}

/* Where lines begin, as YAML counts them. */
static bool find_lines(struct weir__rule_file *file)
{
    size_t count = 1;
    for (size_t i = 0; i < file->len; i++)
        count += file->text[i] == '\n' || file->text[i] == '\r';
    file->lines = malloc((count + 1) * sizeof *file->lines);
    if (!file->lines)
        return false;
    count = 0;
    file->lines[count++] = 0;
    for (size_t i = 0; i < file->len; i++) {
        if (file->text[i] == '\r' && file->text[i + 1] == '\n')
            i++;
        if (file->text[i] == '\n' || file->text[i] == '\r')
            file->lines[count++] = i + 1;
    }
    file->line_count = file->lines[count - 1] == file->len && count > 1 ? count - 1 : count;
    file->lines[file->line_count] = file->len;
    return true;
}

bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context)
{
    struct weir__rule_file *files = realloc(documents->files, (documents->file_count + 1) * sizeof *files);
    if (!files) {
        free(text);
        return diagnose_failure(path, "out of memory", diagnose, context);
    }
    documents->files = files;
    struct weir__rule_file *file = &files[documents->file_count++];
    *file = (struct weir__rule_file){.path = strdup(path), .text = text, .len = len};
    if (file->len >= 3 && memcmp(file->text, "\xef\xbb\xbf", 3) == 0) {
        file->len -= 3;
        memmove(file->text, file->text + 3, file->len + 1);
    }
    if (!file->path || !find_lines(file))
        return diagnose_failure(path, "out of memory", diagnose, context);
    return weir__documents_split(documents, documents->file_count - 1, diagnose, context);
}

static bool read_file(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context)
{
    size_t len;
    errno = 0;
    char *text = weir__file_read(path, &len);
    if (text)
        return weir__documents_take(documents, path, text, len, diagnose, context);
    errno = errno ? errno : EFBIG;
    return diagnose_failure(path, errno == EFBIG ? "it is no file, or longer than 64 MiB" : strerror(errno), diagnose,
                            context);
}

static int is_rules(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && end && (strcmp(end, ".yaml") == 0 || strcmp(end, ".yml") == 0);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool read_folder(struct weir__documents *documents, const char *folder, weir_diagnose *diagnose, void *context)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_rules, by_name);
    bool good = true;
    if (count < 0)
        return diagnose_failure(folder, strerror(errno), diagnose, context);
    for (int i = 0; i < count; i++) {
        size_t size = strlen(folder) + strlen(entries[i]->d_name) + 2;
        char *path = malloc(size);
        if (path) {
            snprintf(path, size, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", entries[i]->d_name);
            good &= read_file(documents, path, diagnose, context);
        } else {
            good = diagnose_failure(folder, "out of memory", diagnose, context);
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    return count > 0 ? good
                     : diagnose_failure(folder, "there is no *.yaml and no *.yml in this folder", diagnose, context);
}

bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context)
{
    struct stat at;
    bool folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
    return folder ? read_folder(documents, path, diagnose, context) : read_file(documents, path, diagnose, context);
}

void weir__documents_free(struct weir__documents *documents)
{
    for (size_t i = 0; i < documents->count; i++) {
        free(documents->list[i].name);
        free(documents->list[i].text);
        free(documents->list[i].stretches);
    }
    for (size_t i = 0; i < documents->file_count; i++) {
        free(documents->files[i].path);
        free(documents->files[i].text);
        free(documents->files[i].lines);
    }
    free(documents->list);
    free(documents->files);
}
