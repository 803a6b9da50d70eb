/*
 * Addresses, networks and forwarding headers: any bytes are refused or parsed as inet_pton parses them; printing and
 * parsing again yields the same; the walk through the hops ends at the peer or at a hop.
 */
#include "rules/address.h"

#include <arpa/inet.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_address(weir_text text)
{
    struct weir__address address, again, known;
    char shown[WEIR__ADDRESS_TEXT], copy[64];
    uint8_t four[4];
    bool good = weir__address_parse(text, &address);

    if (text.len < sizeof copy && !(text.len > 0 && memchr(text.data, '\0', text.len))) {
        memcpy(copy, text.len > 0 ? text.data : "", text.len);
        copy[text.len] = '\0';
        if (inet_pton(AF_INET6, copy, known.bytes) == 1)
            check(good && memcmp(&address, &known, sizeof known) == 0);
        else if (inet_pton(AF_INET, copy, four) == 1)
            check(good && weir__address_is4(&address) && memcmp(address.bytes + 12, four, 4) == 0);
    }
    if (!good)
        return;
    size_t len = weir__address_text(&address, 128, shown);
    check(len < WEIR__ADDRESS_TEXT && weir__address_parse((weir_text){shown, len}, &again));
    check(memcmp(&address, &again, sizeof again) == 0);
}

static void check_network(weir_text text)
{
    struct weir__network network, again;
    bool host_bits;
    char shown[WEIR__ADDRESS_TEXT];

    if (!weir__network_parse(text, &network, &host_bits))
        return;
    check(network.length <= 128);
    /* An IPv6 network that just begins like the mapped ones is not one of IPv4, nor shown as one. */
    check(!weir__address_is4(&network.address) || network.length >= 96);
    size_t len = weir__address_text(&network.address, network.length, shown);
    check(len < WEIR__ADDRESS_TEXT && weir__network_parse((weir_text){shown, len}, &again, &host_bits));
    check(!host_bits && memcmp(&network, &again, sizeof again) == 0);
}

static void check_walk(weir_text header)
{
    static struct weir__arena arena;
    static const struct weir__networks *trusted;
    static const uint8_t peer_bytes[4] = {10, 0, 0, 1};
    struct weir__address peer, usual, standard;

    if (!trusted) {
        struct weir__network ours[2];
        bool host_bits;
        check(weir__network_parse(WEIR__TEXT("10.0.0.0/8"), &ours[0], &host_bits));
        check(weir__network_parse(WEIR__TEXT("2001:db8::/32"), &ours[1], &host_bits));
        arena.bytes_max = 4096 * 4;
        check((trusted = weir__networks_make(&arena, ours, 2)) != NULL);
    }
    check(weir__address_from(peer_bytes, sizeof peer_bytes, &peer));
    weir__client_address(&peer, trusted, header, (weir_text){"", 0}, &usual);
    weir__client_address(&peer, trusted, (weir_text){"", 0}, header, &standard);

    /* A hop that a trusted proxy adds behind whatever a client wrote is always the one that counts. */
    static const char hop[] = ", 192.0.2.7", element[] = ", for=\"192.0.2.7:80\";x=\"a,\\\"\"";
    char *longer = malloc(header.len + sizeof element);
    check(longer != NULL);
    memcpy(longer, header.len > 0 ? header.data : "", header.len);
    memcpy(longer + header.len, hop, sizeof hop);
    weir__client_address(&peer, trusted, (weir_text){longer, header.len + sizeof hop - 1}, (weir_text){"", 0}, &usual);
    memcpy(longer + header.len, element, sizeof element);
    weir__client_address(&peer, trusted, (weir_text){"", 0}, (weir_text){longer, header.len + sizeof element - 1},
                         &standard);
    static const uint8_t expected[4] = {192, 0, 2, 7};
    check(weir__address_is4(&usual) && memcmp(usual.bytes + 12, expected, 4) == 0);
    check(weir__address_is4(&standard) && memcmp(standard.bytes + 12, expected, 4) == 0);
    free(longer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_text text = {(const char *)data, size};

    check_address(text);
    check_network(text);
    check_walk(text);
    return 0;
}
