/* Reservation tokens and the file of pending reservations: see reservations.h. */
#include "services/http/reservations.h"
#include "base/atomic.h"
#include "base/sha256.h"

#include <string.h>

/* ---- Tokens. Native byte order: a segment does not leave its host either ---- */

#define FORMAT    1
#define MAC_BYTES 16 /* of HMAC-SHA256's 32 */

static void mac_of(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES], uint8_t mac[MAC_BYTES])
{
    uint8_t complete[WEIR__SHA256_BYTES];
    weir__hmac_sha256(key, WEIR_SECRET_BYTES, bytes, len, complete);
    memcpy(mac, complete, MAC_BYTES);
}

/* ---- Packing and unpacking: one function walks the format in both directions ---- */

struct packer {
    uint8_t *to;         /* packing */
    const uint8_t *from; /* unpacking */
    size_t at, end;
    bool failed;
};

/* `value` NULL: skips it. */
static void pass(struct packer *packer, void *value, size_t len)
{
    if (packer->failed || len > packer->end - packer->at) {
        packer->failed = true;
        return;
    }
    if (packer->to && value)
        memcpy(packer->to + packer->at, value, len);
    else if (packer->from && value)
        memcpy(value, packer->from + packer->at, len);
    packer->at += len;
}

/* A text of at most 65535 bytes; unpacked, it points into the token. */
static void pass_text(struct packer *packer, weir_text *text)
{
    uint16_t len = (uint16_t)text->len;
    packer->failed |= packer->to && text->len > UINT16_MAX;
    pass(packer, &len, sizeof len);
    if (!packer->to)
        *text = (weir_text){(const char *)packer->from + packer->at, len};
    pass(packer, packer->to ? (void *)(uintptr_t)text->data : NULL, len);
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
    if (packer.failed)
        return 0;
    mac_of(bytes, packer.at, key, bytes + packer.at);
    return packer.at + MAC_BYTES;
}

bool weir__reservation_token_unpack(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES],
                                    struct weir__reservation_token *token)
{
    uint8_t mac[MAC_BYTES];
    if (len <= MAC_BYTES || len > WEIR__RESERVATION_TOKEN_MAX)
        return false;
    mac_of(bytes, len - MAC_BYTES, key, mac);
    if (!weir__equal_secrets(mac, bytes + len - MAC_BYTES, MAC_BYTES))
        return false;
    struct packer packer = {.from = bytes, .end = len - MAC_BYTES};
    memset(token, 0, sizeof *token);
    pass_token(&packer, token);
    return !packer.failed && packer.at == packer.end;
}

/* ---- The file ---- */

#define MAGIC        UINT64_C(0x31767365725f7277)
#define HEADER_BYTES WEIR__RESERVATIONS_PAGE
#define PROBES       8192 /* slots scanned for a free one: 64 KiB of state words */

enum { FREE = 0, WRITING = 1, READY = 2, STATE = 3 };

struct header {
    uint64_t magic;
    uint32_t slot_bytes, count;
};

struct weir__reservation_slot {
    uint32_t len, unused;
    uint8_t token[WEIR__RESERVATION_TOKEN_MAX];
};

_Static_assert(sizeof(struct weir__reservation_slot) == WEIR__RESERVATION_BYTES, "one size of a slot");

/* The number of slots if the file is valid, else 0. */
static uint32_t count_in(const void *memory, uint64_t bytes)
{
    struct header header;
    if (bytes < sizeof header)
        return 0;
    memcpy(&header, memory, sizeof header);
    if (header.magic != MAGIC || header.slot_bytes != WEIR__RESERVATION_BYTES || header.count == 0 ||
        header.count > WEIR__RESERVATIONS_MAX || bytes != weir__reservations_bytes(header.count))
        return 0;
    return header.count;
}

int weir__reservations_format(void *memory, uint64_t bytes, const void *count)
{
    struct header header = {MAGIC, WEIR__RESERVATION_BYTES, *(const uint32_t *)count};
    memcpy(memory, &header, sizeof header);
    return count_in(memory, bytes) ? 0 : WEIR_ESIZE;
}

int weir__reservations_check(void *memory, uint64_t bytes, const void *count)
{
    (void)count; /* an existing file has its own */
    return count_in(memory, bytes) ? 0 : WEIR_EDAMAGED;
}

int weir__reservations_attach(struct weir__reservations *reservations, void *memory, uint64_t bytes)
{
    /* read again: the file may have changed since the check, and the count must fit the mapping */
    uint32_t count = count_in(memory, bytes);
    if (!count)
        return WEIR_EDAMAGED;
    char *slots = (char *)memory + (bytes - (uint64_t)count * WEIR__RESERVATION_BYTES);
    *reservations = (struct weir__reservations){
        .count = count, .states = (void *)((char *)memory + HEADER_BYTES), .slots = (void *)slots};
    return 0;
}

/* ---- Slots ---- */

static uint64_t word(int64_t due_us, int state)
{
    return (uint64_t)due_us << 2 | (uint64_t)state;
}

int64_t weir__reservations_claim(struct weir__reservations *reservations, uint64_t first_slot, int64_t due_us)
{
    uint32_t probes = reservations->count < PROBES ? reservations->count : PROBES;
    for (uint32_t i = 0; i < probes; i++) {
        uint32_t slot = (uint32_t)((first_slot + i) % reservations->count);
        uint64_t expected = FREE;
        if (weir__load64(&reservations->states[slot]) == FREE &&
            weir__cas64(&reservations->states[slot], &expected, word(due_us, WRITING)))
            return slot;
    }
    return -1;
}

void weir__reservations_publish(struct weir__reservations *reservations, uint32_t slot, int64_t due_us,
                                const uint8_t *token, size_t len)
{
    uint64_t writing = word(due_us, WRITING);
    if (slot >= reservations->count || len > WEIR__RESERVATION_TOKEN_MAX)
        return;
    reservations->slots[slot].len = (uint32_t)len;
    memcpy(reservations->slots[slot].token, token, len);
    (void)weir__cas64(&reservations->states[slot], &writing, word(due_us, READY));
}

void weir__reservations_release(struct weir__reservations *reservations, uint32_t slot, int64_t due_us)
{
    uint64_t ready = word(due_us, READY), writing = word(due_us, WRITING);
    if (slot < reservations->count && !weir__cas64(&reservations->states[slot], &ready, FREE))
        (void)weir__cas64(&reservations->states[slot], &writing, FREE);
}

size_t weir__reservations_next_due(struct weir__reservations *reservations, uint32_t *at, int64_t now_us,
                                   uint8_t token[WEIR__RESERVATION_TOKEN_MAX], int64_t *due_us)
{
    while (*at < reservations->count) {
        uint32_t slot = (*at)++;
        uint64_t seen = weir__load64_ordered(&reservations->states[slot]);
        if (seen == FREE || (int64_t)(seen >> 2) > now_us)
            continue;
        *due_us = (int64_t)(seen >> 2);
        uint32_t len = reservations->slots[slot].len;
        if ((seen & STATE) == READY && len > 0 && len <= WEIR__RESERVATION_TOKEN_MAX) {
            memcpy(token, reservations->slots[slot].token, len);
            return len;
        }
        (void)weir__cas64(&reservations->states[slot], &seen, FREE); /* its writer died */
    }
    return 0;
}
