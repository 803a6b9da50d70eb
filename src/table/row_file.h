/* Sidecar files of rows (.hot, .history, .load, .denials): a header that begins with weir__row_header, then rows of one
 * size. */
#ifndef WEIR_TABLE_ROW_FILE_H
#define WEIR_TABLE_ROW_FILE_H

#include <weir/weir.h>

struct weir__row_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t rows;
    uint64_t bytes; /* of the file */
};

/* A kind of file. */
struct weir__row_format {
    uint64_t magic;
    uint32_t layout;
    uint32_t rows_min;
    size_t header_bytes, row_bytes;
};

/* Bytes of a file with so many rows. */
static inline size_t weir__row_file_bytes(const struct weir__row_format *format, uint32_t rows)
{
    return format->header_bytes + rows * format->row_bytes;
}

/* The next two are `format` and `check` of a struct weir__file_spec whose `plan` is a struct weir__row_format. */

/* Formats zeroed memory, with as many rows as fit. Returns 0, or WEIR_ESIZE if these are too few. */
int weir__row_file_format(void *memory, uint64_t bytes, const void *format);
/* Returns 0, or WEIR_EDAMAGED: another format, or damaged. */
int weir__row_file_check(void *memory, uint64_t bytes, const void *format);

/* The number of rows, all of them within `bytes`; 0: another format, or damaged. */
uint32_t weir__row_file_rows(const void *memory, uint64_t bytes, const struct weir__row_format *format);

#endif
