/*
 * Authentication. Tokens are 256 random bits, which cannot be guessed: one round of SHA-256 with a salt is enough. Of
 * sessions, too, the database has only the hash.
 */
#include "base/sha256.h"
#include "control/call.h"
#include "rules/address.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKEN_PREFIX "weir_"
#define USED_MS      60000 /* least time between two updates of last_used */

/* ---- Randomness and hashes ---- */

void weir__digest(const char *salt, const char *text, size_t len, char *hash)
{
    uint8_t bytes[WEIR__SHA256_BYTES];
    weir__sha256_two(salt, strlen(salt), text, len, bytes);
    *weir__write_hex(hash, bytes, sizeof bytes) = 0;
}

static bool fill(struct weir__call *call, unsigned char *random, size_t bytes)
{
    return RAND_bytes(random, (int)bytes) == 1 ||
           weir__fail(call, 503, "no_randomness", "the system gives no random numbers");
}

bool weir__random_hex(struct weir__call *call, char *to, size_t bytes)
{
    unsigned char random[16];
    if (!fill(call, random, bytes))
        return false;
    *weir__write_hex(to, random, bytes) = 0;
    return true;
}

bool weir__random_word(struct weir__call *call, char *to, size_t bytes)
{
    unsigned char random[32];
    if (!fill(call, random, bytes))
        return false;
    weir__write_base64url(to, random, bytes);
    return true;
}

/* ---- Looking up ---- */

/*
 * Reads the token that the last statement found: id, name, role, salt, hash, expires, revoked, last_used, the session's
 * expiry. `token` is empty for a session. True: it is valid, and the call is its owner's.
 */
static bool accept_found(struct weir__call *call, weir_text token)
{
    struct weir__db *db = call->db;
    char hash[WEIR__DIGEST_TEXT];
    if (!weir__db_next(db))
        return false;
    weir_text kept = weir__db_text(db, 4);
    bool expired = !weir__db_is_null(db, 5) && weir__db_number(db, 5) <= call->now_ms;
    if (expired || !weir__db_is_null(db, 6))
        return false;
    if (token.len) {
        weir__digest(weir__db_text(db, 3).data, token.data, token.len, hash);
        if (kept.len != sizeof hash - 1 || CRYPTO_memcmp(hash, kept.data, kept.len) != 0)
            return false;
    } else {
        call->session_expires_ms = weir__db_number(db, 8);
    }
    call->reply->right_token = true;
    call->role = weir__role_of(weir__db_text(db, 2).data);
    snprintf(call->token_id, sizeof call->token_id, "%s", weir__db_text(db, 0).data);
    snprintf(call->who, sizeof call->who, "%s", weir__db_text(db, 1).data);
    /* Updates last_used now and then. Errors are ignored, so that reading works with a read-only database. */
    if (call->now_ms - weir__db_number(db, 7) >= USED_MS)
        weir__db_run(db, "UPDATE tokens SET last_used = $1 WHERE id = $2", WEIR__N(call->now_ms),
                     WEIR__S(call->token_id));
    db->error = 0;
    return true;
}

bool weir__token_check(struct weir__call *call, weir_text token)
{
    weir_text rest = token;
    if (token.len > 128 || !weir__text_skip(&rest, TOKEN_PREFIX))
        return false;
    weir_text id = weir__text_cut(&rest, '_');
    if (!rest.len || id.len >= WEIR__TOKEN_ID || !weir__text_sound(id))
        return false;
    weir__db_run(call->db, "SELECT id, name, role, salt, hash, expires, revoked, last_used FROM tokens WHERE id = $1",
                 WEIR__T(id));
    return accept_found(call, token);
}

bool weir__link_take(struct weir__call *call, weir_text link)
{
    weir_text rest = link, id = weir__text_cut(&rest, '_');
    if (link.len > 128 || !rest.len || id.len >= WEIR__TOKEN_ID || !weir__text_sound(id))
        return false;
    weir__db_run(call->db,
                 "SELECT id, name, role, salt, hash, expires, revoked, last_used FROM tokens WHERE id = $1"
                 " AND substr(salt, 1, 5) = '" WEIR__LINK_SALT "' AND created <= $2 AND created > $3",
                 WEIR__T(id), WEIR__N(call->now_ms), WEIR__N(call->now_ms - WEIR__LINK_MS));
    if (!accept_found(call, link))
        return false;
    /* Of several who use it at once, also at services that share the database, one changes the row. */
    weir__db_run(call->db, "UPDATE tokens SET hash = '' WHERE id = $1 AND hash <> ''", WEIR__S(call->token_id));
    return call->reply->right_token = !call->db->error && call->db->changed == 1;
}

static bool session_check(struct weir__call *call, weir_text session)
{
    char hash[WEIR__DIGEST_TEXT];
    weir__digest("", session.data, session.len, hash);
    weir__db_run(call->db,
                 "SELECT t.id, t.name, t.role, t.salt, t.hash, t.expires, t.revoked, t.last_used, s.expires"
                 " FROM sessions s JOIN tokens t ON t.id = s.token WHERE s.hash = $1 AND s.expires > $2",
                 WEIR__S(hash), WEIR__N(call->now_ms));
    return accept_found(call, (weir_text){"", 0});
}

/* ---- The request ---- */

weir_text weir__cookie_of(weir_text cookies)
{
    while (cookies.len) {
        weir_text one = weir__text_trim(weir__text_cut(&cookies, ';'));
        if (weir__text_skip(&one, WEIR__SESSION_COOKIE "=") && one.len)
            return one;
    }
    return (weir_text){"", 0};
}

/* Against request forgery: browsers send the cookie also for pages of other sites, with their Origin. */
bool weir__is_own_page(const struct weir__call *call)
{
    weir_text origin = call->request->origin, host = call->request->host;
    if (!origin.len || weir__text_is(call->request->method, "GET"))
        return true;
    const char *slashes = memmem(origin.data, origin.len, "://", 3);
    if (!slashes)
        return false;
    size_t begin = (size_t)(slashes + 3 - origin.data);
    return weir__text_equal_nocase((weir_text){origin.data + begin, origin.len - begin}, host);
}

static bool check_request(struct weir__call *call)
{
    weir_text given = call->request->authorization;
    if (!given.len)
        return session_check(call, weir__cookie_of(call->request->cookie));
    weir_text scheme = weir__text_cut(&given, ' ');
    return weir__text_equal_nocase(scheme, WEIR__TEXT("Bearer")) && weir__token_check(call, weir__text_trim(given));
}

/* The client's address for the login throttle. An IPv6 client usually has a whole /64: its addresses count as one. */
static struct weir__address peer_of(const struct weir__rest_request *request)
{
    struct weir__address peer = {{0}};
    if (request->address && weir__address_parse(weir__text_of(request->address), &peer))
        weir__address_mask(&peer, weir__address_is4(&peer) ? 128 : 64);
    return peer;
}

static int64_t check_delay_ns(const struct weir__control *control, const struct weir__rest_request *request)
{
    struct weir__address peer = peer_of(request);
    return weir_auth_delay(control->throttle, &peer, sizeof peer, weir_clock(control->throttle));
}

int64_t weir__rest_delay_ms(const struct weir__control *control, const struct weir__rest_request *request)
{
    bool session = weir__text_is(request->method, "POST") && weir__text_is(request->path, "/v1/session");
    bool shown = request->authorization.len || weir__cookie_of(request->cookie).len || session;
    if (request->local_user || !shown)
        return 0;
    return check_delay_ns(control, request) / 1000000;
}

bool weir__fail_wrong_token(struct weir__call *call, const char *message)
{
    weir_segment *throttle = call->control->throttle;
    struct weir__address peer = peer_of(call->request);
    int64_t wait_ns = weir_auth_failure(throttle, &peer, sizeof peer, weir_clock(throttle));
    call->reply->wrong_token = true;
    if (!check_delay_ns(call->control, call->request)) {
        weir__reply_header(call, "WWW-Authenticate", "Bearer realm=\"weir\"");
        return weir__fail(call, 401, "not_authenticated", "%s", message);
    }
    weir__reply_header(call, "Retry-After", "%" PRId64, (wait_ns + WEIR_SECOND - 1) / WEIR_SECOND);
    call->reply->last = true;
    return weir__fail(call, 429, "too_many_failures", "too many wrong tokens; a right one is let in at any time");
}

bool weir__authenticate(struct weir__call *call)
{
    const struct weir__rest_request *request = call->request;
    if (request->local_user) {
        bool sound = weir__text_sound(weir__text_of(request->local_user));
        snprintf(call->who, sizeof call->who, "%s", sound ? request->local_user : "?");
        call->role = WEIR__OPERATOR;
        return true;
    }
    bool shown = request->authorization.len || weir__cookie_of(request->cookie).len;
    bool good = shown && check_request(call);
    if (call->db->error)
        return false;
    if (good && (!call->session_expires_ms || weir__is_own_page(call)))
        return true;
    if (good)
        return weir__fail(call, 403, "other_origin", "a session is for the dashboard's own pages");
    if (shown)
        return weir__fail_wrong_token(call, "the token or the session is wrong, expired or revoked");
    weir__reply_header(call, "WWW-Authenticate", "Bearer realm=\"weir\"");
    return weir__fail(call, 401, "not_authenticated", "send a token: Authorization: Bearer …");
}
