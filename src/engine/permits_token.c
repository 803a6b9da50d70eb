/*
 * What a request holds as a text, for services whose clients give it back. It proves that we made it: who could guess
 * one could free the slots of others. What the store has needs no proof, as nobody guesses its 104 bits: any host takes
 * it back, and goes by its own rules for all else in the text. The bytes are of this machine's order: a segment does
 * not leave its host, and all that weir runs on have the same.
 */
#include "engine/permits.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define FORMAT    1
#define MAC_BYTES 16 /* of HMAC-SHA256's 32 */
#define HEAD      2  /* the format, and how many */
#define BYTES_MAX (HEAD + WEIR_PERMITS_MAX * sizeof(weir_lease) + WEIR_PERMITS_NAMES_MAX + MAC_BYTES)

_Static_assert((BYTES_MAX + 2) / 3 * 4 <= WEIR_PERMITS_TEXT_MAX, "the public constant promises that everything fits");
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

size_t weir_permits_to_text(weir *engine, const weir_permits *held, char text[WEIR_PERMITS_TEXT_MAX + 1])
{
    uint8_t bytes[BYTES_MAX];
    if (!engine || !held || !text || !held->count || held->count > WEIR_PERMITS_MAX ||
        held->names_len > WEIR_PERMITS_NAMES_MAX)
        return 0;
    size_t leases = held->count * sizeof(weir_lease), len = HEAD + leases + held->names_len;
    bytes[0] = FORMAT;
    bytes[1] = (uint8_t)held->count;
    memcpy(bytes + HEAD, held->lease, leases);
    memcpy(bytes + HEAD + leases, held->names, held->names_len);
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
    char padded[WEIR_PERMITS_TEXT_MAX + 4];
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

/* The slots in the bytes that this engine may give back. `ours`: this host made them. */
static void read_slots(weir *engine, const uint8_t *bytes, uint32_t count, bool ours, weir_permits *held)
{
    for (uint32_t i = 0; i < count; i++) {
        weir_lease lease;
        memcpy(&lease, bytes + i * sizeof lease, sizeof lease);
        if (weir__is_remote_permit(&lease) ? weir__remote_permit_accept(engine, held, &lease) : ours)
            weir__held_add(held, &lease);
    }
}

int weir_permits_from_text(weir *engine, weir_text text, weir_permits *held)
{
    uint8_t bytes[BYTES_MAX + 4], mac[MAC_BYTES];
    if (!engine || !held || (!text.data && text.len))
        return WEIR_EINVAL;
    size_t len = decode(text, bytes);
    uint32_t count = len ? bytes[1] : 0;
    size_t around = HEAD + count * sizeof(weir_lease) + MAC_BYTES;
    if (!count || count > WEIR_PERMITS_MAX || bytes[0] != FORMAT || len < around ||
        len - around > WEIR_PERMITS_NAMES_MAX || !mac_of(engine, bytes, len - MAC_BYTES, mac))
        return WEIR_ELEASE;
    weir_permits read;
    read.count = 0;
    read.names_len = (uint32_t)(len - around);
    memcpy(read.names, bytes + HEAD + count * sizeof(weir_lease), read.names_len);
    read_slots(engine, bytes + HEAD, count, CRYPTO_memcmp(mac, bytes + len - MAC_BYTES, MAC_BYTES) == 0, &read);
    if (!read.count)
        return WEIR_ELEASE;
    memcpy(held, &read, weir_permits_size(&read));
    return 0;
}
