/* The walk back through trusted proxies, from the right of X-Forwarded-For or Forwarded (RFC 7239). */
#include "rules/address.h"

/* Cuts the last element off a list: what is behind the last comma. */
static weir_text cut_hop(weir_text *list)
{
    size_t at = list->len;

    while (at > 0 && list->data[at - 1] != ',')
        at--;
    weir_text hop = {list->data + at, list->len - at};
    list->len = at > 0 ? at - 1 : 0;
    return weir__text_trim(hop);
}

/* From a closing quote at `at` back to the one that opens it; 0 (where none can be) if there is none. */
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

/* The same where commas in quotes do not count. False: a quote that nothing opens. */
static bool cut_element(weir_text *list, weir_text *element)
{
    size_t at = list->len;

    while (at > 0 && list->data[at - 1] != ',') {
        at--;
        if (list->data[at] == '"' && (at = opening_quote(list->data, at)) == 0)
            return false;
    }
    *element = weir__text_trim((weir_text){list->data + at, list->len - at});
    list->len = at > 0 ? at - 1 : 0;
    return true;
}

/* Longer ones are no address: brackets, a zone and a port are all in it. */
#define NODE_MAX 96

/* Takes the escapes out of what stands in quotes. False: it is too long or not closed just at its end. */
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

/* A node's port may be a made-up name that begins with '_'; the address before it is as good as any. */
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

/* The address of an element's "for". False if there is none, or two, or it is hidden. */
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
        if (!standard)
            element = cut_hop(&list);
        else if (!cut_element(&list, &element))
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
