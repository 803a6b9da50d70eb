/* Collects the diagnostics about a source, for tests of everything that reports some. */
#ifndef WEIR_TEST_DIAGNOSTICS_COLLECTOR_H
#define WEIR_TEST_DIAGNOSTICS_COLLECTOR_H

#include "rules/yaml.h"

#include "../../test.h"

struct diag {
    enum weir_severity severity;
    int line, column;
    char file[64], message[WEIR__MESSAGE_MAX], suggestion[64], source[256];
    bool has_source;
};

enum { DIAGS_MAX = 256 };

struct diags {
    struct weir__source source;
    struct weir__diagnostics report;
    struct weir__arena arena;
    int count;
    struct diag all[DIAGS_MAX];
};

static inline void diags_collect(void *context, const weir_diagnostic *d)
{
    struct diags *diags = context;
    if (diags->count == DIAGS_MAX)
        return;
    struct diag *one = &diags->all[diags->count++];
    *one = (struct diag){.severity = d->severity, .line = d->line, .column = d->column};
    snprintf(one->file, sizeof one->file, "%s", d->file);
    snprintf(one->message, sizeof one->message, "%s", d->message);
    snprintf(one->suggestion, sizeof one->suggestion, "%s", d->suggestion ? d->suggestion : "");
    snprintf(one->source, sizeof one->source, "%s", d->source ? d->source : "");
    one->has_source = d->source;
}

/* A report about one source, "f". The text must outlive it. */
static inline void diags_begin(struct diags *diags, const char *text, size_t len)
{
    memset(diags, 0, sizeof *diags);
    diags->source = (struct weir__source){"f", {text, len}};
    diags->arena.bytes_max = (size_t)512 << 20;
    diags->report = (struct weir__diagnostics){
        .diagnose = diags_collect, .context = diags, .sources = &diags->source, .source_count = 1};
}

static inline void diags_end(struct diags *diags)
{
    weir__arena_free(&diags->arena);
}

/* Whether diagnostic number `index` has this position and contains this text; prints it if not. */
static inline bool diags_is(const struct diags *diags, int index, int line, int column, const char *part)
{
    if (index >= diags->count) {
        printf("  nothing reported where \"%s\" was expected\n", part);
        return false;
    }
    const struct diag *one = &diags->all[index];
    if (one->line == line && one->column == column && strstr(one->message, part))
        return true;
    printf("  reported %d:%d: %s\n", one->line, one->column, one->message);
    return false;
}

#endif
