/* Writes published rules to a file. See publish_file.h. */
#include "control/publish_file.h"
#include "control/published.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Makes the folder and those above it. Workers of another user must be able to read what is in it. */
static bool folder_make(char *folder)
{
    for (char *slash = folder + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (mkdir(folder, 0755) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return mkdir(folder, 0755) == 0 || errno == EEXIST;
}

bool weir__publish_folder(const char *path)
{
    char folder[4200];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    return folder_make(folder);
}

bool weir__publish(const char *path, const char *text, size_t len)
{
    if (!weir__publish_folder(path))
        return false;
    int error = weir__file_replace(path, "", text, len);
    errno = -error;
    return !error;
}
