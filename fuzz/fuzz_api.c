/*
 * The HTTP API from the JSON body to the decision: for every body the reply is a JSON object, with "error" exactly if
 * its status is one of an error. The first byte chooses the path, the second the size of the reply's first buffer.
 */
#include "services/http/api.h"
#include "engine/mapped_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct weir__api api;

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void open_once(void)
{
    static const char rules[] = "identity: { user_id: header:X-User }\n"
                                "rules:\n"
                                "  - { name: a, match: { path: /a/* }, key: \"u:${user_id}\", limit: 5, window: 1m }\n"
                                "  - { name: b, key: \"${client_ip}\", limit: 50, window: 1s }\n";
    static const char path[] = "/tmp/weir-fuzz-api.reservations";
    weir_options how = {.segment = {.size = 1 << 20}, .rules_text = rules};
    static struct weir__reservations reservations;
    static struct weir__mapped mapped;
    uint32_t count = 64;
    struct weir__file_spec spec = {.path = path,
                                   .bytes = weir__reservations_bytes(count),
                                   .format = weir__reservations_format,
                                   .plan = &count,
                                   .check = weir__reservations_check};
    weir *engine = NULL;
    if (api.engine)
        return;
    unlink(path);
    check(weir_open(&how, &engine) == 0 && weir__mapped_open(&spec, &mapped) == 0 &&
          weir__reservations_attach(&reservations, mapped.memory, mapped.bytes) == 0);
    unlink(path);
    check(weir__api_open(&api, engine, &reservations) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"check", "refund", "reserve", "commit", "cancel", "keys/a/u:1/block"};
    char room[256];
    struct weir__api_route route;
    struct weir__api_reply reply;
    if (size < 2)
        return 0;
    open_once();
    const char *path = paths[data[0] % 6];
    weir__buffer_borrow(&reply.out, room, 1 + data[1]);
    weir__api_find_route(data[0] % 6 == 5 ? WEIR__PUT : WEIR__POST, (weir_text){path, strlen(path)}, &route);
    weir__api_run(&api, &route, (weir_text){(const char *)data + 2, size - 2}, data[0] & 64, &reply);
    json_t *reply_json = json_loadb(reply.out.data, reply.out.len, JSON_REJECT_DUPLICATES, NULL);
    check(json_is_object(reply_json));
    check((json_object_get(reply_json, "error") != NULL) ==
          (reply.status >= 400 && !json_object_get(reply_json, "decision")));
    json_decref(reply_json);
    weir__buffer_free(&reply.out);

    /* The same bytes as a path. */
    weir__api_find_route((enum weir__api_method)(1 << data[0] % 5), (weir_text){(const char *)data + 2, size - 2},
                         &route);
    check(route.key_len <= sizeof route.key || route.action == WEIR__API_NO_PATH);
    return 0;
}
