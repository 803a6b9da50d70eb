/*
 * The rules service with a database in memory: for every request the reply is JSON or YAML with a valid status, a
 * refused request changes nothing, and the published rules stay readable. An input is a few requests:
 * METHOD SP PATH[?QUERY] LF HEADER LF BODY, each ended by a line of "====".
 */
#include "control/call.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct weir__control *control;

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* What accumulates makes later inputs slow. */
static void open_now_and_then(void)
{
    static const struct weir__control_options options = {.url = "sqlite::memory:"};
    static unsigned count;
    if (control && ++count % 256)
        return;
    weir__control_close(control);
    check(weir__control_open(&options, &control) == 0);
}

static weir_text cut(weir_text *rest, const char *at)
{
    const char *end = rest->len ? memmem(rest->data, rest->len, at, strlen(at)) : NULL;
    weir_text first = {rest->data, end ? (size_t)(end - rest->data) : rest->len};
    size_t used = first.len + (end ? strlen(at) : 0);
    rest->data += used;
    rest->len -= used;
    return first;
}

static void check_reply(const struct weir__rest_request *request, const struct weir__rest_reply *reply)
{
    const char *type = weir__rest_header(reply, "Content-Type");
    bool none = reply->status == 204 || reply->status == 304;
    check(reply->status >= 200 && reply->status <= 503 && reply->status != 500);
    check(none == !reply->body);
    if (none || strcmp(type, "application/json") != 0)
        return;
    json_t *said = json_loadb(reply->body, reply->len, JSON_REJECT_DUPLICATES, NULL);
    check(json_is_object(said));
    check((json_object_get(said, "error") != NULL) == (reply->status >= 400));
    json_decref(said);
    (void)request;
}

static void check_in_force(void)
{
    weir_rules *rules = NULL;
    if (!control->published.revision)
        return;
    check(weir_rules_parse("f", control->published.text, control->published.len, NULL, NULL, &rules) == 0);
    weir_rules_free(rules);
}

static void run_one(weir_text text, bool local)
{
    struct weir__rest_reply reply;
    weir_text line = cut(&text, "\n"), header = cut(&text, "\n"), target = line;
    struct weir__rest_request request = {.address = "192.0.2.1", .local_user = local ? "fuzz" : NULL};
    request.method = cut(&target, " ");
    request.path = cut(&target, "?");
    request.query = target;
    request.body = text;
    request.if_match = request.if_none_match = request.reason = header;
    request.authorization = request.cookie = request.origin = header;
    bool json = text.len && (*text.data == '{' || *text.data == '[');
    request.content_type = json ? WEIR__TEXT("application/json") : WEIR__TEXT("application/yaml");
    request.accept = header;
    weir__rest_run(control, &request, &reply);
    check_reply(&request, &reply);
    weir__rest_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_text rest = {(const char *)data, size};
    open_now_and_then();
    int64_t before = control->published.revision;
    for (int i = 0; rest.len && i < 8; i++)
        run_one(cut(&rest, "====\n"), true);
    rest = (weir_text){(const char *)data, size};
    run_one(cut(&rest, "====\n"), false);
    if (control->published.revision != before)
        check_in_force();
    return 0;
}
