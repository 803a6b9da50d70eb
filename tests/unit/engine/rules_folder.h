/* A directory of rule files for one test, an engine that reads it, and a callback that records errors. */
#ifndef WEIR_TESTS_RULES_FOLDER_H
#define WEIR_TESTS_RULES_FOLDER_H

#include "../../engine.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weir-reload-XXXXXX";

static inline const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Replaces a file atomically. */
static inline void put(const char *name, const char *text)
{
    char fresh[128];
    snprintf(fresh, sizeof fresh, "%s/.new", folder);
    FILE *file = fopen(fresh, "w");
    fputs(text, file);
    fclose(file);
    rename(fresh, path_of(name));
}

static inline void start(void)
{
    strcpy(folder, "/tmp/weir-reload-XXXXXX");
    if (!mkdtemp(folder))
        exit(2);
}

static inline void finish(void)
{
    const char *names[] = {"a.yaml", "b.yml", "x.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    rmdir(folder);
}

struct reported {
    int count;
    char last[256];
};

static inline void collect_diagnostic(void *context, const weir_diagnostic *d)
{
    struct reported *reported = context;
    if (d->severity != WEIR_IS_ERROR)
        return;
    reported->count++;
    snprintf(reported->last, sizeof reported->last, "%s:%d: %s", d->file, d->line, d->message);
}

static inline weir *open_folder(struct reported *reported, int flags)
{
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_path = folder,
                        .diagnose = collect_diagnostic,
                        .diagnose_context = reported,
                        .flags = flags};
    weir *w = NULL;
    int error = weir_open(&how, &w);
    CHECK_EQ(error, 0);
    if (error)
        exit(1);
    return w;
}

#define RULE(limit) "rules: [ { name: a, key: k, limit: " #limit ", window: 1h, algorithm: fixed_window } ]\n"

#endif
