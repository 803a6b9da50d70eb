/*
 * Files that live in shared memory: how segments and ledgers are made and mapped.
 *
 * A new one is made without a name (or under a name of its own, where the file system knows no unnamed files), filled,
 * and only then linked to its path: nobody ever sees half of one, and a process that dies on the way leaves nothing
 * behind. Its blocks are reserved first, so a full file system is an error here and not a SIGBUS later. One that is
 * there may have holes, as copies have: whoever attaches to it fills them first, for the same reason.
 *
 * Files beside a segment are all opened by weir__mapped_open. It refuses a file that another user may have put there,
 * follows no symbolic link, blocks on no FIFO and registers the mapping with the SIGBUS handler (sigbus_guard.c).
 */
#ifndef WEIR_ENGINE_MAPPED_FILE_H
#define WEIR_ENGINE_MAPPED_FILE_H

#include <weir/weir.h>

struct weir__mapped {
    void *memory;
    uint64_t bytes;
    bool read_only;
    bool holes;      /* of a file that was there: it may have some */
    unsigned owner;  /* user id of the file's owner */
    uint64_t device; /* of a file that was there, with its inode: tells whether its path names another one by now */
    uint64_t inode;
    uint32_t lost; /* its file was cut short, and there is other memory in its place (sigbus_guard.c) */
    const char
        *disabled; /* a static text: what its loss switches off, for weir__lost_beside; NULL: nothing to report */
};

/* What is to be made, and how it is filled: `format` returns 0 or an error. */
struct weir__making {
    const char *path; /* NULL: anonymous memory */
    uint64_t bytes;
    unsigned mode; /* 0: 0600 */
    bool replace;  /* whatever is there goes; else WEIR_EEXIST */
    /* For weir__mapped_open and weir__mapped_attach: */
    bool read_only;       /* and made by others: WEIR_ENOENT if it is not there */
    bool trusted;         /* WEIR_EOWNER for a file that another user may have put there; no symbolic links */
    unsigned owner;       /* the segment's owner, whose files beside it are accepted as root's are */
    const char *disabled; /* as in struct weir__mapped */
    int (*format)(void *memory, uint64_t bytes, const void *plan);
    const void *plan;
    int (*check)(void *memory, uint64_t bytes); /* for weir__mapped_open: 0, or what is wrong with what is there */
};

int weir__mapped_make(const struct weir__making *making, struct weir__mapped *mapped);
/* Maps what is there, whatever it is: WEIR_ENOTSEG if it is no file, or empty. Only for segments. */
int weir__mapped_attach(const struct weir__making *how, struct weir__mapped *mapped);
/* Takes the room that the first `bytes` of a file with holes still need; once it is known what the file is. */
int weir__mapped_fill_holes(const struct weir__mapped *mapped, uint64_t bytes);
/* Unmaps, and ends the registration of weir__mapped_open. */
void weir__mapped_close(struct weir__mapped *mapped);
/*
 * Opens a file beside a segment: maps what is at the path, if `check` (may be NULL) finds it sound, or makes it. A file
 * that is broken or empty is replaced (`replace` means nothing here). Without `format` nothing is made or replaced.
 * WEIR_EOWNER: another user may have put it there. `mapped` must stay where it is until weir__mapped_close.
 */
int weir__mapped_open(const struct weir__making *making, struct weir__mapped *mapped);

/*
 * True if the open file is a regular one that this user, root, the segment's owner or the owner of the folder put
 * there. In a folder that not everybody may write to, every file is.
 */
bool weir__file_is_trusted(int file, const char *path, unsigned segment_owner);
/* What the file system of a path's folder has free for this user; UINT64_MAX: it has no bound. False: unknown. */
bool weir__free_bytes(const char *path, uint64_t *bytes);
/* The user id of the owner of a segment's file. */
unsigned weir__segment_owner(const weir_segment *segment);
/* Why a file beside a segment was refused, in words that name its owner and what to do; `text` is the room for it. */
const char *weir__mapped_why(const char *path, int error, char *text, size_t size);

/* Locks a file while one that is broken is replaced; -1: it cannot be opened, errno says why. */
int weir__mapped_lock(const char *path);
/* Opens, or makes, a file that serves as a lock and holds nothing. -1: errno says why, EPERM for another user's. */
int weir__lock_open(const char *path, unsigned segment_owner);

/*
 * The SIGBUS handler's list of files beside segments (sigbus_guard.c): one that is cut short becomes empty memory of
 * the process's own. It acts once a segment of the process is guarded. False: there are 256 already.
 */
bool weir__sidecar_guard(struct weir__mapped *mapped);
void weir__sidecar_unguard(const struct weir__mapped *mapped);
/* What the loss of a file has switched off, once for each; NULL: nothing more. */
const char *weir__sidecar_lost(void);

/* The library's error for an errno. */
int weir__errno_error(int number);
/* Fills `to` with random bytes; 0 or WEIR_ESYS. */
int weir__random_fill(void *to, size_t size);

#endif
