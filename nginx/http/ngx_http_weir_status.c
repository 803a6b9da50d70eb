/* The handler of weir_status: rules, segment, decisions, store and agent as JSON. */
#include "ngx_http_weir.h"

#define SAMPLED_SLOTS 16384

static void ngx_http_weir_status_segment(ngx_http_weir_text_t *text, ngx_http_weir_main_conf_t *mcf)
{
    const weir_segment *segment = weir_engine_segment(mcf->engine);
    uint64_t sampled = 0, live = 0;
    weir_stats stats;
    ngx_http_weir_text_add(text, "\"segment\":{\"path\":");
    ngx_http_weir_text_add_string(text, mcf->segment_path.data, mcf->segment_path.len);
    if (weir_stats_read(segment, &stats) == 0) {
        ngx_http_weir_text_add(text, ",\"bytes\":%uL,\"slots\":%uL", stats.bytes, stats.slots);
        if (weir_segment_sample(segment, weir_clock(segment), SAMPLED_SLOTS, &sampled, &live) == 0 && sampled)
            ngx_http_weir_text_add(text, ",\"fill\":%.6f", (double)live / (double)sampled);
        if (weir_segment_lost(segment))
            ngx_http_weir_text_add(text, ",\"lost\":true");
        ngx_http_weir_text_add(text, ",\"created\":%uL,\"evicted_live\":%uL,\"evicted_denied\":%uL", stats.created,
                               stats.evicted_live, stats.evicted_denied);
        ngx_http_weir_text_add(text, ",\"slab_full\":%uL,\"displaced\":%uL,\"retries\":%uL", stats.slab_full,
                               stats.displaced, stats.retries);
        ngx_http_weir_text_add(text,
                               "},\"decisions\":{\"allowed\":%uL,\"delayed\":%uL,\"denied\":%uL,\"never_fits\":%uL",
                               stats.allowed, stats.delayed, stats.denied, stats.never_fits);
        ngx_http_weir_text_add(text, ",\"blocked\":%uL,\"soft\":%uL,\"errors\":%uL", stats.blocked, stats.soft,
                               stats.errors);
    }
    ngx_http_weir_text_add(text, "}");
}

static void ngx_http_weir_status_rules(ngx_http_weir_text_t *text, ngx_http_weir_main_conf_t *mcf)
{
    weir_engine_stats stats;
    ngx_http_weir_text_add(text, "\"rules\":{\"path\":");
    ngx_http_weir_text_add_string(text, mcf->rules_path.data, mcf->rules_path.len);
    if (weir_engine_stats_read(mcf->engine, &stats) == 0)
        ngx_http_weir_text_add(text,
                               ",\"count\":%uz,\"bytes\":%uz,\"reloads\":%uL,\"reload_failures\":%uL,\"polls\":%uL,"
                               "\"regex_limited\":%uL",
                               stats.rules, stats.rule_bytes, stats.reloads, stats.reload_failures, stats.polls,
                               stats.regex_limited);
    ngx_http_weir_text_add(text, "}");
}

static int ngx_http_weir_status_rule(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    ngx_http_weir_text_t *text = context;
    if (text->failed)
        return 1;
    ngx_http_weir_text_add(text, "%s{\"name\":", text->last->buf->last[-1] == '[' ? "" : ",\n");
    ngx_http_weir_text_add_string(text, info->name, ngx_strlen(info->name));
    if (info->domain) {
        ngx_http_weir_text_add(text, ",\"domain\":");
        ngx_http_weir_text_add_string(text, info->domain, ngx_strlen(info->domain));
    }
    if (info->shadow)
        ngx_http_weir_text_add(text, ",\"shadow\":true");
    ngx_http_weir_text_add(text, ",\"allowed\":%uL,\"delayed\":%uL,\"denied\":%uL,\"listed\":%uL", stats->allowed,
                           stats->delayed, stats->denied, stats->listed);
    ngx_http_weir_text_add(text, ",\"missing_key\":%uL,\"failures\":%uL,\"rolled_back\":%uL,\"shed\":%uL}",
                           stats->missing_key, stats->failures, stats->rolled_back, stats->shed);
    return 0;
}

static void ngx_http_weir_status_write(ngx_http_weir_text_t *text, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_text_add(text, "{\"version\":\"%s\",\"worker\":%P,\n", weir_version(), ngx_pid);
    ngx_http_weir_status_segment(text, mcf);
    ngx_http_weir_text_add(text, ",\n");
    ngx_http_weir_status_rules(text, mcf);
    if (mcf->store)
        ngx_http_weir_store_status(text, mcf->store);
    ngx_http_weir_ledger_status(text, mcf->engine);
    ngx_http_weir_load_status(text, mcf->engine);
    ngx_http_weir_text_add(text, ",\n\"by_rule\":[");
    (void)weir_rules_each(mcf->engine, ngx_http_weir_status_rule, text);
    ngx_http_weir_text_add(text, "]}\n");
}

ngx_int_t ngx_http_weir_status_handler(ngx_http_request_t *r)
{
    return ngx_http_weir_text_send(r, (ngx_str_t)ngx_string("application/json"), ngx_http_weir_status_write);
}
