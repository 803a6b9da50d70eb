/*
 * TLS with OpenSSL over memory BIOs: OpenSSL touches no socket, so there is no SIGPIPE and poll stays with the caller.
 */
#include "remote/socket.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

struct weir__tls_context {
    SSL_CTX *context;
    const struct weir__store_options *options;
};

struct weir__tls_session {
    SSL *ssl;
    BIO *in, *out; /* of `ssl` */
    size_t out_at;
};

/* Without it, OpenSSL would prompt on the terminal while a request waits. */
static int no_pass_phrase(char *to, int size, int writing, void *data)
{
    (void)to, (void)size, (void)writing, (void)data;
    return -1;
}

/* ---- Files that are read before privileges are dropped ---- */

#define KEPT_MAX 4

static struct {
    char *path, *text;
    int len;
} kept[KEPT_MAX];

bool weir__tls_keep(const char *path)
{
    enum { FILE_MAX = 1 << 20 };
    FILE *file = fopen(path, "re");
    char *text = file ? malloc(FILE_MAX) : NULL;
    size_t len = text ? fread(text, 1, FILE_MAX, file) : 0;
    if (file)
        fclose(file);
    for (size_t i = 0; len > 0 && i < KEPT_MAX; i++) {
        if (!kept[i].path && (kept[i].path = strdup(path))) {
            kept[i].text = text;
            kept[i].len = (int)len;
            return true;
        }
    }
    free(text);
    return false;
}

static BIO *file_open(const char *path)
{
    for (size_t i = 0; i < KEPT_MAX && kept[i].path; i++)
        if (strcmp(kept[i].path, path) == 0)
            return BIO_new_mem_buf(kept[i].text, kept[i].len);
    return BIO_new_file(path, "r");
}

static bool certificate_load(SSL_CTX *context, const char *path)
{
    BIO *file = file_open(path);
    X509 *one = file ? PEM_read_bio_X509_AUX(file, NULL, no_pass_phrase, NULL) : NULL;
    bool good = one && SSL_CTX_use_certificate(context, one) == 1;
    X509_free(one);
    while (good && (one = PEM_read_bio_X509(file, NULL, no_pass_phrase, NULL)) != NULL)
        if (SSL_CTX_add0_chain_cert(context, one) != 1) {
            X509_free(one);
            good = false;
        }
    ERR_clear_error(); /* reading to the end of the file leaves an error */
    BIO_free(file);
    return good;
}

static bool key_load(SSL_CTX *context, const char *path)
{
    BIO *file = file_open(path);
    EVP_PKEY *key = file ? PEM_read_bio_PrivateKey(file, NULL, no_pass_phrase, NULL) : NULL;
    bool good = key && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    BIO_free(file);
    return good;
}

static bool load_files(SSL_CTX *context, const struct weir__store_options *options)
{
    if (options->ca[0] ? !SSL_CTX_load_verify_locations(context, options->ca, NULL)
                       : !SSL_CTX_set_default_verify_paths(context))
        return false;
    if (!options->certificate[0])
        return true;
    return certificate_load(context, options->certificate) && key_load(context, options->key) &&
           SSL_CTX_check_private_key(context) == 1;
}

struct weir__tls_context *weir__tls_context_new(const struct weir__store_options *options)
{
    struct weir__tls_context *context = calloc(1, sizeof(*context));

    if (!context)
        return NULL;
    context->options = options;
    context->context = SSL_CTX_new(TLS_client_method());
    if (!context->context || !SSL_CTX_set_min_proto_version(context->context, TLS1_2_VERSION) ||
        !load_files(context->context, options)) {
        ERR_clear_error();
        weir__tls_context_free(context);
        return NULL;
    }
    SSL_CTX_set_verify(context->context, options->no_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(context->context, SSL_MODE_RELEASE_BUFFERS);
    return context;
}

void weir__tls_context_free(struct weir__tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->context);
    free(context);
}

/* The name that the certificate must be valid for. Host names are also sent (SNI), addresses are not. */
static bool expect_name(SSL *ssl, const char *name)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    return SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

struct weir__tls_session *weir__tls_new(const struct weir__tls_context *context, const char *host)
{
    struct weir__tls_session *tls = calloc(1, sizeof(*tls));

    if (!tls)
        return NULL;
    tls->ssl = SSL_new(context->context);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (!tls->ssl || !tls->in || !tls->out) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    BIO_set_mem_eof_return(tls->in, -1);
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_connect_state(tls->ssl);
    if (!expect_name(tls->ssl, context->options->server_name[0] ? context->options->server_name : host)) {
        weir__tls_free(tls);
        return NULL;
    }
    return tls;
}

void weir__tls_free(struct weir__tls_session *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
    ERR_clear_error();
}

bool weir__tls_feed(struct weir__tls_session *tls, const char *data, size_t len)
{
    return len <= INT_MAX && BIO_write(tls->in, data, (int)len) == (int)len;
}

/* Whether one side refused the other's certificate. */
static bool distrusted(const struct weir__tls_session *tls)
{
    unsigned long error = ERR_peek_error();

    if (SSL_get_verify_result(tls->ssl) != X509_V_OK)
        return true;
    if (ERR_GET_LIB(error) != ERR_LIB_SSL)
        return false;
    /* Alerts of the peer: 40 to 49 concern certificates and access, 116 is "certificate required". */
    int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
    return (alert >= 40 && alert <= 49) || alert == 116;
}

/* Whether only more bytes are needed. */
static bool wants_more(const struct weir__tls_session *tls, int result)
{
    int error = SSL_get_error(tls->ssl, result);

    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

int weir__tls_shake(struct weir__tls_session *tls)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1)
        return 1;
    if (wants_more(tls, result))
        return 0;
    return distrusted(tls) ? WEIR_ESTOREAUTH : WEIR_ESTOREGARBAGE;
}

long weir__tls_read(struct weir__tls_session *tls, char *to, size_t size)
{
    ERR_clear_error();
    int result = SSL_read(tls->ssl, to, size > INT_MAX ? INT_MAX : (int)size);
    if (result > 0)
        return result;
    if (wants_more(tls, result))
        return 0;
    /* With TLS 1.3 the server refuses a client certificate after the handshake. */
    return distrusted(tls) ? WEIR_ESTOREAUTH : WEIR_ESTOREDOWN;
}

bool weir__tls_write(struct weir__tls_session *tls, const char *data, size_t len)
{
    ERR_clear_error();
    while (len > 0) {
        int part = len > 65536 ? 65536 : (int)len, result = SSL_write(tls->ssl, data, part);
        if (result <= 0)
            return false;
        data += result;
        len -= (size_t)result;
    }
    return true;
}

const char *weir__tls_output(struct weir__tls_session *tls, size_t *len)
{
    char *data = NULL;
    long all = BIO_get_mem_data(tls->out, &data);

    *len = all > 0 ? (size_t)all - tls->out_at : 0;
    return data ? data + tls->out_at : NULL;
}

void weir__tls_sent(struct weir__tls_session *tls, size_t len)
{
    size_t left;

    tls->out_at += len;
    (void)weir__tls_output(tls, &left);
    if (left == 0) {
        (void)BIO_reset(tls->out);
        tls->out_at = 0;
    }
}
