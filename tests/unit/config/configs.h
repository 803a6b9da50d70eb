/* Loads a weir.yaml from a text, and collects the diagnostics. */
#ifndef WEIR_TEST_CONFIGS_H
#define WEIR_TEST_CONFIGS_H

#include "../rules/diagnostics_collector.h"
#include "config/config.h"

#include <unistd.h>

#define GATEWAY "gateway: { listen: 8080, upstreams: ['http://127.0.0.1:9000'] }\n"
#define RULES   "rules: rules.d\n"

static struct diags diags;
static struct weir__config config;
static char folder[64], file[96];

/* The default state folder must not depend on the environment of the tests. */
__attribute__((constructor)) static void set_home(void)
{
    setenv("HOME", "/home/tester", 1);
    unsetenv("XDG_STATE_HOME");
}

/* Loads the file at a path. */
static inline int load_path(const char *path)
{
    weir__config_free(&config);
    diags_end(&diags);
    diags_begin(&diags, "", 0);
    return weir__config_load(&config, path, diags_collect, &diags);
}

/* Writes `file`, in a folder of its own. */
static inline void write_file(const char *yaml, size_t len)
{
    if (!*folder) {
        strcpy(folder, "/tmp/weir-test-XXXXXX");
        if (!mkdtemp(folder))
            exit(1);
        snprintf(file, sizeof file, "%s/weir.yaml", folder);
    }
    FILE *to = fopen(file, "w");
    if (!to || fwrite(yaml, 1, len, to) != len || fclose(to) != 0)
        exit(1);
}

/* Loads a file with this text. */
static inline int load_bytes(const char *yaml, size_t len)
{
    write_file(yaml, len);
    int error = load_path(file);
    unlink(file);
    return error;
}

static inline int load(const char *yaml)
{
    return load_bytes(yaml, strlen(yaml));
}

__attribute__((destructor)) static void clean(void)
{
    if (*folder)
        rmdir(folder);
    weir__config_free(&config);
    diags_end(&diags);
}

#endif
