/* Sidecar files of rows: see row_file.h. */
#include "table/row_file.h"
#include "base/atomic.h"

/* As many as fit; 0: too few. */
static uint32_t rows_in(uint64_t bytes, const struct weir__row_format *format)
{
    uint64_t rows = bytes < format->header_bytes ? 0 : (bytes - format->header_bytes) / format->row_bytes;
    return rows < format->rows_min ? 0 : rows > UINT32_MAX ? UINT32_MAX : (uint32_t)rows;
}

int weir__row_file_format(void *memory, uint64_t bytes, const void *format)
{
    const struct weir__row_format *kind = format;
    struct weir__row_header *header = memory;
    uint32_t rows = rows_in(bytes, kind);
    if (!rows)
        return WEIR_ESIZE;
    *header = (struct weir__row_header){.layout = kind->layout, .rows = rows, .bytes = bytes};
    weir__store64(&header->magic, kind->magic);
    return 0;
}

uint32_t weir__row_file_rows(const void *memory, uint64_t bytes, const struct weir__row_format *format)
{
    const struct weir__row_header *header = memory;
    uint32_t most = rows_in(bytes, format);
    if (!most || weir__load64(&header->magic) != format->magic || header->layout != format->layout ||
        header->bytes != bytes)
        return 0;
    uint32_t rows = weir__load32(&header->rows); /* once: another process may change it after the check */
    return rows >= format->rows_min && rows <= most ? rows : 0;
}

int weir__row_file_check(void *memory, uint64_t bytes, const void *format)
{
    return weir__row_file_rows(memory, bytes, format) ? 0 : WEIR_EDAMAGED;
}
