/* TLS over non-blocking sockets, with OpenSSL: certificates and keys, sessions, and the errors of a session. */
#include "remote/socket.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <weir/weir.h>

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

SSL_CTX *weir__tls_context_new(const struct weir__store_options *options)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());

    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) || !load_files(context, options)) {
        ERR_clear_error();
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_verify(context, options->no_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    /* A write that would block is repeated with a buffer that may have grown and moved. */
    SSL_CTX_set_mode(context,
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

/* ---- The socket as a BIO: OpenSSL's own would raise SIGPIPE ---- */

static int bio_result(BIO *bio, ssize_t result, int retry)
{
    BIO_clear_retry_flags(bio);
    if (result < 0 && weir__would_block())
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)result;
}

static int bio_read(BIO *bio, char *to, int size)
{
    return bio_result(bio, recv((int)(intptr_t)BIO_get_data(bio), to, (size_t)size, 0), BIO_FLAGS_READ);
}

static int bio_write(BIO *bio, const char *data, int len)
{
    return bio_result(bio, send((int)(intptr_t)BIO_get_data(bio), data, (size_t)len, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static long bio_control(BIO *bio, int command, long number, void *data)
{
    (void)bio, (void)number, (void)data;
    return command == BIO_CTRL_FLUSH; /* nothing is buffered */
}

static BIO_METHOD *method; /* never freed */

static void method_init(void)
{
    method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
    if (method) {
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_control);
    }
}

static BIO *bio_new(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, method_init);
    BIO *bio = method ? BIO_new(method) : NULL;
    if (bio) {
        BIO_set_data(bio, (void *)(intptr_t)fd);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* ---- Sessions ---- */

bool weir__tls_expect_name(SSL *tls, const char *name)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), name) == 1;
    return SSL_set_tlsext_host_name(tls, name) == 1 && SSL_set1_host(tls, name) == 1; /* addresses are not sent (SNI) */
}

SSL *weir__tls_new(SSL_CTX *context, int fd, const char *name)
{
    SSL *tls = SSL_new(context);
    BIO *bio = bio_new(fd);

    if (!tls || !bio || !weir__tls_expect_name(tls, name)) {
        BIO_free(bio);
        SSL_free(tls);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_bio(tls, bio, bio);
    SSL_set_connect_state(tls);
    return tls;
}

/* Whether one side refused the other's certificate; with TLS 1.3 the server does so after the handshake. */
static bool distrusted(const SSL *tls)
{
    unsigned long error = ERR_peek_error();

    if (SSL_get_verify_result(tls) != X509_V_OK)
        return true;
    if (ERR_GET_LIB(error) != ERR_LIB_SSL)
        return false;
    /* Alerts of the peer: 40 to 49 concern certificates and access, 116 is "certificate required". */
    int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
    return (alert >= 40 && alert <= 49) || alert == 116;
}

int weir__tls_result(const SSL *tls, int result)
{
    int error = 0;

    switch (SSL_get_error(tls, result)) {
    case SSL_ERROR_NONE:
        return result;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_SSL:
        error = distrusted(tls) ? WEIR_ESTOREAUTH : SSL_is_init_finished(tls) ? 0 : WEIR_ESTOREGARBAGE;
        break;
    default:
        break;
    }
    ERR_clear_error(); /* the next call needs an empty queue */
    return error ? error : WEIR_ESTOREDOWN;
}
