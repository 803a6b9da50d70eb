/* TLS without sockets: bytes of the network on one side, of the store on the other. */
#ifndef WEIR_REMOTE_TLS_H
#define WEIR_REMOTE_TLS_H

#include "remote/options.h"

struct weir__tls_context;
struct weir__tls_session;

/* NULL: authorities, certificate or key cannot be read or do not match. */
struct weir__tls_context *weir__tls_context_new(const struct weir__store_options *options);
/*
 * Reads a certificate's or key's file into memory, where weir__tls_context_new finds it from now on: for a process that
 * becomes a user who may not read it. False: it cannot be read.
 */
bool weir__tls_keep(const char *path);
void weir__tls_context_free(struct weir__tls_context *context);

/* For a connection to `host`, whose certificate must be for it, or for the options' server_name. NULL: no memory. */
struct weir__tls_session *weir__tls_new(const struct weir__tls_context *context, const char *host);
void weir__tls_free(struct weir__tls_session *tls);

/* Bytes that have come from the network. False: no memory. */
bool weir__tls_feed(struct weir__tls_session *tls, const char *data, size_t len);
/* 1: the handshake is over; 0: not yet; negative: WEIR_ESTOREAUTH when one side does not trust the other, or
 * WEIR_ESTOREGARBAGE. */
int weir__tls_shake(struct weir__tls_session *tls);
/* How many bytes of the store were put into `to`; 0: none yet; negative: why it is over. */
long weir__tls_read(struct weir__tls_session *tls, char *to, size_t size);
/* Takes all of it. False: it failed. */
bool weir__tls_write(struct weir__tls_session *tls, const char *data, size_t len);
/* What is to be sent to the network, and how much of it was. */
const char *weir__tls_output(struct weir__tls_session *tls, size_t *len);
void weir__tls_sent(struct weir__tls_session *tls, size_t len);

#endif
