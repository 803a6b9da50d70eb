/*
 * Authentication. Tokens are 256 random bits, which cannot be guessed: one round of SHA-256 with a salt is enough. Of
 * sessions, too, the database has only the hash.
 */
#include "control/call.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKEN_PREFIX "weir_"
#define USED_MS      60000 /* least time between two updates of last_used */
#define DELAY_PART   60    /* a token is checked after this fraction of the throttle's wait: at most 1 s */

/* ---- Randomness and hashes ---- */

void weir__digest(const char *salt, const char *text, size_t len, char *hash)
{
    unsigned char bytes[EVP_MAX_MD_SIZE] = {0};
    unsigned int size = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) &&
                EVP_DigestUpdate(context, salt, strlen(salt)) && EVP_DigestUpdate(context, text, len) &&
                EVP_DigestFinal_ex(context, bytes, &size);
    EVP_MD_CTX_free(context);
    *hash = 0; /* no hash: OpenSSL failed */
    for (unsigned int i = 0; good && i < size; i++)
        snprintf(hash + (size_t)2 * i, 3, "%02x", bytes[i]);
}

bool weir__random_hex(char *to, size_t bytes)
{
    unsigned char random[64];
    bool good = bytes <= sizeof random && RAND_bytes(random, (int)bytes) == 1;
    for (size_t i = 0; good && i < bytes; i++)
        snprintf(to + 2 * i, 3, "%02x", random[i]);
    return good;
}

bool weir__random_word(char *to, size_t bytes)
{
    unsigned char random[48];
    if (bytes > sizeof random || RAND_bytes(random, (int)bytes) != 1)
        return false;
    EVP_EncodeBlock((unsigned char *)to, random, (int)bytes);
    for (; *to; to++)
        *to = (char)(*to == '+' ? '-' : *to == '/' ? '_' : *to == '=' ? 0 : *to);
    return true;
}

/* ---- Looking up ---- */

struct found {
    struct weir__call *call;
    const char *token; /* NULL: by session */
    int64_t last_used_ms;
    bool good;
};

/* id, name, role, salt, hash, expires, revoked, last_used, session's expiry */
static int keep_found(void *context, const struct weir__db_row *row)
{
    struct found *found = context;
    struct weir__call *call = found->call;
    char hash[WEIR__DIGEST_TEXT];
    weir_text kept = weir__row_text(row, 4);
    bool expired = !row->null(row, 5) && weir__row_number(row, 5) <= call->now_ms;
    if (!row->null(row, 6) || expired)
        return 0;
    if (found->token) {
        weir__digest(weir__row_text(row, 3).data, found->token, strlen(found->token), hash);
        if (kept.len != sizeof hash - 1 || !*hash || CRYPTO_memcmp(hash, kept.data, kept.len) != 0)
            return 0;
    } else {
        call->session_expires_ms = weir__row_number(row, 8);
    }
    found->good = call->reply->right_token = true;
    found->last_used_ms = weir__row_number(row, 7);
    call->role = weir__role_of(weir__row_text(row, 2).data);
    snprintf(call->token_id, sizeof call->token_id, "%s", weir__row_text(row, 0).data);
    snprintf(call->who, sizeof call->who, "%s", weir__row_text(row, 1).data);
    return 0;
}

/* Updates last_used now and then. Errors are ignored, so that reading works with a read-only database. */
static void note_use(const struct found *found)
{
    struct weir__call *call = found->call;
    if (call->now_ms - found->last_used_ms >= USED_MS)
        (void)weir__db_exec(call->db, "UPDATE tokens SET last_used = $1 WHERE id = $2", WEIR__N(call->now_ms),
                            WEIR__S(call->token_id));
}

bool weir__token_check(struct weir__call *call, const char *token, int *error)
{
    struct found found = {.call = call, .token = token};
    char id[WEIR__TOKEN_ID];
    size_t prefix = sizeof TOKEN_PREFIX - 1;
    const char *end = strncmp(token, TOKEN_PREFIX, prefix) == 0 ? strchr(token + prefix, '_') : NULL;
    *error = 0;
    if (!end || (size_t)(end - token) - prefix >= sizeof id || strlen(token) > 128)
        return false;
    snprintf(id, sizeof id, "%.*s", (int)((size_t)(end - token) - prefix), token + prefix);
    if (!weir__text_sound((weir_text){id, strlen(id)}))
        return false;
    *error = weir__db_run(call->db,
                          "SELECT id, name, role, salt, hash, expires, revoked, coalesce(last_used, 0) FROM tokens"
                          " WHERE id = $1",
                          WEIR__DB_VALUES(WEIR__S(id)), keep_found, &found);
    if (found.good)
        note_use(&found);
    return found.good && !*error;
}

static bool session_check(struct weir__call *call, weir_text session, int *error)
{
    struct found found = {.call = call};
    char hash[WEIR__DIGEST_TEXT];
    weir__digest("", session.data, session.len, hash);
    *error = weir__db_run(call->db,
                          "SELECT t.id, t.name, t.role, t.salt, t.hash, t.expires, t.revoked, coalesce(t.last_used, 0),"
                          " s.expires FROM sessions s JOIN tokens t ON t.id = s.token"
                          " WHERE s.hash = $1 AND s.expires > $2",
                          WEIR__DB_VALUES(WEIR__S(hash), WEIR__N(call->now_ms)), keep_found, &found);
    if (found.good)
        note_use(&found);
    return found.good && !*error;
}

/* ---- The request ---- */

weir_text weir__cookie_of(weir_text cookies)
{
    static const char name[] = WEIR__SESSION_COOKIE "=";
    while (cookies.len) {
        const char *end = memchr(cookies.data, ';', cookies.len);
        size_t len = end ? (size_t)(end - cookies.data) : cookies.len;
        weir_text one = weir__text_trim((weir_text){cookies.data, len});
        if (one.len > sizeof name - 1 && memcmp(one.data, name, sizeof name - 1) == 0)
            return (weir_text){one.data + sizeof name - 1, one.len - (sizeof name - 1)};
        cookies.data += len + (end != NULL);
        cookies.len -= len + (end != NULL);
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

static bool check_request(struct weir__call *call, int *error)
{
    static const char bearer[] = "Bearer ";
    weir_text given = call->request->authorization;
    char token[160];
    if (given.len) {
        size_t skip = sizeof bearer - 1;
        if (given.len <= skip || !weir__text_equal_nocase((weir_text){given.data, skip}, WEIR__TEXT(bearer)))
            return false;
        weir_text rest = weir__text_trim((weir_text){given.data + skip, given.len - skip});
        if (rest.len >= sizeof token || memchr(rest.data, 0, rest.len))
            return false;
        snprintf(token, sizeof token, "%.*s", (int)rest.len, rest.data);
        return weir__token_check(call, token, error);
    }
    return session_check(call, weir__cookie_of(call->request->cookie), error);
}

int64_t weir__rest_delay_ms(const struct weir__control *control, const struct weir__rest_request *request)
{
    bool session = weir__text_is(request->method, "POST") && weir__text_is(request->path, "/v1/session");
    bool shown = request->authorization.len || weir__cookie_of(request->cookie).len || session;
    if (request->local_user || !shown)
        return 0;
    return weir__login_throttle_wait(control->throttle, request->address) / DELAY_PART / 1000000;
}

int weir__fail_wrong_token(struct weir__call *call, const char *message)
{
    int64_t wait_ns = weir__login_throttle_failed(call->control->throttle, call->request->address);
    call->reply->wrong_token = true;
    if (!wait_ns) {
        weir__reply_header(call, "WWW-Authenticate", "Bearer realm=\"weir\"");
        return weir__fail(call, 401, "not_authenticated", message, NULL);
    }
    weir__reply_header(call, "Retry-After", "%" PRId64, (wait_ns + WEIR_SECOND - 1) / WEIR_SECOND);
    call->reply->last = true;
    return weir__fail(call, 429, "too_many_failures", "too many wrong tokens; a right one is let in at any time", NULL);
}

bool weir__authenticate(struct weir__call *call, int *error)
{
    const struct weir__rest_request *request = call->request;
    *error = 0;
    if (request->local_user) {
        bool sound = weir__text_sound((weir_text){request->local_user, strlen(request->local_user)});
        snprintf(call->who, sizeof call->who, "%s", sound ? request->local_user : "?");
        call->role = WEIR__OPERATOR;
        return true;
    }
    bool shown = request->authorization.len || weir__cookie_of(request->cookie).len;
    bool good = shown && check_request(call, error);
    if (*error)
        return false;
    if (good && call->session_expires_ms && !weir__is_own_page(call)) {
        weir__fail(call, 403, "other_origin", "a session is for the dashboard's own pages", NULL);
        return false;
    }
    if (good)
        return true;
    if (shown) {
        weir__fail_wrong_token(call, "the token or the session is wrong, expired or revoked");
        return false;
    }
    weir__reply_header(call, "WWW-Authenticate", "Bearer realm=\"weir\"");
    weir__fail(call, 401, "not_authenticated", "send a token: Authorization: Bearer …", NULL);
    return false;
}
