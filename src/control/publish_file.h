/* Rules in force as a file: replaced as a whole, or not at all. */
#ifndef WEIR_CONTROL_PUBLISH_FILE_H
#define WEIR_CONTROL_PUBLISH_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes the text to the path so that whoever reads it sees the old one or the new one, also after a loss of power. Its
 * folder is made if there is none. False: errno says why, and the file is as it was.
 */
bool weir__publish(const char *path, const char *text, size_t len);
/* Makes the folder of a file that is to be there. The same errors. */
bool weir__publish_folder(const char *path);

#endif
