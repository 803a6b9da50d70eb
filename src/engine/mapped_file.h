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
    uint64_t mapped; /* bytes of addresses: a segment has some beyond the end of its file, into which it may grow */
    bool read_only;
    bool holes;      /* an existing file that may have some */
    unsigned owner;  /* user id of the file's owner */
    unsigned group;  /* group id, of an existing file */
    unsigned mode;   /* permissions, of an existing file */
    uint64_t device; /* with `inode`, of an existing file: to detect that its path refers to another one by now */
    uint64_t inode;
    uint32_t lost;        /* its file was truncated, and private memory is in its place (sigbus_guard.c) */
    const char *disabled; /* a static text: what its loss disables, for weir__sidecar_lost; NULL: nothing to report */
};

/* The file to make or to attach to. */
struct weir__file_spec {
    const char *path; /* NULL: anonymous memory */
    uint64_t bytes;   /* of a new file, as `mode` */
    unsigned mode;    /* 0: 0600 */
    bool read_only;   /* never made: WEIR_ENOENT if it does not exist */
    /* For segments; a sidecar file is always trusted and rebuilt, and never exclusive. */
    bool trusted;   /* WEIR_EOWNER for a file that another user may have put there; no symbolic links */
    bool exclusive; /* WEIR_EEXIST for an existing file */
    bool rebuild;   /* a truncated or damaged file, or one of another version, is replaced */
    int make_error; /* why no new file can be made; 0: it can */
    /* A file whose group and mode a new one gets before it has its name, whatever the umask; NULL: `mode` counts. */
    const struct weir__mapped *like;

    unsigned owner;       /* the segment's owner, whose sidecar files are accepted as root's are */
    const char *disabled; /* as in struct weir__mapped */
    int (*format)(void *memory, uint64_t bytes, const void *plan); /* fills a new file; NULL: none is made */
    const void *plan;
    int (*check)(void *memory, uint64_t bytes, const void *plan); /* of an existing file: 0 or an error; may be NULL */
    unsigned room; /* addresses are reserved for a file that is so many times as large; 0: for its size */
    uint64_t (*used)(const void *memory); /* bytes of a file that was checked: holes after them stay; NULL: all */
};

/*
 * Opens a sidecar file: maps an existing one that `check` accepts, or makes it. A file that is broken or empty is
 * replaced. `mapped` must stay where it is until weir__mapped_close.
 */
int weir__mapped_open(const struct weir__file_spec *spec, struct weir__mapped *mapped);
/* Opens a segment. It is not registered with the SIGBUS handler, and an empty file is WEIR_ENOTSEG. */
int weir__mapped_open_segment(const struct weir__file_spec *spec, struct weir__mapped *mapped);
/* Unmaps, and ends the registration with the SIGBUS handler. */
void weir__mapped_close(struct weir__mapped *mapped);

/*
 * True if the open file is a regular one that this user, root, the segment's owner or the owner of the folder put
 * there. In a folder that not everybody may write to, every file is.
 */
bool weir__file_is_trusted(int file, const char *path, unsigned segment_owner);
/* Free bytes of the file system of a path's folder, for this user; UINT64_MAX: no bound. False: unknown. */
bool weir__free_bytes(const char *path, uint64_t *bytes);
/*
 * Reserves the blocks [from, to) of an open file that has no holes before `from`; it grows to `to`. On an error its
 * size is what it was. WEIR_ELOST: it is shorter than `from`.
 */
int weir__file_extend(int file, uint64_t from, uint64_t to);
/* The user id of the owner of a segment's file. */
unsigned weir__segment_owner(const weir_segment *segment);
/* Why a sidecar file was refused, with its owner and what to do; `text` is the buffer for it. */
const char *weir__mapped_why(const char *path, int error, char *text, size_t size);

/* Opens, or makes, an empty file that serves as a lock. -1: errno has the reason, EPERM for another user's. */
int weir__lock_open(const char *path, unsigned segment_owner);

/*
 * ---- The SIGBUS handler (sigbus_guard.c): a registered file that is truncated becomes empty private memory ----
 *
 * The handler is active once a segment of the process is guarded.
 */

/* Registers the mapping of a segment, and installs the handler: weir_segment_guard. */
int weir__mapped_guard(struct weir__mapped *mapped);
/* False: there are 256 sidecar files already. */
bool weir__sidecar_guard(struct weir__mapped *mapped);
/* To be called before a mapping is unmapped, registered or not. */
void weir__unguard(const struct weir__mapped *mapped);
/* `disabled` of a sidecar file that was lost, once for each; NULL: no more. */
const char *weir__sidecar_lost(void);

/* The library's error for an errno. */
int weir__errno_error(int number);
/* Fills `to` with random bytes; 0 or WEIR_ESYS. */
int weir__random_fill(void *to, size_t size);

#endif
