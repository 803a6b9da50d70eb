/* Which database the rules service of a weir.yaml has: for commands that open it themselves. */
#include "serve/serve.h"
#include "serve/handover.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void tell(const char *file, const char *message, weir_diagnose *diagnose, void *context)
{
    diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = message});
}

bool weir__rules_database(const char *file, weir_diagnose *diagnose, void *context, char *url, size_t size)
{
    struct weir__config *config = calloc(1, sizeof *config);
    int error = config ? weir__config_load(config, file, diagnose, context) : WEIR_ENOMEM;
    const char *database = error ? NULL : config->admin.database, *wrong = NULL;
    if (error == WEIR_ENOMEM || error == WEIR_ERULESBUSY)
        wrong = weir_strerror(error);
    else if (!error && !database)
        wrong = "it has no rules service: admin says where one listens";
    else if (database && strlen(database) >= size)
        wrong = "the address of the database is too long";
    if (wrong) {
        tell(file, wrong, diagnose, context);
    } else if (database) {
        /* The first token is made before anything else; if this fails, the database says what is missing. */
        (void)mkdir(config->state_path, 0755);
        if (strncmp(database, "sqlite:", 7) == 0)
            weir__handover_create(database + 7);
        snprintf(url, size, "%s", database);
    }
    if (config)
        weir__config_free(config);
    free(config);
    return !wrong && database;
}
