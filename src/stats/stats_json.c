/* A host's statistics as JSON. See stats.h. */
#include "stats/advise.h"
#include "stats/membership.h"
#include "stats/stats.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/load.h>
#include <stdio.h>

#define SAMPLED_SLOTS 16384

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)(value & INT64_MAX));
}

/* Names and keys are untrusted: those that are not UTF-8 are shown as \xHH. */
static json_t *text_json(const char *data, size_t len)
{
    json_t *made = json_stringn(data, len);
    if (made)
        return made;
    char *hex = malloc(4 * len + 1);
    if (!hex)
        return NULL;
    for (size_t i = 0; i < len; i++)
        snprintf(hex + 4 * i, 5, "\\x%02x", (unsigned char)data[i]);
    made = json_string(hex);
    free(hex);
    return made;
}

static json_t *string_json(const char *text)
{
    return text_json(text, strlen(text));
}

/* Nanoseconds as seconds, in thousandths. */
static double rounded_ms(int64_t ns)
{
    int64_t ms = ns / 1000000;
    return (double)ms / 1e3;
}

/* Formats and frees it; `root` may be NULL. */
static int finish(json_t *root, bool good, char **json)
{
    *json = good ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(root);
    return *json ? 0 : WEIR_ENOMEM;
}

/* Appends to a list. NULL: no memory, and the list is freed. */
static json_t *appended(json_t *list, json_t *element)
{
    if (json_array_append_new(list, element) == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* ---- Keys ---- */

static const char *const list_names[WEIR__KEY_LISTS] = {"denied", "admitted", "near"};

static json_t *key_json(const weir_segment *segment, const struct weir__hot_key *key, enum weir__key_list list,
                        const struct weir__host_query *query)
{
    bool hidden = query->hide || key->len == 0, cut = !hidden && key->shown < key->len;
    json_t *name =
        hidden ? json_sprintf("~%016" PRIx64, weir__pseudonym(segment, key->hash)) : text_json(key->text, key->shown);
    if (list == WEIR__KEYS_NEAR)
        return json_pack("{s:o,s:b,s:b,s:f}", "key", name, "hidden", hidden, "cut", cut, "used",
                         (double)key->weight / 1000);
    return json_pack("{s:o,s:b,s:b,s:o,s:o}", "key", name, "hidden", hidden, "cut", cut, "count", number(key->weight),
                     "error", number(key->error));
}

static json_t *uses_json(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot)
{
    uint64_t count[WEIR__HOT_USES] = {0};
    uint64_t keys = rule_slot ? weir__snapshot_uses(snapshot, rule_slot, count) : 0;
    json_t *list = json_array();
    for (int i = 0; i < WEIR__HOT_USES; i++)
        list = appended(list, number(count[i]));
    return json_pack("{s:o,s:o}", "keys", number(keys), "tenths", list);
}

/* The keys of one list. */
static json_t *keys_json(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                         enum weir__key_list list, const struct weir__host_query *query)
{
    int64_t n = query->n;
    size_t max = n < 1 ? 1 : n > WEIR__STATS_KEYS_MAX ? WEIR__STATS_KEYS_MAX : (size_t)n;
    struct weir__hot_key *keys = calloc(max, sizeof *keys);
    json_t *found = keys ? json_array() : NULL;
    size_t count = rule_slot && keys ? weir__snapshot_keys(snapshot, rule_slot, list, keys, max) : 0;
    for (size_t i = 0; i < count; i++)
        found = appended(found, key_json(snapshot->engine->segment, &keys[i], list, query));
    free(keys);
    return found;
}

/* The hottest keys of each list; null if they are not sampled. */
static json_t *hot_json(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                        const struct weir__host_query *query)
{
    struct weir__hot_key near[WEIR__HOT_NEAR];
    if (!rule_slot)
        return json_null();
    size_t near_keys = weir__snapshot_keys(snapshot, rule_slot, WEIR__KEYS_NEAR, near, WEIR__HOT_NEAR);
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "admitted", keys_json(snapshot, rule_slot, WEIR__KEYS_ADMITTED, query),
                     "denied", keys_json(snapshot, rule_slot, WEIR__KEYS_DENIED, query), "near",
                     keys_json(snapshot, rule_slot, WEIR__KEYS_NEAR, query), "near_keys", number(near_keys), "uses",
                     uses_json(snapshot, rule_slot));
}

/* ---- The present ---- */

static const char *algorithm_name(enum weir_algorithm algorithm)
{
    static const char *const names[] = {"token_bucket",       "leaky_bucket",           "fixed_window",
                                        "sliding_window_log", "sliding_window_counter", "concurrency"};
    return names[algorithm];
}

static const size_t spans[3] = {1, 10, 60}; /* seconds */

static json_t *spans_json(const struct weir__rates rates[3])
{
    return json_pack("{s:o,s:o,s:o}", "1s", weir__rates_json(&rates[0]), "10s", weir__rates_json(&rates[1]), "60s",
                     weir__rates_json(&rates[2]));
}

/* One rule. Adds the rates of an enforced rule to `all`. NULL: no memory. */
static json_t *rule_json(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule,
                         const struct weir__host_query *query, struct weir__rates all[3])
{
    const weir_rule_stats *s = &rule->stats;
    struct weir__rates rates[3];
    for (int i = 0; i < 3; i++) {
        rates[i] = weir__snapshot_rates(snapshot, rule, spans[i]);
        if (!rule->info.shadow)
            weir__rates_add(&all[i], &rates[i]);
    }
    bool counted = rule->info.bytes_per_key > 0;
    return json_pack("{s:o,s:b,s:s?,s:s?,s:o?,s:o?,s:{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o},s:o,s:o*}", "name",
                     string_json(rule->info.name), "shadow", rule->info.shadow, "domain", rule->info.domain,
                     "algorithm", counted ? algorithm_name(rule->info.algorithm) : NULL, "limit",
                     rule->info.limit >= 0 ? number((uint64_t)rule->info.limit) : NULL, "window_s",
                     counted && rule->info.window_ns ? json_real((double)rule->info.window_ns / 1e9) : NULL, "totals",
                     "allowed", number(s->allowed), "delayed", number(s->delayed), "denied", number(s->denied),
                     "listed", number(s->listed), "missing_key", number(s->missing_key), "failures",
                     number(s->failures), "rolled_back", number(s->rolled_back), "shed", number(s->shed), "warnings",
                     number(s->warnings), "rates", spans_json(rates), "hot",
                     query->n ? hot_json(snapshot, weir__snapshot_hot_keys(snapshot, rule->id), query) : NULL);
}

static json_t *segment_json(const struct weir__snapshot *snapshot)
{
    const weir_segment *segment = snapshot->engine->segment;
    uint64_t looked = 0, live = 0;
    weir_stats stats;
    if (weir_stats_read(segment, &stats) != 0)
        return json_null();
    bool sampled = weir_segment_sample(segment, snapshot->now, SAMPLED_SLOTS, &looked, &live) == 0 && looked;
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b}", "path", snapshot->segment, "bytes",
                     number(stats.bytes), "slots", number(stats.slots), "fill",
                     sampled ? json_real((double)live / (double)looked) : json_null(), "created", number(stats.created),
                     "evicted_live", number(stats.evicted_live), "evicted_denied", number(stats.evicted_denied),
                     "slab_full", number(stats.slab_full), "soft", number(stats.soft), "errors", number(stats.errors),
                     "lost", weir_segment_lost(segment));
}

static json_t *store_json(const struct weir__snapshot *snapshot)
{
    static const char *const states[] = {"unknown", "up", "down"};
    weir_ledger_stats s;
    if (!weir__snapshot_has_ledger(snapshot))
        return json_null();
    weir__delta_ledger_stats(&snapshot->deltas, &s);
    return json_pack("{s:s,s:b,s:f,s:f,s:s?,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "state", states[s.store],
                     "agent", s.agent, "since_s", (double)s.since_ns / 1e9, "lag_s", (double)s.lag_ns / 1e9,
                     "last_error", s.last_error ? weir_strerror(s.last_error) : NULL, "requests", number(s.requests),
                     "failures", number(s.failures), "units_sent", number(s.units_sent), "units_received",
                     number(s.units_received), "units_dropped", number(s.units_dropped), "units_leased",
                     number(s.units_leased), "units_spent", number(s.units_spent), "units_returned",
                     number(s.units_returned), "units_expired", number(s.units_expired), "lease_waits",
                     number(s.lease_waits), "keys", number(s.used), "keys_max", number(s.entries));
}

/* A quantile of the sampled check times, in seconds; 0: none was sampled. */
static double time_below(const weir_times *times, uint64_t per_mille)
{
    uint64_t all = 0, sum = 0;
    for (int i = 0; i < WEIR_TIMES; i++)
        all += times->count[i];
    for (int i = 0; i < WEIR_TIMES - 1 && all; i++) {
        sum += times->count[i];
        if (sum * 1000 >= all * per_mille)
            return (double)times->below_ns[i] / 1e9;
    }
    return all ? (double)times->below_ns[WEIR_TIMES - 2] / 1e9 : 0;
}

/* Quantiles and histogram of the sampled check times: counts[i] took less than below_s[i]; the last one longer. */
static json_t *times_json(const struct weir__snapshot *snapshot)
{
    weir_times times = {0};
    json_t *below = json_array(), *counts = json_array();
    (void)!weir_times_read(snapshot->engine, &times);
    for (int i = 0; i < WEIR_TIMES; i++) {
        counts = appended(counts, number(times.count[i]));
        if (i < WEIR_TIMES - 1)
            below = appended(below, json_real((double)times.below_ns[i] / 1e9));
    }
    return json_pack("{s:f,s:f,s:o,s:o}", "p50", time_below(&times, 500), "p99", time_below(&times, 990), "below_s",
                     below, "counts", counts);
}

static json_t *host_json(const struct weir__snapshot *snapshot)
{
    char name[WEIR__HOST_NAME];
    double load[3] = {0};
    weir__snapshot_host_name(snapshot, name);
    (void)!getloadavg(load, 3);
    return json_pack("{s:o,s:[f,f,f],s:i}", "name", string_json(name), "load", load[0], load[1], load[2], "processors",
                     (int)sysconf(_SC_NPROCESSORS_ONLN));
}

static json_t *percent(uint32_t per_mille)
{
    return json_real((double)per_mille / 10);
}

/* The host's load; null where there is none. */
static json_t *load_json(const struct weir__snapshot *snapshot)
{
    struct weir__load_view view;
    struct weir__upstream_sums sums;
    bool known = weir__snapshot_load(snapshot, &view, &sums);
    if (!snapshot->load)
        return json_null();
    json_t *signals = json_object(), *shed = json_object();
    for (int i = 0; i < WEIR__SIGNALS; i++)
        if (view.signal[i] != WEIR__SIGNAL_NONE)
            (void)json_object_set_new(signals, weir_load_signal_name(i), percent(view.signal[i]));
    for (int i = 0; i < WEIR__LOAD_CLASSES; i++)
        (void)json_object_set_new(shed, weir_load_class_name(i), percent(view.shed[i]));
    return json_pack("{s:b,s:o,s:o,s:o,s:o,s:o}", "known", known, "level", percent(view.level), "throttle",
                     percent(view.throttle), "in_flight", number(sums.in_flight), "signals", signals, "shed", shed);
}

/* The seconds that the weights of hot keys cover; 0: unknown. */
static uint64_t hot_seconds(const struct weir__snapshot *snapshot)
{
    return snapshot->hot.rule_slots ? weir__load64(&snapshot->hot.header->seconds) : 0;
}

/* NULL: no memory. */
static json_t *stats_json(const struct weir__snapshot *snapshot, const struct weir__host_query *query)
{
    struct weir__rates all[3] = {0}; /* under the enforced rules */
    weir_engine_stats engine = {0};
    json_t *rules = json_array();
    for (const struct weir__rule_snapshot *rule = snapshot->rules.first; rule; rule = rule->next)
        rules = appended(rules, rule_json(snapshot, rule, query, all));
    (void)!weir_engine_stats_read(snapshot->engine, &engine);
    return json_pack("{s:f,s:s,s:o,s:o,s:o,s:o,s:o,s:{s:o,s:o,s:o,s:o},s:b,s:b,s:o,s:o,s:o}", "at",
                     rounded_ms(snapshot->now.wall_ns), "version", weir_version(), "host", host_json(snapshot),
                     "segment", segment_json(snapshot), "store", store_json(snapshot), "rates", spans_json(all),
                     "check_seconds", times_json(snapshot), "reloads", "ok", number(engine.reloads), "failed",
                     number(engine.reload_failures), "polls", number(engine.polls), "rules", number(engine.rules),
                     "history", snapshot->history.rows != 0, "hot", snapshot->hot.rule_slots != 0, "hot_seconds",
                     number(hot_seconds(snapshot)), "rules", rules, "load", load_json(snapshot));
}

int weir__stats_json_current(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json)
{
    return finish(stats_json(snapshot, query), true, json);
}

/* ---- The last hour ---- */

enum { ALLOWED, DELAYED, DENIED, SHED, SHADOW_DENIED, SERIES };
static const char *const series_names[SERIES] = {"allowed", "delayed", "denied", "shed", "shadow_denied"};

/* Adds a rule's seconds to the sums by second, of which the newest is the last. `one` has room for its seconds. */
static void add_seconds(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule,
                        struct weir__history_second *one, size_t seconds, double *sum)
{
    size_t count = snapshot->history.rows ? weir__history_read(&snapshot->history, rule->id, one, seconds) : 0;
    for (size_t i = 0; i < count; i++) {
        double *at = sum + seconds - count + i;
        if (rule->info.shadow) {
            at[SHADOW_DENIED * seconds] += one[i].denied;
            continue;
        }
        at[ALLOWED * seconds] += one[i].allowed;
        at[DELAYED * seconds] += one[i].delayed;
        at[DENIED * seconds] += one[i].denied;
        at[SHED * seconds] += one[i].shed;
    }
}

/* Means over `step` seconds each. */
static json_t *series_json(const double *sum, size_t seconds, size_t step)
{
    json_t *list = json_array();
    for (size_t from = seconds % step; from < seconds; from += step) {
        double all = 0;
        for (size_t i = 0; i < step; i++)
            all += sum[from + i];
        if (json_array_append_new(list, weir__hundredths(all / (double)step)) != 0)
            break;
    }
    return list;
}

int weir__stats_json_history(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json)
{
    const char *rule = query->rule;
    int64_t seconds = query->seconds, step = query->step;
    size_t count = seconds < 1 ? 1 : seconds >= WEIR__HISTORY_SECONDS ? WEIR__HISTORY_SECONDS - 1 : (size_t)seconds;
    size_t each = step < 1 ? 1 : (size_t)step > count ? count : (size_t)step;
    double *sums = calloc(count, SERIES * sizeof *sums);
    struct weir__history_second *one = calloc(count, sizeof *one);
    uint64_t last = snapshot->history.rows ? weir__load64(&snapshot->history.header->last) : 0;
    int64_t ago = last ? (int64_t)(weir__snapshot_second(snapshot->now) - last) : 0;
    int error = !sums || !one ? WEIR_ENOMEM : rule ? WEIR_ENORULE : 0;
    for (const struct weir__rule_snapshot *r = snapshot->rules.first; r && error != WEIR_ENOMEM; r = r->next)
        if (!rule || strcmp(rule, r->info.name) == 0) {
            error = 0;
            add_seconds(snapshot, r, one, count, sums);
        }
    if (!error) {
        json_t *root = json_pack("{s:b,s:o,s:o}", "known", last != 0, "until",
                                 json_integer(snapshot->now.wall_ns / WEIR_SECOND - ago), "step", number(each));
        bool good = root != NULL;
        for (size_t i = 0; i < SERIES && good; i++)
            good = json_object_set_new(root, series_names[i], series_json(sums + i * count, count, each)) == 0;
        error = finish(root, good, json);
    }
    free(sums);
    free(one);
    return error;
}

/* ---- Hot keys ---- */

int weir__stats_json_hot_keys(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json)
{
    const struct weir__rule_snapshot *rule = snapshot->rules.first;
    while (rule && (rule->info.shadow || strcmp(rule->info.name, query->rule) != 0))
        rule = rule->next;
    if (!rule)
        return WEIR_ENORULE;
    const struct weir__hot_rule *rule_slot = weir__snapshot_hot_keys(snapshot, rule->id);
    uint64_t total =
        rule_slot ? weir__load64(&rule_slot->sketch[query->denied ? WEIR__HOT_DENIED : WEIR__HOT_ADMITTED].total) : 0;
    enum weir__key_list list = query->near ? WEIR__KEYS_NEAR : query->denied ? WEIR__KEYS_DENIED : WEIR__KEYS_ADMITTED;
    json_t *root =
        json_pack("{s:s,s:b,s:b,s:s,s:o,s:o,s:o,s:o}", "rule", query->rule, "shadow", false, "known", rule_slot != NULL,
                  "by", list_names[list], "seconds", number(hot_seconds(snapshot)), "total", number(total), "keys",
                  keys_json(snapshot, rule_slot, list, query), "uses", uses_json(snapshot, rule_slot));
    return finish(root, true, json);
}

/* ---- Hosts ---- */

static json_t *member_json(const struct weir__host_status *host)
{
    const struct weir__heartbeat *heartbeat = &host->heartbeat;
    char rules[24];
    snprintf(rules, sizeof rules, "%016" PRIx64, heartbeat->rules);
    return json_pack("{s:s,s:o,s:b,s:s,s:f,s:s,s:o,s:o,s:o?,s:s,s:s?,s:I,s:b}", "id", heartbeat->id, "name",
                     string_json(heartbeat->name), "here", host->via == WEIR__HOST_SELF, "state",
                     host->silent ? "silent" : "running", "heard_s", (double)host->ago_ms / 1000, "via",
                     weir__host_via_names[host->via], "version", string_json(heartbeat->version), "rates",
                     weir__rates_json(&heartbeat->rates), "level",
                     heartbeat->level >= 0 ? json_real(heartbeat->level) : NULL, "store",
                     weir__host_store_names[heartbeat->store], "rules", heartbeat->rules ? rules : NULL, "rule_count",
                     (json_int_t)heartbeat->rule_count, "rules_differ", host->differs);
}

json_t *weir__membership_json(const struct weir__membership *membership)
{
    json_t *hosts = json_array();
    for (size_t i = 0; i < membership->count; i++)
        hosts = appended(hosts, member_json(&membership->hosts[i]));
    return json_pack("{s:{s:I,s:I,s:I,s:I,s:s,s:o?,s:b},s:o}", "fleet", "running",
                     (json_int_t)(membership->count - membership->silent), "silent", (json_int_t)membership->silent,
                     "left_out", (json_int_t)membership->left_out, "rules_differ", (json_int_t)membership->differ,
                     "store", weir__host_store_names[membership->store], "why",
                     *membership->why ? string_json(membership->why) : NULL, "agent", membership->agent, "hosts",
                     hosts);
}

int weir__stats_json_hosts(const struct weir__membership *membership, char **json)
{
    return finish(weir__membership_json(membership), true, json);
}

/* ---- Advice ---- */

static json_t *advice_json(struct weir__rule_source *source, const weir_rule_info *info,
                           const struct weir__advice *advice)
{
    static const char *const kinds[] = {"too_strict", "too_loose", "bursts", "edge_bursts"};
    char *document, *changed = weir__advice_rule(source, info, &advice->change, &document);
    json_t *numbers = json_object();
    for (size_t i = 0; i < advice->number_count; i++)
        (void)json_object_set_new(numbers, advice->numbers[i].name, weir__hundredths(advice->numbers[i].value));
    json_t *one = json_pack("{s:o,s:s,s:s,s:o,s:s?,s:s?}", "rule", string_json(info->name), "kind", kinds[advice->kind],
                            "message", advice->message, "figures", numbers, "changed", changed, "document", document);
    free(changed);
    free(document);
    return one;
}

static void add_basis(const struct weir__evidence *evidence, const char *rule, struct weir__advice_basis *basis)
{
    uint64_t requests = 0, denied = 0;
    for (size_t i = 0; i < evidence->second_count; i++) {
        const struct weir__history_second *second = &evidence->second[i];
        requests += second->allowed + second->delayed + second->denied;
        denied += second->denied;
    }
    basis->rules++;
    basis->seconds = evidence->second_count > basis->seconds ? evidence->second_count : basis->seconds;
    basis->hours = evidence->hour_count > basis->hours ? evidence->hour_count : basis->hours;
    if (requests > basis->requests) {
        basis->busiest = rule;
        basis->requests = requests;
        basis->denied = denied;
    }
}

int weir__advise_all(const struct weir__snapshot *snapshot, const char *name, struct weir__rule_source *source,
                     json_t **list, struct weir__advice_basis *basis)
{
    struct weir__advice advice[WEIR__ADVICE_MAX];
    int error = name ? WEIR_ENORULE : 0;
    *list = json_array();
    *basis = (struct weir__advice_basis){.keys = snapshot->hot.rule_slots != 0};
    for (const struct weir__rule_snapshot *rule = snapshot->rules.first; rule && error != WEIR_ENOMEM;
         rule = rule->next) {
        if (name && strcmp(name, rule->info.name) != 0)
            continue;
        struct weir__evidence *evidence = weir__evidence_gather(snapshot, rule);
        size_t count = evidence ? weir__advise(evidence, advice) : 0;
        error = evidence ? 0 : WEIR_ENOMEM;
        if (evidence && !rule->info.shadow)
            add_basis(evidence, rule->info.name, basis);
        for (size_t i = 0; i < count; i++)
            if (json_array_append_new(*list, advice_json(source, &rule->info, &advice[i])) != 0)
                error = WEIR_ENOMEM;
        free(evidence);
    }
    return error;
}

int weir__stats_json_advice(const struct weir__snapshot *snapshot, const char *rule, struct weir__rule_source *source,
                            char **json)
{
    json_t *list;
    struct weir__advice_basis basis;
    int error = weir__advise_all(snapshot, rule, source, &list, &basis);
    json_t *root =
        json_pack("{s:o,s:{s:o,s:o,s:o,s:o,s:o,s:o,s:b},s:{s:i,s:i,s:i,s:i}}", "advice", list, "basis", "rules",
                  number(basis.rules), "seconds", number(basis.seconds), "hours", number(basis.hours), "busiest",
                  basis.busiest ? string_json(basis.busiest) : json_null(), "requests", number(basis.requests),
                  "denied", number(basis.denied), "keys", basis.keys, "needs", "seconds", WEIR__ADVICE_SECONDS,
                  "requests", WEIR__ADVICE_REQUESTS, "denied", WEIR__ADVICE_DENIED, "hours", WEIR__ADVICE_HOURS);
    if (!error)
        return finish(root, true, json);
    json_decref(root);
    return error;
}
