/* ticket.h. The bytes are of this machine's order: a segment does not leave its host either. */
#include "services/http/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#define FORMAT    1
#define MAC_BYTES 16 /* of HMAC-SHA256's 32 */

static bool mac_of(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES], uint8_t mac[MAC_BYTES])
{
    uint8_t whole[EVP_MAX_MD_SIZE];
    unsigned whole_len = 0;
    if (!HMAC(EVP_sha256(), key, WEIR_SECRET_BYTES, bytes, len, whole, &whole_len) || whole_len < MAC_BYTES)
        return false;
    memcpy(mac, whole, MAC_BYTES);
    return true;
}

/* ---- Bytes, in both directions: one walk says what they are ---- */

struct walk {
    uint8_t *to;         /* packing */
    const uint8_t *from; /* unpacking */
    size_t at, end;
    bool failed;
};

static void pass(struct walk *walk, void *value, size_t len)
{
    if (walk->failed || len > walk->end - walk->at) {
        walk->failed = true;
        return;
    }
    if (walk->to)
        memcpy(walk->to + walk->at, value, len);
    else if (walk->from)
        memcpy(value, walk->from + walk->at, len);
    walk->at += len;
}

/* A text of up to 65535 bytes; unpacked, it stays where it is. */
static void pass_text(struct walk *walk, weir_text *text)
{
    uint16_t len = (uint16_t)text->len;
    if (walk->to && text->len > UINT16_MAX)
        walk->failed = true;
    pass(walk, &len, sizeof len);
    if (walk->failed || len > walk->end - walk->at) {
        walk->failed = true;
        return;
    }
    if (walk->to && len)
        memcpy(walk->to + walk->at, text->data, len);
    else if (!walk->to)
        *text = (weir_text){(const char *)walk->from + walk->at, len};
    walk->at += len;
}

static void pass_part(struct walk *walk, struct weir__ticket_part *part)
{
    uint8_t kind = (uint8_t)(part->direct | part->shadow << 1), algorithm = (uint8_t)part->params.algorithm;
    pass(walk, &kind, sizeof kind);
    part->direct = kind & 1;
    part->shadow = kind & 2;
    pass(walk, &part->cost, sizeof part->cost);
    pass(walk, &part->quota, sizeof part->quota);
    pass(walk, &part->window_ns, sizeof part->window_ns);
    pass_text(walk, &part->key);
    if (!part->direct) {
        pass_text(walk, &part->rule);
        return;
    }
    pass(walk, &algorithm, sizeof algorithm);
    pass(walk, &part->params.burst, sizeof part->params.burst);
    part->params.algorithm = (enum weir_algorithm)algorithm;
    part->params.limit = part->quota;
    part->params.window_ns = part->window_ns;
}

static void pass_ticket(struct walk *walk, struct weir__ticket *ticket)
{
    uint8_t format = FORMAT, count = (uint8_t)ticket->count;
    pass(walk, &format, sizeof format);
    pass(walk, &count, sizeof count);
    pass(walk, &ticket->taken.mono_ns, sizeof ticket->taken.mono_ns);
    pass(walk, &ticket->taken.wall_ns, sizeof ticket->taken.wall_ns);
    pass(walk, &ticket->due_ns, sizeof ticket->due_ns);
    pass(walk, ticket->nonce, sizeof ticket->nonce);
    pass(walk, &ticket->slot, sizeof ticket->slot);
    walk->failed |= format != FORMAT || count > WEIR__TICKET_PARTS;
    ticket->count = walk->failed ? 0 : count;
    for (size_t i = 0; i < ticket->count; i++)
        pass_part(walk, &ticket->parts[i]);
}

size_t weir__ticket_pack(const struct weir__ticket *ticket, const uint8_t key[WEIR_SECRET_BYTES],
                         uint8_t bytes[WEIR__TICKET_MAX])
{
    struct weir__ticket copy = *ticket;
    struct walk walk = {.to = bytes, .end = WEIR__TICKET_MAX - MAC_BYTES};
    pass_ticket(&walk, &copy);
    if (walk.failed || !mac_of(bytes, walk.at, key, bytes + walk.at))
        return 0;
    return walk.at + MAC_BYTES;
}

bool weir__ticket_unpack(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES],
                         struct weir__ticket *ticket)
{
    uint8_t mac[MAC_BYTES];
    if (len <= MAC_BYTES || len > WEIR__TICKET_MAX || !mac_of(bytes, len - MAC_BYTES, key, mac) ||
        CRYPTO_memcmp(mac, bytes + len - MAC_BYTES, MAC_BYTES) != 0)
        return false;
    struct walk walk = {.from = bytes, .end = len - MAC_BYTES};
    memset(ticket, 0, sizeof *ticket);
    pass_ticket(&walk, ticket);
    return !walk.failed && walk.at == walk.end;
}

/* ---- Text ---- */

static void replace(char *text, size_t len, const char *from, const char *to)
{
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == from[0] ? to[0] : text[i] == from[1] ? to[1] : text[i];
}

size_t weir__ticket_to_text(const uint8_t *bytes, size_t len, char *to)
{
    size_t text_len = (size_t)EVP_EncodeBlock((unsigned char *)to, bytes, (int)len);
    while (text_len && to[text_len - 1] == '=')
        text_len--;
    replace(to, text_len, "+/", "-_");
    return text_len;
}

size_t weir__ticket_from_text(weir_text text, uint8_t bytes[WEIR__TICKET_MAX])
{
    char padded[WEIR__TICKET_TEXT_MAX + 4];
    uint8_t decoded[WEIR__TICKET_MAX + 4];
    size_t missing = (4 - text.len % 4) % 4;
    /* The library forgives white space and signs of the other alphabet; one ticket is to have one text. */
    if (!text.len || text.len > WEIR__TICKET_TEXT_MAX || missing == 3 || memchr(text.data, '+', text.len) ||
        memchr(text.data, '/', text.len) || memchr(text.data, '=', text.len) || memchr(text.data, '\n', text.len))
        return 0;
    memcpy(padded, text.data, text.len);
    memset(padded + text.len, '=', missing);
    replace(padded, text.len, "-_", "+/");
    int len = EVP_DecodeBlock(decoded, (unsigned char *)padded, (int)(text.len + missing));
    if (len <= (int)missing || len - (int)missing > WEIR__TICKET_MAX)
        return 0;
    memcpy(bytes, decoded, (size_t)len - missing);
    return (size_t)len - missing;
}
