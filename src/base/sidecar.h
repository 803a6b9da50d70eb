/*
 * Small files beside the segment that the agent replaces every few seconds, for workers of another user and commands.
 * An agent that root started is a user who may not make files there: it sends them to the process that stayed root, by
 * a channel on which nothing else can be asked for than these files, and room in the history.
 */
#ifndef WEIR_BASE_SIDECAR_H
#define WEIR_BASE_SIDECAR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whoever reads it sees the old one or the new one; after a loss of power perhaps neither, and nobody minds. Its
 * group may read it: it must hold no keys. False: errno says why.
 */
bool weir__sidecar_write(const char *path, const char *text, size_t len);

/* ---- The channel ---- */

/* The agent's end is ends[1]; its own call is weir__sidecar_send_by. False: errno says why. */
bool weir__sidecar_channel(int ends[2]);
/* From now on this process's weir__sidecar_write sends. */
void weir__sidecar_send_by(int channel, const char *segment_path);
/* Has root make a history with room for so many rules. False: this process makes it itself, or nobody can be asked. */
bool weir__sidecar_request_history(size_t rules);

/* What root has of a message that comes in parts. */
struct weir__sidecar_inbox {
    char *text; /* freed by the caller */
    size_t len;
};
/*
 * Takes one message, if there is one, and writes the file that it is about: `group`, that of the workers, may read it.
 * *rules: for how many rules the agent needs a history; 0: it does not. False: the agent has closed its end.
 */
bool weir__sidecar_receive(int channel, const char *segment_path, unsigned group, struct weir__sidecar_inbox *inbox,
                           size_t *rules);

#endif
