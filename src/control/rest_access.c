/* Tokens, sessions and the audit log. */
#include "base/duration.h"
#include "control/call.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>

#define LIFE_MAX_MS INT64_C(315360000000) /* ten years */

/* ---- Tokens ---- */

bool weir__rest_tokens(struct weir__call *call)
{
    /* A login link that was not used yet expires itself; a used one has no hash, and expires with its session. */
    weir__db_run(call->db,
                 "SELECT id, name, role, created, created_by, CASE WHEN substr(salt, 1, 5) = '" WEIR__LINK_SALT
                 "' AND hash <> '' THEN created + $1 ELSE expires END, revoked, last_used FROM tokens"
                 " ORDER BY created, id LIMIT 10000",
                 WEIR__N(WEIR__LINK_MS));
    static const char columns[] = "s:id s:name s:role t:created s:created_by t:expires t:revoked t:last_used";
    return weir__reply_json(call, 200, json_pack("{s:o}", "items", weir__rows_json(call->db, columns)));
}

/* Parses a span such as "30d", or a time. False: neither. */
static bool read_expiry(const char *text, int64_t now_ms, int64_t *expires_ms)
{
    int64_t ns = 0;
    bool span = weir__parse_span(text, expires_ms), good = span || weir__parse_time(text, &ns);
    *expires_ms = span ? now_ms + *expires_ms : ns / 1000000;
    return good;
}

struct new_token {
    const char *name, *role;
    int64_t expires_ms; /* 0: never */
    const char *prefix, *salt_prefix, *action;
    char id[WEIR__TOKEN_ID], text[128];
};

static bool read_name_and_role(struct weir__call *call, struct new_token *token)
{
    const json_t *name = json_object_get(call->body, "name");
    weir_text text = {json_string_value(name), json_string_length(name)};
    token->name = text.data;
    token->role = weir__body_text(call, "role");
    if (!text.len || text.len >= WEIR__WHO_MAX || !weir__text_sound(text))
        return weir__fail(call, 400, "bad_name", "name: who the token is for, a text of 1 to 127 bytes");
    if (!token->role || weir__role_of(token->role) == WEIR__NOBODY)
        return weir__fail(call, 400, "bad_role", "role: viewer, editor or operator");
    return true;
}

static bool read_token(struct weir__call *call, struct new_token *token)
{
    if (!weir__call_json(call, "name|role|expires") || !read_name_and_role(call, token))
        return false;
    const json_t *expires = json_object_get(call->body, "expires");
    const char *until = weir__body_text(call, "expires");
    if (!expires || json_is_null(expires))
        return true;
    if (!until || !read_expiry(until, call->now_ms, &token->expires_ms) || token->expires_ms <= call->now_ms ||
        token->expires_ms > call->now_ms + LIFE_MAX_MS)
        return weir__fail(
            call, 400, "bad_expiry",
            "expires: such as 30d or 12h, or a future time such as 2030-01-01T00:00:00Z; at most ten years");
    return true;
}

/* Adds the token, and sets its id and its text: the prefix, the id, '_' and 256 random bits. False: refused. */
static bool add_token(struct weir__call *call, struct new_token *token)
{
    struct weir__db *db = call->db;
    char random[40], salt[64], secret[64], hash[WEIR__DIGEST_TEXT];
    if (!weir__random_hex(call, token->id, 6) || !weir__random_hex(call, random, 16) ||
        !weir__random_word(call, secret, 32))
        return false;
    snprintf(salt, sizeof salt, "%s%s", token->salt_prefix, random);
    snprintf(token->text, sizeof token->text, "%s%s_%s", token->prefix, token->id, secret);
    OPENSSL_cleanse(secret, sizeof secret);
    weir__digest(salt, token->text, strlen(token->text), hash);
    weir__db_begin(db);
    weir__db_run(db,
                 "INSERT INTO tokens (id, name, role, salt, hash, created, created_by, expires)"
                 " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                 WEIR__S(token->id), WEIR__S(token->name), WEIR__S(token->role), WEIR__S(salt), WEIR__S(hash),
                 WEIR__N(call->now_ms), WEIR__S(call->who), WEIR__N_OR_NULL(token->expires_ms));
    weir__audit(call, token->action, token->id, json_pack("{s:s, s:s}", "name", token->name, "role", token->role));
    weir__db_end(db, true);
    return true;
}

/* Replies with the text of a new token as `member`, and wipes it. */
static bool reply_token(struct weir__call *call, struct new_token *token, const char *member, int64_t expires_ms)
{
    json_t *expires = expires_ms ? weir__json_time(expires_ms) : json_null();
    weir__reply_json(call, 201,
                     json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", token->id, "name", token->name, "role", token->role,
                               member, token->text, "expires", expires));
    OPENSSL_cleanse(token->text, sizeof token->text);
    return true;
}

bool weir__rest_token_create(struct weir__call *call)
{
    struct new_token token = {.prefix = "weir_", .salt_prefix = "", .action = "token_create"};
    return read_token(call, &token) && add_token(call, &token) && reply_token(call, &token, "token", token.expires_ms);
}

bool weir__rest_token_revoke(struct weir__call *call)
{
    struct weir__db *db = call->db;
    weir__db_begin(db);
    weir__db_run(db, "UPDATE tokens SET revoked = $1 WHERE id = $2 AND revoked IS NULL", WEIR__N(call->now_ms),
                 WEIR__S(call->param[0]));
    bool changed = db->changed > 0;
    weir__db_run(db, "DELETE FROM sessions WHERE token = $1", WEIR__S(call->param[0]));
    weir__audit(call, "token_revoke", call->param[0], NULL);
    weir__db_end(db, changed);
    return changed ? weir__reply_status(call, 204)
                   : weir__fail(call, 404, "no_token", "there is no such token, or it has been revoked before");
}

/* ---- Login links ---- */

static bool fail_no_links(struct weir__call *call)
{
    return weir__fail(call, 403, "no_login_links",
                      "login links are for an admin listener that only this host can reach, as 127.0.0.1:9091");
}

/* Deletes the tokens of links whose sessions have ended. */
static void delete_old_links(struct weir__call *call)
{
    weir__db_run(call->db,
                 "DELETE FROM tokens WHERE substr(salt, 1, 5) = '" WEIR__LINK_SALT "' AND expires <= $1"
                 " AND id NOT IN (SELECT token FROM sessions)",
                 WEIR__N(call->now_ms));
}

bool weir__rest_link_create(struct weir__call *call)
{
    struct new_token link = {.prefix = "", .salt_prefix = WEIR__LINK_SALT, .action = "login_link_create"};
    if (!call->control->login_links)
        return fail_no_links(call);
    if (!weir__call_json(call, "name|role") || !read_name_and_role(call, &link))
        return false;
    delete_old_links(call);
    link.expires_ms = call->now_ms + WEIR__LINK_MS + call->control->session_ms; /* of its session at the latest */
    return add_token(call, &link) && reply_token(call, &link, "link", call->now_ms + WEIR__LINK_MS);
}

/* ---- Sessions ---- */

static void set_cookie(struct weir__call *call, const char *value, int64_t seconds)
{
    weir__reply_header(call, "Set-Cookie",
                       WEIR__SESSION_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%" PRId64 "%s", value,
                       seconds, call->request->tls ? "; Secure" : "");
}

static bool reply_session(struct weir__call *call, int status)
{
    json_t *expires = call->session_expires_ms ? weir__json_time(call->session_expires_ms) : json_null();
    return weir__reply_json(call, status,
                            json_pack("{s:s, s:s, s:o, s:b, s:s}", "who", call->who, "role",
                                      weir__role_name(call->role), "expires", expires, "key_texts",
                                      weir__sees_keys(call), "rules", call->control->files ? "files" : "database"));
}

static void add_session(struct weir__call *call, const char *session)
{
    char hash[WEIR__DIGEST_TEXT];
    weir__digest("", session, strlen(session), hash);
    weir__db_begin(call->db);
    weir__db_run(call->db, "DELETE FROM sessions WHERE expires <= $1", WEIR__N(call->now_ms));
    weir__db_run(call->db, "INSERT INTO sessions (hash, token, expires) VALUES ($1, $2, $3)", WEIR__S(hash),
                 WEIR__S(call->token_id), WEIR__N(call->session_expires_ms));
    weir__audit(call, "session_create", call->token_id, NULL);
    weir__db_end(call->db, true);
}

/* Counts a session of the token: each is a row of the database and of the audit log. Refuses too many of them. */
static bool may_open_session(struct weir__call *call)
{
    static const weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 60, .window_ns = 60 * WEIR_SECOND};
    weir_segment *counters = call->control->throttle;
    weir_limit limit;
    weir_decision decision = {.retry_after_ns = WEIR_SECOND};
    int error = weir_limit_init(&limit, &params);
    if (!error)
        error = weir_take(counters, &limit, call->token_id, strlen(call->token_id), 1, weir_clock(counters), &decision);
    if (!error && weir_passes(&decision))
        return true;
    weir__reply_header(call, "Retry-After", "%" PRId64, (decision.retry_after_ns + WEIR_SECOND - 1) / WEIR_SECOND);
    return weir__fail(call, 429, "too_many_sessions", "a token opens at most 60 sessions a minute");
}

bool weir__rest_session_create(struct weir__call *call)
{
    char session[64];
    static const char json[] = "application/json";
    weir_text type = call->request->content_type;
    /* Another site's form, which cannot send JSON, would log the browser in with a token of that site. */
    bool is_json = type.len >= sizeof json - 1 &&
                   weir__text_equal_nocase((weir_text){type.data, sizeof json - 1}, WEIR__TEXT(json));
    if (!is_json && !weir__is_own_page(call))
        return weir__fail(call, 403, "other_origin", "a session is for the dashboard's own pages");
    if (!weir__call_json(call, "token|link"))
        return false;
    const char *token = weir__body_text(call, "token"), *link = weir__body_text(call, "link");
    if (link && token)
        return weir__fail(call, 400, "bad_member", "one of token and link");
    if (link && !call->control->login_links)
        return fail_no_links(call);
    if (link ? !weir__link_take(call, weir__text_of(link)) : !token || !weir__token_check(call, weir__text_of(token)))
        return !call->db->error &&
               weir__fail_wrong_token(call, link ? "the login link is wrong, expired or was used before"
                                                 : "the token is wrong, expired or revoked");
    if (!may_open_session(call) || !weir__random_word(call, session, 32))
        return false;
    call->session_expires_ms = call->now_ms + call->control->session_ms;
    add_session(call, session);
    set_cookie(call, session, call->control->session_ms / 1000);
    OPENSSL_cleanse(session, sizeof session);
    return reply_session(call, 201);
}

bool weir__rest_session_get(struct weir__call *call)
{
    return reply_session(call, 200);
}

bool weir__rest_session_delete(struct weir__call *call)
{
    char hash[WEIR__DIGEST_TEXT];
    weir_text session = weir__cookie_of(call->request->cookie);
    weir__digest("", session.data, session.len, hash);
    weir__db_run(call->db, "DELETE FROM sessions WHERE hash = $1", WEIR__S(hash));
    set_cookie(call, "", 0);
    return weir__reply_status(call, 204);
}

/* ---- Audit ---- */

/* An action on a key has RULE/KEY as its object; entries of older versions do not have the rule in their details. */
static void hide_key(const struct weir__call *call, json_t *item)
{
    const char *action = json_string_value(json_object_get(item, "action"));
    const char *object = json_string_value(json_object_get(item, "object"));
    const char *rule = json_string_value(json_object_get(json_object_get(item, "details"), "rule"));
    size_t len = rule ? strlen(rule) : 0;
    bool named = object && len && strncmp(object, rule, len) == 0 && object[len] == '/';
    const char *key = named ? object + len : object ? strchr(object, '/') : NULL;
    if (weir__sees_keys(call) || !action || strncmp(action, "key_", 4) != 0 || !key)
        return;
    json_t *hidden = weir__hidden_key(call, weir__text_of(key + 1));
    json_object_set_new(item, "object",
                        json_sprintf("%.*s/%s", (int)(key - object), object, json_string_value(hidden)));
    json_decref(hidden);
}

bool weir__rest_audit(struct weir__call *call)
{
    return weir__reply_page(call,
                            "SELECT id, at, who, action, object, details, address FROM audit WHERE id < $1"
                            " ORDER BY id DESC LIMIT $2",
                            NULL, "i:id t:at s:who s:action s:object j:details s:address", hide_key);
}
