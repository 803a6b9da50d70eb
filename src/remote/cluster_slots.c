/* Slots of a cluster: the slot of a key, parsing of CLUSTER SLOTS, MOVED and ASK. */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

/* CRC-16/XMODEM, polynomial 0x1021, four bits at a time. */
static uint16_t crc16(const char *data, size_t len)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
                                       0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned byte = (unsigned char)data[i];
        crc = (crc << 4 & 0xffff) ^ table[(crc >> 12) ^ (byte >> 4)];
        crc = (crc << 4 & 0xffff) ^ table[(crc >> 12) ^ (byte & 15)];
    }
    return (uint16_t)crc;
}

unsigned weir__slot(const char *name, size_t len)
{
    const char *open = memchr(name, '{', len);

    if (open) {
        const char *tag = open + 1, *close = memchr(tag, '}', len - (size_t)(tag - name));
        if (close && close > tag)
            return crc16(tag, (size_t)(close - tag)) % WEIR__CLUSTER_SLOTS;
    }
    return crc16(name, len) % WEIR__CLUSTER_SLOTS;
}

static bool same_host(const struct weir__store_host *a, const struct weir__store_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

static bool read_host(const redisReply *node, const char *queried, struct weir__store_host *host)
{
    if (node->type != REDIS_REPLY_ARRAY || node->elements < 2)
        return false;
    const redisReply *name = node->element[0], *port = node->element[1];
    if (port->type != REDIS_REPLY_INTEGER || port->integer < 1 || port->integer > 65535)
        return false;
    host->port = (uint16_t)port->integer;
    /* Nil and "" stand for the host that was queried; "?" is unknown. */
    if (name->type == REDIS_REPLY_NIL || (name->type == REDIS_REPLY_STRING && name->len == 0)) {
        memcpy(host->name, queried, strlen(queried) + 1);
        return true;
    }
    if (name->type != REDIS_REPLY_STRING || (size_t)name->len >= sizeof(host->name) ||
        memchr(name->str, '\0', (size_t)name->len) || strcmp(name->str, "?") == 0)
        return false;
    memcpy(host->name, name->str, (size_t)name->len + 1);
    return true;
}

static bool read_range(const redisReply *range, const char *queried, struct weir__slot_map *map)
{
    struct weir__store_host host = {0};

    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 || range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    long long first = range->element[0]->integer, last = range->element[1]->integer;
    if (first < 0 || last < first || last >= WEIR__CLUSTER_SLOTS || !read_host(range->element[2], queried, &host))
        return false;
    size_t node = 0;
    while (node < map->count && !same_host(&map->nodes[node], &host))
        node++;
    if (node == WEIR__SLOT_NODES)
        return false;
    if (node == map->count)
        map->nodes[map->count++] = host;
    memset(map->owner + first, (int)node, (size_t)(last - first + 1));
    return true;
}

bool weir__slots_read(const struct redisReply *reply, const char *queried, struct weir__slot_map *map)
{
    map->count = 0;
    memset(map->owner, WEIR__SLOT_NOBODY, sizeof(map->owner));
    if (reply->type != REDIS_REPLY_ARRAY || strlen(queried) >= sizeof(map->nodes[0].name))
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (!read_range(reply->element[i], queried, map))
            return false;
    return map->count > 0;
}

bool weir__slots_redirect(const char *text, const char *queried, unsigned *slot, struct weir__store_host *to)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (end == text || *end != ' ' || number >= WEIR__CLUSTER_SLOTS)
        return false;
    const char *host = end + 1, *colon = strrchr(host, ':');
    if (!colon)
        return false;
    size_t len = (size_t)(colon - host);
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0' || port < 1 || port > 65535)
        return false;
    if (len == 0) {
        host = queried;
        len = strlen(queried);
    }
    if (len >= sizeof(to->name) || memchr(host, ' ', len))
        return false;
    memcpy(to->name, host, len);
    to->name[len] = '\0';
    to->port = (uint16_t)port;
    *slot = (unsigned)number;
    return true;
}
