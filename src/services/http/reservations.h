/*
 * Reservations of the HTTP API.
 *
 * Token: what a reservation took, from which counters and when, authenticated by HMAC, and base64url as text. It is
 * self-contained: any worker on the segment can settle it.
 *
 * File of pending reservations: fixed size, a sidecar of the segment, mapped by every worker, so that a reservation
 * that is never settled expires, even if the worker that made it died. A slot is a state word and a token. Any worker
 * that finds one due settles it; the token's marker in the segment makes sure that only one does. State word: 0 free;
 * else (due time in us) * 4, + 1 while the token is being written, + 2 when it is complete. Wait-free: a slot whose
 * writer died becomes free when it is due, and a torn token fails its authentication.
 */
#ifndef WEIR_SERVICES_HTTP_RESERVATIONS_H
#define WEIR_SERVICES_HTTP_RESERVATIONS_H

#include <weir/weir.h>

/* ---- Tokens ---- */

#define WEIR__RESERVATION_TOKEN_MAX   1016 /* bytes; fits a slot of the file */
#define WEIR__RESERVATION_CHARGES_MAX 32
#define WEIR__RESERVATION_ID_BYTES    16

/* What was taken from one counter, of a rule or of a direct limit. */
struct weir__reservation_charge {
    int64_t cost;
    bool direct;
    /* texts point into the token or belong to the caller; a rule's name has no zero byte */
    weir_text rule, key;
    bool shadow;
    int64_t quota, window_ns;
    weir_params params; /* direct: algorithm, limit, window and burst */
};

struct weir__reservation_token {
    weir_time taken; /* when */
    int64_t due_ns;  /* expiry, monotonic */
    uint8_t id[WEIR__RESERVATION_ID_BYTES];
    uint32_t slot; /* in the file */
    size_t count;
    struct weir__reservation_charge charges[WEIR__RESERVATION_CHARGES_MAX];
};

/* Packs and authenticates. The length, or 0 if it does not fit. */
size_t weir__reservation_token_pack(const struct weir__reservation_token *token, const uint8_t key[WEIR_SECRET_BYTES],
                                    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX]);
/* False: not authentic. The charges point into `bytes`. */
bool weir__reservation_token_unpack(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES],
                                    struct weir__reservation_token *token);

/* ---- The file of pending reservations ---- */

#define WEIR__RESERVATIONS_MAX     1000000
#define WEIR__RESERVATIONS_DEFAULT 8192 /* slots, unless configured */
#define WEIR__RESERVATION_BYTES    (8 + WEIR__RESERVATION_TOKEN_MAX)
#define WEIR__RESERVATIONS_PAGE    4096 /* alignment of header and states */

/* The size of a file with `count` slots. */
static inline uint64_t weir__reservations_bytes(uint32_t count)
{
    uint64_t states = (count * sizeof(uint64_t) + WEIR__RESERVATIONS_PAGE - 1) / WEIR__RESERVATIONS_PAGE;
    return (1 + states) * WEIR__RESERVATIONS_PAGE + (uint64_t)count * WEIR__RESERVATION_BYTES;
}

/* The mapped file; mapping it is up to the caller. */
struct weir__reservations {
    uint32_t count; /* slots */
    uint64_t *states;
    struct weir__reservation_slot *slots;
};

/* Formats a new file for *(const uint32_t *)count slots, and checks one that exists: 0 or an error of the library. */
WEIR_MUST_CHECK int weir__reservations_format(void *memory, uint64_t bytes, const void *count);
WEIR_MUST_CHECK int weir__reservations_check(void *memory, uint64_t bytes, const void *count);
/* WEIR_EDAMAGED: not a valid file. */
WEIR_MUST_CHECK int weir__reservations_attach(struct weir__reservations *reservations, void *memory, uint64_t bytes);

/* Claims a slot, probing from `first_slot` (random). -1: all that were probed are taken. */
int64_t weir__reservations_claim(struct weir__reservations *reservations, uint64_t first_slot, int64_t due_us);
/* Writes the token into a claimed slot. */
void weir__reservations_publish(struct weir__reservations *reservations, uint32_t slot, int64_t due_us,
                                const uint8_t *token, size_t len);
/* Frees the slot, if its reservation is still the one that is due at due_us. */
void weir__reservations_release(struct weir__reservations *reservations, uint32_t slot, int64_t due_us);
/* Finds the next token that is due, from slot *at on, which advances. Its length (and *due_us), or 0 at the end. */
size_t weir__reservations_next_due(struct weir__reservations *reservations, uint32_t *at, int64_t now_us,
                                   uint8_t token[WEIR__RESERVATION_TOKEN_MAX], int64_t *due_us);

#endif
