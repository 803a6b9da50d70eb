/*
 * Reservations that wait to be settled: a file of fixed size beside the segment, mapped by every worker, so that one
 * that nobody settles expires by itself, even when the worker that made it is gone. A slot is a word of state and a
 * token; who finds one that is due settles it, and the token's own marker in the segment sees to it that only one
 * does.
 *
 * The word: 0 is free; else the moment it is due, in microseconds, times four, plus 1 while the token is being written
 * or 2 when it is there. Nothing is ever waited for: a slot whose writer died is free again when it is due, and a torn
 * token fails its authentication.
 */
#ifndef WEIR_SERVICES_HTTP_RESERVATIONS_H
#define WEIR_SERVICES_HTTP_RESERVATIONS_H

#include <weir/weir.h>

/* ---- Tokens (reservation_token.c) ---- */

#define WEIR__RESERVATION_TOKEN_MAX      1016 /* bytes; one slot of the reservations */
#define WEIR__RESERVATION_TOKEN_TEXT_MAX ((WEIR__RESERVATION_TOKEN_MAX + 2) / 3 * 4)
#define WEIR__RESERVATION_CHARGES_MAX    32
#define WEIR__RESERVATION_ID_BYTES       16

/* What was taken from one counter: a rule's, or one of a limit that was given directly. */
struct weir__reservation_charge {
    int64_t cost;
    bool direct;
    /* The texts are in the token, or the caller's; a rule's name has no zero byte there. */
    weir_text rule, key;
    bool shadow;
    int64_t quota, window_ns;
    weir_params params; /* direct: algorithm, limit, window and burst */
};

struct weir__reservation_token {
    weir_time taken; /* when */
    int64_t due_ns;  /* when it expires, on the monotonic clock */
    uint8_t id[WEIR__RESERVATION_ID_BYTES];
    uint32_t slot; /* in the reservations */
    size_t count;
    struct weir__reservation_charge charges[WEIR__RESERVATION_CHARGES_MAX];
};

/* Its length, or 0 if it does not fit. */
size_t weir__reservation_token_pack(const struct weir__reservation_token *token, const uint8_t key[WEIR_SECRET_BYTES],
                                    uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX]);
/* False if it is not one of ours. The charges point into `bytes`. */
bool weir__reservation_token_unpack(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES],
                                    struct weir__reservation_token *token);

/* As text (base64url) and back; the length of the result, or 0. `to` needs WEIR__RESERVATION_TOKEN_TEXT_MAX + 1 bytes.
 */
size_t weir__reservation_token_to_text(const uint8_t *bytes, size_t len, char *to);
size_t weir__reservation_token_from_text(weir_text text, uint8_t bytes[WEIR__RESERVATION_TOKEN_MAX]);

/* ---- The file of pending reservations (reservations.c) ---- */

#define WEIR__RESERVATIONS_MAX     1000000
#define WEIR__RESERVATIONS_DEFAULT 8192 /* unless configured */
#define WEIR__RESERVATION_BYTES    (8 + WEIR__RESERVATION_TOKEN_MAX)
#define WEIR__RESERVATIONS_PAGE    4096 /* of the header, and what the states are a multiple of */

/* The size of a file for so many. */
static inline uint64_t weir__reservations_bytes(uint32_t count)
{
    uint64_t states = (count * sizeof(uint64_t) + WEIR__RESERVATIONS_PAGE - 1) / WEIR__RESERVATIONS_PAGE;
    return (1 + states) * WEIR__RESERVATIONS_PAGE + (uint64_t)count * WEIR__RESERVATION_BYTES;
}

struct weir__making;
struct weir__reservations;

/*
 * Opens, or makes, the file for `count` reservations. One that exists keeps its size, unless it is damaged or of
 * another version: then it is made anew. Of `where` path, mode and owner count, as for weir__mapped_open.
 */
WEIR_MUST_CHECK int weir__reservations_open(const struct weir__making *where, uint32_t count,
                                            struct weir__reservations **reservations);
/* NULL is allowed. */
void weir__reservations_close(struct weir__reservations *reservations);
uint32_t weir__reservations_count(const struct weir__reservations *reservations);

/* A slot for a token that will be due then; `first_slot` is any random number. -1: there is none. */
int64_t weir__reservations_claim(struct weir__reservations *reservations, uint64_t first_slot, int64_t due_us);
/* Puts the token into the slot that was claimed. */
void weir__reservations_publish(struct weir__reservations *reservations, uint32_t slot, int64_t due_us,
                                const uint8_t *token, size_t len);
/* Frees a slot, if it is still the one that is due then. */
void weir__reservations_release(struct weir__reservations *reservations, uint32_t slot, int64_t due_us);
/*
 * Looks for a token that is due, from slot *at on, which it moves on. The length of the token (and *due_us), or 0
 * when it has come to the end.
 */
size_t weir__reservations_next_due(struct weir__reservations *reservations, uint32_t *at, int64_t now_us,
                                   uint8_t token[WEIR__RESERVATION_TOKEN_MAX], int64_t *due_us);

#endif
