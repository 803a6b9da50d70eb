#include "control/dashboard.h"

#include <string.h>

const struct weir__dashboard_file *weir__dashboard_find(const char *path)
{
    for (size_t i = 0; i < weir__dashboard_count; i++)
        if (strcmp(weir__dashboard_files[i].path, path) == 0)
            return &weir__dashboard_files[i];
    return NULL;
}
