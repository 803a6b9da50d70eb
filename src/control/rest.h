/*
 * The service's REST without HTTP: what a request says in, what is to be answered out. Safe to be called by several
 * threads at once.
 */
#ifndef WEIR_CONTROL_REST_H
#define WEIR_CONTROL_REST_H

#include "control/control.h"

#define WEIR__REST_BODY_MAX  ((size_t)1 << 20)
#define WEIR__SESSION_COOKIE "weir_session"

/* Headers that a request does not have are empty. */
struct weir__rest_request {
    weir_text method;
    weir_text path;  /* as it came: not decoded, without the query */
    weir_text query; /* as it came, without '?' */
    weir_text authorization, cookie, content_type, accept, if_match, if_none_match, origin, host;
    weir_text reason;    /* X-Weir-Reason */
    weir_text heartbeat; /* X-Weir-Host: what a host that takes its rules from here tells of itself */
    weir_text body;
    const char *address;    /* whose request it is, as text */
    bool tls;               /* cookies are for TLS only */
    const char *local_user; /* not NULL: a command on this host, which may do everything, under this name */
};

#define WEIR__REST_HEADERS 6

struct weir__rest_reply {
    int status;
    struct {
        const char *name;
        char value[512];
    } headers[WEIR__REST_HEADERS];
    size_t header_count;
    char *body; /* from malloc; NULL: none */
    size_t len;
    bool right_token; /* or session */
    bool wrong_token;
    bool last; /* the connection is to be closed after it */
};

/*
 * How long to wait before weir__rest_run: at most 1 s, where a request shows a token or a session and too many wrong
 * ones came from its address or in all; else 0. Requests on a connection that has shown a right one need not wait.
 */
int64_t weir__rest_delay_ms(const struct weir__control *control, const struct weir__rest_request *request);
void weir__rest_run(struct weir__control *control, const struct weir__rest_request *request,
                    struct weir__rest_reply *reply);
void weir__rest_free(struct weir__rest_reply *reply);

/* The value of a header of the reply, or NULL. */
const char *weir__rest_header(const struct weir__rest_reply *reply, const char *name);

#endif
