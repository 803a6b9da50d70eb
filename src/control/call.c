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

const char *weir__call_copy(struct weir__call *call, weir_text text)
{
    const char *copy = weir__arena_copy(&call->arena, text).data;
    if (!copy)
        weir__fail_memory(call);
    return copy ? copy : "";
}

#define VALUE_MAX 4096 /* bytes of a parameter's value */

bool weir__query_read(struct weir__call *call)
{
    char decoded[VALUE_MAX], plain_name[64];
    call->query = json_object();
    for (weir_text rest = call->request->query; rest.len;) {
        weir_text value = weir__text_cut(&rest, '&'), name = weir__text_cut(&value, '=');
        int len = weir__percent_decode(value, true, decoded, sizeof decoded);
        if (len == WEIR__DECODE_LONG)
            return weir__fail(call, 400, "bad_query", "a parameter of the query is longer than 4095 bytes");
        if (len < 0 || !weir__text_sound((weir_text){decoded, (size_t)len}))
            return weir__fail(call, 400, "bad_query", "the query has broken escapes, control characters or no UTF-8");
        snprintf(plain_name, sizeof plain_name, "%.*s", (int)name.len, name.data);
        if (!json_object_get(call->query, plain_name)) /* the first one counts */
            json_object_set_new(call->query, plain_name, json_stringn(decoded, (size_t)len));
    }
    return true;
}

const char *weir__query_text(struct weir__call *call, const char *name, size_t max)
{
    const json_t *value = json_object_get(call->query, name);
    if (json_string_length(value) > max)
        weir__fail(call, 400, "bad_query", "%s: at most %zu bytes", name, max);
    return value ? json_string_value(value) : "";
}

int64_t weir__query_number(struct weir__call *call, const char *name, int64_t least, int64_t most, int64_t otherwise)
{
    const char *text = json_string_value(json_object_get(call->query, name));
    if (!text)
        return otherwise;
    bool plain = *text && strlen(text) < 19 && strspn(text, "0123456789") == strlen(text);
    int64_t number = plain ? strtoll(text, NULL, 10) : -1;
    if (number < least || number > most)
        weir__fail(call, 400, "bad_query", "%s: a number from %" PRId64 " to %" PRId64, name, least, most);
    return number;
}

const char *weir__call_reason(struct weir__call *call)
{
    const json_t *member = json_object_get(call->body, "reason");
    weir_text reason = call->request->reason;
    const char *wrong = "the reason is longer than 1000 bytes, or not UTF-8; ?reason= takes any text";
    if (member) {
        reason = (weir_text){json_string_value(member), json_string_length(member)};
        wrong = "reason: a text of up to 1000 bytes";
    } else if (!reason.len) {
        reason = weir__text_of(weir__query_text(call, "reason", VALUE_MAX - 1));
        wrong = "the reason is longer than 1000 bytes";
    }
    if (reason.data && reason.len <= WEIR__REASON_MAX && weir__text_sound(reason))
        return weir__call_copy(call, reason);
    weir__fail(call, 400, "bad_reason", "%s", wrong);
    return "";
}

bool weir__parse_span(const char *text, int64_t *ms)
{
    int64_t ns = 0;
    bool good = weir__parse_duration(weir__text_of(text), INT64_MAX, &ns);
    *ms = ns / 1000000;
    return good && *ms > 0;
}

bool weir__is_yaml(weir_text type)
{
    static const char *const names[] = {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"};
    weir_text bare = weir__text_trim(weir__text_cut(&type, ';'));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (weir__text_equal_nocase(bare, weir__text_of(names[i])))
            return true;
    return false;
}

bool weir__is_one_of(const char *word, const char *list)
{
    for (weir_text rest = weir__text_of(list); rest.len;)
        if (weir__text_is(weir__text_cut(&rest, '|'), word))
            return true;
    return false;
}

bool weir__call_json(struct weir__call *call, const char *members)
{
    weir_text body = call->request->body;
    json_error_t where = {.text = ""};
    const char *name;
    json_t *value, *root = body.len ? json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, &where) : json_object();
    call->body = root;
    if (!json_is_object(root))
        return weir__fail(call, 400, "bad_json", "the body is no object of JSON%s%s", root ? "" : ": ", where.text);
    json_object_foreach(root, name, value)
    {
        char shown[WEIR__SHOWN];
        weir_text text = weir__text_of(name);
        if (!weir__is_one_of(name, members))
            return weir__fail(call, 400, "bad_member", "there is no \"%s\" here",
                              weir__printable(text, shown, sizeof shown));
    }
    return true;
}

const char *weir__body_text(const struct weir__call *call, const char *member)
{
    return json_string_value(json_object_get(call->body, member));
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

bool weir__reply_status(struct weir__call *call, int status)
{
    call->reply->status = status;
    return true;
}

bool weir__reply_text(struct weir__call *call, int status, const char *type, weir_text text)
{
    struct weir__rest_reply *reply = call->reply;
    free(reply->body);
    reply->body = malloc(text.len + 1);
    reply->len = reply->body ? text.len : 0;
    if (!reply->body)
        return weir__reply_status(call, 503);
    if (text.len)
        memcpy(reply->body, text.data, text.len);
    reply->body[text.len] = 0;
    weir__reply_header(call, "Content-Type", "%s", type);
    return weir__reply_status(call, status);
}

bool weir__reply_json(struct weir__call *call, int status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (text)
        weir__reply_text(call, status, "application/json", weir__text_of(text));
    else
        weir__reply_status(call, 503); /* no memory for a body */
    free(text);
    json_decref(body);
    return true;
}

static bool fail(struct weir__call *call, int status, json_t *error)
{
    if (call->failed)
        json_decref(error);
    else
        weir__reply_json(call, status, json_pack("{s:o}", "error", error));
    call->failed = true;
    return false;
}

bool weir__fail(struct weir__call *call, int status, const char *code, const char *message, ...)
{
    char text[1024], shown[sizeof text];
    va_list arguments;
    va_start(arguments, message);
    vsnprintf(text, sizeof text, message, arguments);
    va_end(arguments);
    weir__printable(weir__text_of(text), shown, sizeof shown);
    return fail(call, status, json_pack("{s:s, s:s}", "code", code, "message", shown));
}

bool weir__fail_invalid(struct weir__call *call, const char *message)
{
    return fail(call, 422,
                json_pack("{s:s, s:s, s:O}", "code", "invalid", "message", message, "errors", call->problems));
}

bool weir__fail_memory(struct weir__call *call)
{
    if (call->db)
        call->db->error = WEIR__DB_MEMORY;
    return weir__fail(call, 503, "no_memory", "%s", weir__db_strerror(WEIR__DB_MEMORY));
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

static json_t *column_json(const struct weir__db *db, int column, char kind)
{
    weir_text text = weir__db_text(db, column);
    if (kind == 's')
        return weir__text_json(text);
    if (weir__db_is_null(db, column))
        return json_null();
    if (kind == 'j') {
        json_t *json = json_loadb(text.data, text.len, 0, NULL);
        return json ? json : json_object();
    }
    int64_t number = weir__db_number(db, column);
    return kind == 't' ? weir__json_time(number) : kind == 'b' ? json_boolean(number) : json_integer(number);
}

json_t *weir__row_object(const struct weir__db *db, const char *columns)
{
    json_t *object = json_object();
    weir_text rest = weir__text_of(columns);
    for (int column = 0; rest.len; column++) {
        char name[32];
        weir_text word = weir__text_cut(&rest, ' ');
        snprintf(name, sizeof name, "%.*s", (int)word.len - 2, word.data + 2);
        json_object_set_new(object, name, column_json(db, column, *word.data));
    }
    return object;
}

json_t *weir__rows_json(struct weir__db *db, const char *columns)
{
    json_t *rows = json_array();
    while (weir__db_next(db))
        json_array_append_new(rows, weir__row_object(db, columns));
    return rows;
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
    return host->key_hash ? json_sprintf("~%016" PRIx64, host->key_hash(host->context, key)) : json_string("~");
}

bool weir__reply_page(struct weir__call *call, const char *sql, const char *name, const char *columns,
                      void (*edit)(const struct weir__call *call, json_t *item))
{
    int64_t limit = weir__query_number(call, "limit", 1, 1000, 100);
    int64_t after = weir__query_number(call, "after", 1, INT64_MAX, INT64_MAX);
    if (call->failed)
        return false;
    struct weir__db_value by[] = {WEIR__N(after), WEIR__N(limit), WEIR__S(name ? name : "")};
    weir__db_run_with(call->db, sql, by, name ? 3 : 2);
    json_t *items = weir__rows_json(call->db, columns), *item,
           *body = name ? json_pack("{s:s}", "name", name) : json_object();
    size_t i;
    if (edit)
        json_array_foreach(items, i, item) edit(call, item);
    bool more = (int64_t)json_array_size(items) == limit;
    json_object_set_new(body, "items", items);
    json_object_set_new(body, "next", weir__number_or_null(more ? weir__db_number(call->db, 0) : 0));
    return weir__reply_json(call, 200, body);
}
