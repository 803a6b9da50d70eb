/* Who the client is. */
#include "ngx_stream_weir.h"
#include "services/resp/secret.h"

#define WRONG_MAX 5 /* passwords of a connection, which is closed then */

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
    user->name = cf->args->nelts == 3 ? value[1] : default_name;
    user->password = value[cf->args->nelts - 1];
    user->is_operator = is_operator;
    scf->closed |= !is_operator;
    return NGX_CONF_OK;
}

static weir_text ngx_stream_weir_text(const ngx_str_t *string)
{
    return (weir_text){(const char *)string->data, string->len};
}

/* All are compared, so that the time tells neither who exists nor whose password was nearly right. */
ngx_uint_t ngx_stream_weir_login(ngx_stream_weir_session_t *session, weir_text name, weir_text password)
{
    ngx_array_t *users = session->conf->users;
    ngx_stream_weir_user_t *user = users ? users->elts : NULL;
    ngx_uint_t good = 0, is_operator = 0;
    for (ngx_uint_t i = 0; users && i < users->nelts; i++) {
        ngx_uint_t is_name = weir__secret_is(name, ngx_stream_weir_text(&user[i].name));
        ngx_uint_t is_password = weir__secret_is(password, ngx_stream_weir_text(&user[i].password));
        good |= is_name & is_password;
        is_operator |= is_name & is_password & user[i].is_operator;
    }
    if (good) {
        session->authenticated = session->known = 1;
        session->is_operator = is_operator ? 1 : 0;
    }
    return good;
}

ngx_uint_t ngx_stream_weir_may_check(ngx_stream_weir_call_t *call)
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

void ngx_stream_weir_wrong_password(ngx_stream_weir_call_t *call)
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
