/*
 * Reservations that wait to be settled: a file of fixed size beside the segment, mapped by every worker, so that one
 * that nobody settles expires by itself, even when the worker that made it is gone. A slot is a word of state and a
 * ticket; who finds one that is due settles it, and the ticket's own marker in the segment sees to it that only one
 * does.
 *
 * The word: 0 is free; else the moment it is due, in microseconds, times four, plus 1 while the ticket is being written
 * or 2 when it is there. Nothing is ever waited for: a slot whose writer died is free again when it is due, and a torn
 * ticket fails its authentication.
 */
#ifndef WEIR_SERVICES_HTTP_RESERVATIONS_H
#define WEIR_SERVICES_HTTP_RESERVATIONS_H

#include "services/http/ticket.h"

#define WEIR__RESERVATIONS_MAX   1000000
#define WEIR__RESERVATIONS_USUAL 8192 /* unless configured */
#define WEIR__RESERVATION_BYTES  (8 + WEIR__TICKET_MAX)
#define WEIR__RESERVATIONS_PAGE  4096 /* of the header, and what the states are a multiple of */

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

/* A slot for a ticket that will be due then; `spread` is any random number. -1: there is none. */
int64_t weir__reservations_claim(struct weir__reservations *reservations, uint64_t spread, int64_t due_us);
/* Puts the ticket into the slot that was claimed. */
void weir__reservations_publish(struct weir__reservations *reservations, uint32_t slot, int64_t due_us,
                                const uint8_t *ticket, size_t len);
/* Frees a slot, if it is still the one that is due then. */
void weir__reservations_release(struct weir__reservations *reservations, uint32_t slot, int64_t due_us);
/*
 * Looks for a ticket that is due, from slot *at on, which it moves on. The length of the ticket (and *due_us), or 0
 * when it has come to the end.
 */
size_t weir__reservations_next_due(struct weir__reservations *reservations, uint32_t *at, int64_t now_us,
                                   uint8_t ticket[WEIR__TICKET_MAX], int64_t *due_us);

#endif
