/* Small sidecar files of the segment, and the agent's channel for them. See sidecar.h. */
#include "base/sidecar.h"
#include "base/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Kinds of messages: the text of one of these files, or a number of rules (HISTORY). */
static const char *const endings[] = {".hosts", ".hosts.lines", ".queue"};
enum { FILES = sizeof endings / sizeof *endings, HISTORY = FILES };

enum { PART = 32 << 10, TEXT_MAX = 4 << 20 }; /* maximal bytes of a message, and of a text */

struct head {
    uint8_t what; /* index of endings, or HISTORY */
    uint8_t first, last;
};

struct message {
    struct head head;
    char text[PART];
};

static struct {
    pthread_mutex_t lock; /* keeps the parts of a text together */
    bool on;
    int channel;
    char segment[4096];
} sender = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Writing ---- */

/* Does not block: a text that does not fit into the socket is lost; the next one follows in a few seconds. */
static bool send_text(uint8_t what, const char *text, size_t len)
{
    struct message message = {.head = {.what = what, .first = true}};
    bool sent = len <= TEXT_MAX;
    pthread_mutex_lock(&sender.lock);
    for (size_t at = 0; sent && !message.head.last; at += PART) {
        size_t part = len - at < PART ? len - at : PART;
        memcpy(message.text, text + at, part);
        message.head.first = at == 0;
        message.head.last = at + part == len;
        sent = send(sender.channel, &message, sizeof message.head + part, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    }
    pthread_mutex_unlock(&sender.lock);
    return sent;
}

bool weir__sidecar_write(const char *path, const char *text, size_t len)
{
    size_t segment = strlen(sender.segment);
    if (!sender.on)
        return weir__file_swap(path, text, len, 0640, (unsigned)-1);
    for (size_t i = 0; i < FILES; i++)
        if (strncmp(path, sender.segment, segment) == 0 && strcmp(path + segment, endings[i]) == 0)
            return send_text((uint8_t)i, text, len);
    errno = EPERM;
    return false;
}

bool weir__sidecar_request_history(size_t rules)
{
    uint32_t count = (uint32_t)rules;
    return sender.on && rules <= UINT32_MAX && send_text(HISTORY, (const char *)&count, sizeof count);
}

/* ---- The channel ---- */

void weir__sidecar_send_by(int channel, const char *segment_path)
{
    sender.on = true;
    sender.channel = channel;
    snprintf(sender.segment, sizeof sender.segment, "%s", segment_path);
}

bool weir__sidecar_receive(int channel, const char *segment_path, unsigned group, struct weir__sidecar_inbox *inbox,
                           size_t *rules)
{
    static struct message message;
    char path[4200];
    uint32_t count;
    ssize_t got = recv(channel, &message, sizeof message, MSG_DONTWAIT);
    *rules = 0;
    if (got < (ssize_t)sizeof message.head)
        return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    size_t len = (size_t)got - sizeof message.head;
    inbox->len = message.head.first ? 0 : inbox->len;
    if (!message.head.first && !inbox->len) /* the rest of a text that was too long, or a repetition */
        return true;
    char *text = inbox->len + len <= TEXT_MAX ? realloc(inbox->text, inbox->len + len + 1) : NULL;
    if (!text)
        return true;
    memcpy(text + inbox->len, message.text, len);
    inbox->text = text;
    inbox->len += len;
    if (!message.head.last)
        return true;
    if (message.head.what < FILES) {
        snprintf(path, sizeof path, "%s%s", segment_path, endings[message.head.what]);
        (void)!weir__file_swap(path, inbox->text, inbox->len, 0640, group);
    } else if (message.head.what == HISTORY && inbox->len == sizeof count) {
        memcpy(&count, inbox->text, sizeof count);
        *rules = count;
    }
    inbox->len = 0;
    return true;
}
