/* weir advise: prints advice as text, or as JSON by stats_json.c. */
#include "stats/open_host.h"
#include "stats/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct printing {
    struct weir__rule_source *source;
    size_t printed;
};

static void print_indented(const char *text)
{
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        printf("    %.*s\n", (int)len, line);
        line += len + (line[len] != 0);
    }
}

static void print_advice(void *context, const struct weir__rule_snapshot *rule, const struct weir__advice *advice)
{
    struct printing *p = context;
    char name[WEIR_NAME_MAX + 8];
    char *changed = weir__advice_rule(p->source, &rule->info, &advice->change, WEIR__ADVICE_FILE);
    weir__printable(weir__text_of(rule->info.name), name, sizeof name);
    printf("%s%s: %s\n", p->printed++ ? "\n" : "", name, advice->message);
    if (changed) {
        puts("  to be tried in shadow, beside the enforced rule:\n");
        print_indented(changed);
    }
    free(changed);
}

static int print_text(struct weir__opened_host *host, const char *rule)
{
    struct printing p = {&host->source, 0};
    size_t rules;
    int error = weir__advise_each(&host->snapshot, rule, print_advice, &p, &rules);
    if (error == WEIR_ENORULE || (rule && !rules)) {
        fprintf(stderr, "weir advise: %s\n", weir_strerror(WEIR_ENORULE));
        return 1;
    }
    if (!p.printed)
        printf("nothing to advise about %zu rule%s%s\n", rules, rules == 1 ? "" : "s",
               !host->snapshot.history.rows
                   ? ": no history was written; weir serve and weir agent do, with hot_keys: 8MiB in weir.yaml"
                   : " (which takes at least ten minutes, 1000 requests and 50 denials)");
    return fflush(stdout) != 0;
}

int weir__advise_run(const struct weir__advise_options *options, weir_diagnose *diagnose, void *context)
{
    struct weir__opened_host host;
    int code = 1;
    if (weir__open_host(&host, options->what, options->rules, diagnose, context)) {
        char *json = NULL;
        int error = 0;
        if (options->json)
            error = weir__stats_json_advice(&host.snapshot, options->rule, &host.source, &json);
        if (error)
            fprintf(stderr, "weir advise: %s\n", weir_strerror(error));
        else if (json)
            code = puts(json) < 0 || fflush(stdout) != 0;
        else
            code = print_text(&host, options->rule);
        free(json);
    }
    weir__close_host(&host);
    return code;
}
