/*
 * A service that limits itself by rules: cc rules.c $(pkg-config --cflags --libs weir), then ./a.out RULES.
 * Prints what became of seven logins from one address.
 */
#include <stdio.h>
#include <weir/weir.h>

static void complain(void *context, const weir_diagnostic *d)
{
    (void)context;
    fprintf(stderr, "%s:%d:%d: %s\n", d->file, d->line, d->column, d->message);
}

int main(int argc, char **argv)
{
    weir_options how = {.rules_path = argc > 1 ? argv[1] : "rules.yaml", .diagnose = complain};
    weir *engine;
    how.segment.size = 1 << 20; /* without a path: for this process alone */
    int error = weir_open(&how, &engine);
    if (error) {
        fprintf(stderr, "%s\n", weir_strerror(error));
        return 1;
    }
    for (int i = 1; i <= 7; i++) {
        weir_attribute about[] = {{WEIR_ATTR_METHOD, "", "POST"},
                                  {WEIR_ATTR_PATH, "", "/auth/login"},
                                  {WEIR_ATTR_PEER, "", "203.0.113.9"},
                                  {WEIR_ATTR_HEADER, "User-Agent", "example"}};
        weir_query query = {.attributes = about, .attribute_count = sizeof about / sizeof *about};
        weir_result answer;
        error = weir_check(engine, &query, &answer);
        if (error)
            fprintf(stderr, "%s\n", weir_strerror(error));
        else if (weir_passes(&answer.decision))
            printf("%d: passes, %lld left\n", i, (long long)answer.decision.remaining);
        else
            printf("%d: denied by %s for %s\n", i, answer.decided_by.rule, answer.decided_by.key);
    }
    weir_close(engine);
    return 0;
}
