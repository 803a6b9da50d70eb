/*
 * What a request holds as a text, for services whose clients give it back. It proves that we made it: who could guess
 * one could free the slots of others. The bytes are of this machine's order: a segment does not leave its host either.
 */
#include "engine/weir.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define FORMAT    1
#define MAC_BYTES 16 /* of HMAC-SHA256's 32 */
#define HEAD      2  /* the format, and how many */
#define BYTES_MAX (HEAD + WEIR_HELD_MAX * sizeof(weir_lease) + MAC_BYTES)

_Static_assert((BYTES_MAX + 2) / 3 * 4 <= WEIR_HELD_TEXT_MAX, "the public constant promises that everything fits");
_Static_assert(sizeof(weir_lease) == 48, "no bytes that nobody has set");

static bool mac_of(const weir *engine, const uint8_t *bytes, size_t len, uint8_t mac[MAC_BYTES])
{
    uint8_t key[WEIR_SECRET_BYTES], whole[EVP_MAX_MD_SIZE];
    unsigned whole_len = 0;
    if (weir_segment_secret(engine->segment, "slots of requests in flight", key) != 0 ||
        !HMAC(EVP_sha256(), key, sizeof key, bytes, len, whole, &whole_len) || whole_len < MAC_BYTES)
        return false;
    memcpy(mac, whole, MAC_BYTES);
    return true;
}

static void replace(char *text, size_t len, const char *from, const char *to)
{
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == from[0] ? to[0] : text[i] == from[1] ? to[1] : text[i];
}

size_t weir_held_to_text(weir *engine, const weir_held *held, char text[WEIR_HELD_TEXT_MAX + 1])
{
    uint8_t bytes[BYTES_MAX] = {FORMAT};
    if (!engine || !held || !text || !held->count || held->count > WEIR_HELD_MAX)
        return 0;
    size_t len = HEAD + held->count * sizeof(weir_lease);
    bytes[1] = (uint8_t)held->count;
    memcpy(bytes + HEAD, held->lease, len - HEAD);
    if (!mac_of(engine, bytes, len, bytes + len))
        return 0;
    size_t text_len = (size_t)EVP_EncodeBlock((unsigned char *)text, bytes, (int)(len + MAC_BYTES));
    while (text_len && text[text_len - 1] == '=')
        text_len--;
    text[text_len] = 0;
    replace(text, text_len, "+/", "-_");
    return text_len;
}

/* The bytes that a text stands for; 0: it is no such text. */
static size_t decode(weir_text text, uint8_t bytes[BYTES_MAX + 4])
{
    char padded[WEIR_HELD_TEXT_MAX + 4];
    size_t missing = (4 - text.len % 4) % 4;
    if (!text.len || text.len + missing > (BYTES_MAX + 2) / 3 * 4 || missing == 3)
        return 0;
    for (size_t i = 0; i < text.len; i++) /* the library forgives white space and signs of the other alphabet */
        if (text.data[i] <= ' ' || strchr("+/=", text.data[i]))
            return 0;
    memcpy(padded, text.data, text.len);
    memset(padded + text.len, '=', missing);
    replace(padded, text.len, "-_", "+/");
    int len = EVP_DecodeBlock(bytes, (unsigned char *)padded, (int)(text.len + missing));
    return len > (int)missing ? (size_t)len - missing : 0;
}

int weir_held_from_text(weir *engine, weir_text text, weir_held *held)
{
    uint8_t bytes[BYTES_MAX + 4], mac[MAC_BYTES];
    if (!engine || !held || (!text.data && text.len))
        return WEIR_EINVAL;
    size_t len = decode(text, bytes);
    uint32_t count = len ? bytes[1] : 0;
    if (!count || count > WEIR_HELD_MAX || bytes[0] != FORMAT || len != HEAD + count * sizeof(weir_lease) + MAC_BYTES ||
        !mac_of(engine, bytes, len - MAC_BYTES, mac) || CRYPTO_memcmp(mac, bytes + len - MAC_BYTES, MAC_BYTES) != 0)
        return WEIR_ELEASE;
    memcpy(held->lease, bytes + HEAD, count * sizeof(weir_lease));
    held->count = count;
    held->lease_ns = INT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (held->lease[i].for_us * 1000 < held->lease_ns)
            held->lease_ns = held->lease[i].for_us * 1000;
    return 0;
}
