/*
 * The published set: in memory for hosts that poll it, and in a file for this host's workers. Both outlive the
 * database.
 */
#ifndef WEIR_CONTROL_PUBLISHED_H
#define WEIR_CONTROL_PUBLISHED_H

#include "control/control.h"

/* Replaces a file atomically and durably. 0 or -errno. */
int weir__file_replace(const char *path, const char *head, const char *text, size_t len);
/* Reads a regular file of less than 64 MiB, from malloc and terminated; NULL: it cannot be read. */
char *weir__file_read(const char *path, size_t *len);

/* Loads the file, if it exists and its digest matches. */
void weir__published_load(struct weir__control *control);
/* Takes the set over, including `text`, and writes the file. */
void weir__published_set(struct weir__control *control, struct weir__published_rules *set);
/* Writes the file again if the last write failed. */
void weir__published_retry(struct weir__control *control);
/* Takes over the database's newest revision if it is newer than the published set. The database lock must be held. */
int weir__published_follow(struct weir__control *control);

#endif
