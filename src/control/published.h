/*
 * The set that is in force: in memory for hosts that ask for it, and in a file for the workers of this one. Neither
 * needs the database, so that both outlive it.
 */
#ifndef WEIR_CONTROL_PUBLISHED_H
#define WEIR_CONTROL_PUBLISHED_H

#include "control/control.h"

/* Replaces a file so that whoever reads it sees all of one or the other, also after a crash. 0 or -errno. */
int weir__file_replace(const char *path, const char *head, const char *text, size_t len);
/* A whole regular file of less than 64 MiB, from malloc and with a zero byte behind it; NULL: it cannot be read. */
char *weir__file_read(const char *path, size_t *len);

/* Reads the file back, if there is one and it is whole. */
void weir__published_load(struct weir__control *control);
/* Takes the set over (`text` becomes the service's) and writes the file. */
void weir__published_set(struct weir__control *control, struct weir__published_rules *set);
/* Writes the file again if that has failed. */
void weir__published_retry(struct weir__control *control);
/* Compares the database's newest revision with what is in force, and takes it over if it is newer. The lock is held. */
int weir__published_follow(struct weir__control *control);

#endif
