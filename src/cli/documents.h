/*
 * Rule files as the commands read them: taken apart by the rules service's own splitter, from "-", too, with the
 * settings first and one document of a name.
 */
#ifndef WEIR_CLI_DOCUMENTS_H
#define WEIR_CLI_DOCUMENTS_H

#include "cli/diagnose.h"
#include "control/split.h"

/*
 * Reads a file, a folder's *.yaml and *.yml, or "-". False: what is wrong was told to `findings`. To be freed either
 * way.
 */
bool weir__rule_files_read(struct weir__documents *documents, const char *path, struct weir__findings *findings);

#endif
