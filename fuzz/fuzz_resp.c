/*
 * Requests of the Redis protocol: any bytes are a command, incomplete or invalid; the arguments lie inside of the
 * input; input in pieces is parsed as the same input in one piece; and a CL.THROTTLE yields five valid numbers or an
 * error.
 */
#include "services/resp/resp.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_throttle(const struct weir__resp_command *command)
{
    static struct weir__throttle_limits limits;
    static weir_segment *segment;
    struct weir__throttle call;
    const weir_limit *limit = NULL;
    weir_decision decision;
    int64_t numbers[5];
    char room[256];
    if (!segment) {
        weir_segment_options how = {.size = 1 << 20};
        check(weir_segment_open(&how, &segment) == 0);
    }
    if (weir__throttle_read(command->args, command->count, &call))
        return;
    check(call.count > 0 && call.period_s > 0 && call.max_burst >= 0);
    limit = weir__throttle_known(&limits, &call);
    if (!limit && weir__throttle_make(&limits, &call, &limit) != 0)
        return;
    check(limit->hard == call.max_burst + 1 && limit->limit == call.count);
    if (weir_take(segment, limit, call.key.data, call.key.len, weir__throttle_cost(&call, limit),
                  (weir_time){WEIR_DAY, WEIR_DAY}, &decision) != 0)
        return;
    weir__throttle_reply(&decision, numbers);
    check(numbers[0] == 0 || numbers[0] == 1);
    check(numbers[1] == call.max_burst + 1 && numbers[2] >= 0 && numbers[2] <= numbers[1]);
    check(numbers[3] >= -1 && numbers[4] >= 0 && (numbers[0] || numbers[3] == -1));
    struct weir__resp_out out = {.at = room, .end = room + sizeof room, .version = 2};
    weir__resp_five(&out, numbers);
    check(!out.overflow && out.at > room);
}

static void check_command(const struct weir__resp_command *command, const char *data)
{
    check(command->length > 0 && command->count <= WEIR__RESP_ARGS);
    for (size_t i = 0; i < command->count; i++) {
        const weir_text *arg = &command->args[i];
        check(arg->data >= data && arg->data + arg->len <= data + command->length);
    }
    if (command->count)
        check_throttle(command);
}

/* Parses all commands, `step` bytes at a time (0: all at once). Returns a checksum of the arguments. */
static uint64_t read_all(const uint8_t *data, size_t size, bool unauthenticated, size_t step)
{
    static struct weir__resp_command command;
    char *copy = malloc(size + 1);
    uint64_t sum = 1469598103934665603U;
    size_t at = 0, there = step ? 0 : size, need = 1;
    check(copy != NULL);
    memcpy(copy, data, size);
    for (;;) {
        if (there - at < need && there < size) {
            there = step < size - there ? there + step : size;
            continue;
        }
        enum weir__resp_result result = weir__resp_parse(copy + at, there - at, unauthenticated, &command);
        if (result == WEIR__RESP_MORE) {
            check(command.need > there - at && command.need <= WEIR__RESP_COMMAND_MAX);
            need = command.need;
            if (there == size)
                break;
            continue;
        }
        if (result == WEIR__RESP_INVALID) {
            check(command.error[0] && memchr(command.error, 0, sizeof command.error));
            sum = sum * 1099511628211U + (unsigned char)command.error[strlen(command.error) - 1];
            break;
        }
        check(command.length <= there - at);
        check_command(&command, copy + at);
        for (size_t i = 0; i < command.count; i++)
            for (size_t c = 0; c < command.args[i].len; c++)
                sum = (sum ^ (unsigned char)command.args[i].data[c]) * 1099511628211U;
        sum = sum * 1099511628211U + command.count;
        at += command.length;
        need = 1;
    }
    free(copy);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole = read_all(data, size, false, 0);
    check(whole == read_all(data, size, false, 1));
    check(whole == read_all(data, size, false, 7));
    check(read_all(data, size, true, 0) == read_all(data, size, true, 3));
    return 0;
}
