/* weir advise: prints advice as text or as JSON. */
#include "stats/open_host.h"
#include "stats/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_indented(const char *text)
{
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        printf("    %.*s\n", (int)len, line);
        line += len + (line[len] != 0);
    }
}

static void print_list(const json_t *list)
{
    size_t i;
    const json_t *advice;
    json_array_foreach(list, i, advice)
    {
        char name[WEIR_NAME_MAX + 8];
        const char *changed = json_string_value(json_object_get(advice, "changed"));
        weir__printable(weir__text_of(json_string_value(json_object_get(advice, "rule"))), name, sizeof name);
        printf("%s%s: %s\n", i ? "\n" : "", name, json_string_value(json_object_get(advice, "message")));
        if (changed) {
            puts("  to be tried in shadow, beside the enforced rule:\n");
            print_indented(changed);
        }
    }
}

static void print_text(const struct weir__opened_host *host, const json_t *list, size_t rules)
{
    print_list(list);
    if (json_array_size(list) == 0)
        printf("nothing to advise about %zu rule%s%s\n", rules, rules == 1 ? "" : "s",
               !host->snapshot.history.rows
                   ? ": no history was written; weir serve and weir agent do, with hot_keys: 8MiB in weir.yaml"
                   : " (which takes at least ten minutes, 1000 requests and 50 denials)");
}

int weir__advise_run(const struct weir__advise_options *options, weir_diagnose *diagnose, void *context)
{
    struct weir__opened_host host;
    int error = WEIR_ENOENT;
    if (weir__open_host(&host, options->what, options->rules, diagnose, context)) {
        json_t *list = NULL;
        struct weir__advice_basis basis = {0};
        char *json = NULL;
        if (options->json)
            error = weir__stats_json_advice(&host.snapshot, options->rule, &host.source, &json);
        else
            error = weir__advise_all(&host.snapshot, options->rule, &host.source, &list, &basis);
        if (!error && !json && options->rule && !basis.rules)
            error = WEIR_ENORULE;
        if (error)
            fprintf(stderr, "weir advise: %s\n", weir_strerror(error));
        else if (json)
            puts(json);
        else
            print_text(&host, list, basis.rules);
        json_decref(list);
        free(json);
    }
    weir__close_host(&host);
    return error || fflush(stdout) != 0;
}
