/* Rule files on disk: reading all of them at one moment, and noticing that they have changed. */
#ifndef WEIR_ENGINE_RULE_FILES_H
#define WEIR_ENGINE_RULE_FILES_H

#include "rules/report.h"

#define WEIR__SOURCE_BYTES_MAX (16 << 20) /* of one file; longer ones are an error of the reader's */
#define WEIR__SOURCES_MAX      4096

/* What the disk looked like: equal for equal files. */
struct weir__fingerprint {
    uint64_t sum;
    uint64_t content;  /* a hash of what was read; 0: only looked at */
    uint64_t checksum; /* the same by weir__sources_checksum */
    int error;         /* 0, or the errno that kept us from looking */
    int64_t age_ns;    /* since a file or its name last changed; negative if the clock was set back since */
    bool young;        /* changed so lately that another change may bear the same time */
};

struct weir__sources {
    struct weir__source *list;
    size_t count;
    struct weir__fingerprint fingerprint; /* after an error only its `error`: of the path as a whole */
    bool passing; /* after WEIR_ERULESPATH: it may be over without a change on disk, e.g. no file descriptor was left */
};

struct weir__fingerprint weir__sources_look(const char *path);
/*
 * A number for what the texts say, whatever their files are called: equal on all hosts whose texts differ in blanks and
 * lines of comment at the most. Never 0.
 */
uint64_t weir__sources_checksum(const struct weir__source *list, size_t count);
/*
 * Reads a file, or the *.yaml and *.yml of a directory in the order of their names. WEIR_ERULESPATH after it was told
 * to `diagnose`; WEIR_ERULESBUSY if something was written meanwhile; WEIR_ENOMEM.
 */
int weir__sources_read(const char *path, weir_diagnose *diagnose, void *context, struct weir__sources *sources);
/* For who has had WEIR_ERULESBUSY too often: tells why, e.g. that a link leads nowhere. */
void weir__sources_report_busy(const char *path, weir_diagnose *diagnose, void *context);
void weir__sources_free(struct weir__sources *sources);

#endif
