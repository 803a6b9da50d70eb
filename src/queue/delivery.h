/* One deferred request on its way: a copy of it, and its transfer. */
#ifndef WEIR_QUEUE_DELIVERY_H
#define WEIR_QUEUE_DELIVERY_H

#include "queue/queue.h"

#include <curl/curl.h>

enum weir__delivery_state {
    WEIR__DELIVERY_FREE = 0,
    WEIR__DELIVERY_CLAIMED, /* nobody has been asked yet */
    WEIR__DELIVERY_DELAYED, /* it may go, but not before begins_ms */
    WEIR__DELIVERY_SENT,
    WEIR__DELIVERY_ENDED /* `end` is to be told to the queue */
};

struct weir__delivery {
    enum weir__delivery_state state;
    struct weir__deferred item; /* its texts are in `text` */
    char *text;
    int64_t begins_ms, renew_ms;
    weir_permits permits; /* slots of requests in flight */
    CURL *curl;           /* kept for the next one */
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];

    /* What became of it. */
    enum weir__queue_end_kind end;
    bool counts; /* as an attempt */
    int status;
    int64_t retry_after_ms; /* for how long the server wants to be left alone; 0: it does not say */
    int64_t due_ms;
    uint64_t aside; /* of one that waits again: its group, as in struct weir__queue_ending */
    char why[WEIR__QUEUE_WHY_MAX + 1];
};

/* Where requests go to. */
struct weir__delivery_target {
    const char *url;    /* "http://host:port", without a path; NULL: nowhere */
    const char *socket; /* of an HTTP server on this host, or NULL */
    const char *ca;     /* NULL: the machine's */
    bool unverified;    /* whoever answers is believed */
    int64_t timeout_ms; /* of a whole delivery */
};

/* Copies the request. False: no memory. */
bool weir__delivery_copy(struct weir__delivery *delivery, const struct weir__deferred *item);
/* Begins the transfer. False, and `why` is set: it cannot be sent. */
bool weir__delivery_send(struct weir__delivery *delivery, const struct weir__delivery_target *target, CURLM *multi);
/* The transfer is over or is to be: sets status (0: no answer) and why. */
void weir__delivery_received(struct weir__delivery *delivery, CURLM *multi, CURLcode code);
/* Free again, for another. */
void weir__delivery_clear(struct weir__delivery *delivery);

#endif
