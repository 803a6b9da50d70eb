/* What a command was given. See given.h. */
#include "cli/given.h"

#include "agent/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void weir__given_find(void *context, const weir_diagnostic *diagnostic)
{
    struct weir__given *given = context;
    weir_diagnostic told = *diagnostic;
    if (given->text)
        told.file = given->name;
    if (given->errors_only)
        weir__find_errors(given->findings, &told);
    else
        weir__find(given->findings, &told);
}

static bool read_stream(struct weir__given *given, const char *path)
{
    given->text = given->read = weir__read_all(path, WEIR__INPUT_MAX, &given->len);
    if (!given->text)
        weir__find_failure(given->findings, given->name, WEIR_ERULESPATH);
    return given->text != NULL;
}

bool weir__given_open(struct weir__given *given, const char *path)
{
    given->name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    errno = 0;
    if (weir__is_stream(path))
        return read_stream(given, path);
    if (!weir__is_weir_yaml(path)) {
        given->path = path;
        return true;
    }
    given->file = weir__file_rules_open(path, weir__given_find, given);
    if (!given->file)
        return false;
    given->path = given->file->path;
    given->text = given->file->text;
    given->len = given->file->len;
    return true;
}

void weir__given_close(struct weir__given *given)
{
    free(given->read);
    weir__file_rules_close(given->file);
}

const char *weir__given_default(void)
{
    return access("weir.yaml", F_OK) == 0 ? "weir.yaml" : NULL;
}

const char *weir__given_segment(const char *path, struct weir__findings *findings, char room[4096])
{
    if (!weir__is_weir_yaml(path))
        return path;
    struct weir__file_rules *file = weir__file_rules_open(path, weir__find_errors, findings);
    if (!file)
        return NULL;
    snprintf(room, 4096, "%s", file->segment);
    weir__file_rules_close(file);
    return room;
}
