/* Tokens, sessions and the audit log. */
#include "base/duration.h"
#include "control/call.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#define LIFE_MAX_MS INT64_C(315360000000) /* ten years */

/* ---- Tokens ---- */

static int add_token(void *context, const struct weir__db_row *row)
{
    json_t *item = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", weir__row_json(row, 0), "name",
                             weir__row_json(row, 1), "role", weir__row_json(row, 2), "created", weir__row_time(row, 3),
                             "created_by", weir__row_json(row, 4), "expires", weir__row_time(row, 5), "revoked",
                             weir__row_time(row, 6), "last_used", weir__row_time(row, 7));
    return json_array_append_new(context, item) ? WEIR__DB_MEMORY : 0;
}

int weir__rest_tokens(struct weir__call *call)
{
    json_t *items = json_array();
    int error = weir__db_run(call->db,
                             "SELECT id, name, role, created, created_by, expires, revoked, last_used FROM tokens"
                             " ORDER BY created, id LIMIT 10000",
                             NULL, 0, add_token, items);
    if (!error)
        weir__reply_json(call, 200, json_pack("{s:O}", "items", items));
    json_decref(items);
    return error;
}

/* Parses a span such as "30d", or a time. False: neither. */
static bool read_expiry(const char *text, int64_t now_ms, int64_t *expires_ms)
{
    if (!weir__parse_span(text, expires_ms))
        return weir__parse_time(text, expires_ms);
    *expires_ms += now_ms;
    return true;
}

struct new_token {
    char name[WEIR__WHO_MAX];
    enum weir__role role;
    bool expires;
    int64_t expires_ms;
};

/* False: replied. */
static bool read_token(struct weir__call *call, struct new_token *token)
{
    json_t *body = weir__call_json(call, "name|role|expires");
    if (!body)
        return false;
    json_t *name = json_object_get(body, "name"), *expires = json_object_get(body, "expires");
    const char *text = json_string_value(name), *role = json_string_value(json_object_get(body, "role"));
    const char *until = json_string_value(expires);
    size_t len = json_string_length(name);
    bool good = false;
    token->role = role ? weir__role_of(role) : WEIR__NOBODY;
    token->expires = expires && !json_is_null(expires);
    if (!text || !len || len >= sizeof token->name || !weir__text_sound((weir_text){text, len}))
        weir__fail(call, 400, "bad_name", "name: who the token is for, a text of 1 to 127 bytes", NULL);
    else if (token->role == WEIR__NOBODY)
        weir__fail(call, 400, "bad_role", "role: viewer, editor or operator", NULL);
    else if (token->expires && (!until || !read_expiry(until, call->now_ms, &token->expires_ms) ||
                                token->expires_ms <= call->now_ms || token->expires_ms > call->now_ms + LIFE_MAX_MS))
        weir__fail(call, 400, "bad_expiry",
                   "expires: such as 30d or 12h, or a time to come such as 2030-01-01T00:00:00Z; at most ten years",
                   NULL);
    else
        good = true;
    if (good)
        memcpy(token->name, text, len + 1);
    json_decref(body);
    return good;
}

int weir__rest_token_create(struct weir__call *call)
{
    struct new_token wanted = {.expires = false};
    char id[WEIR__TOKEN_ID], salt[40], secret[64], token[128], hash[WEIR__DIGEST_TEXT];
    if (!read_token(call, &wanted))
        return 0;
    if (!weir__random_hex(id, 6) || !weir__random_hex(salt, 16) || !weir__random_word(secret, 32))
        return weir__fail(call, 503, "no_randomness", "the system gives no random numbers", NULL);
    snprintf(token, sizeof token, "weir_%s_%s", id, secret);
    weir__digest(salt, token, strlen(token), hash);
    int error = *hash ? weir__db_begin(call->db) : WEIR__DB_MEMORY;
    if (error)
        return error;
    error = weir__db_exec(call->db,
                          "INSERT INTO tokens (id, name, role, salt, hash, created, created_by, expires)"
                          " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                          WEIR__S(id), WEIR__S(wanted.name), WEIR__S(weir__role_name(wanted.role)), WEIR__S(salt),
                          WEIR__S(hash), WEIR__N(call->now_ms), WEIR__S(call->who),
                          wanted.expires ? WEIR__N(wanted.expires_ms) : WEIR__NOTHING);
    if (!error)
        error = weir__audit(call, "token_create", id,
                            json_pack("{s:s, s:s}", "name", wanted.name, "role", weir__role_name(wanted.role)));
    error = weir__db_end(call->db, error);
    if (!error)
        weir__reply_json(call, 201,
                         json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "name", wanted.name, "role",
                                   weir__role_name(wanted.role), "token", token, "expires",
                                   wanted.expires ? weir__json_time(wanted.expires_ms) : json_null()));
    OPENSSL_cleanse(secret, sizeof secret);
    OPENSSL_cleanse(token, sizeof token);
    return error;
}

int weir__rest_token_revoke(struct weir__call *call)
{
    int64_t changed = 0;
    int error = weir__db_begin(call->db);
    if (error)
        return error;
    error = weir__db_change(call->db, "UPDATE tokens SET revoked = $1 WHERE id = $2 AND revoked IS NULL",
                            WEIR__DB_VALUES(WEIR__N(call->now_ms), WEIR__S(call->param[0])), &changed);
    if (!error && changed)
        error = weir__db_exec(call->db, "DELETE FROM sessions WHERE token = $1", WEIR__S(call->param[0]));
    if (!error && changed)
        error = weir__audit(call, "token_revoke", call->param[0], NULL);
    error = weir__db_end(call->db, error);
    if (!error && !changed)
        return weir__fail(call, 404, "no_token", "there is no such token, or it has been revoked before", NULL);
    if (!error)
        call->reply->status = 204;
    return error;
}

/* ---- Sessions ---- */

static void set_cookie(struct weir__call *call, const char *value, int64_t seconds)
{
    weir__reply_header(call, "Set-Cookie",
                       WEIR__SESSION_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%" PRId64 "%s", value,
                       seconds, call->request->tls ? "; Secure" : "");
}

static json_t *describe(const struct weir__call *call)
{
    return json_pack("{s:s, s:s, s:o, s:b}", "who", call->who, "role", weir__role_name(call->role), "expires",
                     call->session_expires_ms ? weir__json_time(call->session_expires_ms) : json_null(), "key_texts",
                     weir__sees_keys(call));
}

static int add_session(struct weir__call *call, const char *hash)
{
    int error = weir__db_begin(call->db);
    if (error)
        return error;
    error = weir__db_exec(call->db, "DELETE FROM sessions WHERE expires <= $1", WEIR__N(call->now_ms));
    if (!error)
        error = weir__db_exec(call->db, "INSERT INTO sessions (hash, token, expires) VALUES ($1, $2, $3)",
                              WEIR__S(hash), WEIR__S(call->token_id), WEIR__N(call->session_expires_ms));
    if (!error)
        error = weir__audit(call, "session_create", call->token_id, NULL);
    return weir__db_end(call->db, error);
}

int weir__rest_session_create(struct weir__call *call)
{
    char session[64], hash[WEIR__DIGEST_TEXT];
    static const char json[] = "application/json";
    weir_text type = call->request->content_type;
    /* Another site's form, which cannot send JSON, would log the browser in with a token of that site. */
    bool is_json = type.len >= sizeof json - 1 &&
                   weir__text_equal_nocase((weir_text){type.data, sizeof json - 1}, WEIR__TEXT(json));
    if (!is_json && !weir__is_own_page(call))
        return weir__fail(call, 403, "other_origin", "a session is for the dashboard's own pages", NULL);
    json_t *body = weir__call_json(call, "token");
    if (!body)
        return 0;
    const char *token = json_string_value(json_object_get(body, "token"));
    int error = 0;
    bool good = token && weir__token_check(call, token, &error);
    json_decref(body);
    if (error)
        return error;
    if (!good)
        return weir__fail_wrong_token(call, "the token is wrong, expired or revoked");
    int64_t wait_ns = weir__login_throttle_session(call->control->throttle, call->token_id);
    if (wait_ns) {
        weir__reply_header(call, "Retry-After", "%" PRId64, (wait_ns + WEIR_SECOND - 1) / WEIR_SECOND);
        return weir__fail(call, 429, "too_many_sessions", "a token opens at most 60 sessions a minute", NULL);
    }
    if (!weir__random_word(session, 32))
        return weir__fail(call, 503, "no_randomness", "the system gives no random numbers", NULL);
    call->session_expires_ms = call->now_ms + call->control->session_ms;
    weir__digest("", session, strlen(session), hash);
    error = *hash ? add_session(call, hash) : WEIR__DB_MEMORY;
    if (!error) {
        set_cookie(call, session, call->control->session_ms / 1000);
        weir__reply_json(call, 201, describe(call));
    }
    OPENSSL_cleanse(session, sizeof session);
    return error;
}

int weir__rest_session_get(struct weir__call *call)
{
    weir__reply_json(call, 200, describe(call));
    return 0;
}

int weir__rest_session_delete(struct weir__call *call)
{
    char hash[WEIR__DIGEST_TEXT];
    weir_text session = weir__cookie_of(call->request->cookie);
    weir__digest("", session.data, session.len, hash);
    int error = weir__db_exec(call->db, "DELETE FROM sessions WHERE hash = $1", WEIR__S(hash));
    if (!error) {
        set_cookie(call, "", 0);
        call->reply->status = 204;
    }
    return error;
}

/* ---- Audit ---- */

static int add_entry(void *context, const struct weir__db_row *row)
{
    weir_text details = weir__row_text(row, 5);
    json_t *parsed = json_loadb(details.data, details.len, 0, NULL);
    json_t *item = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "id", (json_int_t)weir__row_number(row, 0), "at",
                             weir__row_time(row, 1), "who", weir__row_json(row, 2), "action", weir__row_json(row, 3),
                             "object", weir__row_json(row, 4), "details", parsed ? parsed : json_object(), "address",
                             weir__row_json(row, 6));
    return json_array_append_new(context, item) ? WEIR__DB_MEMORY : 0;
}

/* An action on a key has RULE/KEY as its object; entries of older versions do not have the rule in their details. */
static void hide_key(const struct weir__call *call, json_t *item, void *context)
{
    (void)context;
    const char *action = json_string_value(json_object_get(item, "action"));
    const char *object = json_string_value(json_object_get(item, "object"));
    const char *rule = json_string_value(json_object_get(json_object_get(item, "details"), "rule"));
    size_t len = rule ? strlen(rule) : 0;
    bool named = object && len && strncmp(object, rule, len) == 0 && object[len] == '/';
    const char *key = named ? object + len : object ? strchr(object, '/') : NULL;
    if (weir__sees_keys(call) || !action || strncmp(action, "key_", 4) != 0 || !key)
        return;
    json_t *hidden = weir__hidden_key(call, (weir_text){key + 1, strlen(key + 1)});
    json_object_set_new(item, "object",
                        json_sprintf("%.*s/%s", (int)(key - object), object, json_string_value(hidden)));
    json_decref(hidden);
}

int weir__rest_audit(struct weir__call *call)
{
    return weir__reply_page(call,
                            "SELECT id, at, who, action, object, details, address FROM audit WHERE id < $1"
                            " ORDER BY id DESC LIMIT $2",
                            NULL, add_entry, "id", hide_key, NULL);
}
