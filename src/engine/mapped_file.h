/*
 * Mapped files: how segments and their sidecar files are made and mapped.
 *
 * A new file is made without a name (or under a temporary one, where the file system has no unnamed files), filled, and
 * only then linked to its path: no process ever sees a partial one, and a process that dies meanwhile leaves nothing
 * behind. Its blocks are reserved first, so a full file system is an error here and not a SIGBUS later. An existing
 * file may have holes, as copies have: the process that attaches to it fills them first, for the same reason.
 *
 * Sidecar files are all opened by weir__mapped_open. It refuses a file that another user may have put there, follows no
 * symbolic link, does not block on a FIFO and registers the mapping with the SIGBUS handler (sigbus_guard.c).
 */
#ifndef WEIR_ENGINE_MAPPED_FILE_H
#define WEIR_ENGINE_MAPPED_FILE_H

#include <weir/weir.h>

struct weir__mapped {
    void *memory;
    uint64_t bytes;
    bool read_only;
    bool holes;      /* an existing file that may have some */
    unsigned owner;  /* user id of the file's owner */
    uint64_t device; /* with `inode`, of an existing file: to detect that its path refers to another one by now */
    uint64_t inode;
    uint32_t lost;        /* its file was truncated, and private memory is in its place (sigbus_guard.c) */
    const char *disabled; /* a static text: what its loss disables, for weir__sidecar_lost; NULL: nothing to report */
};

/* The file to make or to attach to. */
struct weir__making {
    const char *path; /* NULL: anonymous memory */
    uint64_t bytes;
    unsigned mode; /* 0: 0600 */
    bool replace;  /* an existing file is replaced; otherwise WEIR_EEXIST */
    /* For weir__mapped_open and weir__mapped_attach: */
    bool read_only;       /* never made: WEIR_ENOENT if it does not exist */
    bool trusted;         /* WEIR_EOWNER for a file that another user may have put there; no symbolic links */
    unsigned owner;       /* the segment's owner, whose sidecar files are accepted as root's are */
    const char *disabled; /* as in struct weir__mapped */
    int (*format)(void *memory, uint64_t bytes, const void *plan); /* fills a new file; returns 0 or an error */
    const void *plan;
    int (*check)(void *memory, uint64_t bytes); /* of an existing file; returns 0 or an error */
};

int weir__mapped_make(const struct weir__making *making, struct weir__mapped *mapped);
/* Maps an existing file without checks: WEIR_ENOTSEG if it is not a regular file, or empty. Only for segments. */
int weir__mapped_attach(const struct weir__making *how, struct weir__mapped *mapped);
/* Reserves the blocks that the first `bytes` of a file with holes still need; to be called once its kind is known. */
int weir__mapped_fill_holes(const struct weir__mapped *mapped, uint64_t bytes);
/* Unmaps, and ends the registration of weir__mapped_open. */
void weir__mapped_close(struct weir__mapped *mapped);
/*
 * Opens a sidecar file: maps an existing one, if `check` (may be NULL) accepts it, or makes it. A file that is broken
 * or empty is replaced (`replace` is ignored). Without `format` nothing is made or replaced.
 * WEIR_EOWNER: another user may have put it there. `mapped` must stay where it is until weir__mapped_close.
 */
int weir__mapped_open(const struct weir__making *making, struct weir__mapped *mapped);

/*
 * True if the open file is a regular one that this user, root, the segment's owner or the owner of the folder put
 * there. In a folder that not everybody may write to, every file is.
 */
bool weir__file_is_trusted(int file, const char *path, unsigned segment_owner);
/* Free bytes of the file system of a path's folder, for this user; UINT64_MAX: no bound. False: unknown. */
bool weir__free_bytes(const char *path, uint64_t *bytes);
/* The user id of the owner of a segment's file. */
unsigned weir__segment_owner(const weir_segment *segment);
/* Why a sidecar file was refused, with its owner and what to do; `text` is the buffer for it. */
const char *weir__mapped_why(const char *path, int error, char *text, size_t size);

/* Locks a broken file while it is replaced; -1: it cannot be opened, errno has the reason. */
int weir__mapped_lock(const char *path);
/* Opens, or makes, an empty file that serves as a lock. -1: errno has the reason, EPERM for another user's. */
int weir__lock_open(const char *path, unsigned segment_owner);

/*
 * Registers a sidecar file with the SIGBUS handler (sigbus_guard.c): one that is truncated becomes empty private
 * memory. The handler is active once a segment of the process is guarded. False: there are 256 already.
 */
bool weir__sidecar_guard(struct weir__mapped *mapped);
void weir__sidecar_unguard(const struct weir__mapped *mapped);
/* `disabled` of a file that was lost, once for each; NULL: no more. */
const char *weir__sidecar_lost(void);

/* True for the error of an existing file that may be replaced: truncated, damaged or of another version. */
bool weir__is_broken(int error);
/* The library's error for an errno. */
int weir__errno_error(int number);
/* Fills `to` with random bytes; 0 or WEIR_ESYS. */
int weir__random_fill(void *to, size_t size);

#endif
