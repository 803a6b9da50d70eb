/* A folder for nginx's files that nobody else can look into, and that is gone afterwards. */
#ifndef WEIR_SERVE_RUNTIME_DIR_H
#define WEIR_SERVE_RUNTIME_DIR_H

#include <stdbool.h>

struct weir__runtime_dir {
    char path[256]; /* "": none */
    int lock;       /* held as long as the folder is in use: tells other weir serve */
    int itself;     /* the folder, locked, too: tells those that clean /tmp by age, such as systemd-tmpfiles */
};

/*
 * Makes one, and removes those of processes that were killed. `group` (not 0) may go through it: that of the workers.
 * False: errno says why.
 */
bool weir__runtime_dir_make(struct weir__runtime_dir *folder, unsigned group);
/* Lets another group go through it. False: errno says why. */
bool weir__runtime_dir_admit(const struct weir__runtime_dir *folder, unsigned group);
/* Writes a file in it that the group (not 0) may read. False: errno says why. */
bool weir__runtime_dir_write(const struct weir__runtime_dir *folder, const char *name, const char *text,
                             unsigned long len, unsigned group);
/* False: somebody has removed it, or what is in it, or something else has its name. */
bool weir__runtime_dir_exists(const struct weir__runtime_dir *folder);
/* Makes it again after that, with nothing in it and by the same name. False: errno says why; it may be tried again. */
bool weir__runtime_dir_restore(struct weir__runtime_dir *folder, unsigned group);
void weir__runtime_dir_remove(struct weir__runtime_dir *folder);

#endif
