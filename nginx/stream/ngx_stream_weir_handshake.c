/* What Redis clients send when they connect: AUTH, HELLO, CLIENT, SELECT, INFO, CONFIG, COMMAND, PING. */
#include "ngx_stream_weir.h"

/* The Redis version that clients see; they derive from it which commands they may use. */
#define LIKE_REDIS "7.0.0"

#define WRONG_MAX     5 /* wrong passwords of a connection, before it is closed */
#define ECHO_MAX      (64 * 1024)
#define DESCRIBED_MAX 256

/* ---- Passwords ---- */

/* `weir_resp_password [USER] PASSWORD`, `weir_resp_operator_password [USER] PASSWORD` */
char *ngx_stream_weir_password(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    static ngx_str_t default_name = ngx_string("default"),
                     operator_directive = ngx_string("weir_resp_operator_password");
    ngx_stream_weir_srv_conf_t *scf = conf;
    ngx_str_t *value = cf->args->elts;
    ngx_uint_t is_operator = cmd->name.len == operator_directive.len;
    if (value[cf->args->nelts - 1].len == 0)
        return "has an empty password";
    if (scf->users == NULL)
        scf->users = ngx_array_create(cf->pool, 2, sizeof(ngx_stream_weir_user_t));
    ngx_stream_weir_user_t *user = scf->users ? ngx_array_push(scf->users) : NULL;
    if (user == NULL)
        return NGX_CONF_ERROR;
    const ngx_str_t *name = cf->args->nelts == 3 ? &value[1] : &default_name, *password = &value[cf->args->nelts - 1];
    weir__sha256(name->data, name->len, user->name);
    weir__sha256(password->data, password->len, user->password);
    user->is_operator = is_operator;
    scf->closed |= !is_operator;
    return NGX_CONF_OK;
}

/* Compares with all users, so that timing reveals neither names nor passwords. */
static ngx_uint_t ngx_stream_weir_login(ngx_stream_weir_session_t *session, weir_text name, weir_text password)
{
    ngx_array_t *users = session->conf->users;
    ngx_stream_weir_user_t *user = users ? users->elts : NULL, given;
    ngx_uint_t good = 0, is_operator = 0;
    weir__sha256(name.data, name.len, given.name);
    weir__sha256(password.data, password.len, given.password);
    for (ngx_uint_t i = 0; users && i < users->nelts; i++) {
        ngx_uint_t is_name = weir__equal_secrets(given.name, user[i].name, sizeof(given.name));
        ngx_uint_t is_password = weir__equal_secrets(given.password, user[i].password, sizeof(given.password));
        good |= is_name & is_password;
        is_operator |= is_name & is_password & user[i].is_operator;
    }
    if (good) {
        session->authenticated = session->known = 1;
        session->is_operator = is_operator ? 1 : 0;
    }
    return good;
}

/* 0: not now; the command returns and runs again later, or the connection is closed. */
static ngx_uint_t ngx_stream_weir_may_check(ngx_stream_weir_call_t *call)
{
    ngx_stream_weir_session_t *session = call->session;
    if (session->known || session->check.peer_len) {
        ngx_weir_check_release(&session->check);
        return 1;
    }
    ngx_msec_t ms = ngx_weir_check_hold(&session->check, session->segment, session->stream->connection);
    if (ms == NGX_WEIR_NO_PLACE)
        session->closing = 1;
    else if (ms)
        call->must_wait = session->pause_ms = ms;
    return ms == 0;
}

static void ngx_stream_weir_wrong_password(ngx_stream_weir_call_t *call)
{
    ngx_stream_weir_session_t *session = call->session;
    session->pause_ms = ngx_weir_wrong_secret(session->segment, session->stream->connection);
    session->known = 0;
    if (++session->wrong == WRONG_MAX)
        session->closing = 1;
    ngx_stream_weir_error(call, "WRONGPASS invalid username-password pair or user is disabled.");
}

/* AUTH [user] password */
void ngx_stream_weir_auth(ngx_stream_weir_call_t *call)
{
    static const weir_text default_name = {"default", 7};
    if (call->count > 3) {
        ngx_stream_weir_error(call, "ERR syntax error");
        return;
    }
    if (call->session->conf->users == NULL) {
        ngx_stream_weir_error(call, "ERR AUTH was called, but no password is configured");
        return;
    }
    if (!ngx_stream_weir_may_check(call))
        return;
    weir_text name = call->count == 3 ? call->args[1] : default_name;
    if (ngx_stream_weir_login(call->session, name, call->args[call->count - 1]))
        weir__resp_simple(call->out, "OK");
    else
        ngx_stream_weir_wrong_password(call);
}

/* ---- Simple commands ---- */

static void ngx_stream_weir_ok(ngx_stream_weir_call_t *call)
{
    weir__resp_simple(call->out, "OK");
}

static void ngx_stream_weir_unknown_sub(ngx_stream_weir_call_t *call)
{
    ngx_stream_weir_error(call, "ERR unknown subcommand '%*s'", ngx_min(call->args[1].len, 128), call->args[1].data);
}

/* PING [message], ECHO message */
void ngx_stream_weir_ping(ngx_stream_weir_call_t *call)
{
    if (call->count > 2)
        ngx_stream_weir_wrong_count(call, "ping", NULL);
    else if (call->count == 1)
        weir__resp_simple(call->out, "PONG");
    else if (call->args[1].len > ECHO_MAX)
        ngx_stream_weir_error(call, "ERR the message is longer than %d bytes", ECHO_MAX);
    else
        weir__resp_bulk(call->out, call->args[1].data, call->args[1].len);
}

/* There is only database 0. */
void ngx_stream_weir_select(ngx_stream_weir_call_t *call)
{
    int64_t index;
    if (!weir__resp_integer(call->args[1], &index))
        ngx_stream_weir_error(call, "ERR value is not an integer or out of range");
    else if (index != 0)
        ngx_stream_weir_error(call, "ERR DB index is out of range");
    else
        ngx_stream_weir_ok(call);
}

void ngx_stream_weir_quit(ngx_stream_weir_call_t *call)
{
    call->session->closing = 1;
    ngx_stream_weir_ok(call);
}

void ngx_stream_weir_reset(ngx_stream_weir_call_t *call)
{
    ngx_stream_weir_begin(call->session);
    call->out->version = call->session->version;
    weir__resp_simple(call->out, "RESET");
}

/* ---- Names ---- */

/* 0 after an error reply. An empty name unsets it. */
static ngx_uint_t ngx_stream_weir_set_name(ngx_stream_weir_call_t *call, weir_text name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] < '!' || name.data[i] > '~' || name.len > NGX_STREAM_WEIR_NAME_MAX) {
            ngx_stream_weir_error(call, "ERR client names have up to %d letters, digits and signs, no blanks",
                                  NGX_STREAM_WEIR_NAME_MAX);
            return 0;
        }
    ngx_memcpy(call->session->name, name.data, name.len);
    call->session->name_len = name.len;
    return 1;
}

static int64_t ngx_stream_weir_id(ngx_stream_weir_call_t *call)
{
    return (int64_t)call->session->stream->connection->number;
}

static void ngx_stream_weir_get_name(ngx_stream_weir_call_t *call)
{
    if (call->session->name_len)
        weir__resp_bulk(call->out, call->session->name, call->session->name_len);
    else
        weir__resp_null(call->out);
}

static void ngx_stream_weir_client_info(ngx_stream_weir_call_t *call)
{
    ngx_stream_weir_session_t *session = call->session;
    ngx_str_t name = {session->name_len, (u_char *)session->name};
    u_char text[512];
    u_char *end = ngx_snprintf(text, sizeof(text), "id=%L addr=%V name=%V db=0 resp=%d\n", ngx_stream_weir_id(call),
                               &session->stream->connection->addr_text, &name, session->version);
    weir__resp_verbatim(call->out, (char *)text, (size_t)(end - text));
}

static void ngx_stream_weir_client_reply(ngx_stream_weir_call_t *call)
{
    if (weir__resp_is(call->args[2], "on"))
        ngx_stream_weir_ok(call);
    else
        ngx_stream_weir_error(call, "ERR only CLIENT REPLY ON is supported");
}

static void ngx_stream_weir_client_name(ngx_stream_weir_call_t *call)
{
    if (ngx_stream_weir_set_name(call, call->args[2]))
        ngx_stream_weir_ok(call);
}

static void ngx_stream_weir_client_id(ngx_stream_weir_call_t *call)
{
    weir__resp_number(call->out, ngx_stream_weir_id(call));
}

void ngx_stream_weir_client(ngx_stream_weir_call_t *call)
{
    static const struct {
        const char *name;
        size_t count; /* of arguments, including both names */
        void (*run)(ngx_stream_weir_call_t *call);
    } subs[] = {{"id", 2, ngx_stream_weir_client_id},     {"info", 2, ngx_stream_weir_client_info},
                {"getname", 2, ngx_stream_weir_get_name}, {"setname", 3, ngx_stream_weir_client_name},
                {"setinfo", 4, ngx_stream_weir_ok},       {"no-evict", 3, ngx_stream_weir_ok},
                {"no-touch", 3, ngx_stream_weir_ok},      {"reply", 3, ngx_stream_weir_client_reply}};
    for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++) {
        if (!weir__resp_is(call->args[1], subs[i].name))
            continue;
        if (call->count == subs[i].count)
            subs[i].run(call);
        else
            ngx_stream_weir_wrong_count(call, "client", subs[i].name);
        return;
    }
    ngx_stream_weir_unknown_sub(call);
}

/* ---- HELLO [version [AUTH user password] [SETNAME name]] ---- */

/* 0 after an error reply. */
static ngx_uint_t ngx_stream_weir_hello_options(ngx_stream_weir_call_t *call)
{
    weir_text name = {NULL, 0}, user = {NULL, 0}, password = {NULL, 0};
    size_t at = 2;
    while (at < call->count) {
        size_t left = call->count - at - 1;
        weir_text option = call->args[at];
        if (left >= 2 && weir__resp_is(option, "auth")) {
            user = call->args[at + 1];
            password = call->args[at + 2];
            at += 3;
        } else if (left >= 1 && weir__resp_is(option, "setname")) {
            name = call->args[at + 1];
            at += 2;
        } else {
            ngx_stream_weir_error(call, "ERR Syntax error in HELLO option '%*s'", ngx_min(option.len, 128),
                                  option.data);
            return 0;
        }
    }
    if (user.data && !ngx_stream_weir_may_check(call))
        return 0;
    if (user.data && !ngx_stream_weir_login(call->session, user, password)) {
        ngx_stream_weir_wrong_password(call);
        return 0;
    }
    return name.data == NULL || ngx_stream_weir_set_name(call, name);
}

void ngx_stream_weir_hello(ngx_stream_weir_call_t *call)
{
    int64_t version = call->session->version;
    if (call->count > 1 && !weir__resp_integer(call->args[1], &version)) {
        ngx_stream_weir_error(call, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (version != 2 && version != 3) {
        ngx_stream_weir_error(call, "NOPROTO unsupported protocol version");
        return;
    }
    if (!ngx_stream_weir_hello_options(call))
        return;
    if (!call->session->authenticated) {
        ngx_stream_weir_error(call,
                              "NOAUTH Authentication required. HELLO <version> AUTH <user> <password> does both.");
        return;
    }
    call->session->version = call->out->version = (int)version;
    weir__resp_map(call->out, 7);
    weir__resp_named_text(call->out, "server", "weir");
    weir__resp_named_text(call->out, "version", LIKE_REDIS);
    weir__resp_named_number(call->out, "proto", version);
    weir__resp_named_number(call->out, "id", ngx_stream_weir_id(call));
    weir__resp_named_text(call->out, "mode", "standalone");
    weir__resp_named_text(call->out, "role", "master");
    weir__resp_bulk(call->out, "modules", 7);
    weir__resp_array(call->out, 0);
}

/* ---- Server information ---- */

void ngx_stream_weir_info(ngx_stream_weir_call_t *call)
{
    u_char text[512];
    u_char *end =
        ngx_snprintf(text, sizeof(text),
                     "# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nweir_version:%s\r\n"
                     "nginx_version:%s\r\nprocess_id:%P\r\n# Persistence\r\nloading:0\r\n"
                     "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n# Cluster\r\ncluster_enabled:0\r\n",
                     LIKE_REDIS, weir_version(), NGINX_VERSION, ngx_pid);
    weir__resp_verbatim(call->out, (char *)text, (size_t)(end - text));
}

/* Clients and benchmarks read Redis settings; there are none. */
void ngx_stream_weir_config(ngx_stream_weir_call_t *call)
{
    if (!weir__resp_is(call->args[1], "get"))
        ngx_stream_weir_unknown_sub(call);
    else if (call->count < 3)
        ngx_stream_weir_wrong_count(call, "config", "get");
    else
        weir__resp_map(call->out, 0);
}

static void ngx_stream_weir_describe(struct weir__resp_out *out, const ngx_stream_weir_command_t *command)
{
    weir__resp_array(out, 10);
    weir__resp_bulk(out, command->name, ngx_strlen(command->name));
    weir__resp_number(out, command->arity);
    weir__resp_set(out, 1);
    weir__resp_simple(out, "fast");
    for (int i = 0; i < 3; i++) /* first key, last key, step */
        weir__resp_number(out, command->has_key ? 1 : 0);
    weir__resp_set(out, 0); /* ACL categories */
    weir__resp_array(out, 0);
    weir__resp_array(out, 0);
    weir__resp_array(out, 0);
}

static void ngx_stream_weir_describe_named(ngx_stream_weir_call_t *call)
{
    if (call->count - 2 > DESCRIBED_MAX) {
        ngx_stream_weir_error(call, "ERR more than %d commands", DESCRIBED_MAX);
        return;
    }
    weir__resp_array(call->out, call->count - 2);
    for (size_t i = 2; i < call->count; i++) {
        const ngx_stream_weir_command_t *command = ngx_stream_weir_find(call->args[i]);
        if (command)
            ngx_stream_weir_describe(call->out, command);
        else
            weir__resp_null(call->out);
    }
}

void ngx_stream_weir_command(ngx_stream_weir_call_t *call)
{
    if (call->count == 1) {
        weir__resp_array(call->out, ngx_stream_weir_command_count);
        for (size_t i = 0; i < ngx_stream_weir_command_count; i++)
            ngx_stream_weir_describe(call->out, &ngx_stream_weir_commands[i]);
    } else if (weir__resp_is(call->args[1], "count")) {
        weir__resp_number(call->out, (int64_t)ngx_stream_weir_command_count);
    } else if (weir__resp_is(call->args[1], "docs")) {
        weir__resp_map(call->out, 0); /* see docs/reference/resp.md */
    } else if (weir__resp_is(call->args[1], "info")) {
        ngx_stream_weir_describe_named(call);
    } else {
        ngx_stream_weir_unknown_sub(call);
    }
}
