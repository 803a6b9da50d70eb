/*
 * weir_log_denied: one line of JSON for each denied request, at most `rate` lines a second and worker; the next line
 * reports how many were skipped. weir_access_log: one line for each request.
 *
 * A thread of each worker writes both, so that no request waits for the disk. Lines that its ring has no room for are
 * dropped and counted.
 */
#include "ngx_http_weir.h"
#include "base/log.h"
#include "engine/hot_key_sampler.h"

#include <endian.h>
#include <inttypes.h>
#include <openssl/hmac.h>
#include <weir/load.h>

#define LINE_MAX_BYTES    12288
#define VALUE_MAX_BYTES   2048 /* of a key or a client, escaped */
#define PATH_SHOWN        512
#define ID_SHOWN          64 /* of a request's id, as weir why shows it */
#define TIER_SHOWN        32
#define END_BYTES         128 /* reserved for the members after the list of rules */
#define LOG_LIMIT_SECONDS 60
#define END_MS            1000 /* for the last lines of a worker that exits */
#define VALUE_BYTES       256 /* reserved for each value that follows: a long one cannot displace status and decision */

/* ---- The thread ---- */

#define PATH_PREFIX "/." /* of paths in nginx's list of open files, see ngx_http_weir_log_open */

static struct weir__log_writer *ngx_http_weir_log_writer;

void ngx_http_weir_log_start(ngx_cycle_t *cycle)
{
    ngx_http_weir_log_writer = weir__log_writer_start();
    if (ngx_http_weir_log_writer == NULL)
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno,
                      "weir: cannot start the thread for logs; this worker writes no lines");
}

void ngx_http_weir_log_stop(void)
{
    weir__log_writer_end(ngx_http_weir_log_writer, END_MS);
    ngx_http_weir_log_writer = NULL;
}

/* nginx calls it in each process before it reopens the file; the next line duplicates the new descriptor. */
static void ngx_http_weir_log_reopen(ngx_open_file_t *file, ngx_log_t *log)
{
    (void)log;
    ((ngx_http_weir_log_file_t *)file->data)->stale = 1;
}

/*
 * Adds the file of a log to those that nginx opens, and reopens on USR1. The path gets a prefix, so that no log of
 * nginx shares the entry: its `data` would have another type.
 */
static ngx_int_t ngx_http_weir_log_open(ngx_conf_t *cf, ngx_str_t path, ngx_uint_t kind, ngx_http_weir_log_file_t *to)
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

/* Duplicates the descriptor: nginx closes its own when it reopens the file, and may reuse its number for a client. */
static void ngx_http_weir_log_renew(ngx_http_weir_log_file_t *to)
{
    if (to->fd != NGX_INVALID_FILE && !weir__log_writer_close(ngx_http_weir_log_writer, to->fd))
        return; /* the ring is full */
    to->fd = fcntl(to->file->fd, F_DUPFD_CLOEXEC, 0);
    to->stale = 0;
}

static void ngx_http_weir_log_limited(ngx_log_t *log, const ngx_http_weir_log_file_t *to, uint64_t dropped, int error)
{
    static time_t logged[WEIR__LOG_KINDS];
    static uint64_t before[WEIR__LOG_KINDS];
    if (dropped == before[to->kind] || (logged[to->kind] && ngx_time() - logged[to->kind] < LOG_LIMIT_SECONDS))
        return;
    ngx_str_t path = {to->file->name.len - (sizeof(PATH_PREFIX) - 1), to->file->name.data + sizeof(PATH_PREFIX) - 1};
    ngx_log_error(NGX_LOG_ALERT, log, error,
                  "weir: %uL lines for \"%V\" were dropped since the last line like this: %s",
                  dropped - before[to->kind], &path, error ? "they cannot be written" : "the disk did not keep up");
    logged[to->kind] = ngx_time();
    before[to->kind] = dropped;
}

/* Passes a line to the thread; NGX_DECLINED: it was dropped. */
static ngx_int_t ngx_http_weir_log_put(ngx_log_t *log, ngx_http_weir_log_file_t *to, u_char *line, size_t len)
{
    int error;
    if (to->stale || to->fd == NGX_INVALID_FILE)
        ngx_http_weir_log_renew(to);
    ngx_uint_t put =
        weir__log_writer_put(ngx_http_weir_log_writer, to->fd, (unsigned)to->kind, (const char *)line, len);
    uint64_t dropped = weir__log_writer_dropped(ngx_http_weir_log_writer, (unsigned)to->kind, &error);
    /* Not while the disk hangs: nginx's error log, which the worker itself writes, may be on the same disk. */
    if (weir__log_writer_keeps_up(ngx_http_weir_log_writer))
        ngx_http_weir_log_limited(log, to, dropped, error);
    return put ? NGX_OK : NGX_DECLINED;
}

void ngx_http_weir_log_metrics(struct weir__buffer *text)
{
    static const char *const names[WEIR__LOG_KINDS] = {"denied", "access"};
    int error;
    if (ngx_http_weir_log_writer == NULL)
        return;
    weir__buffer_printf(text, "# HELP weir_log_dropped_total Log lines that this worker dropped because the disk did "
                              "not keep up.\n# TYPE weir_log_dropped_total counter\n");
    for (unsigned i = 0; i < WEIR__LOG_KINDS; i++)
        weir__buffer_printf(text, "weir_log_dropped_total{log=\"%s\",worker=\"%lu\"} %" PRIu64 "\n", names[i],
                            ngx_worker, weir__log_writer_dropped(ngx_http_weir_log_writer, i, &error));
}

u_char *ngx_http_weir_json_string(u_char *to, u_char *last, const void *text, size_t len)
{
    if (last - to < 2)
        return to;
    return (u_char *)weir__json_put_string((char *)to, (size_t)(last - to), (weir_text){text, len});
}

/* ---- Denied requests ---- */

/* `weir_log_denied PATH|off [rate=100] [hash|hash=SALT]` */
char *ngx_http_weir_log_denied(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    if (lcf->log != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    lcf->log = NULL;
    if (ngx_strcmp(value[1].data, "off") == 0)
        return cf->args->nelts == 2 ? NGX_CONF_OK : "takes no parameters after \"off\"";
    /* access_log supports these; without this check, files of such names would be created. */
    if (ngx_strncmp(value[1].data, "syslog:", 7) == 0 || ngx_strchr(value[1].data, '$'))
        return "needs the path of a file; there is neither syslog nor a variable";
    lcf->log = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_log_t));
    if (lcf->log == NULL)
        return NGX_CONF_ERROR;
    lcf->log->rate = 100;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        ngx_str_t rest = {value[i].len - ngx_min(value[i].len, 5), value[i].data + ngx_min(value[i].len, 5)};
        ngx_int_t rate = ngx_strncmp(value[i].data, "rate=", 5) == 0 ? ngx_atoi(rest.data, rest.len) : 0;
        if (rate > 0) {
            lcf->log->rate = (ngx_uint_t)rate;
        } else if (ngx_strcmp(value[i].data, "hash") == 0 || ngx_strncmp(value[i].data, "hash=", 5) == 0) {
            lcf->log->hash = 1;
            ((ngx_http_weir_main_conf_t *)ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module))->hash_keys = 1;
            lcf->log->salt = rest;
        } else {
            return ngx_weir_invalid(cf, cmd, "parameter", &value[i], "rate=100, hash or hash=SALT");
        }
    }
    return ngx_http_weir_log_open(cf, value[1], NGX_HTTP_WEIR_LOG_DENIED, &lcf->log->to) == NGX_OK ? NGX_CONF_OK
                                                                                                   : NGX_CONF_ERROR;
}

/* True if this one is within the rate. */
static ngx_uint_t ngx_http_weir_log_sample(ngx_http_weir_log_t *log)
{
    if (log->second != ngx_time()) {
        log->second = ngx_time();
        log->written = 0;
    }
    ngx_uint_t within = log->written < log->rate;
    log->written += within;
    log->skipped += !within;
    return within;
}

/* Adds a member, whose value is cut to `max` bytes. */
static u_char *ngx_http_weir_log_text(u_char *at, u_char *last, const char *name, const void *text, size_t len,
                                      size_t max)
{
    at = ngx_slprintf(at, last, ",\"%s\":", name);
    return ngx_http_weir_json_string(at, last, text, ngx_min(len, max));
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

/* Adds a key or a client: its text, or the hash that weir top and the rules service show for it, too
 * (engine/hot_key_sampler.h). */
static u_char *ngx_http_weir_log_key(u_char *at, u_char *last, const char *name, const ngx_http_weir_log_t *log,
                                     const weir_segment *segment, const void *text, size_t len)
{
    at = ngx_slprintf(at, last, ",\"%s\":", name);
    if (!log->hash)
        return ngx_http_weir_json_string(at, ngx_min(last, at + VALUE_MAX_BYTES), text, len);
    uint64_t hash = log->salt.len ? ngx_http_weir_log_salted(&log->salt, text, len)
                                  : weir__pseudonym(segment, weir__hot_sampler_hash(segment, text, len));
    return ngx_slprintf(at, last, "\"~%016xL\"", hash);
}

/* Adds limit, window, capacity and units in use, as far as the outcome has them. */
static u_char *ngx_http_weir_log_limit(u_char *at, u_char *last, const weir_outcome *outcome)
{
    const weir_decision *decision = &outcome->decision;
    if (outcome->quota >= 0)
        at = ngx_slprintf(at, last, ",\"limit\":%L,\"window\":%L", outcome->effective_limit,
                          outcome->window_ns / WEIR_SECOND);
    if (outcome->quota >= 0 && decision->limit >= 0)
        at = ngx_slprintf(at, last, ",\"capacity\":%L,\"used\":%L", decision->limit,
                          decision->limit - decision->remaining);
    return ngx_slprintf(at, last, ",\"cost\":%L", outcome->cost);
}

/* Adds the other rules that matched, each with its state, as far as there is room. */
static u_char *ngx_http_weir_log_others(u_char *at, u_char *last, const weir_query *query, const weir_result *result)
{
    const char *before = "";
    at = ngx_slprintf(at, last, ",\"others\":[");
    for (size_t i = 0; query->outcomes && i < result->outcomes; i++) {
        const weir_outcome *one = &query->outcomes[i];
        u_char entry[WEIR__JSON_STRING_MAX(WEIR_NAME_MAX) + 160], *end = entry, *bound = entry + sizeof(entry);
        /* Those that were not evaluated any more have no limit. */
        if ((one->shadow == result->decided_by.shadow && ngx_strcmp(one->rule, result->decided_by.rule) == 0) ||
            (one->reason == WEIR_BY_LIMIT && one->decision.limit < 0))
            continue;
        end = ngx_slprintf(end, bound, "%s{\"rule\":", before);
        end = ngx_http_weir_json_string(end, bound, one->rule, ngx_strlen(one->rule));
        bool counts = one->decision.verdict != WEIR_BLOCKED; /* else what is left did not decide */
        end = ngx_slprintf(end, bound, ",\"shadow\":%s,\"passed\":%s,\"limit\":%L,\"remaining\":%L}",
                           one->shadow ? "true" : "false", weir_passes(&one->decision) ? "true" : "false",
                           counts ? one->decision.limit : -1, counts ? one->decision.remaining : -1);
        if (last - at < end - entry + END_BYTES)
            break;
        at = ngx_cpymem(at, entry, (size_t)(end - entry));
        before = ",";
    }
    return ngx_slprintf(at, last, "]");
}

/* Adds the request's id, if it has one: that of weir why. */
static u_char *ngx_http_weir_log_id(u_char *at, u_char *last, const weir_query *query)
{
    static const weir_text named = {"request_id", 10}, header = {"x-request-id", 12};
    weir_text id = {NULL, 0};
    if (!query->lookup(query->lookup_context, WEIR_ATTR_NAMED, named, &id) || id.len == 0)
        (void)query->lookup(query->lookup_context, WEIR_ATTR_HEADER, header, &id);
    return id.len ? ngx_http_weir_log_text(at, last, "request_id", id.data, id.len, ID_SHOWN) : at;
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
    at = ngx_http_weir_log_text(at, last, "rule", result->decided_by.rule, ngx_strlen(result->decided_by.rule),
                                WEIR_NAME_MAX);
    at = ngx_http_weir_log_key(at, last, "key", log, segment, result->decided_by.key, result->decided_by.key_len);
    at = ngx_http_weir_log_key(at, last, "client", log, segment, client.data, client.len);
    at = ngx_http_weir_log_text(at, last, "method", r->method_name.data, r->method_name.len, 32);
    at = ngx_http_weir_log_text(at, last, "path", r->uri.data, r->uri.len, PATH_SHOWN);
    at = ngx_slprintf(at, last, ",\"status\":%d", result->status);
    at = ngx_slprintf(at, last, ",\"reason\":\"%s\"", weir_outcome_reason(&result->decided_by));
    if (result->decided_by.reason == WEIR_BY_SHED)
        at = ngx_slprintf(at, last, ",\"priority\":\"%s\"", weir_load_class_name((int)result->priority));
    at = ngx_http_weir_log_limit(at, last, &result->decided_by);
    if (result->tier.len)
        at = ngx_http_weir_log_text(at, last, "tier", result->tier.data, result->tier.len, TIER_SHOWN);
    if (result->missing[0])
        at =
            ngx_http_weir_log_text(at, last, "missing", result->missing, ngx_strlen(result->missing), WEIR_MISSING_MAX);
    at = ngx_http_weir_log_id(at, last, query);
    at = ngx_http_weir_log_others(at, last, query, result);
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

/* ---- Access log: the format is as in log_format, texts and $variables ---- */

/* A text, and the variable that follows it. */
typedef struct {
    ngx_str_t text;
    ngx_int_t variable; /* NGX_CONF_UNSET: none */
} ngx_http_weir_log_part_t;

static ngx_int_t ngx_http_weir_access_log_parse(ngx_conf_t *cf, ngx_str_t format, ngx_array_t *fields)
{
    static const char names[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
    const char *at = (const char *)format.data; /* nginx ends the words of a directive with a zero byte */
    while (*at) {
        ngx_http_weir_log_part_t *part = ngx_array_push(fields);
        if (part == NULL)
            return NGX_ERROR;
        part->text = (ngx_str_t){strcspn(at, "$"), (u_char *)at};
        part->variable = NGX_CONF_UNSET;
        at += part->text.len;
        if (*at == '\0')
            return NGX_OK;
        at++;
        ngx_str_t name = {strspn(at, names), (u_char *)at};
        if (name.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "a \"$\" without a variable's name in \"%V\"", &format);
            return NGX_ERROR;
        }
        part->variable = ngx_http_get_variable_index(cf, &name);
        if (part->variable == NGX_ERROR)
            return NGX_ERROR;
        at += name.len;
    }
    return NGX_OK;
}

char *ngx_http_weir_access_log(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    (void)cmd;
    if (lcf->access_log != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    lcf->access_log = NULL;
    if (ngx_strcmp(value[1].data, "off") == 0)
        return cf->args->nelts == 2 ? NGX_CONF_OK : "takes no parameters after \"off\"";
    if (cf->args->nelts < 3)
        return "needs a path and a format";
    if (ngx_strncmp(value[1].data, "syslog:", 7) == 0 || ngx_strchr(value[1].data, '$'))
        return "needs the path of a file; there is neither syslog nor a variable";
    if (cf->args->nelts == 4 && ngx_strcmp(value[3].data, "escape=json") != 0)
        return "knows no parameter after the format but escape=json";
    ngx_http_weir_access_log_t *log = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_access_log_t));
    if (log == NULL || (log->fields = ngx_array_create(cf->pool, 16, sizeof(ngx_http_weir_log_part_t))) == NULL)
        return NGX_CONF_ERROR;
    log->json = cf->args->nelts == 4;
    if (ngx_http_weir_access_log_parse(cf, value[2], log->fields) != NGX_OK ||
        ngx_http_weir_log_open(cf, value[1], NGX_HTTP_WEIR_LOG_ACCESS, &log->to) != NGX_OK)
        return NGX_CONF_ERROR;
    const ngx_http_weir_log_part_t *part = log->fields->elts;
    for (ngx_uint_t i = 0; i < log->fields->nelts; i++)
        log->text_bytes += part[i].text.len;
    lcf->access_log = log;
    return NGX_CONF_OK;
}

/* Escapes as log_format does: quotes, backslashes and unprintable bytes as \xHH. */
static u_char *ngx_http_weir_access_log_text(u_char *to, const u_char *last, const u_char *text, size_t len)
{
    for (size_t i = 0; i < len && last - to > 4; i++) {
        if (text[i] == '"' || text[i] == '\\' || text[i] < 0x20 || text[i] > 0x7e)
            to = ngx_sprintf(to, "\\x%02Xd", (uint32_t)text[i]);
        else
            *to++ = text[i];
    }
    return to;
}

/* A JSON string without its quotes, which the format has. */
static u_char *ngx_http_weir_access_log_json(u_char *to, u_char *last, const u_char *text, size_t len)
{
    u_char *end = ngx_http_weir_json_string(to, last, text, len);
    if (end - to < 2)
        return to;
    ngx_memmove(to, to + 1, (size_t)(end - to) - 2);
    return end - 2;
}

static u_char *ngx_http_weir_access_log_value(ngx_http_request_t *r, const ngx_http_weir_access_log_t *log,
                                              ngx_int_t variable, u_char *to, u_char *last)
{
    ngx_http_variable_value_t *value = ngx_http_get_indexed_variable(r, (ngx_uint_t)variable);
    if (value == NULL || value->not_found)
        return log->json ? to : ngx_slprintf(to, last, "-");
    return log->json ? ngx_http_weir_access_log_json(to, last, value->data, value->len)
                     : ngx_http_weir_access_log_text(to, last, value->data, value->len);
}

ngx_int_t ngx_http_weir_access_log_handler(ngx_http_request_t *r)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_access_log_t *log = conf->access_log;
    u_char line[LINE_MAX_BYTES], *at = line, *last = line + sizeof(line) - 1;
    if (log == NULL)
        return NGX_OK;
    const ngx_http_weir_log_part_t *part = log->fields->elts;
    size_t texts = log->text_bytes; /* of the format, not written yet */
    for (ngx_uint_t i = 0; i < log->fields->nelts; i++) {
        at = ngx_cpymem(at, part[i].text.data, ngx_min(part[i].text.len, (size_t)(last - at)));
        texts -= part[i].text.len;
        size_t left = (size_t)(last - at) > texts ? (size_t)(last - at) - texts : 0, later = log->fields->nelts - i - 1;
        left -= later * ngx_min(VALUE_BYTES, left / (later + 1));
        if (part[i].variable != NGX_CONF_UNSET)
            at = ngx_http_weir_access_log_value(r, log, part[i].variable, at, at + left);
    }
    *at++ = '\n';
    (void)ngx_http_weir_log_put(r->connection->log, &log->to, line, (size_t)(at - line));
    return NGX_OK;
}
