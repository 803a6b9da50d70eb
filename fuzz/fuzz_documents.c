/*
 * Rule files split into documents: any bytes are handled, and valid rules, split and joined again, are as many valid
 * rules.
 */
#include "../src/cli/rules_check.c"

#include <stdio.h>

#include <stdint.h>

static void ignore(void *context, const weir_diagnostic *what)
{
    (void)context;
    (void)what;
}

/* How many rules a text has; -1: it is not good. */
static int count_rules(const char *text, size_t len)
{
    weir_rules *rules = NULL;
    if (weir_rules_parse("fuzz", text, len, ignore, NULL, &rules) != 0)
        return -1;
    int count = (int)weir_rules_count(rules);
    weir_rules_free(rules);
    return count;
}

/* All documents as one rule file. */
static char *together(const struct weir__documents *documents, size_t *len)
{
    static const char *const heads[] = {"", "rules:\n", "domains:\n"};
    char *text = NULL;
    FILE *to = open_memstream(&text, len);
    for (int kind = WEIR__KIND_SETTINGS; kind <= WEIR__KIND_DOMAIN; kind++) {
        bool first = true;
        for (size_t i = 0; i < documents->count; i++) {
            const struct weir__rule_document *document = &documents->list[i];
            if ((int)document->kind != kind)
                continue;
            fputs(first ? heads[kind] : "", to);
            first = false;
            for (const char *line = document->text.data; *line;) {
                size_t bytes = strcspn(line, "\n") + 1;
                const char *indent = kind == WEIR__KIND_SETTINGS ? "" : line == document->text.data ? "- " : "  ";
                fprintf(to, "%s%.*s", indent, (int)bytes, line);
                line += bytes;
            }
        }
    }
    fclose(to);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__findings findings = {0};
    struct weir__documents documents = {0};
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = '\0';
    bool split = weir__documents_take(&documents, "fuzz", copy, size, weir__add_finding, &findings);
    bool unique = split && report_duplicates(&documents, &findings);
    for (size_t i = 0; split && i < documents.count; i++) {
        weir_diagnostic what = {.severity = WEIR_IS_ERROR, .line = (int)(size % 9), .column = 3, .message = ""};
        if (strlen(documents.list[i].text.data) != documents.list[i].text.len)
            abort();
        weir__document_diagnose(&documents.list[i], &what, weir__add_finding, &findings);
    }
    int before = unique ? count_rules((const char *)data, size) : -1;
    if (before > 0) {
        size_t len = 0;
        char *text = together(&documents, &len);
        if (count_rules(text, len) != before) {
            fprintf(stderr, "--- %s\n", text);
            abort();
        }
        free(text);
    }
    weir__documents_free(&documents);
    json_decref(findings.kept[0]);
    json_decref(findings.kept[1]);
    return 0;
}
