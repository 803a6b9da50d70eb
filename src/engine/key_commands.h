/*
 * Key commands (block, unblock, reset) on their way to the other hosts: docs/internals/sync.md, "Blocks and resets".
 *
 * A sidecar file, SEGMENT.keys: a bounded queue from every process of the host to its agent, which publishes the
 * commands in the store in their order. A writer takes a ticket, fills the row of that number and then marks it
 * complete; the agent removes a row after the store has acknowledged it, so neither side loses a command when it is
 * killed. A row whose writer died before it was complete is skipped after a second; a checksum rejects a torn row.
 */
#ifndef WEIR_ENGINE_KEY_COMMANDS_H
#define WEIR_ENGINE_KEY_COMMANDS_H

#include "engine/mapped_file.h"
#include "rules/key.h"
#include "table/row_file.h"

#include <weir/check.h>

#define WEIR__KEY_COMMANDS_BYTES ((uint64_t)64 << 10)
#define WEIR__KEY_BY_MAX         63  /* bytes of the author's name */
#define WEIR__KEY_REASON_MAX     159 /* bytes of the reason */

enum weir__key_action { WEIR__KEY_UNBLOCK, WEIR__KEY_BLOCK, WEIR__KEY_RESET, WEIR__KEY_ACTIONS };

struct weir__key_command {
    uint8_t action; /* enum weir__key_action */
    uint8_t pad;
    uint16_t rule_len, key_len, by_len, reason_len; /* of the texts below */
    uint8_t pad_to_made[6];
    int64_t made_ns; /* by the segment's monotonic clock */
    int64_t for_ns;  /* BLOCK: from made_ns on */
    char rule[WEIR_NAME_MAX + 1];
    char key[WEIR__KEY_MAX]; /* as rules count it */
    char by[WEIR__KEY_BY_MAX + 1], reason[WEIR__KEY_REASON_MAX + 1];
};
_Static_assert(sizeof(struct weir__key_command) ==
                   10 + 6 + 16 + WEIR_NAME_MAX + 1 + WEIR__KEY_MAX + WEIR__KEY_BY_MAX + 1 + WEIR__KEY_REASON_MAX + 1,
               "no implicit padding, as a checksum covers all bytes");

struct weir__key_row {
    uint64_t ticket;   /* plus 1, when the row is complete */
    uint64_t checksum; /* of ticket and command */
    uint64_t result;   /* set by the agent before it removes the row: 0, or the negated error */
    struct weir__key_command command;
};

struct weir__key_header {
    struct weir__row_header file;
    uint64_t sender;   /* random: the store carries out each ticket of a sender once */
    uint64_t tail;     /* next ticket */
    uint64_t head;     /* first ticket that the agent has not removed */
    uint64_t agent_ms; /* last round of the agent, coarse monotonic clock; 0: none yet */
    uint64_t error;    /* of that round, negated; 0: the store has replied */
    uint64_t applied;  /* number of the newest entry of the store that an agent has read: its resets are applied */
};

/* Not open: rows is 0. */
struct weir__key_commands {
    struct weir__mapped mapped;
    struct weir__key_header *header;
    struct weir__key_row *row;
    uint32_t rows;
};

int weir__key_commands_open(const struct weir__file_spec *where, struct weir__key_commands *queue);
void weir__key_commands_close(struct weir__key_commands *queue);

/* Appends a command. 0, or WEIR_EBUSY: the queue is full, as the agent does not run or cannot reach the store. */
int weir__key_commands_add(const struct weir__key_commands *queue, const struct weir__key_command *command,
                           uint64_t *ticket);
/* True once the agent has removed the command; *error: 0, or why it is not in the store. */
bool weir__key_commands_done(const struct weir__key_commands *queue, uint64_t ticket, int *error);

/*
 * For the agent alone. Copies the first command. 1: there is one; 0: none; WEIR_EBUSY: its writer has not completed
 * it; WEIR_EDAMAGED: torn or damaged.
 */
int weir__key_commands_first(const struct weir__key_commands *queue, struct weir__key_command *command,
                             uint64_t *ticket);
/* Removes the first command. */
void weir__key_commands_remove(const struct weir__key_commands *queue, int error);
/* Records a round of the agent: 0, or the error of the store. */
void weir__key_commands_beat(const struct weir__key_commands *queue, int error);

/* ---- The rules of a key (key_rules.c) ---- */

#define WEIR__KEY_RULES_MAX 256

struct weir__key_rule {
    char rule[WEIR_NAME_MAX + 1]; /* as its author wrote it */
    char key[WEIR__KEY_MAX];
    size_t key_len;
};

/*
 * The enforced rules of the native dialect with a counter whose key `about` can be, by their templates: "user:42" under
 * "user:${user_id}". If no such template has literal text, also those of which it is the only value: "42", or an
 * address; not "key:42", which has a prefix of its own. Returns how many there are, at most WEIR__KEY_RULES_MAX.
 */
size_t weir__key_rules(weir *engine, weir_text about, struct weir__key_rule found[WEIR__KEY_RULES_MAX]);
/* The different templates of the keys of those rules, cut to what fits. Returns how many were found, at most `max`. */
size_t weir__key_templates(weir *engine, char found[][WEIR__KEY_MAX], size_t max);

/* ---- Commands ---- */

/* The author of a command, and the reason for it; texts may be empty, and are cut to what fits. */
struct weir__key_author {
    weir_text by, reason;
};

/* As weir_key_block and weir_key_reset, with an author; *ticket for weir__key_reach, 0: nothing was queued. */
int weir__key_block_by(weir *engine, const char *rule, weir_text key, int64_t for_ns,
                       const struct weir__key_author *author, uint64_t *ticket);
int weir__key_reset_by(weir *engine, const char *rule, weir_text key, const struct weir__key_author *author,
                       uint64_t *ticket);
/* The error of the agent's last round with the store; 0: none, or no store is shared. */
int weir__key_store_error(weir *engine);
/* Waits for the agent, at most so long. *error: why the command holds on this host alone or not yet on all; 0: none. */
enum weir_reach weir__key_reach(weir *engine, uint64_t ticket, int64_t wait_ms, int *error);

/*
 * Applies a command of another host to this host's segment: neither queues it nor calls the store; for_ns is what is
 * left of it. WEIR_ENORULE: this host has no such rule.
 */
int weir__key_apply(weir *engine, const char *rule, weir_text key, enum weir__key_action action, int64_t for_ns);

#endif
