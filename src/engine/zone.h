/* Time zones: from the bytes of a TZif file (RFC 8536) to the turns that calendar windows need. */
#ifndef WEIR_ENGINE_ZONE_H
#define WEIR_ENGINE_ZONE_H

#include <stddef.h>

#include <weir/weir.h>

/*
 * Makes a zone of the `len` bytes of a TZif file, which may be hostile. The zone's turns are strictly rising, each
 * changes the offset, and no offset is 26 hours or more; those that follow from the rule in the footer are written
 * out up to the end of the year 2200. Returns 0; or, with *out untouched, WEIR_EZONE if the bytes are malformed or
 * count leap seconds (as the "right" zones do, but weir's clock does not), or WEIR_ENOMEM. The zone is to be freed
 * with weir_zone_close.
 */
WEIR_MUST_CHECK int weir__zone_parse(const unsigned char *bytes, size_t len, weir_zone **out);

#endif
