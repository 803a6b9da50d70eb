/* SHA-256 (FIPS 180-4) and HMAC (RFC 2104). */
#include "base/sha256.h"

#include <string.h>

#define SHA_BLOCK 64

struct sha {
    uint32_t state[8];
    uint64_t len;
    unsigned char block[SHA_BLOCK]; /* bytes that are not hashed yet: len % SHA_BLOCK */
};

static const uint32_t sha_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, unsigned by)
{
    return word >> by | word << (32 - by);
}

/* One round, with the first of the eight words at index `a`: instead of moving the words, `a` moves. */
static inline __attribute__((always_inline)) void round_of(uint32_t s[8], int a, uint32_t added)
{
    uint32_t e = s[(a + 4) & 7], one = s[(a + 7) & 7] + added + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                                       ((e & s[(a + 5) & 7]) ^ (~e & s[(a + 6) & 7]));
    uint32_t b = s[(a + 1) & 7], c = s[(a + 2) & 7];
    s[(a + 3) & 7] += one;
    s[(a + 7) & 7] =
        one + (rotate(s[a], 2) ^ rotate(s[a], 13) ^ rotate(s[a], 22)) + ((s[a] & b) ^ (s[a] & c) ^ (b & c));
}

static void sha_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i += 8) {
        round_of(s, 0, sha_constants[i] + w[i]);
        round_of(s, 7, sha_constants[i + 1] + w[i + 1]);
        round_of(s, 6, sha_constants[i + 2] + w[i + 2]);
        round_of(s, 5, sha_constants[i + 3] + w[i + 3]);
        round_of(s, 4, sha_constants[i + 4] + w[i + 4]);
        round_of(s, 3, sha_constants[i + 5] + w[i + 5]);
        round_of(s, 2, sha_constants[i + 6] + w[i + 6]);
        round_of(s, 1, sha_constants[i + 7] + w[i + 7]);
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void add(struct sha *sha, const void *data, size_t len)
{
    const unsigned char *from = data;
    while (len > 0) {
        size_t at = sha->len % SHA_BLOCK, some = SHA_BLOCK - at < len ? SHA_BLOCK - at : len;
        memcpy(sha->block + at, from, some);
        sha->len += some;
        from += some;
        len -= some;
        if (sha->len % SHA_BLOCK == 0)
            sha_block(sha->state, sha->block);
    }
}

void weir__sha256_two(const void *first, size_t first_len, const void *second, size_t second_len,
                      uint8_t hash[WEIR__SHA256_BYTES])
{
    static const unsigned char padding[SHA_BLOCK] = {0x80};
    struct sha sha = {
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
    unsigned char length[8];
    add(&sha, first, first_len);
    add(&sha, second, second_len);
    uint64_t bits = sha.len * 8;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    size_t used = sha.len % SHA_BLOCK;
    add(&sha, padding, used < SHA_BLOCK - 8 ? SHA_BLOCK - 8 - used : 2 * SHA_BLOCK - 8 - used);
    add(&sha, length, sizeof length);
    for (int i = 0; i < WEIR__SHA256_BYTES; i++)
        hash[i] = (uint8_t)(sha.state[i / 4] >> (24 - 8 * (i % 4)));
    explicit_bzero(&sha, sizeof sha);
}

void weir__sha256(const void *data, size_t len, uint8_t hash[WEIR__SHA256_BYTES])
{
    weir__sha256_two(data, len, NULL, 0, hash);
}

void weir__hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t mac[WEIR__SHA256_BYTES])
{
    unsigned char pad[SHA_BLOCK] = {0};
    if (key_len > SHA_BLOCK)
        weir__sha256(key, key_len, pad);
    else
        memcpy(pad, key, key_len);
    for (int i = 0; i < SHA_BLOCK; i++)
        pad[i] ^= 0x36;
    weir__sha256_two(pad, sizeof pad, data, len, mac);
    for (int i = 0; i < SHA_BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    weir__sha256_two(pad, sizeof pad, mac, WEIR__SHA256_BYTES, mac);
    explicit_bzero(pad, sizeof pad);
}
