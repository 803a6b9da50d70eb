/* Addresses and networks from text and back. */
#include "rules/address.h"

#include <arpa/inet.h>

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool weir__address_from(const uint8_t *bytes, size_t len, struct weir__address *address)
{
    if (len == 4) {
        memcpy(address->bytes, mapped_prefix, sizeof mapped_prefix);
        memcpy(address->bytes + sizeof mapped_prefix, bytes, 4);
        return true;
    }
    if (len != 16)
        return false;
    memcpy(address->bytes, bytes, 16);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number of up to `digits` digits without leading zeros. Returns how many there were; 0: none, or too many. */
static size_t parse_number(weir_text text, size_t digits, unsigned *number)
{
    size_t n = 0;
    unsigned value = 0;

    while (n < text.len && is_digit(text.data[n])) {
        if (n == digits || (n == 1 && value == 0))
            return 0;
        value = value * 10 + (unsigned)(text.data[n++] - '0');
    }
    *number = value;
    return n;
}

/* How many characters at the beginning are an IPv4 address; 0: it does not begin with one. */
static size_t parse4(weir_text text, struct weir__address *address)
{
    uint8_t bytes[4];
    size_t at = 0;

    for (int i = 0; i < 4; i++) {
        unsigned number = 0;
        if (i > 0 && (at == text.len || text.data[at++] != '.'))
            return 0;
        size_t digits = parse_number((weir_text){text.data + at, text.len - at}, 3, &number);
        if (digits == 0 || number > 255)
            return 0;
        bytes[i] = (uint8_t)number;
        at += digits;
    }
    return weir__address_from(bytes, sizeof bytes, address) ? at : 0;
}

static bool parse6(weir_text text, struct weir__address *address)
{
    char copy[INET6_ADDRSTRLEN];

    /* A zero byte inside would end the copy early, and what follows it would be let through. */
    if (text.len == 0 || text.len >= sizeof copy || memchr(text.data, '\0', text.len))
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    return inet_pton(AF_INET6, copy, address->bytes) == 1;
}

/* IPv6 that may be followed by '%' and the name of a zone, which is dropped: it means something to the sender only. */
static bool parse6_zoned(weir_text text, struct weir__address *address)
{
    const char *zone = memchr(text.data, '%', text.len);

    if (zone) {
        size_t before = (size_t)(zone - text.data);
        if (before + 1 == text.len)
            return false;
        for (size_t i = before + 1; i < text.len; i++) {
            char c = (char)weir__lower(text.data[i]);
            if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '.' && c != '_' && c != '-' && c != '~')
                return false;
        }
        text.len = before;
    }
    return parse6(text, address);
}

/* Nothing, or ':' and one to five digits. */
static bool is_port(weir_text text)
{
    if (text.len == 0)
        return true;
    if (text.data[0] != ':' || text.len < 2 || text.len > 6)
        return false;
    for (size_t i = 1; i < text.len; i++)
        if (!is_digit(text.data[i]))
            return false;
    return true;
}

bool weir__address_parse(weir_text text, struct weir__address *address)
{
    text = weir__text_trim(text);
    if (text.len == 0)
        return false;
    if (text.data[0] == '[') {
        const char *close = memchr(text.data, ']', text.len);
        if (!close)
            return false;
        size_t inside = (size_t)(close - text.data) - 1;
        return is_port((weir_text){close + 1, text.len - inside - 2}) &&
               parse6_zoned((weir_text){text.data + 1, inside}, address);
    }
    size_t four = parse4(text, address);
    if (four > 0)
        return is_port((weir_text){text.data + four, text.len - four});
    return parse6_zoned(text, address);
}

/* ---- To text ---- */

static size_t put_decimal(char *to, unsigned value)
{
    size_t n = 0;

    if (value >= 100)
        to[n++] = (char)('0' + value / 100);
    if (value >= 10)
        to[n++] = (char)('0' + value / 10 % 10);
    to[n++] = (char)('0' + value % 10);
    return n;
}

static size_t put_hex(char *to, unsigned value)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;

    for (int shift = 12; shift >= 0; shift -= 4)
        if (value >> shift || shift == 0)
            to[n++] = digits[value >> shift & 15];
    return n;
}

/* Every byte as it stands in an address, with the dot behind it: most keys are addresses. */
#define DIGIT(n) (char)('0' + (n) % 10)
#define DOTTED_1(n)                                                                                                    \
    {                                                                                                                  \
        (n) >= 100  ? DIGIT((n) / 100)                                                                                 \
        : (n) >= 10 ? DIGIT((n) / 10)                                                                                  \
                    : DIGIT(n),                                                                                        \
            (n) >= 100  ? DIGIT((n) / 10)                                                                              \
            : (n) >= 10 ? DIGIT(n)                                                                                     \
                        : '.',                                                                                         \
            (n) >= 100 ? DIGIT(n) : '.', '.'                                                                           \
    }
#define DOTTED_4(n)  DOTTED_1(n), DOTTED_1((n) + 1), DOTTED_1((n) + 2), DOTTED_1((n) + 3)
#define DOTTED_16(n) DOTTED_4(n), DOTTED_4((n) + 4), DOTTED_4((n) + 8), DOTTED_4((n) + 12)
#define DOTTED_64(n) DOTTED_16(n), DOTTED_16((n) + 16), DOTTED_16((n) + 32), DOTTED_16((n) + 48)

static const char dotted[256][4] = {DOTTED_64(0), DOTTED_64(64), DOTTED_64(128), DOTTED_64(192)};

__attribute__((hot)) size_t weir__address_dotted(const uint8_t bytes[4], char to[WEIR__ADDRESS4_ROOM])
{
    size_t n = 0;

    for (int i = 0; i < 4; i++) {
        memcpy(to + n, dotted[bytes[i]], 4);
        n += 2 + (size_t)(bytes[i] >= 10) + (size_t)(bytes[i] >= 100);
    }
    return n - 1; /* without the last dot */
}

/* RFC 5952: the first of the longest runs of at least two zero groups becomes "::". */
static size_t text6(const uint8_t *bytes, char *to)
{
    unsigned group[8];
    int best = 0, best_len = 1, run = 0;
    size_t n = 0;

    for (int i = 0; i < 8; i++) {
        group[i] = (unsigned)bytes[2 * i] << 8 | bytes[2 * i + 1];
        run = group[i] ? 0 : run + 1;
        if (run > best_len) {
            best_len = run;
            best = i + 1 - run;
        }
    }
    for (int i = 0; i < 8; i++) {
        if (best_len > 1 && i == best) {
            to[n++] = ':';
            if (i + best_len == 8)
                to[n++] = ':';
            i += best_len - 1;
            continue;
        }
        if (i > 0)
            to[n++] = ':';
        n += put_hex(to + n, group[i]);
    }
    return n;
}

size_t weir__address_text(const struct weir__address *address, int group, char text[WEIR__ADDRESS_TEXT])
{
    bool four = weir__address_is4(address);
    size_t n = four ? weir__address_dotted(address->bytes + 12, text) : text6(address->bytes, text);

    if (group < 128) {
        text[n++] = '/';
        n += put_decimal(text + n, (unsigned)(four ? group - 96 : group));
    }
    return n;
}

/* ---- Networks ---- */

void weir__address_mask(struct weir__address *address, int length)
{
    for (int i = length / 8; i < 16; i++) {
        int kept = length - 8 * i;
        address->bytes[i] &= (uint8_t)(kept > 0 ? 0xff00 >> kept : 0);
    }
}

bool weir__network_parse(weir_text text, struct weir__network *network, bool *host_bits)
{
    text = weir__text_trim(text);
    const char *slash = text.len > 0 ? memchr(text.data, '/', text.len) : NULL;
    weir_text address = {text.data, slash ? (size_t)(slash - text.data) : text.len};
    unsigned length, longest = 32;

    size_t four = parse4(address, &network->address);
    if (four == 0 || four != address.len) {
        if (!parse6(address, &network->address))
            return false;
        longest = 128;
    }
    length = longest;
    if (slash) {
        weir_text rest = {slash + 1, text.len - address.len - 1};
        if (rest.len == 0 || parse_number(rest, 3, &length) != rest.len || length > longest)
            return false;
    }
    network->length = (uint8_t)(128 - longest + length);
    struct weir__address given = network->address;
    weir__address_mask(&network->address, network->length);
    *host_bits = memcmp(&given, &network->address, sizeof given) != 0;
    return true;
}
