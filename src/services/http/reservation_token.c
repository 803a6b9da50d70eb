/*
 * Reservation tokens: packing, authentication, base64url. Native byte order: a segment does not leave its host either.
 */
#include "services/http/reservations.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#define FORMAT    1
#define MAC_BYTES 16 /* of HMAC-SHA256's 32 */

static bool mac_of(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES], uint8_t mac[MAC_BYTES])
{
    uint8_t mac_bytes[EVP_MAX_MD_SIZE];
    unsigned mac_len = 0;
    if (!HMAC(EVP_sha256(), key, WEIR_SECRET_BYTES, bytes, len, mac_bytes, &mac_len) || mac_len < MAC_BYTES)
        return false;
    memcpy(mac, mac_bytes, MAC_BYTES);
    return true;
}

/* ---- Packing and unpacking: one function walks the format in both directions ---- */

struct packer {
    uint8_t *to;         /* packing */
    const uint8_t *from; /* unpacking */
    size_t at, end;
    bool failed;
};

static void pass(struct packer *packer, void *value, size_t len)
{
    if (packer->failed || len > packer->end - packer->at) {
        packer->failed = true;
        return;
    }
    if (packer->to)
        memcpy(packer->to + packer->at, value, len);
    else if (packer->from)
        memcpy(value, packer->from + packer->at, len);
    packer->at += len;
}

/* A text of at most 65535 bytes; unpacked, it points into the token. */
static void pass_text(struct packer *packer, weir_text *text)
{
    uint16_t len = (uint16_t)text->len;
    if (packer->to && text->len > UINT16_MAX)
        packer->failed = true;
    pass(packer, &len, sizeof len);
    if (packer->failed || len > packer->end - packer->at) {
        packer->failed = true;
        return;
    }
    if (packer->to && len)
        memcpy(packer->to + packer->at, text->data, len);
    else if (!packer->to)
        *text = (weir_text){(const char *)packer->from + packer->at, len};
    packer->at += len;
}

static void pass_charge(struct packer *packer, struct weir__reservation_charge *charge)
{
    uint8_t kind = (uint8_t)(charge->direct | charge->shadow << 1), algorithm = (uint8_t)charge->params.algorithm;
    pass(packer, &kind, sizeof kind);
    charge->direct = kind & 1;
    charge->shadow = kind & 2;
    pass(packer, &charge->cost, sizeof charge->cost);
    pass(packer, &charge->quota, sizeof charge->quota);
    pass(packer, &charge->window_ns, sizeof charge->window_ns);
    pass_text(packer, &charge->key);
    if (!charge->direct) {
        pass_text(packer, &charge->rule);
        return;
    }
    pass(packer, &algorithm, sizeof algorithm);
    pass(packer, &charge->params.burst, sizeof charge->params.burst);
    charge->params.algorithm = (enum weir_algorithm)algorithm;
    charge->params.limit = charge->quota;
    charge->params.window_ns = charge->window_ns;
}

static void pass_token(struct packer *packer, struct weir__reservation_token *token)
{
    uint8_t format = FORMAT, count = (uint8_t)token->count;
    pass(packer, &format, sizeof format);
    pass(packer, &count, sizeof count);
    pass(packer, &token->taken.mono_ns, sizeof token->taken.mono_ns);
    pass(packer, &token->taken.wall_ns, sizeof token->taken.wall_ns);
    pass(packer, &token->due_ns, sizeof token->due_ns);
    pass(packer, token->id, sizeof token->id);
    pass(packer, &token->slot, sizeof token->slot);
    packer->failed |= format != FORMAT || count > WEIR__RESERVATION_CHARGES_MAX;
    token->count = packer->failed ? 0 : count;
    for (size_t i = 0; i < token->count; i++)
        pass_charge(packer, &token->charges[i]);
}

size_t weir__reservation_token_pack(const struct weir__reservation_token *token, const uint8_t key[WEIR_SECRET_BYTES],
                                    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX])
{
    struct weir__reservation_token copy = *token;
    struct packer packer = {.to = bytes, .end = WEIR__RESERVATION_TOKEN_MAX - MAC_BYTES};
    pass_token(&packer, &copy);
    if (packer.failed || !mac_of(bytes, packer.at, key, bytes + packer.at))
        return 0;
    return packer.at + MAC_BYTES;
}

bool weir__reservation_token_unpack(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES],
                                    struct weir__reservation_token *token)
{
    uint8_t mac[MAC_BYTES];
    if (len <= MAC_BYTES || len > WEIR__RESERVATION_TOKEN_MAX || !mac_of(bytes, len - MAC_BYTES, key, mac) ||
        CRYPTO_memcmp(mac, bytes + len - MAC_BYTES, MAC_BYTES) != 0)
        return false;
    struct packer packer = {.from = bytes, .end = len - MAC_BYTES};
    memset(token, 0, sizeof *token);
    pass_token(&packer, token);
    return !packer.failed && packer.at == packer.end;
}

/* ---- Text ---- */

static void replace(char *text, size_t len, const char *from, const char *to)
{
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == from[0] ? to[0] : text[i] == from[1] ? to[1] : text[i];
}

size_t weir__reservation_token_to_text(const uint8_t *bytes, size_t len, char *to)
{
    size_t text_len = (size_t)EVP_EncodeBlock((unsigned char *)to, bytes, (int)len);
    while (text_len && to[text_len - 1] == '=')
        text_len--;
    replace(to, text_len, "+/", "-_");
    return text_len;
}

size_t weir__reservation_token_from_text(weir_text text, uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX])
{
    char padded[WEIR__RESERVATION_TOKEN_TEXT_MAX + 4];
    uint8_t decoded[WEIR__RESERVATION_TOKEN_MAX + 4];
    size_t missing = (4 - text.len % 4) % 4;
    /* EVP_DecodeBlock accepts white space and the standard alphabet; a token must have exactly one text. */
    if (!text.len || text.len > WEIR__RESERVATION_TOKEN_TEXT_MAX || missing == 3 || memchr(text.data, '+', text.len) ||
        memchr(text.data, '/', text.len) || memchr(text.data, '=', text.len) || memchr(text.data, '\n', text.len))
        return 0;
    memcpy(padded, text.data, text.len);
    memset(padded + text.len, '=', missing);
    replace(padded, text.len, "-_", "+/");
    int len = EVP_DecodeBlock(decoded, (unsigned char *)padded, (int)(text.len + missing));
    if (len <= (int)missing || len - (int)missing > WEIR__RESERVATION_TOKEN_MAX)
        return 0;
    memcpy(bytes, decoded, (size_t)len - missing);
    return (size_t)len - missing;
}
