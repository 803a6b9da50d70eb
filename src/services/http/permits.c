/* Permits of concurrency rules: a check's permits are a text, the lease, which POST release and renew take. */
#include "services/http/api.h"

void weir__api_write_lease(struct weir__api *api, struct weir__buffer *out)
{
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    const weir_permits *permits = &api->scratch->permits;
    size_t len = permits->count ? weir_permits_to_text(api->engine, permits, text) : 0;
    if (!len)
        return;
    weir__buffer_add_literal(out, ",\"lease\":");
    weir__json_add_string(out, (weir_text){text, len});
    weir__buffer_add_literal(out, ",\"lease_s\":");
    weir__json_add_seconds(out, permits->lease_ns);
}

/* Reads {"lease"}. False: the reply has the error. */
static bool read_lease(struct weir__api *api, weir_text body, weir_permits *permits, struct weir__api_reply *reply)
{
    static const char *const known[] = {"lease", NULL};
    struct weir__api_fault fault = {.code = ""};
    json_t *root = weir__api_parse(body, &fault);
    const json_t *text = json_object_get(root, "lease");
    int error = 0;
    if (root && weir__api_only(root, known, -1, &fault)) {
        if (!json_is_string(text))
            weir__api_wrong(&fault, -1, "lease", "is needed: the text that check returned");
        else
            error = weir_permits_from_text(api->engine, (weir_text){json_string_value(text), json_string_length(text)},
                                           permits);
    }
    json_decref(root);
    if (*fault.code)
        weir__api_fail(reply, 400, fault.code, fault.message, fault.field);
    else if (error)
        weir__api_fail(reply, 400, "bad_lease", "this is no lease of this segment", "lease");
    return !*fault.code && !error;
}

void weir__api_release(struct weir__api *api, weir_text body, struct weir__api_reply *reply)
{
    weir_permits *permits = &api->scratch->permits;
    if (!read_lease(api, body, permits, reply))
        return;
    if (api->async && !api->store_replied && weir_permits_release_begin(api->engine, permits, api->async) == 1) {
        reply->needs_store = true;
        return;
    }
    int released = api->async ? weir_permits_release_finish(api->engine, permits, api->async)
                              : weir_permits_release(api->engine, permits);
    if (released < 0) {
        weir__api_fail(reply, 503, "failed", weir_strerror(released), NULL);
        return;
    }
    weir__buffer_add_literal(&reply->out, "{\"released\":");
    weir__json_add_bool(&reply->out, released > 0);
    weir__buffer_add_literal(&reply->out, "}\n");
}

void weir__api_renew(struct weir__api *api, weir_text body, struct weir__api_reply *reply)
{
    weir_permits *permits = &api->scratch->permits;
    if (!read_lease(api, body, permits, reply))
        return;
    if (api->async && !api->store_replied && weir_permits_renew_begin(api->engine, permits, false, api->async) == 1) {
        reply->needs_store = true;
        return;
    }
    int error = api->async ? weir_permits_renew_finish(api->engine, permits, false, api->async)
                           : weir_permits_renew(api->engine, permits);
    if (error) {
        weir__api_fail(reply, 503, "failed", weir_strerror(error), NULL);
        return;
    }
    if (!permits->count) {
        weir__api_fail(reply, 410, "expired", "the lease is over: its slot may be another's", "lease");
        return;
    }
    weir__buffer_add_literal(&reply->out, "{\"renewed\":true");
    weir__api_write_lease(api, &reply->out);
    weir__buffer_add_literal(&reply->out, "}\n");
}
