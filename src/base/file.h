/* Whole files: reading one, and replacing one atomically. */
#ifndef WEIR_BASE_FILE_H
#define WEIR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Reads up to `size` bytes; fewer if the file ends before. -1: errno has the reason. */
ssize_t weir__read_fully(int file, void *to, size_t size);
/* Writes all of it. 0 or an errno. */
int weir__write_fully(int file, const void *data, size_t len);
/* Reads a regular file of less than 64 MiB, from malloc and terminated; NULL: it cannot be read. */
char *weir__file_read(const char *path, size_t *len);
/* Reads a regular file of at most `max` bytes. NULL: errno has the reason, unless it is too long or not regular. */
char *weir__file_read_short(const char *path, size_t max, size_t *len);
/* Replaces a file atomically, without fsync, by a new one of this mode and group (-1: this process's). False: errno has
 * the reason. */
bool weir__file_swap(const char *path, const char *text, size_t len, unsigned mode, unsigned group);
/* Replaces a file by `head` and `text`, atomically and durably. 0 or -errno. */
int weir__file_replace(const char *path, const char *head, const char *text, size_t len);
/* Copies the folder part of a path to `folder`; ".": it has none. */
void weir__folder_of(const char *path, char *folder, size_t size);
/* Creates the folder of a file, and those above it, readable for every user. False: errno has the reason. */
bool weir__file_make_folder(const char *path);
/* Creates the folder and replaces the file. False: errno has the reason, and the file is unchanged. */
bool weir__file_write(const char *path, const char *text, size_t len);

/*
 * ---- For commands that root runs on files which another user can replace ----
 *
 * SQLite replays a journal that lies beside a database, and the journal names another file that is deleted then; a link
 * in the place of published rules may lead to any file. So root acts as that user (effective ids only) meanwhile.
 */

struct weir__file_owner {
    unsigned user, group; /* user 0: there is none, and nothing changes */
};
/* For root: the user other than root who owns the folder of a file, or the file. */
struct weir__file_owner weir__file_owner(const char *path);
/* False: errno has the reason. */
bool weir__act_as_owner(const struct weir__file_owner *owner);
void weir__act_as_self(const struct weir__file_owner *owner);

#endif
