/* Parses what nginx sends about a deferred request, and selects the headers that are stored. */
#include "queue/ingest_internal.h"
#include "base/number.h"
#include "rules/yaml.h"
#include "rules/key.h"

#include <stdlib.h>

#define METHOD_MAX 32
#define TIER_NAME  "X-Weir-Tier"
#define OTHER_NAME "X-Weir-Others"

const char *const weir__ingest_field_names[WEIR__INGEST_COUNT] = {
#define WEIR__INGEST_NAME(name, text) text,
    WEIR__INGEST_FIELDS(WEIR__INGEST_NAME)
#undef WEIR__INGEST_NAME
};

/* ---- Header selection ---- */

/* `pattern` is lower case and may end in '*'. */
static bool is_like(weir_text name, const char *pattern)
{
    size_t len = strlen(pattern);
    bool begins = len > 0 && pattern[len - 1] == '*';
    len -= begins;
    if (begins ? name.len < len : name.len != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (weir__lower(name.data[i]) != (unsigned char)pattern[i])
            return false;
    return true;
}

static bool is_any(weir_text name, const char *const *patterns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_like(name, patterns[i]))
            return true;
    return false;
}

bool weir__is_hop_header(weir_text name)
{
    static const char *const never[] = {"connection",     "keep-alive", "proxy-*",          "te",
                                        "trailer",        "upgrade",    "http2-*",          "expect",
                                        "content-length", "x-weir-*",   "transfer-encoding"};
    return is_any(name, never, sizeof never / sizeof *never);
}

bool weir__ingest_keeps_header(const struct weir__queue_config *queue, weir_text connection, bool as_sent,
                               weir_text name)
{
    /* About the body and content negotiation: they do not identify the client. */
    static const char *const plain[] = {"accept", "accept-language", "content-*", "user-agent"};
    /* Destination and origin as the gateway sets them, and the idempotency key. */
    static const char *const always[] = {"host",      "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
                                         "x-real-ip", "idempotency-key"};
    if (weir__is_hop_header(name))
        return false;
    if (is_any(name, always, sizeof always / sizeof *always))
        return true;
    return is_any(name, queue->headers, queue->header_count) && !weir__text_listed(connection, name) &&
           (as_sent || is_any(name, plain, sizeof plain / sizeof *plain));
}

/* ---- Parsing ---- */

/* Decodes at most `max` bytes from hexadecimal and terminates them. False: malformed or too long. */
static bool from_hex(weir_text hex, size_t max, char **at, weir_text *to)
{
    if (!hex.len || hex.len % 2 || hex.len / 2 > max)
        return false;
    *to = (weir_text){*at, hex.len / 2};
    for (size_t i = 0; i < hex.len; i += 2) {
        int high = weir__hex_value(hex.data[i]), low = weir__hex_value(hex.data[i + 1]);
        if (high < 0 || low < 0)
            return false;
        *(*at)++ = (char)(high << 4 | low);
    }
    *(*at)++ = 0;
    return true;
}

static bool is_method(weir_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((text.data[i] < 'A' || text.data[i] > 'Z') && text.data[i] != '-' && text.data[i] != '_')
            return false;
    return text.len > 0 && text.len <= METHOD_MAX;
}

static bool is_target(weir_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] <= 0x20 || text.data[i] == 0x7f)
            return false;
    return text.len > 0 && text.data[0] == '/';
}

/* "max,max_bytes,max_age_ms" */
static bool read_bounds(weir_text text, struct weir__queue_bounds *bounds)
{
    return weir__parse_int(weir__text_cut(&text, ','), &bounds->max) && bounds->max >= 0 &&
           weir__parse_int(weir__text_cut(&text, ','), &bounds->max_bytes) && bounds->max_bytes >= 0 &&
           weir__parse_int(text, &bounds->max_age_ms) && bounds->max_age_ms >= 0;
}

static void put_line(weir_text name, weir_text value, char **at)
{
    *at = (char *)memcpy(*at, name.data, name.len) + name.len;
    *at = (char *)memcpy(*at, ": ", 2) + 2;
    if (value.len)
        memcpy(*at, value.data, value.len);
    *at = (char *)memcpy(*at + value.len, "\r\n", 2) + 2;
}

/* X-Weir-Key: KEY[;headers][;OTHERS]. "headers": the headers are those that the gateway would send upstream. */
struct key_line {
    weir_text key, others;
    bool as_sent;
};

/* False: malformed. Whether the other rules exist is checked at delivery. */
static bool read_key_line(weir_text fields, struct key_line *line)
{
    weir_text rest = fields;
    *line = (struct key_line){.key = weir__text_cut(&rest, ';')};
    line->others = rest;
    if (weir__text_is(weir__text_cut(&rest, ';'), "headers")) {
        line->as_sent = true;
        line->others = rest;
    }
    for (size_t i = 0; i < line->others.len; i++)
        if (weir__hex_value(line->others.data[i]) < 0 && line->others.data[i] != '.' && line->others.data[i] != ';')
            return false;
    return line->others.len <= WEIR_OTHERS_BYTES;
}

static weir_text put_headers(const struct weir__queue_config *queue, const weir_text fields[WEIR__INGEST_COUNT],
                             const struct key_line *line, const struct weir__header_line *lines, size_t count,
                             char **at)
{
    char *begin = *at;
    if (fields[WEIR__INGEST_TIER].len)
        put_line(WEIR__TEXT(TIER_NAME), fields[WEIR__INGEST_TIER], at);
    if (line->others.len)
        put_line(WEIR__TEXT(OTHER_NAME), line->others, at);
    for (size_t i = 0; i < count; i++)
        if (weir__ingest_keeps_header(queue, fields[WEIR__INGEST_CONNECTION], line->as_sent, lines[i].name))
            put_line(lines[i].name, lines[i].value, at);
    return (weir_text){begin, (size_t)(*at - begin)};
}

static const char *read_into(const weir_text fields[WEIR__INGEST_COUNT], struct key_line *line,
                             struct weir__deferred *item, struct weir__queue_bounds *bounds, char **at)
{
    char tier[WEIR__TIER_MAX + 1], *end = tier;
    weir_text unused;
    if (!is_method(fields[WEIR__INGEST_METHOD]) || !is_target(fields[WEIR__INGEST_TARGET]))
        return "no method, or no target";
    if (!from_hex(fields[WEIR__INGEST_RULE], WEIR_NAME_MAX, at, &item->rule) ||
        !read_key_line(fields[WEIR__INGEST_KEY], line) || !from_hex(line->key, WEIR__KEY_MAX, at, &item->key))
        return "no rule, or no key";
    if (fields[WEIR__INGEST_TIER].len && !from_hex(fields[WEIR__INGEST_TIER], WEIR__TIER_MAX, &end, &unused))
        return "no tier";
    if (!weir__parse_int(fields[WEIR__INGEST_COST], &item->cost) || item->cost < 0)
        return "no cost";
    if (!read_bounds(fields[WEIR__INGEST_BOUNDS], bounds))
        return "no bounds";
    item->method = fields[WEIR__INGEST_METHOD];
    item->target = fields[WEIR__INGEST_TARGET];
    return NULL;
}

/* If `headers` begin with a line of this name: its value, cut off *headers. Else an empty text. */
static weir_text first_line(weir_text *headers, const char *start)
{
    weir_text rest = *headers;
    const char *end = weir__text_skip(&rest, start) && rest.len ? memchr(rest.data, '\r', rest.len) : NULL;
    if (!end)
        return (weir_text){NULL, 0};
    size_t len = (size_t)(end - rest.data), used = len + 2 < rest.len ? len + 2 : rest.len;
    *headers = (weir_text){rest.data + used, rest.len - used};
    return (weir_text){rest.data, len};
}

weir_text weir__deferred_tier(const struct weir__deferred *item, char room[WEIR__TIER_MAX + 1])
{
    weir_text rest = item->headers, tier;
    return from_hex(first_line(&rest, TIER_NAME ": "), WEIR__TIER_MAX, &room, &tier) ? tier : (weir_text){NULL, 0};
}

weir_text weir__deferred_others(const struct weir__deferred *item)
{
    weir_text rest = item->headers;
    (void)first_line(&rest, TIER_NAME ": ");
    return first_line(&rest, OTHER_NAME ": ");
}

const char *weir__ingest_read_request(const struct weir__queue_config *queue,
                                      const weir_text fields[WEIR__INGEST_COUNT], const struct weir__header_line *lines,
                                      size_t line_count, struct weir__deferred *item, struct weir__queue_bounds *bounds,
                                      char **room)
{
    struct key_line line;
    size_t size =
        sizeof TIER_NAME + fields[WEIR__INGEST_TIER].len + sizeof OTHER_NAME + fields[WEIR__INGEST_KEY].len + 9;
    for (size_t i = 0; i < WEIR__INGEST_COUNT; i++)
        size += fields[i].len + 1;
    for (size_t i = 0; i < line_count; i++)
        size += lines[i].name.len + lines[i].value.len + 4;
    char *at = *room = malloc(size);
    if (!at)
        return "no memory";
    *item = (struct weir__deferred){0};
    const char *wrong = read_into(fields, &line, item, bounds, &at);
    if (!wrong) {
        item->headers = put_headers(queue, fields, &line, lines, line_count, &at);
        return NULL;
    }
    free(*room);
    *room = NULL;
    return wrong;
}
