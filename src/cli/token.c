/* weir token: who may do what in a rules service. */
#include "cli/cli.h"
#include "cli/subcommand.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: weir token COMMAND [OPTIONS]\n"
                           "Bearer tokens of a rules service. The first one is made with --db or --file.\n"
                           "\n"
                           "  create NAME --role ROLE [--expires 90d]   prints the token, this once\n"
                           "  list\n"
                           "  revoke ID                                 from now on\n"
                           "\n"
                           "Roles: a viewer reads; an editor also writes and publishes rules; an operator also\n"
                           "resets and blocks keys and makes tokens.\n" WEIR__SERVICE_HELP;
static const char create_help[] =
    "usage: weir token create NAME --role viewer|editor|operator [OPTIONS]\n"
    "Makes a token for NAME and prints it, this once: only its hash is kept.\n"
    "\n"
    "  --expires 90d        or 12h, or as 2030-01-01T00:00:00Z; else never\n" WEIR__SERVICE_HELP;
static const char list_help[] = "usage: weir token list [OPTIONS]\n" WEIR__SERVICE_HELP;
static const char revoke_help[] = "usage: weir token revoke ID [OPTIONS]\n"
                                  "Ends a token and its sessions; 'weir token list' shows the ID.\n" WEIR__SERVICE_HELP;

enum { TIME_TEXT = 32 };

static int create(struct weir__command_line *given)
{
    struct weir__service_reply reply;
    if (!given->is[WEIR__WITH_ROLE]) {
        fprintf(stderr, "weir %s: --role viewer, editor or operator\n", given->command);
        return 2;
    }
    json_t *body = json_pack("{s:s, s:s}", "name", given->arguments[0], "role", given->value[WEIR__WITH_ROLE]);
    if (body && given->is[WEIR__WITH_EXPIRES])
        json_object_set_new(body, "expires", json_string(given->value[WEIR__WITH_EXPIRES]));
    bool good = weir__given_post(given, "/v1/tokens", body, NULL, &reply);
    if (good && !*weir__member(reply.json, "token")) {
        fprintf(stderr, "weir %s: the answer has no token in it; is this a rules service?\n", given->command);
        good = false;
    } else if (good && given->json) {
        good = weir__print_json(reply.json) == 0;
    } else if (good) { /* the token alone, so that it can go into a file */
        puts(weir__member(reply.json, "token"));
        fprintf(stderr, "keep it: it is not shown again (its ID is %s)\n", weir__member(reply.json, "id"));
    }
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

/* "revoked", "expired 2026-…", or until when. */
static const char *state_of(const json_t *token, char *buffer)
{
    const char *revoked = weir__member(token, "revoked");
    if (*revoked)
        return "revoked";
    weir__member_time(token, "expires", buffer);
    return *buffer ? buffer : "never";
}

static bool print_tokens(const json_t *items)
{
    static const struct weir__column columns[] = {{"id", false, false, false},      {"name", false, true, false},
                                                  {"role", false, false, false},    {"by", false, true, false},
                                                  {"expires", false, false, false}, {"last used", false, false, false}};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    char text[TIME_TEXT];
    size_t i;
    const json_t *token;
    json_array_foreach(items, i, token)
    {
        weir__text_table_cell(&table, weir__member(token, "id"));
        weir__text_table_cell(&table, weir__member(token, "name"));
        weir__text_table_cell(&table, weir__member(token, "role"));
        weir__text_table_cell(&table, weir__member(token, "created_by"));
        weir__text_table_cell(&table, state_of(token, text));
        weir__member_time(token, "last_used", text);
        weir__text_table_cell(&table, *text ? text : "never");
    }
    bool good = weir__text_table_print(&table, stdout);
    if (json_array_size(items) == 0)
        puts("no tokens");
    weir__text_table_free(&table);
    return good;
}

static int list(struct weir__command_line *given)
{
    struct weir__service_reply reply;
    bool good = weir__given_get(given, "/v1/tokens", NULL, &reply);
    if (good && given->json)
        good = weir__print_json(reply.json) == 0;
    else if (good)
        good = weir__service_reply_items(given, &reply) && print_tokens(json_object_get(reply.json, "items"));
    weir__service_reply_free(&reply);
    return good ? 0 : 1;
}

static int revoke(struct weir__command_line *given)
{
    static const char start[] = "/v1/tokens/";
    char *id = weir__query_escape(given->arguments[0]);
    size_t size = sizeof start + (id ? strlen(id) : 0);
    char *path = id ? malloc(size) : NULL;
    struct weir__service_reply reply = {0};
    bool good = path != NULL;
    if (good) {
        snprintf(path, size, "%s%s", start, id);
        struct weir__service_request request = {.method = "DELETE", .path = path};
        good = weir__service_call(given->service, &request, &reply) &&
               weir__service_reply_is_good(given->service, &reply, given->arguments[0]);
    }
    if (good && given->json) {
        puts("{\"ok\":true}");
    } else if (good) {
        weir__print_text(stdout, given->arguments[0], SIZE_MAX, false);
        puts(": revoked");
    }
    weir__service_reply_free(&reply);
    free(path);
    free(id);
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
