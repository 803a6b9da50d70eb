/*
 * Client addresses: parsing, networks, and finding the client behind trusted proxies.
 *
 * Addresses have 16 bytes; IPv4 is kept in its mapped form (::ffff:a.b.c.d). Prefix lengths of IPv4 networks are kept
 * as 96 + length.
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
 * Parses IPv4 or IPv6 text of a header or socket name, with optional brackets, port and zone. Strict: no leading zeros
 * and no spaces inside; blanks around it are skipped.
 */
bool weir__address_parse(weir_text text, struct weir__address *address);
/*
 * Formats dotted or RFC 5952 text, with "/length" if `group`, the prefix it was masked to (IPv4: 96 + length), is less
 * than 128. Returns the length, at most 49; not terminated.
 */
#define WEIR__ADDRESS_TEXT 50
size_t weir__address_text(const struct weir__address *address, int group, char text[WEIR__ADDRESS_TEXT]);
/* Formats dotted text. Writes WEIR__ADDRESS4_ROOM bytes and returns how many of them count. */
#define WEIR__ADDRESS4_ROOM 16
size_t weir__address_dotted(const uint8_t bytes[4], char text[WEIR__ADDRESS4_ROOM]);
/* Clears all bits after the first `length`. */
void weir__address_mask(struct weir__address *address, int length);

struct weir__network {
    struct weir__address address; /* masked */
    uint8_t length;               /* 0 to 128 */
};

/*
 * Parses "10.0.0.0/8", "2001:db8::/32" or a bare address. *host_bits: bits after the prefix were set, and are cleared.
 * As IPv4 is mapped, "::ffff:10.0.0.0/104" equals 10.0.0.0/8, 0.0.0.0/0 is all of IPv4, and ::/0 is everything, IPv4
 * included.
 */
bool weir__network_parse(weir_text text, struct weir__network *network, bool *host_bits);

/* A set of networks, which may overlap, as sorted ranges: a lookup is a binary search. */
struct weir__networks;
/* NULL: no memory. An empty set contains nothing. */
const struct weir__networks *weir__networks_make(struct weir__arena *arena, const struct weir__network *networks,
                                                 size_t count);
bool weir__networks_contain(const struct weir__networks *networks, const struct weir__address *address);
/*
 * True if every address of `inner` is in `outer`. A lookup for each range of `inner`; false after *lookups, which are
 * counted down.
 */
bool weir__networks_within(const struct weir__networks *inner, const struct weir__networks *outer, uint64_t *lookups);

/*
 * The client's address behind `peer`. If `peer` is not trusted, it is the client and its headers are ignored. Otherwise
 * the first untrusted hop from the right of X-Forwarded-For, or of Forwarded if that is missing. The walk stops at a
 * hop that does not parse and after WEIR__HOPS_MAX hops, at the last good one. Reading from the right keeps a client
 * from influencing how the proxies' hops are parsed. X-Forwarded-For wins if both exist: nearly all proxies write it
 * and pass a client's Forwarded through.
 */
#define WEIR__HOPS_MAX 64
void weir__client_address(const struct weir__address *peer, const struct weir__networks *trusted,
                          weir_text x_forwarded_for, weir_text forwarded, struct weir__address *client);

#endif
