/* Reads what all handlers need of a request, and assembles replies. See call.h. */
#include "control/call.h"
#include "base/duration.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *weir__role_name(enum weir__role role)
{
    static const char *const names[] = {"nobody", "viewer", "editor", "operator"};
    return names[role];
}

enum weir__role weir__role_of(const char *name)
{
    for (int role = WEIR__VIEWER; role <= WEIR__OPERATOR; role++)
        if (strcmp(name, weir__role_name((enum weir__role)role)) == 0)
            return (enum weir__role)role;
    return WEIR__NOBODY;
}

/* ---- Requests ---- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    unsigned char lower = weir__lower(c);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

int weir__decode(weir_text text, bool plus, char *to, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '%') {
            bool complete = text.len - i >= 3;
            int high = complete ? hex(text.data[i + 1]) : -1, low = complete ? hex(text.data[i + 2]) : -1;
            if (high < 0 || low < 0) {
                *to = 0;
                return WEIR__DECODE_BROKEN;
            }
            c = (char)(high << 4 | low);
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        if (len + 1 >= size) {
            *to = 0;
            return WEIR__DECODE_LONG;
        }
        to[len++] = c;
    }
    to[len] = 0;
    return (int)len;
}

/* The next NAME=VALUE of a query; false at its end. */
static bool next_pair(weir_text *rest, weir_text *name, weir_text *value)
{
    if (!rest->len)
        return false;
    const char *end = memchr(rest->data, '&', rest->len);
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    const char *equals = memchr(rest->data, '=', len);
    size_t name_len = equals ? (size_t)(equals - rest->data) : len;
    *name = (weir_text){rest->data, name_len};
    *value = equals ? (weir_text){equals + 1, len - name_len - 1} : (weir_text){"", 0};
    rest->data += len + (end != NULL);
    rest->len -= len + (end != NULL);
    return true;
}

#define VALUE_MAX 4096 /* bytes of a parameter's value */

const char *weir__query_wrong(weir_text query)
{
    weir_text name, value;
    char decoded[VALUE_MAX];
    while (next_pair(&query, &name, &value)) {
        int len = weir__decode(value, true, decoded, sizeof decoded);
        if (len == WEIR__DECODE_LONG)
            return "a parameter of the query is longer than 4095 bytes";
        if (len < 0 || !weir__text_sound((weir_text){decoded, (size_t)len}))
            return "the query has broken escapes, control characters or no UTF-8";
    }
    return NULL;
}

/* False: the query does not have it. */
static bool query_value(const struct weir__call *call, const char *wanted, weir_text *value)
{
    weir_text rest = call->request->query, name;
    while (next_pair(&rest, &name, value))
        if (weir__text_is(name, wanted))
            return true;
    return false;
}

bool weir__query_text(struct weir__call *call, const char *name, char *to, size_t size)
{
    weir_text value;
    char message[128];
    *to = 0;
    int len = query_value(call, name, &value) ? weir__decode(value, true, to, size) : 0;
    if (len >= 0)
        return true;
    if (len == WEIR__DECODE_LONG)
        snprintf(message, sizeof message, "%s: at most %zu bytes", name, size - 1);
    else
        snprintf(message, sizeof message, "%s: broken escapes", name);
    weir__fail(call, 400, "bad_query", message, NULL);
    return false;
}

bool weir__query_number(struct weir__call *call, const char *name, int64_t least, int64_t most, int64_t otherwise,
                        int64_t *number)
{
    char text[32], message[128];
    weir_text value;
    *number = otherwise;
    if (!query_value(call, name, &value))
        return true;
    bool plain = weir__decode(value, true, text, sizeof text) > 0 && strspn(text, "0123456789") == strlen(text);
    *number = plain && strlen(text) < 19 ? strtoll(text, NULL, 10) : -1;
    if (*number >= least && *number <= most)
        return true;
    snprintf(message, sizeof message, "%s: a number from %" PRId64 " to %" PRId64, name, least, most);
    weir__fail(call, 400, "bad_query", message, NULL);
    return false;
}

bool weir__call_reason(struct weir__call *call, char reason[WEIR__REASON_MAX + 1])
{
    weir_text given = call->request->reason;
    *reason = 0;
    if (given.len && given.len <= WEIR__REASON_MAX && weir__text_sound(given)) {
        memcpy(reason, given.data, given.len);
        reason[given.len] = 0;
        return true;
    }
    if (given.len) {
        weir__fail(call, 400, "bad_reason",
                   "the reason is longer than 1000 bytes, or not UTF-8; ?reason= takes any text", NULL);
        return false;
    }
    char long_one[VALUE_MAX];
    if (!weir__query_text(call, "reason", long_one, sizeof long_one))
        return false;
    if (strlen(long_one) > WEIR__REASON_MAX) {
        weir__fail(call, 400, "bad_reason", "the reason is longer than 1000 bytes", NULL);
        return false;
    }
    snprintf(reason, WEIR__REASON_MAX + 1, "%s", long_one);
    return true;
}

bool weir__body_reason(struct weir__call *call, const json_t *body, char reason[WEIR__REASON_MAX + 1])
{
    const json_t *given = json_object_get(body, "reason");
    weir_text why = {json_string_value(given), json_string_length(given)};
    if (!given)
        return weir__call_reason(call, reason);
    if (!why.data || why.len > WEIR__REASON_MAX || !weir__text_sound(why)) {
        weir__fail(call, 400, "bad_reason", "reason: a text of up to 1000 bytes", NULL);
        return false;
    }
    memcpy(reason, why.data, why.len + 1);
    return true;
}

bool weir__parse_span(const char *text, int64_t *ms)
{
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}};
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits >= 10 || strlen(text) != digits + 1)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].unit == text[digits]) {
            *ms = strtoll(text, NULL, 10) * units[i].ms;
            return *ms > 0;
        }
    return false;
}

bool weir__is_yaml(weir_text type)
{
    static const char *const names[] = {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"};
    if (!type.len)
        return false;
    const char *end = memchr(type.data, ';', type.len);
    weir_text bare = weir__text_trim((weir_text){type.data, end ? (size_t)(end - type.data) : type.len});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (weir__text_equal_nocase(bare, (weir_text){names[i], strlen(names[i])}))
            return true;
    return false;
}

static bool is_member(const char *members, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = members; *at;) {
        size_t part = strcspn(at, "|");
        if (part == len && memcmp(at, name, len) == 0)
            return true;
        at += part + (at[part] == '|');
    }
    return false;
}

json_t *weir__call_json(struct weir__call *call, const char *members)
{
    weir_text body = call->request->body;
    char message[256], shown[WEIR__SHOWN];
    json_error_t where;
    const char *name;
    json_t *value, *root = body.len ? json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, &where) : json_object();
    if (!json_is_object(root)) {
        snprintf(message, sizeof message, "the body is no object of JSON%s%s", root ? "" : ": ",
                 root ? "" : where.text);
        weir__fail(call, 400, "bad_json", message, NULL);
        json_decref(root);
        return NULL;
    }
    json_object_foreach(root, name, value)
    {
        if (is_member(members, name))
            continue;
        snprintf(message, sizeof message, "there is no \"%s\" here",
                 weir__printable((weir_text){name, strlen(name)}, shown, sizeof shown));
        weir__fail(call, 400, "bad_member", message, NULL);
        json_decref(root);
        return NULL;
    }
    return root;
}

/* ---- Replies ---- */

void weir__reply_header(struct weir__call *call, const char *name, const char *format, ...)
{
    struct weir__rest_reply *reply = call->reply;
    if (reply->header_count == WEIR__REST_HEADERS)
        return;
    va_list arguments;
    va_start(arguments, format);
    reply->headers[reply->header_count].name = name;
    vsnprintf(reply->headers[reply->header_count++].value, sizeof reply->headers[0].value, format, arguments);
    va_end(arguments);
}

void weir__reply_etag(struct weir__call *call, int64_t version)
{
    weir__reply_header(call, "ETag", "\"v%" PRId64 "\"", version);
}

void weir__reply_text(struct weir__call *call, int status, const char *type, const char *text, size_t len)
{
    struct weir__rest_reply *reply = call->reply;
    free(reply->body);
    reply->status = status;
    reply->body = malloc(len + 1);
    reply->len = reply->body ? len : 0;
    if (!reply->body) {
        reply->status = 503;
        return;
    }
    memcpy(reply->body, text, len);
    reply->body[len] = 0;
    weir__reply_header(call, "Content-Type", "%s", type);
}

void weir__reply_json(struct weir__call *call, int status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (text)
        weir__reply_text(call, status, "application/json", text, strlen(text));
    else
        call->reply->status = 503; /* no memory for a body */
    free(text);
    json_decref(body);
}

int weir__fail(struct weir__call *call, int status, const char *code, const char *message, json_t *errors)
{
    char shown[1024];
    weir__printable((weir_text){message, strlen(message)}, shown, sizeof shown);
    json_t *error = json_pack("{s:s, s:s}", "code", code, "message", shown);
    if (error && errors)
        json_object_set(error, "errors", errors);
    json_decref(errors);
    weir__reply_json(call, status, json_pack("{s:o}", "error", error));
    return 0;
}

json_t *weir__json_time(int64_t ms)
{
    char text[WEIR__TIME_TEXT];
    weir__time_text(ms, text);
    return json_string(text);
}

json_t *weir__text_json(weir_text text)
{
    json_t *json = json_stringn(text.data, text.len);
    return json ? json : json_string("");
}

json_t *weir__row_json(const struct weir__db_row *row, int column)
{
    return weir__text_json(weir__row_text(row, column));
}

json_t *weir__row_time(const struct weir__db_row *row, int column)
{
    return row->null(row, column) ? json_null() : weir__json_time(weir__row_number(row, column));
}

json_t *weir__number_or_null(int64_t number)
{
    return number ? json_integer(number) : json_null();
}

bool weir__sees_keys(const struct weir__call *call)
{
    return call->role >= call->control->key_texts;
}

json_t *weir__hidden_key(const struct weir__call *call, weir_text key)
{
    const struct weir__control_host *host = call->control->host;
    return host && host->key_hash ? json_sprintf("~%016" PRIx64, host->key_hash(host->context, key)) : json_string("~");
}

int weir__reply_page(struct weir__call *call, const char *sql, const char *name, weir__db_visit *add,
                     const char *number, void (*edit)(const struct weir__call *call, json_t *item, void *context),
                     void *context)
{
    int64_t limit, after;
    if (!weir__query_number(call, "limit", 1, 1000, 100, &limit) ||
        !weir__query_number(call, "after", 1, INT64_MAX, INT64_MAX, &after))
        return 0;
    struct weir__db_value by[] = {WEIR__N(after), WEIR__N(limit), WEIR__S(name ? name : "")};
    json_t *items = json_array(), *body = name ? json_pack("{s:s}", "name", name) : json_object();
    int error = weir__db_run(call->db, sql, by, name ? 3 : 2, add, items);
    size_t count = json_array_size(items);
    for (size_t i = 0; edit && i < count; i++)
        edit(call, json_array_get(items, i), context);
    json_t *last = (int64_t)count == limit ? json_object_get(json_array_get(items, count - 1), number) : NULL;
    json_object_set(body, "items", items);
    json_object_set(body, "next", last ? last : json_null());
    json_decref(items);
    if (error)
        json_decref(body);
    else
        weir__reply_json(call, 200, body);
    return error;
}
