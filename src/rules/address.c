/* Addresses, sets of networks, and the client behind trusted proxies. See address.h. */
#include "rules/address.h"
#include "base/number.h"

#include <arpa/inet.h>
#include <stdlib.h>

bool weir__address_from(const uint8_t *bytes, size_t len, struct weir__address *address)
{
    if (len == 4) {
        *address = (struct weir__address){{[10] = 0xff, [11] = 0xff}};
        memcpy(address->bytes + 12, bytes, 4);
        return true;
    }
    if (len != 16)
        return false;
    memcpy(address->bytes, bytes, 16);
    return true;
}

/* How many characters at the beginning are an IPv4 address without leading zeros; 0: it does not begin with one. */
static size_t parse4(weir_text text, struct weir__address *address)
{
    uint8_t bytes[4];
    size_t count = 0, digits = 0;
    unsigned number = 0;

    for (size_t at = 0;; at++) {
        if (at < text.len && weir__is_digit(text.data[at])) {
            if (digits++ > 0 && number == 0)
                return 0;
            number = number * 10 + (unsigned)(text.data[at] - '0');
            if (number > 255)
                return 0;
            continue;
        }
        if (digits == 0)
            return 0;
        bytes[count++] = (uint8_t)number;
        if (count == 4)
            return weir__address_from(bytes, 4, address) ? at : 0;
        if (at == text.len || text.data[at] != '.')
            return 0;
        number = 0;
        digits = 0;
    }
}

static bool parse6(weir_text text, struct weir__address *address)
{
    char copy[INET6_ADDRSTRLEN];

    /* A zero byte would end the copy early, and the text after it would be ignored. */
    if (text.len == 0 || text.len >= sizeof copy || memchr(text.data, '\0', text.len))
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    return inet_pton(AF_INET6, copy, address->bytes) == 1;
}

/* IPv6, optionally with '%' and a zone, which is dropped: only the sender knows its zones. */
static bool parse6_zoned(weir_text text, struct weir__address *address)
{
    weir_text zone = text, bare = weir__text_cut(&zone, '%');

    if (bare.len < text.len && zone.len == 0)
        return false;
    for (size_t i = 0; i < zone.len; i++) {
        char c = zone.data[i];
        if (!weir__is_digit(c) && !weir__is_letter(c) && c != '.' && c != '_' && c != '-' && c != '~')
            return false;
    }
    return parse6(bare, address);
}

/* Nothing, or ':' and one to five digits. */
static bool is_port(weir_text text)
{
    if (text.len == 0)
        return true;
    if (text.data[0] != ':' || text.len < 2 || text.len > 6)
        return false;
    for (size_t i = 1; i < text.len; i++)
        if (!weir__is_digit(text.data[i]))
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

static size_t put_hex(char *to, unsigned value)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;

    for (int shift = 12; shift >= 0; shift -= 4)
        if (value >> shift || shift == 0)
            to[n++] = digits[value >> shift & 15];
    return n;
}

/* The decimal digits of each byte and a dot. A table, because most keys are addresses. */
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
        n = (size_t)(weir__write_digits(text + n, (uint64_t)(four ? group - 96 : group)) - text);
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
    weir_text prefix = text, address = weir__text_cut(&prefix, '/');
    bool four = address.len > 0 && parse4(address, &network->address) == address.len;
    int64_t longest = four ? 32 : 128, length = longest;

    if (!four && !parse6(address, &network->address))
        return false;
    if (address.len < text.len && (!weir__parse_int(prefix, &length) || prefix.data[0] == '-' || length > longest))
        return false;
    network->length = (uint8_t)(128 - longest + length);
    struct weir__address given = network->address;
    weir__address_mask(&network->address, network->length);
    *host_bits = memcmp(&given, &network->address, sizeof given) != 0;
    return true;
}

/* ---- Sets of networks ---- */

__extension__ typedef unsigned __int128 weir__address_number;

struct range {
    weir__address_number first, last; /* both inside */
};

struct weir__networks {
    size_t count;
    struct range *ranges;
    /* The beginnings of the ranges, apart from their ends: the search reads only these. */
    weir__address_number *firsts;
};

static weir__address_number number_of(const struct weir__address *address)
{
    uint64_t high, low;

    memcpy(&high, address->bytes, 8);
    memcpy(&low, address->bytes + 8, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    high = __builtin_bswap64(high);
    low = __builtin_bswap64(low);
#endif
    return (weir__address_number)high << 64 | low;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct range *one = a, *other = b;

    return one->first < other->first ? -1 : one->first > other->first;
}

/* Merges sorted ranges that overlap or touch; returns how many remain. */
static size_t merge_ranges(struct range *ranges, size_t count)
{
    size_t kept = 0;

    for (size_t i = 1; i < count; i++) {
        struct range *before = &ranges[kept];
        if (ranges[i].first <= before->last || ranges[i].first - before->last == 1) {
            if (ranges[i].last > before->last)
                before->last = ranges[i].last;
        } else {
            ranges[++kept] = ranges[i];
        }
    }
    return count > 0 ? kept + 1 : 0;
}

const struct weir__networks *weir__networks_make(struct weir__arena *arena, const struct weir__network *networks,
                                                 size_t count)
{
    struct weir__networks *set = weir__arena_take(arena, sizeof *set);
    if (!set)
        return NULL;
    if (count == 0)
        return set;
    set->ranges = weir__arena_array(arena, count, sizeof *set->ranges);
    if (!set->ranges)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        int rest = 128 - networks[i].length;
        weir__address_number span = rest == 128 ? ~(weir__address_number)0 : ((weir__address_number)1 << rest) - 1;
        set->ranges[i].first = number_of(&networks[i].address);
        set->ranges[i].last = set->ranges[i].first | span;
    }
    qsort(set->ranges, count, sizeof *set->ranges, compare_ranges);
    set->count = merge_ranges(set->ranges, count);
    set->firsts = weir__arena_array(arena, set->count, sizeof *set->firsts);
    if (!set->firsts)
        return NULL;
    for (size_t i = 0; i < set->count; i++)
        set->firsts[i] = set->ranges[i].first;
    return set;
}

/* The last range that begins at or before `number`; NULL: there is none. */
static inline const struct range *range_before(const struct weir__networks *networks, weir__address_number number)
{
    const weir__address_number *first = networks->firsts;
    size_t rest = networks->count;

    if (rest == 0 || number < first[0])
        return NULL;
    /* It is among `rest` from `first`; no branch to mispredict. */
    while (rest > 1) {
        size_t half = rest / 2;
        first = first[half] <= number ? first + half : first;
        rest -= half;
    }
    return &networks->ranges[first - networks->firsts];
}

bool weir__networks_contain(const struct weir__networks *networks, const struct weir__address *address)
{
    weir__address_number number = number_of(address);
    const struct range *range = range_before(networks, number);

    return range && number <= range->last;
}

bool weir__networks_within(const struct weir__networks *inner, const struct weir__networks *outer, uint64_t *lookups)
{
    for (size_t i = 0; i < inner->count; i++) {
        if (*lookups == 0)
            return false;
        --*lookups;
        const struct range *range = range_before(outer, inner->ranges[i].first);
        if (!range || range->last < inner->ranges[i].last) /* ranges that touch are one */
            return false;
    }
    return true;
}

/* ---- The client behind trusted proxies ---- */

/* The opening quote of the closing quote at `at`; 0, where a quote cannot be, if there is none. */
static size_t opening_quote(const char *data, size_t at)
{
    while (at > 0) {
        if (data[--at] != '"')
            continue;
        size_t slashes = 0;
        while (slashes < at && data[at - 1 - slashes] == '\\')
            slashes++;
        if (slashes % 2 == 0)
            return at;
        at -= slashes;
    }
    return 0;
}

/*
 * Removes the last element of a list in which quotes protect commas. False: an unmatched quote. In X-Forwarded-For no
 * element with a quote is an address.
 */
static bool cut_element(weir_text *list, weir_text *element)
{
    const char *data = list->data;
    size_t at = list->len;

    while (at > 0 && data[at - 1] != ',') {
        at--;
        if (data[at] == '"' && (at = opening_quote(data, at)) == 0)
            return false;
    }
    *element = weir__text_trim((weir_text){data + at, list->len - at});
    list->len = at > 0 ? at - 1 : 0;
    return true;
}

/* Longer ones are no address: brackets, a zone and a port are all in it. */
#define NODE_MAX 96

/* Unescapes a quoted string. False: it is too long, or its closing quote is not at the end. */
static bool unquote(weir_text text, char node[NODE_MAX], weir_text *value)
{
    size_t len = 0, i = 1;

    for (; i < text.len && text.data[i] != '"'; i++) {
        if (text.data[i] == '\\' && ++i == text.len)
            return false;
        if (len == NODE_MAX)
            return false;
        node[len++] = text.data[i];
    }
    *value = (weir_text){node, len};
    return i + 1 == text.len;
}

/* Removes an obfuscated port, which begins with '_' (RFC 7239); the address before it is valid. */
static weir_text without_hidden_port(weir_text node)
{
    for (size_t i = 1; i + 1 < node.len; i++)
        if (node.data[i] == ':' && node.data[i + 1] == '_')
            return (weir_text){node.data, i};
    return node;
}

/* Where the pair that begins at `at` ends: at a semicolon outside of quotes. */
static size_t pair_end(weir_text element, size_t at)
{
    bool quoted = false;

    for (; at < element.len && (quoted || element.data[at] != ';'); at++) {
        if (element.data[at] == '"')
            quoted = !quoted;
        else if (quoted && element.data[at] == '\\' && at + 1 < element.len)
            at++;
    }
    return at;
}

/* The address of an element's "for". False if there is none, or two, or it is obfuscated. */
static bool element_address(weir_text element, struct weir__address *address)
{
    char buffer[NODE_MAX];
    bool found = false;

    for (size_t at = 0; at < element.len;) {
        size_t end = pair_end(element, at);
        weir_text pair = weir__text_trim((weir_text){element.data + at, end - at});
        at = end + 1;
        if (pair.len < 4 || !weir__text_equal_nocase((weir_text){pair.data, 4}, WEIR__TEXT("for=")))
            continue;
        weir_text node = {pair.data + 4, pair.len - 4};
        if (found || (node.len > 0 && node.data[0] == '"' && !unquote(node, buffer, &node)) ||
            !weir__address_parse(without_hidden_port(node), address))
            return false;
        found = true;
    }
    return found;
}

void weir__client_address(const struct weir__address *peer, const struct weir__networks *trusted,
                          weir_text x_forwarded_for, weir_text forwarded, struct weir__address *client)
{
    bool standard = x_forwarded_for.len == 0;
    weir_text list = standard ? forwarded : x_forwarded_for;
    struct weir__address hop;

    *client = *peer;
    for (int i = 0; i < WEIR__HOPS_MAX && list.len > 0; i++) {
        weir_text element;
        if (!cut_element(&list, &element))
            return;
        if (element.len == 0)
            continue;
        if (!(standard ? element_address(element, &hop) : weir__address_parse(element, &hop)))
            return;
        *client = hop;
        if (!weir__networks_contain(trusted, &hop))
            return;
    }
}
