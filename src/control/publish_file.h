/* Published rules as a file that is replaced atomically. */
#ifndef WEIR_CONTROL_PUBLISH_FILE_H
#define WEIR_CONTROL_PUBLISH_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces the file atomically and durably, creating its folder. False: errno says why, and the file is unchanged. */
bool weir__publish(const char *path, const char *text, size_t len);
/* Creates the folder of a file. The same errors. */
bool weir__publish_folder(const char *path);

#endif
