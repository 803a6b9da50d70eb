/* Where the rules and the counters of a weir.yaml are, for commands that look at them. See serve.h. */
#include "serve/serve.h"
#include "config/config.h"
#include "rules/set.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct opened {
    struct weir__file_rules rules; /* first: what the caller has */
    struct weir__config config;
};

bool weir__is_weir_yaml(const char *path)
{
    struct stat at;
    struct weir__sources sources;
    if (stat(path, &at) != 0 || !S_ISREG(at.st_mode) || weir__sources_read(path, NULL, NULL, &sources) != 0)
        return false;
    struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
    struct weir__report report = {.sources = sources.list, .source_count = sources.count};
    const struct weir__node *root = sources.count == 1 ? weir__yaml_read(0, &arena, &report) : NULL;
    bool is = root && weir__rules_weir_yaml(root);
    weir__arena_free(&arena);
    weir__sources_free(&sources);
    return is;
}

/* The rules in force; before anything was published, those that the file names. */
static bool find_rules(struct opened *opened)
{
    const struct weir__config *config = &opened->config;
    bool first = config->published && access(config->rules_path, F_OK) != 0;
    weir_text text = first ? config->import_text : config->rules_text;
    opened->rules.path = first ? config->import_path : config->rules_path;
    opened->rules.text = opened->rules.path ? NULL : text.data;
    opened->rules.len = opened->rules.path ? 0 : text.len;
    opened->rules.segment = config->segment_path;
    return opened->rules.path || text.len > 0;
}

struct weir__file_rules *weir__file_rules_open(const char *file, weir_diagnose *diagnose, void *context)
{
    struct opened *opened = calloc(1, sizeof *opened);
    int error = opened ? weir__config_load(&opened->config, file, diagnose, context) : WEIR_ENOMEM;
    const char *wrong = NULL;
    if (error == 0 && !find_rules(opened))
        wrong = "nothing was published yet in the rules service that it takes its rules from: weir rules get published";
    else if (error && error != WEIR_ERULES && error != WEIR_ERULESPATH)
        wrong = weir_strerror(error);
    if (wrong)
        diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = wrong});
    if (!error && !wrong)
        return &opened->rules;
    weir__file_rules_close(opened ? &opened->rules : NULL);
    return NULL;
}

void weir__file_rules_close(struct weir__file_rules *rules)
{
    struct opened *opened = (struct opened *)rules;
    if (!opened)
        return;
    weir__config_free(&opened->config);
    free(opened);
}
