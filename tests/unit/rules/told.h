/* What was told about a source: a report whose diagnostics are kept, for tests of everything that reports. */
#ifndef WEIR_TEST_TOLD_H
#define WEIR_TEST_TOLD_H

#include "rules/yaml.h"

#include "../../test.h"

struct told_one {
    enum weir_severity severity;
    int line, column;
    char file[64], message[WEIR__MESSAGE_MAX], suggestion[64], source[256];
    bool has_source;
};

enum { TOLD_MAX = 256 };

struct told {
    struct weir__source source;
    struct weir__diagnostics report;
    struct weir__arena arena;
    int count;
    struct told_one all[TOLD_MAX];
};

static inline void told_hear(void *context, const weir_diagnostic *d)
{
    struct told *told = context;
    if (told->count == TOLD_MAX)
        return;
    struct told_one *one = &told->all[told->count++];
    *one = (struct told_one){.severity = d->severity, .line = d->line, .column = d->column};
    snprintf(one->file, sizeof one->file, "%s", d->file);
    snprintf(one->message, sizeof one->message, "%s", d->message);
    snprintf(one->suggestion, sizeof one->suggestion, "%s", d->suggestion ? d->suggestion : "");
    snprintf(one->source, sizeof one->source, "%s", d->source ? d->source : "");
    one->has_source = d->source;
}

/* A report about one source, "f". The text must live as long. */
static inline void told_begin(struct told *told, const char *text, size_t len)
{
    memset(told, 0, sizeof *told);
    told->source = (struct weir__source){"f", {text, len}};
    told->arena.bytes_max = (size_t)512 << 20;
    told->report =
        (struct weir__diagnostics){.diagnose = told_hear, .context = told, .sources = &told->source, .source_count = 1};
}

static inline void told_end(struct told *told)
{
    weir__arena_free(&told->arena);
}

/* Whether message number `index` is at this place and contains this text; says what there is, if not. */
static inline bool told_is(const struct told *told, int index, int line, int column, const char *part)
{
    if (index >= told->count) {
        printf("  nothing told where \"%s\" was expected\n", part);
        return false;
    }
    const struct told_one *one = &told->all[index];
    if (one->line == line && one->column == column && strstr(one->message, part))
        return true;
    printf("  told %d:%d: %s\n", one->line, one->column, one->message);
    return false;
}

#endif
