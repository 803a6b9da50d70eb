/* SHA-256 and HMAC-SHA256, so that libweir does not need OpenSSL for names and tokens. */
#ifndef WEIR_BASE_SHA256_H
#define WEIR_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__SHA256_BYTES 32

/* The hash of `first` and `second`, one after the other. */
void weir__sha256_two(const void *first, size_t first_len, const void *second, size_t second_len,
                      uint8_t hash[WEIR__SHA256_BYTES]);
void weir__sha256(const void *data, size_t len, uint8_t hash[WEIR__SHA256_BYTES]);
void weir__hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t mac[WEIR__SHA256_BYTES]);

/* Compares in constant time. */
static inline bool weir__equal_secrets(const uint8_t *a, const uint8_t *b, size_t len)
{
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < len; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

#endif
