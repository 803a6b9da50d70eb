/* What a command was given. See input.h. */
#include "cli/input.h"

#include "serve/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void weir__input_find(void *context, const weir_diagnostic *diagnostic)
{
    struct weir__input *input = context;
    weir_diagnostic located = *diagnostic;
    if (input->text)
        located.file = input->name;
    if (input->errors_only)
        weir__find_errors(input->findings, &located);
    else
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
    input->file = weir__file_rules_open(path, weir__input_find, input);
    if (!input->file)
        return false;
    input->path = input->file->path;
    input->text = input->file->text;
    input->len = input->file->len;
    return true;
}

void weir__input_close(struct weir__input *input)
{
    free(input->read);
    weir__file_rules_close(input->file);
}

const char *weir__input_default(void)
{
    return access("weir.yaml", F_OK) == 0 ? "weir.yaml" : NULL;
}

const char *weir__input_segment(const char *path, struct weir__findings *findings, char room[4096])
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
