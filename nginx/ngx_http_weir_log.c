/*
 * One line of JSON for each denied request. A flood of them must not become a flood of lines: of each second only the
 * first so many are written, by each worker, and the next line says how many were not.
 */
#include "ngx_http_weir.h"
#include <ngx_sha1.h>
#include <weir/load.h>

#define LINE_MAX_BYTES   8192
#define PATH_SHOWN       512
#define HASH_SHOWN       8 /* bytes */
#define COMPLAIN_SECONDS 60

/* True if this one is to be written. */
static ngx_uint_t ngx_http_weir_log_sample(ngx_http_weir_log_t *log)
{
    if (log->second != ngx_time()) {
        log->second = ngx_time();
        log->written = 0;
    }
    if (log->written < log->rate) {
        log->written++;
        return 1;
    }
    log->skipped++;
    return 0;
}

static u_char *ngx_http_weir_log_name(u_char *at, u_char *last, const char *name)
{
    return ngx_slprintf(at, last, ",\"%s\":", name);
}

/* A text that says who it was: as it is, or so that lines of one client are seen to be, but not whose they are. */
static u_char *ngx_http_weir_log_who(u_char *at, u_char *last, const ngx_http_weir_log_t *log, const void *text,
                                     size_t len)
{
    u_char digest[20], hex[2 * HASH_SHOWN];
    ngx_sha1_t sha;
    if (!log->hash)
        return ngx_http_weir_json_string(at, last, text, len);
    ngx_sha1_init(&sha);
    ngx_sha1_update(&sha, log->salt.data, log->salt.len);
    ngx_sha1_update(&sha, text, len);
    ngx_sha1_final(digest, &sha);
    ngx_hex_dump(hex, digest, HASH_SHOWN);
    return ngx_http_weir_json_string(at, last, hex, sizeof(hex));
}

static void ngx_http_weir_log_write(ngx_http_request_t *r, ngx_http_weir_log_t *log, u_char *line, size_t len)
{
    ssize_t written = ngx_write_fd(log->file->fd, line, len);
    if (written == (ssize_t)len || (log->complained && ngx_time() - log->complained < COMPLAIN_SECONDS))
        return;
    log->complained = ngx_time();
    ngx_log_error(NGX_LOG_ALERT, r->connection->log, written < 0 ? ngx_errno : 0, "weir: could not write to \"%V\"",
                  &log->file->name);
}

void ngx_http_weir_log(ngx_http_request_t *r, ngx_http_weir_log_t *log, const weir_query *query,
                       const weir_answer *answer, ngx_uint_t dry_run)
{
    u_char line[LINE_MAX_BYTES], *at = line, *last = line + sizeof(line) - 1, room[NGX_INET6_ADDRSTRLEN];
    if (!ngx_http_weir_log_sample(log))
        return;
    ngx_str_t client = ngx_http_weir_client(r, query, room);
    at = ngx_slprintf(at, last, "{\"time\":\"%V\"", &ngx_cached_http_log_iso8601);
    at = ngx_http_weir_log_name(at, last, "rule");
    at = ngx_http_weir_json_string(at, last, (const u_char *)answer->by.rule, ngx_strlen(answer->by.rule));
    at = ngx_http_weir_log_name(at, last, "key");
    at = ngx_http_weir_log_who(at, last, log, answer->by.key, answer->by.key_len);
    at = ngx_http_weir_log_name(at, last, "client");
    at = ngx_http_weir_log_who(at, last, log, client.data, client.len);
    at = ngx_http_weir_log_name(at, last, "method");
    at = ngx_http_weir_json_string(at, last, r->method_name.data, ngx_min(r->method_name.len, 32));
    at = ngx_http_weir_log_name(at, last, "path");
    at = ngx_http_weir_json_string(at, last, r->uri.data, ngx_min(r->uri.len, PATH_SHOWN));
    at = ngx_slprintf(at, last, ",\"status\":%d", answer->status);
    if (answer->by.reason == WEIR_BY_SHED)
        at = ngx_slprintf(at, last, ",\"reason\":\"shed\",\"priority\":\"%s\"",
                          weir_load_class_name((int)answer->priority));
    if (answer->decision.retry_after_ns >= 0)
        at = ngx_slprintf(at, last, ",\"retry_after\":%L", ngx_http_weir_seconds(answer->decision.retry_after_ns));
    if (dry_run)
        at = ngx_slprintf(at, last, ",\"dry_run\":true");
    if (log->skipped)
        at = ngx_slprintf(at, last, ",\"skipped\":%ui", log->skipped);
    log->skipped = 0;
    at = ngx_slprintf(at, last, "}");
    *at++ = '\n';
    ngx_http_weir_log_write(r, log, line, (size_t)(at - line));
}
