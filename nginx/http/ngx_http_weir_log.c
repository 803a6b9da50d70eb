/*
 * One line of JSON for each denied request. A flood of them must not become a flood of lines: of each second only the
 * first so many are written, by each worker, and the next line says how many were not.
 *
 * This log and that of all requests (ngx_http_weir_access_log.c) are written by a thread of each worker, so that no
 * request waits for a disk. Lines that its ring has no room for are dropped and counted.
 */
#include "ngx_http_weir.h"
#include "engine/log_writer.h"
#include "engine/hot_key_sampler.h"
#include <endian.h>
#include <openssl/hmac.h>
#include <weir/load.h>

#define LINE_MAX_BYTES    8192
#define VALUE_MAX_BYTES   2048 /* of a key or a client, escaped */
#define PATH_SHOWN        512
#define LOG_LIMIT_SECONDS 60
#define END_MS            1000 /* for the last lines of a worker that ends */

/* ---- The thread ---- */

#define PATH_PREFIX "/." /* of paths in nginx's list of open files, see ngx_http_weir_log_open */

static struct weir__log_writer *ngx_http_weir_log_writer;
static const char *const ngx_http_weir_log_names[] = {"denied", "access"};

void ngx_http_weir_log_start(ngx_cycle_t *cycle)
{
    ngx_http_weir_log_writer = weir__log_writer_start();
    if (ngx_http_weir_log_writer == NULL)
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno, "weir: no thread for logs; no line is written");
}

void ngx_http_weir_log_stop(void)
{
    weir__log_writer_end(ngx_http_weir_log_writer, END_MS);
    ngx_http_weir_log_writer = NULL;
}

/* nginx calls it in each process before it reopens the file; the thread's copy is renewed with the next line. */
static void ngx_http_weir_log_reopen(ngx_open_file_t *file, ngx_log_t *log)
{
    (void)log;
    ((ngx_http_weir_log_file_t *)file->data)->stale = 1;
}

/*
 * With another spelling of the path, so that no other log shares the entry: nginx keeps a buffer of its own type where
 * this has its data.
 */
ngx_int_t ngx_http_weir_log_open(ngx_conf_t *cf, ngx_str_t path, ngx_uint_t kind, ngx_http_weir_log_file_t *to)
{
    if (ngx_conf_full_name(cf->cycle, &path, 0) != NGX_OK)
        return NGX_ERROR;
    u_char *name = ngx_pnalloc(cf->pool, sizeof(PATH_PREFIX) + path.len);
    ngx_open_file_t *file = ngx_list_push(&cf->cycle->open_files);
    if (name == NULL || file == NULL)
        return NGX_ERROR;
    (void)ngx_sprintf(name, PATH_PREFIX "%V%Z", &path);
    ngx_memzero(file, sizeof(ngx_open_file_t));
    file->fd = NGX_INVALID_FILE;
    file->name.data = name;
    file->name.len = sizeof(PATH_PREFIX) - 1 + path.len;
    file->flush = ngx_http_weir_log_reopen;
    file->data = to;
    to->file = file;
    to->kind = kind;
    to->fd = NGX_INVALID_FILE;
    return NGX_OK;
}

/* A copy: nginx closes the descriptor when it reopens the file, and its number may become a client's. */
static void ngx_http_weir_log_renew(ngx_http_weir_log_file_t *to)
{
    if (to->fd != NGX_INVALID_FILE && !weir__log_writer_close(ngx_http_weir_log_writer, to->fd))
        return; /* no room: the line will find none, either */
    to->fd = fcntl(to->file->fd, F_DUPFD_CLOEXEC, 0);
    to->stale = 0;
}

static void ngx_http_weir_log_limited(ngx_log_t *log, const ngx_http_weir_log_file_t *to, uint64_t dropped, int error)
{
    static time_t complained[WEIR__LOG_KINDS];
    static uint64_t before[WEIR__LOG_KINDS];
    if (dropped == before[to->kind] || (complained[to->kind] && ngx_time() - complained[to->kind] < LOG_LIMIT_SECONDS))
        return;
    ngx_str_t path = {to->file->name.len - (sizeof(PATH_PREFIX) - 1), to->file->name.data + sizeof(PATH_PREFIX) - 1};
    ngx_log_error(NGX_LOG_ALERT, log, error,
                  "weir: %uL lines for \"%V\" were dropped since the last line like this: %s",
                  dropped - before[to->kind], &path, error ? "they cannot be written" : "the disk did not keep up");
    complained[to->kind] = ngx_time();
    before[to->kind] = dropped;
}

ngx_int_t ngx_http_weir_log_put(ngx_log_t *log, ngx_http_weir_log_file_t *to, u_char *line, size_t len)
{
    int error;
    if (to->stale || to->fd == NGX_INVALID_FILE)
        ngx_http_weir_log_renew(to);
    ngx_uint_t put =
        weir__log_writer_put(ngx_http_weir_log_writer, to->fd, (unsigned)to->kind, (const char *)line, len);
    uint64_t dropped = weir__log_writer_dropped(ngx_http_weir_log_writer, (unsigned)to->kind, &error);
    /* Not while the disk hangs: nginx's error log may be on the same, and is written right here. */
    if (weir__log_writer_keeps_up(ngx_http_weir_log_writer))
        ngx_http_weir_log_limited(log, to, dropped, error);
    return put ? NGX_OK : NGX_DECLINED;
}

void ngx_http_weir_log_metrics(ngx_http_weir_text_t *text)
{
    static const char name[] = "weir_log_dropped_total";
    int error;
    if (ngx_http_weir_log_writer == NULL)
        return;
    ngx_http_weir_text_add(text, "# HELP %s Log lines that this worker dropped because the disk did not keep up.\n",
                           name);
    ngx_http_weir_text_add(text, "# TYPE %s counter\n", name);
    for (unsigned i = 0; i < WEIR__LOG_KINDS; i++)
        ngx_http_weir_text_add(text, "%s{log=\"%s\",worker=\"%ui\"} %uL\n", name, ngx_http_weir_log_names[i],
                               ngx_worker, weir__log_writer_dropped(ngx_http_weir_log_writer, i, &error));
}

/* ---- Denied requests ---- */

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

/* The first 8 bytes of HMAC-SHA-256; 0 on an error. */
static uint64_t ngx_http_weir_log_salted(const ngx_str_t *salt, const void *text, size_t len)
{
    u_char complete[EVP_MAX_MD_SIZE];
    uint64_t hash = 0;
    if (HMAC(EVP_sha256(), salt->data, (int)salt->len, text, len, complete, NULL) != NULL)
        ngx_memcpy(&hash, complete, sizeof(hash));
    return be64toh(hash);
}

/* A key or a client: its text, or the hash by which weir top and the rules service know it, too
 * (engine/hot_key_sampler.h). */
static u_char *ngx_http_weir_log_who(u_char *at, u_char *last, const ngx_http_weir_log_t *log,
                                     const weir_segment *segment, const void *text, size_t len)
{
    if (!log->hash)
        return ngx_http_weir_json_string(at, ngx_min(last, at + VALUE_MAX_BYTES), text, len);
    uint64_t hash = log->salt.len ? ngx_http_weir_log_salted(&log->salt, text, len)
                                  : weir__pseudonym(segment, weir__hot_sampler_hash(segment, text, len));
    return ngx_slprintf(at, last, "\"~%016xL\"", hash);
}

void ngx_http_weir_log(ngx_http_request_t *r, ngx_http_weir_log_t *log, const weir_query *query,
                       const weir_result *result, ngx_uint_t dry_run)
{
    u_char line[LINE_MAX_BYTES], *at = line, *last = line + sizeof(line) - 1, room[NGX_INET6_ADDRSTRLEN];
    if (!ngx_http_weir_log_sample(log))
        return;
    const weir_segment *segment =
        ((ngx_http_weir_main_conf_t *)ngx_http_get_module_main_conf(r, ngx_http_weir_module))->segment;
    ngx_str_t client = ngx_http_weir_client(r, query, room);
    at = ngx_slprintf(at, last, "{\"time\":\"%V\"", &ngx_cached_http_log_iso8601);
    at = ngx_http_weir_log_name(at, last, "rule");
    at = ngx_http_weir_json_string(at, last, (const u_char *)result->decided_by.rule,
                                   ngx_strlen(result->decided_by.rule));
    at = ngx_http_weir_log_name(at, last, "key");
    at = ngx_http_weir_log_who(at, last, log, segment, result->decided_by.key, result->decided_by.key_len);
    at = ngx_http_weir_log_name(at, last, "client");
    at = ngx_http_weir_log_who(at, last, log, segment, client.data, client.len);
    at = ngx_http_weir_log_name(at, last, "method");
    at = ngx_http_weir_json_string(at, last, r->method_name.data, ngx_min(r->method_name.len, 32));
    at = ngx_http_weir_log_name(at, last, "path");
    at = ngx_http_weir_json_string(at, last, r->uri.data, ngx_min(r->uri.len, PATH_SHOWN));
    at = ngx_slprintf(at, last, ",\"status\":%d", result->status);
    if (result->decided_by.reason == WEIR_BY_SHED)
        at = ngx_slprintf(at, last, ",\"reason\":\"shed\",\"priority\":\"%s\"",
                          weir_load_class_name((int)result->priority));
    if (result->decision.retry_after_ns >= 0)
        at = ngx_slprintf(at, last, ",\"retry_after\":%L", ngx_http_weir_seconds(result->decision.retry_after_ns));
    if (dry_run)
        at = ngx_slprintf(at, last, ",\"dry_run\":true");
    if (log->skipped)
        at = ngx_slprintf(at, last, ",\"skipped\":%ui", log->skipped);
    at = ngx_slprintf(at, last, "}");
    *at++ = '\n';
    if (ngx_http_weir_log_put(r->connection->log, &log->to, line, (size_t)(at - line)) == NGX_OK)
        log->skipped = 0;
    else
        log->skipped++;
}
