/* Small files beside the segment. See beside.h. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "agent/beside.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool weir__beside_write(const char *path, const char *text, size_t len)
{
    char beside[4200];
    if (snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside)
        return false;
    unlink(beside); /* of a process that died here, or that another user put there */
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool written = file >= 0 && fchmod(file, 0644) == 0 && write(file, text, len) == (ssize_t)len;
    if (file >= 0)
        close(file);
    return written && rename(beside, path) == 0;
}
