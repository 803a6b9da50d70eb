/* weir token: the bearer tokens of a rules service. */
#include "cli/service.h"

/* Prints only the token on standard output, so that it can be redirected to a file. */
static void print_token(const json_t *reply)
{
    puts(weir__member(reply, "token"));
    weir__print_line(stderr, "keep it: it is not shown again (its ID is %s)", weir__member(reply, "id"));
}

static const char *role_of(const struct weir__given *given)
{
    const char *role = weir__option(given, "role");
    if (!role)
        fprintf(stderr, "weir %s: --role viewer, editor or operator\n", given->command);
    return role;
}

int weir__cmd_token_create(struct weir__given *given)
{
    const char *role = role_of(given);
    if (!role)
        return 2;
    struct weir__service_call call = {.method = "POST",
                                      .json_body = json_pack("{s:s, s:s, s:s*}", "name", given->arguments[0], "role",
                                                             role, "expires", weir__option(given, "expires"))};
    bool good = weir__call(given, &call, "/v1/tokens");
    if (good && !*weir__member(call.json, "token")) {
        fprintf(stderr, "weir %s: the reply has no token; is this a rules service?\n", given->command);
        good = false;
    }
    return weir__call_end(given, &call, good, print_token);
}

static void print_link(const json_t *reply)
{
    char until[32];
    puts(weir__member(reply, "url"));
    weir__print_line(stderr, "it logs a browser of this host in, once, until %s UTC",
                     weir__member_time(reply, "expires", until));
}

int weir__cmd_token_link(struct weir__given *given)
{
    const char *role = role_of(given), *dashboard = role ? weir__service_dashboard(given) : NULL;
    if (!dashboard)
        return role ? 1 : 2;
    struct weir__service_call call = {.method = "POST",
                                      .json_body = json_pack("{s:s, s:s}", "name", given->arguments[0], "role", role)};
    bool good = weir__call(given, &call, "/v1/login-links");
    if (good && !*weir__member(call.json, "link")) {
        fprintf(stderr, "weir %s: the reply has no link; is this a rules service?\n", given->command);
        good = false;
    }
    if (good) /* after '#': browsers send it to no server */
        json_object_set_new(call.json, "url", json_sprintf("%s/#login=%s", dashboard, weir__member(call.json, "link")));
    return weir__call_end(given, &call, good, print_link);
}

static const char *time_or_never(const json_t *token, const char *member, char *buffer)
{
    return *weir__member_time(token, member, buffer) ? buffer : "never";
}

static const char *expires_cell(const json_t *token, const char *member, char *buffer)
{
    return *weir__member(token, "revoked") ? "revoked" : time_or_never(token, member, buffer);
}

static void print_tokens(const json_t *reply)
{
    static const struct weir__column columns[] = {{"id", 0, "id", NULL},
                                                  {"name", WEIR__CUT, "name", NULL},
                                                  {"role", 0, "role", NULL},
                                                  {"by", WEIR__CUT, "created_by", NULL},
                                                  {"expires", 0, "expires", expires_cell},
                                                  {"last used", 0, "last_used", time_or_never}};
    weir__print_items(json_object_get(reply, "items"), columns, sizeof columns / sizeof *columns, "no tokens");
}

int weir__cmd_token_list(struct weir__given *given)
{
    struct weir__service_call call = {0};
    bool good = weir__call(given, &call, "/v1/tokens") && (given->json || weir__call_items(given, &call));
    return weir__call_end(given, &call, good, print_tokens);
}

int weir__cmd_token_revoke(struct weir__given *given)
{
    const char *id = given->arguments[0];
    struct weir__service_call call = {.method = "DELETE", .about = id};
    bool good = weir__call(given, &call, weir__path("/v1/tokens/%", id));
    if (good && given->json)
        puts("{\"ok\":true}");
    else if (good)
        weir__print_line(stdout, "%s: revoked", id);
    weir__call_free(&call);
    return good ? 0 : 1;
}
