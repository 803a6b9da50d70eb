/* A small JSON writer. */
#include "cli/json.h"
#include "cli/text.h"

#include <inttypes.h>
#include <string.h>

static void put_string(FILE *to, const char *data, size_t len)
{
    fputc('"', to);
    for (size_t at = 0; at < len;) {
        uint32_t point;
        size_t bytes = weir__utf8_next(data + at, len - at, &point);
        if (bytes == 0) {
            fputs("\\ufffd", to);
            bytes = 1;
        } else if (point == '"' || point == '\\') {
            fprintf(to, "\\%c", (char)point);
        } else if (point == '\n') {
            fputs("\\n", to);
        } else if (point < 0x20 || point == 0x7f) {
            fprintf(to, "\\u%04x", (unsigned)point);
        } else {
            fwrite(data + at, 1, bytes, to);
        }
        at += bytes;
    }
    fputc('"', to);
}

static void begin(struct weir__json *json, const char *name)
{
    uint64_t bit = UINT64_C(1) << json->depth;
    if (json->filled & bit)
        fputc(',', json->to);
    json->filled |= bit;
    if (name) {
        put_string(json->to, name, strlen(name));
        fputc(':', json->to);
    }
}

void weir__json_open(struct weir__json *json, const char *name, char bracket)
{
    begin(json, name);
    fputc(bracket, json->to);
    json->depth++;
    json->filled &= ~(UINT64_C(1) << json->depth);
}

void weir__json_close(struct weir__json *json, char bracket)
{
    json->depth--;
    fputc(bracket, json->to);
}

void weir__json_bytes(struct weir__json *json, const char *name, const char *data, size_t len)
{
    begin(json, name);
    put_string(json->to, data, len);
}

void weir__json_text(struct weir__json *json, const char *name, const char *text)
{
    begin(json, name);
    if (text)
        put_string(json->to, text, strlen(text));
    else
        fputs("null", json->to);
}

void weir__json_int(struct weir__json *json, const char *name, int64_t value)
{
    begin(json, name);
    fprintf(json->to, "%" PRId64, value);
}

void weir__json_bool(struct weir__json *json, const char *name, bool value)
{
    begin(json, name);
    fputs(value ? "true" : "false", json->to);
}

void weir__json_raw(struct weir__json *json, const char *name, const char *text)
{
    begin(json, name);
    fputs(text, json->to);
}

void weir__json_seconds(struct weir__json *json, const char *name, int64_t ns)
{
    char text[WEIR__DURATION_TEXT];
    begin(json, name);
    fputs(ns < 0 ? "null" : weir__seconds_text(ns, text), json->to);
}
