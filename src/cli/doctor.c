/* weir doctor: prints what weir__doctor finds. */
#include "cli/diagnose.h"
#include "cli/service.h"
#include "cli/text.h"
#include "serve/serve.h"

#include <stdlib.h>

struct report {
    json_t *findings; /* NULL: they are printed as they come */
    bool wrong;
};

static void add(void *context, enum weir__doctor_level level, const char *check, const char *message)
{
    static const char *const names[] = {"ok", "unknown", "warning", "wrong"};
    struct report *report = context;
    report->wrong |= level == WEIR__DOCTOR_WRONG;
    if (report->findings)
        json_array_append_new(report->findings,
                              json_pack("{s:s, s:s, s:s}", "level", names[level], "check", check, "message", message));
    else
        printf("%-8s %-10s %s\n", names[level], check, message);
}

int weir__cmd_doctor(struct weir__given *given)
{
    struct report report = {.findings = given->json ? weir__must(json_array()) : NULL};
    weir__doctor(weir__argument(given, "weir.yaml"), add, &report);
    if (given->json && !weir__print_json(json_pack("{s:b, s:o}", "ok", !report.wrong, "findings", report.findings)))
        return 1;
    return report.wrong;
}
