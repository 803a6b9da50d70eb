/*
 * Files that live in shared memory: how segments and ledgers are made and mapped.
 *
 * A new one is made without a name (or under a name of its own, where the file system knows no unnamed files), filled,
 * and only then linked to its path: nobody ever sees half of one, and a process that dies on the way leaves nothing
 * behind. Its blocks are reserved first, so a full file system is an error here and not a SIGBUS later. One that is
 * there may have holes, as copies have: whoever attaches to it fills them first, for the same reason.
 */
#ifndef WEIR_ENGINE_MAPPED_H
#define WEIR_ENGINE_MAPPED_H

#include <weir/weir.h>

struct weir__mapped {
    void *memory;
    uint64_t bytes;
    bool read_only;
    bool holes;     /* of a file that was there: it may have some */
    unsigned owner; /* of a file that was there: its user */
    uint32_t lost;  /* its file was cut short, and there is other memory in its place (guard.c) */
};

/* What is to be made, and how it is filled: `format` returns 0 or an error. */
struct weir__making {
    const char *path; /* NULL: anonymous memory */
    uint64_t bytes;
    unsigned mode; /* 0: 0600 */
    bool replace;  /* whatever is there goes; else WEIR_EEXIST */
    int (*format)(void *memory, uint64_t bytes, const void *plan);
    const void *plan;
    int (*check)(void *memory, uint64_t bytes); /* for weir__mapped_open: 0, or what is wrong with what is there */
};

int weir__mapped_make(const struct weir__making *making, struct weir__mapped *mapped);
/* Maps what is there, whatever it is: WEIR_ENOTSEG if it is no file, or empty. */
int weir__mapped_attach(const char *path, bool read_only, struct weir__mapped *mapped);
/* Takes the room that the first `bytes` of a file with holes still need; once it is known what the file is. */
int weir__mapped_fill_holes(const struct weir__mapped *mapped, uint64_t bytes);
/* True if somebody else than this user, root or the folder's owner may have put it there. */
bool weir__mapped_is_strangers(const char *path, const struct weir__mapped *mapped);
void weir__mapped_close(struct weir__mapped *mapped);
/*
 * Maps what is at the path, if `check` finds it sound, or makes it. What is broken is replaced (`replace` means
 * nothing here): for files beside a segment, whose own content is no reason not to start.
 */
int weir__mapped_open(const struct weir__making *making, struct weir__mapped *mapped);

/* Locks a file while one that is broken is replaced; -1: it cannot be opened, errno says why. */
int weir__mapped_lock(const char *path);

/* The library's error for an errno. */
int weir__errno_error(int number);
/* Fills `to` with random bytes; 0 or WEIR_ESYS. */
int weir__random_fill(void *to, size_t size);

#endif
