/*
 * Small sidecar files of the segment (SEGMENT.hosts and others) that the agent replaces every few seconds, for workers
 * and commands. An agent that root started cannot create files there: it sends their contents to the supervisor through
 * a channel, which accepts only these files and requests for a larger history.
 */
#ifndef WEIR_BASE_SIDECAR_H
#define WEIR_BASE_SIDECAR_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces a file atomically, without fsync. Its group may read it: it must not contain keys. False: errno has the
 * reason. */
bool weir__sidecar_write(const char *path, const char *text, size_t len);

/* ---- The channel ---- */

/* The channel is a socketpair of SOCK_SEQPACKET. In the agent: from now on weir__sidecar_write sends to the channel. */
void weir__sidecar_send_by(int channel, const char *segment_path);
/* Requests a history with room for `rules` from the supervisor. False: there is no channel, or the request was not
 * sent. */
bool weir__sidecar_request_history(size_t rules);

/* The received parts of a text. */
struct weir__sidecar_inbox {
    char *text; /* freed by the caller */
    size_t len;
};
/* Receives one message, if there is one. With the last part of a text, replaces its file; `group` may read it. *rules:
 * the agent requests a history with room for so many; 0: no such request. False: the agent has closed its end. */
bool weir__sidecar_receive(int channel, const char *segment_path, unsigned group, struct weir__sidecar_inbox *inbox,
                           size_t *rules);

#endif
