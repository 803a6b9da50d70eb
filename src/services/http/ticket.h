/*
 * A ticket: what a reservation took, from whom and when, as bytes that prove that we made them. Whoever has the segment
 * can settle it; nobody has to remember it.
 */
#ifndef WEIR_SERVICES_HTTP_TICKET_H
#define WEIR_SERVICES_HTTP_TICKET_H

#include <weir/weir.h>

#define WEIR__TICKET_MAX      1016 /* bytes; one slot of the reservations */
#define WEIR__TICKET_TEXT_MAX ((WEIR__TICKET_MAX + 2) / 3 * 4)
#define WEIR__TICKET_PARTS    32
#define WEIR__NONCE_BYTES     16

/* What was taken from one counter: a rule's, or one of a limit that was given directly. */
struct weir__ticket_part {
    int64_t cost;
    bool direct;
    /* The texts are in the ticket, or the caller's; a rule's name has no zero byte there. */
    weir_text rule, key;
    bool shadow;
    int64_t quota, window_ns;
    weir_params params; /* direct: algorithm, limit, window and burst */
};

struct weir__ticket {
    weir_time taken; /* when */
    int64_t due_ns;  /* when it expires, on the monotonic clock */
    uint8_t nonce[WEIR__NONCE_BYTES];
    uint32_t slot; /* in the reservations */
    size_t count;
    struct weir__ticket_part parts[WEIR__TICKET_PARTS];
};

/* Its length, or 0 if it does not fit. */
size_t weir__ticket_pack(const struct weir__ticket *ticket, const uint8_t key[WEIR_SECRET_BYTES],
                         uint8_t bytes[WEIR__TICKET_MAX]);
/* False if it is not one of ours. The parts point into `bytes`. */
bool weir__ticket_unpack(const uint8_t *bytes, size_t len, const uint8_t key[WEIR_SECRET_BYTES],
                         struct weir__ticket *ticket);

/* As text (base64url) and back; the length of the result, or 0. `to` needs WEIR__TICKET_TEXT_MAX + 1 bytes. */
size_t weir__ticket_to_text(const uint8_t *bytes, size_t len, char *to);
size_t weir__ticket_from_text(weir_text text, uint8_t bytes[WEIR__TICKET_MAX]);

#endif
