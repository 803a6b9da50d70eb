/* The REST API without HTTP: a request in, a reply out. Thread-safe. */
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
    weir_text heartbeat; /* X-Weir-Host: the heartbeat of a host that polls its rules from here */
    weir_text body;
    const char *address;    /* client's address as text */
    bool tls;               /* cookies are for TLS only */
    const char *local_user; /* not NULL: a local command, with all rights, under this name */
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
    bool last; /* close the connection afterwards */
};

/*
 * Delay before weir__rest_run, at most 1 s: for a request with a token or session while too many wrong ones come from
 * its address or in total; else 0. A connection that has shown a valid one is exempt.
 */
int64_t weir__rest_delay_ms(const struct weir__control *control, const struct weir__rest_request *request);
void weir__rest_run(struct weir__control *control, const struct weir__rest_request *request,
                    struct weir__rest_reply *reply);
void weir__rest_free(struct weir__rest_reply *reply);

/* The value of a header of the reply, or NULL. */
const char *weir__rest_header(const struct weir__rest_reply *reply, const char *name);

#endif
