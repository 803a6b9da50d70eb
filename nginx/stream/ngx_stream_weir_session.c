/*
 * A connection: reads, runs all complete commands, sends their replies together. The buffers are the worker's; a
 * session allocates its own only for an incomplete command or for replies that the client does not read, and runs no
 * command while there are any.
 */
#include "ngx_stream_weir.h"

#define IN_ROOM    (64 * 1024)
#define OUT_ROOM   (256 * 1024)
#define SMALL      4096  /* an incomplete command up to this size is copied rather than read into its own buffer */
#define FIRST_MS   1000  /* so long a worker that exits waits for the first command of a new connection */
#define STALLED_MS 60000 /* timeout of an incomplete command or unread replies, if none is configured */
#define STEPS_MAX  16    /* before other connections are served */

static char ngx_stream_weir_in_room[IN_ROOM], ngx_stream_weir_out_room[OUT_ROOM];
static struct weir__resp_command ngx_stream_weir_parsed;

void ngx_stream_weir_begin(ngx_stream_weir_session_t *session)
{
    session->version = 2;
    session->authenticated = session->conf->closed ? 0 : 1;
    session->is_operator = 0;
    session->name_len = 0;
}

static void ngx_stream_weir_free(void *data)
{
    ngx_stream_weir_session_t *session = data;
    ngx_stream_weir_store_end(session);
    if (session->pause.timer_set)
        ngx_del_timer(&session->pause);
    ngx_weir_check_release(&session->check);
    weir__buffer_free(&session->in);
    weir__buffer_free(&session->out);
}

/* ---- Kept input and output ---- */

/* Keeps unprocessed input. `data` may be in the buffer already. */
static ngx_int_t ngx_stream_weir_keep_in(ngx_stream_weir_session_t *session, const char *data, size_t len, size_t need)
{
    struct weir__buffer *in = &session->in, other = {.data = NULL};
    session->in_need = need;
    if (len == 0) {
        if (in->data)
            weir__buffer_free(in);
        return NGX_OK;
    }
    /* another buffer if this one is too small, or if the long command that needed it is done */
    if (in->size < len || (in->size > IN_ROOM && len <= IN_ROOM)) {
        weir__buffer_add(&other, data, len);
        weir__buffer_free(in);
        *in = other;
    } else if (data != in->data) {
        ngx_memmove(in->data, data, len);
    }
    in->len = len;
    return in->failed ? NGX_ERROR : NGX_OK;
}

/* Sends what the socket takes; returns its length. */
static ssize_t ngx_stream_weir_push(ngx_connection_t *c, const char *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t sent = c->send(c, (u_char *)data + done, len - done);
        if (sent == NGX_AGAIN)
            break;
        if (sent <= 0)
            return NGX_ERROR;
        done += (size_t)sent;
    }
    return (ssize_t)done;
}

/* NGX_AGAIN: the client must read first. */
static ngx_int_t ngx_stream_weir_send_kept(ngx_stream_weir_session_t *session)
{
    struct weir__buffer *out = &session->out;
    ssize_t sent =
        ngx_stream_weir_push(session->stream->connection, out->data + session->out_at, out->len - session->out_at);
    if (sent < 0)
        return NGX_ERROR;
    session->out_at += (size_t)sent;
    if (session->out_at < out->len)
        return NGX_AGAIN;
    weir__buffer_free(out);
    session->out_at = 0;
    return NGX_OK;
}

static ngx_int_t ngx_stream_weir_keep_out(ngx_stream_weir_session_t *session, const char *data, size_t len)
{
    weir__buffer_add(&session->out, data, len);
    return session->out.failed ? NGX_ERROR : NGX_OK;
}

/* Sends what it can and keeps the rest. Nothing may be kept yet. */
static ngx_int_t ngx_stream_weir_send(ngx_stream_weir_session_t *session, const char *data, size_t len)
{
    ngx_connection_t *c = session->stream->connection;
    /* TLS must retry with the same bytes at the same address, so they are kept */
    ssize_t sent = c->ssl ? 0 : ngx_stream_weir_push(c, data, len);
    if (sent < 0 || (size_t)sent == len)
        return sent < 0 ? NGX_ERROR : NGX_OK;
    return ngx_stream_weir_keep_out(session, data + sent, len - (size_t)sent);
}

/* ---- Running commands ---- */

/* Rewrites a parsed inline command, whose quotes are gone, as an array, so that it can be parsed again. */
static size_t ngx_stream_weir_rewrite(const ngx_stream_weir_call_t *call, char *to, size_t size)
{
    u_char *at = (u_char *)to, *last = at + size;
    at = ngx_slprintf(at, last, "*%uz\r\n", call->count);
    for (size_t i = 0; i < call->count; i++) {
        ngx_str_t word = {call->args[i].len, (u_char *)call->args[i].data};
        at = ngx_slprintf(at, last, "$%uz\r\n%V\r\n", word.len, &word);
    }
    return (size_t)(at - (u_char *)to);
}

/* Keeps the command at `from`, to run later, and what follows it. */
static ngx_int_t ngx_stream_weir_keep_call(ngx_stream_weir_call_t *call, char *from, char *next, size_t len)
{
    ngx_stream_weir_session_t *session = call->session;
    if (*from == '*')
        return ngx_stream_weir_keep_in(session, from, (size_t)(next - from) + len, 1);
    size_t room = len + (size_t)(next - from) + 32 * (call->count + 1);
    char *joined = ngx_alloc(room, session->stream->connection->log);
    if (joined == NULL)
        return NGX_ERROR;
    size_t command = ngx_stream_weir_rewrite(call, joined, room - len);
    ngx_memcpy(joined + command, next, len);
    ngx_int_t kept = ngx_stream_weir_keep_in(session, joined, command + len, 1);
    ngx_free(joined);
    return kept;
}

/* Keeps the command until the store has replied, and sends the requests of as many commands as possible. */
static ngx_int_t ngx_stream_weir_keep_until_reply(ngx_stream_weir_call_t *call, char *from, char *next, size_t len)
{
    ngx_stream_weir_prepare_ahead(call, next, len);
    ngx_int_t kept = ngx_stream_weir_keep_call(call, from, next, len);
    if (kept == NGX_OK)
        ngx_stream_weir_store_begin(call->session);
    return kept;
}

/* Keeps the input from `at` on; if the last command must wait, that one, too. */
static ngx_int_t ngx_stream_weir_keep_rest(ngx_stream_weir_call_t *call, char *at, size_t len, size_t need)
{
    char *from = at - ngx_stream_weir_parsed.length;
    if (call->needs_store)
        return ngx_stream_weir_keep_until_reply(call, from, at, len);
    if (call->must_wait)
        return ngx_stream_weir_keep_call(call, from, at, len);
    return ngx_stream_weir_keep_in(call->session, at, call->session->closing ? 0 : len, need);
}

/* Runs all complete commands while there is space for replies. Afterwards `data` is processed or kept. */
static ngx_int_t ngx_stream_weir_process(ngx_stream_weir_session_t *session, char *data, size_t len)
{
    struct weir__resp_command *parsed = &ngx_stream_weir_parsed;
    struct weir__resp_out out = {
        .at = ngx_stream_weir_out_room, .end = ngx_stream_weir_out_room + OUT_ROOM, .version = session->version};
    ngx_stream_weir_call_t call = {.session = session, .args = parsed->args, .out = &out};
    char *at = data, *end = data + len;
    size_t need = 1;
    while (!session->closing && out.end - out.at >= NGX_STREAM_WEIR_REPLY_MAX) {
        enum weir__resp_result result = weir__resp_parse(at, (size_t)(end - at), !session->authenticated, parsed);
        if (result == WEIR__RESP_MORE) {
            need = parsed->need;
            break;
        }
        if (result == WEIR__RESP_INVALID) {
            ngx_stream_weir_throttle_decide(&call);
            ngx_stream_weir_error(&call, "ERR %s", parsed->error);
            session->closing = 1;
            break;
        }
        at += parsed->length;
        call.count = parsed->count;
        if (call.count)
            ngx_stream_weir_run(&call);
        if (call.needs_store || session->pause_ms)
            break;
    }
    ngx_stream_weir_throttle_decide(&call);
    if (out.overflow) {
        ngx_log_error(NGX_LOG_ALERT, session->stream->connection->log, 0, "weir: a reply was longer than expected");
        return NGX_ERROR;
    }
    if (ngx_stream_weir_keep_rest(&call, at, (size_t)(end - at), need) != NGX_OK)
        return NGX_ERROR;
    size_t replied = (size_t)(out.at - ngx_stream_weir_out_room);
    if (session->pause_ms) {
        ngx_add_timer(&session->pause, session->pause_ms);
        session->pause_ms = 0;
        if (!call.must_wait)
            return ngx_stream_weir_keep_out(session, ngx_stream_weir_out_room, replied);
    }
    return ngx_stream_weir_send(session, ngx_stream_weir_out_room, replied);
}

/* ---- Reading ---- */

/* Reads once and processes. NGX_AGAIN: no input; NGX_DONE: end of input. */
static ngx_int_t ngx_stream_weir_read(ngx_stream_weir_session_t *session)
{
    ngx_connection_t *c = session->stream->connection;
    char *to = ngx_stream_weir_in_room;
    size_t room = IN_ROOM;
    if (session->in.len > SMALL) {
        /* By doubling, whatever length the command announces: memory is allocated for received bytes only. */
        if (weir__buffer_room(&session->in, 1) == NULL)
            return NGX_ERROR;
        to = session->in.data;
        room = session->in.size;
    } else if (session->in.len) {
        ngx_memcpy(to, session->in.data, session->in.len);
    }
    ssize_t n = c->recv(c, (u_char *)to + session->in.len, room - session->in.len);
    if (n == NGX_AGAIN)
        return NGX_AGAIN;
    if (n <= 0)
        return n == 0 ? NGX_DONE : NGX_ERROR;
    session->stream->received += n;
    size_t len = session->in.len + (size_t)n;
    if (len < session->in_need)
        return ngx_stream_weir_keep_in(session, to, len, session->in_need);
    return ngx_stream_weir_process(session, to, len);
}

/* ---- Waiting ---- */

static void ngx_stream_weir_set_timer(ngx_event_t *event, ngx_msec_t ms)
{
    if (ms) {
        ngx_add_timer(event, ms);
    } else if (event->timer_set) {
        ngx_del_timer(event);
    }
}

static ngx_int_t ngx_stream_weir_wait(ngx_stream_weir_session_t *session)
{
    ngx_connection_t *c = session->stream->connection;
    ngx_msec_t timeout = session->conf->timeout, stalled = timeout ? timeout : STALLED_MS;
    if (session->pause.timer_set) /* the client is not the one to wait for */
        timeout = stalled = 0;
    ngx_uint_t empty = session->out.len == 0 && session->in.len == 0;
    session->settled |= session->stream->received > 0 || (timeout && timeout <= FIRST_MS);
    c->idle = empty && session->settled;
    if (c->idle && ngx_exiting)
        return NGX_DONE;
    if (empty && !session->settled)
        timeout = FIRST_MS;
    ngx_reusable_connection(c, empty); /* else idle clients could take all connections of the worker, the gateway's */
    ngx_stream_weir_set_timer(c->write, session->out.len ? stalled : 0);
    ngx_stream_weir_set_timer(c->read, session->out.len ? 0 : session->in.len ? stalled : timeout);
    if (ngx_handle_read_event(c->read, 0) != NGX_OK || ngx_handle_write_event(c->write, 0) != NGX_OK)
        return NGX_ERROR;
    return NGX_AGAIN;
}

/* A paused session reads nothing, so it peeks. A half-closed connection counts as closed. */
static ngx_uint_t ngx_stream_weir_is_gone(const ngx_connection_t *c)
{
    char byte;
    return c->read->pending_eof || c->read->error || recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* One step. NGX_OK: continue; NGX_AGAIN: wait for an event; NGX_DONE: close. */
static ngx_int_t ngx_stream_weir_step(ngx_stream_weir_session_t *session)
{
    if (session->pause.timer_set)
        return session->check.peer_len && ngx_stream_weir_is_gone(session->stream->connection)
                   ? NGX_DONE
                   : ngx_stream_weir_wait(session);
    if (session->out.len) {
        ngx_int_t sent = ngx_stream_weir_send_kept(session);
        return sent == NGX_AGAIN ? ngx_stream_weir_wait(session) : sent;
    }
    if (session->closing)
        return NGX_DONE;
    if (session->waiting)
        return ngx_stream_weir_wait(session);
    if (session->in.len && session->in.len >= session->in_need)
        return ngx_stream_weir_process(session, session->in.data, session->in.len);
    ngx_int_t result = session->stream->connection->read->ready ? ngx_stream_weir_read(session) : NGX_AGAIN;
    return result == NGX_AGAIN ? ngx_stream_weir_wait(session) : result;
}

void ngx_stream_weir_resume(ngx_stream_weir_session_t *session)
{
    ngx_connection_t *c = session->stream->connection;
    ngx_int_t result = NGX_OK;
    ngx_reusable_connection(c, 0);
    for (ngx_uint_t step = 0; step < STEPS_MAX && result == NGX_OK; step++)
        result = ngx_stream_weir_step(session);
    if (result == NGX_OK) { /* yields to other connections; not idle meanwhile */
        ngx_stream_weir_set_timer(c->read, 0);
        ngx_stream_weir_set_timer(c->write, 0);
        ngx_post_event(c->read, &ngx_posted_next_events);
    } else if (result != NGX_AGAIN) {
        ngx_stream_finalize_session(session->stream, NGX_STREAM_OK);
    }
}

static void ngx_stream_weir_event(ngx_event_t *event)
{
    ngx_connection_t *c = event->data;
    ngx_stream_session_t *s = c->data;
    ngx_stream_weir_session_t *session = ngx_stream_get_module_ctx(s, ngx_stream_weir_module);
    if (event->timedout && !session->settled) {
        session->settled = 1;
        event->timedout = 0;
    }
    if (c->close && ngx_exiting && session->settled) {
        c->close = 0; /* a command may have arrived: it is read before the connection is closed */
        c->read->ready = 1;
    }
    if (event->timedout)
        ngx_log_error(NGX_LOG_INFO, c->log, NGX_ETIMEDOUT, "client timed out");
    if (event->timedout || c->close) { /* `close`: the worker is shutting down, or short of connections */
        ngx_stream_finalize_session(s, NGX_STREAM_OK);
        return;
    }
    ngx_stream_weir_resume(session);
}

static void ngx_stream_weir_paused(ngx_event_t *event)
{
    ngx_connection_t *c = event->data;
    event->timedout = 0;
    ngx_stream_weir_resume(ngx_stream_get_module_ctx((ngx_stream_session_t *)c->data, ngx_stream_weir_module));
}

void ngx_stream_weir_handler(ngx_stream_session_t *s)
{
    ngx_connection_t *c = s->connection;
    ngx_stream_weir_main_conf_t *mcf = ngx_stream_get_module_main_conf(s, ngx_stream_weir_module);
    ngx_stream_weir_session_t *session = ngx_pcalloc(c->pool, sizeof(ngx_stream_weir_session_t));
    ngx_pool_cleanup_t *cleanup = session ? ngx_pool_cleanup_add(c->pool, 0) : NULL;
    if (c->type != SOCK_STREAM)
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "weir: weir_resp does not work with \"listen ... udp\"");
    if (cleanup == NULL || c->type != SOCK_STREAM) {
        ngx_stream_finalize_session(s, NGX_STREAM_INTERNAL_SERVER_ERROR);
        return;
    }
    cleanup->handler = ngx_stream_weir_free;
    cleanup->data = session;
    session->stream = s;
    session->pause.handler = ngx_stream_weir_paused;
    session->pause.data = c;
    session->pause.log = c->log;
    session->conf = ngx_stream_get_module_srv_conf(s, ngx_stream_weir_module);
    session->segment = mcf->segment;
    session->engine = mcf->engine;
    session->store = mcf->engine ? mcf->store : NULL;
    ngx_stream_weir_begin(session);
    ngx_stream_set_ctx(s, session, ngx_stream_weir_module);
    c->log->action = "serving a Redis client";
    c->read->handler = c->write->handler = ngx_stream_weir_event;
    /* input that a preread module has read */
    if (c->buffer && c->buffer->pos < c->buffer->last &&
        ngx_stream_weir_keep_in(session, (char *)c->buffer->pos, (size_t)(c->buffer->last - c->buffer->pos), 1) !=
            NGX_OK) {
        ngx_stream_finalize_session(s, NGX_STREAM_INTERNAL_SERVER_ERROR);
        return;
    }
    ngx_stream_weir_resume(session);
}
