/* SHA-256, for names in the store: keys may be secrets, so their hash must not lead back to them. Allocates nothing. */
#ifndef WEIR_STORE_SHA256_H
#define WEIR_STORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define WEIR__SHA256_BYTES 32

void weir__sha256(const void *data, size_t len, uint8_t digest[WEIR__SHA256_BYTES]);

#endif
