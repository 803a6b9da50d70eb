/* The queue of key commands: see key_commands.h. */
#include "engine/key_commands.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/hash.h"

#include <string.h>

static const struct weir__row_format format = {
    .magic = UINT64_C(0x0a5359454b5245f7),
    .layout = 2,
    .rows_min = 16,
    .header_bytes = sizeof(struct weir__key_header),
    .row_bytes = sizeof(struct weir__key_row),
};

int weir__key_commands_open(const struct weir__file_spec *where, struct weir__key_commands *queue)
{
    struct weir__file_spec spec = *where;
    uint64_t sender = 0, none = 0;
    spec.bytes = WEIR__KEY_COMMANDS_BYTES;
    spec.format = weir__row_file_format;
    spec.check = weir__row_file_check;
    spec.plan = &format;
    spec.disabled = "blocks and resets of keys stay on this host (.keys)";
    int error = weir__mapped_open(&spec, &queue->mapped);
    if (error)
        return error;
    queue->header = queue->mapped.memory;
    queue->row = (struct weir__key_row *)(void *)(queue->header + 1);
    queue->rows = weir__row_file_rows(queue->mapped.memory, queue->mapped.bytes, &format);
    error = queue->rows ? weir__random_fill(&sender, sizeof sender) : WEIR_EDAMAGED;
    if (error)
        weir__key_commands_close(queue);
    else if (!spec.read_only)
        (void)weir__cas64(&queue->header->sender, &none, sender ? sender : 1);
    return error;
}

void weir__key_commands_close(struct weir__key_commands *queue)
{
    weir__mapped_close(&queue->mapped);
    *queue = (struct weir__key_commands){0};
}

static uint64_t checksum(uint64_t ticket, const struct weir__key_command *command)
{
    return weir__hash_text((weir_text){(const char *)command, sizeof *command}, ticket);
}

int weir__key_commands_add(const struct weir__key_commands *queue, const struct weir__key_command *command,
                           uint64_t *ticket)
{
    uint64_t tail = weir__load64(&queue->header->tail);
    do {
        if (tail - weir__load64(&queue->header->head) >= queue->rows)
            return WEIR_EBUSY;
    } while (!weir__cas64(&queue->header->tail, &tail, tail + 1));
    struct weir__key_row *row = &queue->row[tail % queue->rows];
    row->command = *command;
    row->checksum = checksum(tail, command);
    weir__store64_ordered(&row->ticket, tail + 1);
    *ticket = tail + 1;
    return 0;
}

bool weir__key_commands_done(const struct weir__key_commands *queue, uint64_t ticket, int *error)
{
    const struct weir__key_row *row = &queue->row[(ticket - 1) % queue->rows];
    if (weir__load64_ordered(&queue->header->head) < ticket)
        return false;
    uint64_t result = weir__load64(&row->result);
    /* A row that has another command by now was removed long ago, and its result is not known. */
    *error = weir__load64_ordered(&row->ticket) == ticket ? -(int)(result & 0xffff) : 0;
    return true;
}

/* ---- The agent ---- */

static bool is_sound(const struct weir__key_command *command)
{
    return command->action < WEIR__KEY_ACTIONS && command->rule_len && command->rule_len <= WEIR_NAME_MAX &&
           command->key_len && command->key_len <= WEIR__KEY_MAX && command->by_len <= WEIR__KEY_BY_MAX &&
           command->reason_len <= WEIR__KEY_REASON_MAX && command->made_ns >= 0 && command->for_ns >= 0 &&
           !command->rule[command->rule_len];
}

int weir__key_commands_first(const struct weir__key_commands *queue, struct weir__key_command *command,
                             uint64_t *ticket)
{
    uint64_t head = weir__load64(&queue->header->head), tail = weir__load64_ordered(&queue->header->tail);
    if (head == tail)
        return 0;
    *ticket = head + 1;
    const struct weir__key_row *row = &queue->row[head % queue->rows];
    if (tail - head > queue->rows)
        return WEIR_EDAMAGED;
    if (weir__load64_ordered(&row->ticket) != head + 1)
        return WEIR_EBUSY;
    *command = row->command;
    return row->checksum == checksum(head, command) && is_sound(command) ? 1 : WEIR_EDAMAGED;
}

void weir__key_commands_remove(const struct weir__key_commands *queue, int error)
{
    uint64_t head = weir__load64(&queue->header->head), tail = weir__load64(&queue->header->tail);
    weir__store64(&queue->row[head % queue->rows].result, (uint64_t)-error);
    weir__store64_ordered(&queue->header->head, tail - head > queue->rows ? tail : head + 1);
}

void weir__key_commands_beat(const struct weir__key_commands *queue, int error)
{
    weir__store64(&queue->header->error, (uint64_t)-error);
    weir__store64_ordered(&queue->header->agent_ms, weir__coarse_ms());
}
