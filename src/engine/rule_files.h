/*
 * Rule files on disk: reading all of them at one moment, detecting that they have changed, and compiling them with what
 * the compiler of src/rules needs from the system (time zones).
 */
#ifndef WEIR_ENGINE_RULE_FILES_H
#define WEIR_ENGINE_RULE_FILES_H

#include "rules/report.h"
#include "rules/set.h"

/* The state of the files on disk: equal for equal files. */
struct weir__fingerprint {
    uint64_t sum;
    uint64_t content;  /* a hash of the texts; 0: they were not read */
    uint64_t checksum; /* weir__sources_checksum of the texts */
    int error;         /* 0, or the errno of the failed look */
    int64_t age_ns;    /* since a file or its name last changed; negative if the clock was set back since */
    bool young;        /* changed so lately that another change may bear the same time */
};

struct weir__sources {
    struct weir__source *list;
    size_t count;
    struct weir__fingerprint fingerprint; /* after an error only its `error`: of the path as a whole */
    bool passing; /* WEIR_ERULESPATH may end without a change on disk, e.g. if no file descriptor was left */
};

struct weir__fingerprint weir__sources_look(const char *path);
/* A hash of the texts, without blanks and comment lines, and independent of the files' names. Never 0. */
uint64_t weir__sources_checksum(const struct weir__source *list, size_t count);
/*
 * Reads a file, or the *.yaml and *.yml of a directory in the order of their names. WEIR_ERULESPATH, reported to
 * `diagnose`; WEIR_ERULESBUSY if a file was written meanwhile; WEIR_ENOMEM.
 */
int weir__sources_read(const char *path, weir_diagnose *diagnose, void *context, struct weir__sources *sources);
/* Reads as weir__sources_read; retries for a moment while a file is being written, and then reports it. */
int weir__sources_load(const char *path, weir_diagnose *diagnose, void *context, struct weir__sources *sources);
/* After repeated WEIR_ERULESBUSY: reports the reason, e.g. a dangling link. */
void weir__sources_report_busy(const char *path, weir_diagnose *diagnose, void *context);
void weir__sources_free(struct weir__sources *sources);

/* ---- Maps of attributes ---- */

/* A file with a map of `identity`, as the last load found it. */
struct weir__map_file {
    char *path;
    char *header;                   /* FROM,TO */
    struct weir__fingerprint print; /* its `content` is 0 if the file was not read */
    struct weir__map *map;          /* NULL: it was refused */
};

/* The files of a set, to watch them, and to read only those that have changed. */
struct weir__map_files {
    struct weir__map_file *list;
    size_t count;
    bool text;    /* the rules are a text, so that a path must be absolute */
    bool patient; /* waits for a moment while a file is being written */
    bool skip;    /* for processes that evaluate no requests: the files are not read, and the maps are empty */
};

/* True if a file has changed since the load; *age_ns becomes the age of the latest change. */
bool weir__map_files_changed(struct weir__map_files *files, int64_t *age_ns);
void weir__map_files_free(struct weir__map_files *files);

/* ---- Compiling ---- */

/* Receives the diagnostics of the rules. */
struct weir__diagnostic_sink {
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    bool storeless; /* warns about rules that need a store, since there is none; false: there is one, or unknown */
    const struct weir__rules_host *host; /* NULL: not known */
};

/*
 * Compiles sources; as weir_rules_parse. `files` has those of the load before, and becomes those of this one, also
 * after an error. NULL: the rules cannot name files.
 */
int weir__load_sources(const struct weir__source *sources, size_t count, const struct weir__diagnostic_sink *sink,
                       struct weir__map_files *files, weir_rules **rules);
/* Reads and compiles. As weir_rules_load. `files` and `print` may be NULL. */
int weir__load_path(const char *path, const struct weir__diagnostic_sink *sink, struct weir__map_files *files,
                    struct weir__fingerprint *print, weir_rules **rules);
/* As weir_rules_parse, for rules of a rules service, which cannot name files. */
int weir__rules_parse_published(const char *name, const char *text, size_t len, weir_diagnose *diagnose, void *context,
                                weir_rules **rules);

/* ---- Time zones: timezone.c ---- */

/*
 * Makes a zone of the `len` bytes of a TZif file, which may be hostile. Its transitions are strictly rising, each
 * changes the offset, and no offset is 26 hours or more; those that follow from the rule in the footer are written out
 * up to the end of the year 2200. Returns 0; or, with *out unchanged, WEIR_EZONE if the bytes are malformed or count
 * leap seconds (as the "right" zones do, but weir's clock does not), or WEIR_ENOMEM. Freed by weir_zone_close.
 */
WEIR_MUST_CHECK int weir__zone_parse(const unsigned char *bytes, size_t len, weir_zone **out);

#endif
