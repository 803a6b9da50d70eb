/* weir token: the bearer tokens of a rules service. */
#include "cli/cli.h"
#include "cli/subcommand.h"

#include <stdlib.h>

static const char help[] = "usage: weir token COMMAND [OPTIONS]\n"
                           "Bearer tokens of a rules service. The first one is made with --db or --file.\n"
                           "\n"
                           "  create NAME --role ROLE [--expires 90d]   prints the token once\n"
                           "  list\n"
                           "  revoke ID                                 from now on\n"
                           "\n"
                           "Roles: a viewer reads; an editor also writes and publishes rules; an operator\n"
                           "also resets and blocks keys and makes tokens.\n" WEIR__SERVICE_HELP;
static const char create_help[] =
    "usage: weir token create NAME --role viewer|editor|operator [OPTIONS]\n"
    "Makes a token for NAME and prints it once: the service keeps only its hash.\n"
    "\n"
    "  --expires 90d        or 12h, or as 2030-01-01T00:00:00Z; else never\n" WEIR__SERVICE_HELP;
static const char list_help[] = "usage: weir token list [OPTIONS]\n" WEIR__SERVICE_HELP;
static const char revoke_help[] = "usage: weir token revoke ID [OPTIONS]\n"
                                  "Ends a token and its sessions; 'weir token list' shows the ID.\n" WEIR__SERVICE_HELP;

static int create(struct weir__command_line *given)
{
    struct weir__service_reply reply;
    if (!given->is[WEIR__WITH_ROLE]) {
        fprintf(stderr, "weir %s: --role viewer, editor or operator\n", given->command);
        return 2;
    }
    json_t *body = json_pack("{s:s, s:s, s:s*}", "name", given->arguments[0], "role", given->value[WEIR__WITH_ROLE],
                             "expires", given->value[WEIR__WITH_EXPIRES]);
    bool good = weir__given_post(given, "/v1/tokens", body, NULL, &reply);
    if (good && !*weir__member(reply.json, "token")) {
        fprintf(stderr, "weir %s: the reply has no token; is this a rules service?\n", given->command);
        good = false;
    } else if (good && given->json) {
        good = weir__print_json(json_incref(reply.json));
    } else if (good) { /* only the token, so that it can be redirected to a file */
        puts(weir__member(reply.json, "token"));
        fprintf(stderr, "keep it: it is not shown again (its ID is %s)\n", weir__member(reply.json, "id"));
    }
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

static const char *time_or_never(const json_t *token, const char *member, char *buffer)
{
    return *weir__member_time(token, member, buffer) ? buffer : "never";
}

static const char *expires_cell(const json_t *token, const char *member, char *buffer)
{
    return *weir__member(token, "revoked") ? "revoked" : time_or_never(token, member, buffer);
}

static int list(struct weir__command_line *given)
{
    static const struct weir__item_column columns[] = {{{"id", 0}, "id", NULL},
                                                       {{"name", WEIR__CUT}, "name", NULL},
                                                       {{"role", 0}, "role", NULL},
                                                       {{"by", WEIR__CUT}, "created_by", NULL},
                                                       {{"expires", 0}, "expires", expires_cell},
                                                       {{"last used", 0}, "last_used", time_or_never}};
    struct weir__service_reply reply;
    const json_t *items = NULL;
    bool good = weir__given_get(given, "/v1/tokens", NULL, &reply);
    if (good && given->json)
        good = weir__print_json(json_incref(reply.json));
    else if (good)
        good = (items = weir__service_reply_items(given, &reply)) != NULL;
    if (good && !given->json)
        weir__print_items(items, columns, sizeof columns / sizeof *columns, "no tokens");
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

static int revoke(struct weir__command_line *given)
{
    const char *id = given->arguments[0];
    char *path = weir__service_path("/v1/tokens/", id, "");
    struct weir__service_request request = {.method = "DELETE", .path = path};
    struct weir__service_reply reply = {0};
    bool good =
        weir__service_call(given->service, &request, &reply) && weir__service_reply_is_good(given->service, &reply, id);
    if (good && given->json)
        puts("{\"ok\":true}");
    else if (good)
        weir__print_line(stdout, "%s: revoked", id);
    weir__service_reply_free(&reply);
    free(path);
    return good ? 0 : 1;
}

static const struct weir__subcommand commands[] = {
    {"create", WEIR__WITH(ROLE) | WEIR__WITH(EXPIRES), 1, 1, "for whom?", create, create_help},
    {"list", 0, 0, 0, "", list, list_help},
    {"revoke", 0, 1, 1, "which? 'weir token list' shows the ID", revoke, revoke_help},
};

int weir__cmd_token(int argc, char **argv)
{
    return weir__subcommand_run("token", help, commands, sizeof commands / sizeof *commands, argc, argv);
}
