/*
 * Who the client is: addresses, networks, and the walk back through trusted proxies.
 *
 * Addresses are 16 bytes; IPv4 is kept in its mapped form (::ffff:a.b.c.d), so that there is one kind. Prefix lengths
 * of IPv4 networks are kept as 96 + length.
 */
#ifndef WEIR_RULES_ADDRESS_H
#define WEIR_RULES_ADDRESS_H

#include "base/arena.h"

struct weir__address {
    uint8_t bytes[16];
};

static inline bool weir__address_is4(const struct weir__address *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(a->bytes, mapped, sizeof mapped) == 0;
}

/* From 4 or 16 bytes in network order. False for any other length. */
bool weir__address_from(const uint8_t *bytes, size_t len, struct weir__address *address);
/*
 * From text as it stands in a header or a socket's name: IPv4, IPv6 (with or without brackets, a port after them, a
 * zone), IPv4 with a port. Strict: no leading zeros, no spaces inside; blanks around it are skipped.
 */
bool weir__address_parse(weir_text text, struct weir__address *address);
/*
 * Dotted or RFC 5952 text. `group` is the length it was masked to (IPv4: 96 + length): if that is less than 128,
 * "/length" comes behind it, for IPv4 as everybody writes it. Returns the text's length (at most 49); no terminator.
 */
#define WEIR__ADDRESS_TEXT 50
size_t weir__address_text(const struct weir__address *address, int group, char text[WEIR__ADDRESS_TEXT]);
/* Four bytes as dotted text. Writes WEIR__ADDRESS4_ROOM bytes, of which so many count as it returns. */
#define WEIR__ADDRESS4_ROOM 16
size_t weir__address_dotted(const uint8_t bytes[4], char text[WEIR__ADDRESS4_ROOM]);
/* All bits after the first `length` are cleared. */
void weir__address_mask(struct weir__address *address, int length);

struct weir__network {
    struct weir__address address; /* masked */
    uint8_t length;               /* 0 to 128 */
};

/*
 * "10.0.0.0/8", "2001:db8::/32", or a bare address. *host_bits: there were bits after the prefix (they are cleared).
 * One kind of address means: "::ffff:10.0.0.0/104" is 10.0.0.0/8, 0.0.0.0/0 (96 bits) is all of IPv4, and ::/0 (none)
 * is everything, IPv4 too.
 */
bool weir__network_parse(weir_text text, struct weir__network *network, bool *host_bits);

/* Any number of networks, also overlapping ones, made ready for looking up: thousands are about as fast as one. */
struct weir__networks;
/* NULL when the arena has no memory. An empty set contains nothing. */
const struct weir__networks *weir__networks_make(struct weir__arena *arena, const struct weir__network *networks,
                                                 size_t count);
bool weir__networks_contain(const struct weir__networks *networks, const struct weir__address *address);

/*
 * The client's address if `peer` is a trusted proxy (if it is not, it is the client, and its headers do not count): the
 * first hop from the right of X-Forwarded-For or Forwarded that is not trusted; at what does not parse it stops at the
 * last hop that did, and after WEIR__HOPS_MAX hops where it is. Either header may be empty; if both are there,
 * X-Forwarded-For speaks: nearly all proxies write that one and hand on a Forwarded of the client's as it is. Headers
 * are read from the right, so that what a client wrote before the proxies' hops cannot change how those are understood.
 */
#define WEIR__HOPS_MAX 64
void weir__client_address(const struct weir__address *peer, const struct weir__networks *trusted,
                          weir_text x_forwarded_for, weir_text forwarded, struct weir__address *client);

#endif
