/*
 * weir convert: nginx's limit_req. A zone with a rate and a key is a counter; each use of it, in a place (a server or a
 * location), says how far one may run ahead. Places with the same use of one zone share its counter, so they make one
 * rule. nginx looks for the one location of a request, weir for all rules: so a rule leaves out the places inside its
 * own that are limited otherwise.
 */
#define _GNU_SOURCE /* strndup */
#include "cli/convert.h"
#include "cli/nginx_conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A use of a zone in a place, as it is after inheritance. */
struct use {
    struct weir__place_text *place;
    const struct weir__directive *limit_req;
    const char *zone, *burst, *delay, *status;
    bool nodelay, dry;
};

struct nginx {
    struct weir__convert *convert;
    const struct weir__nginx_conf *conf;
    struct weir__places places;
    struct use *uses; /* of all places */
    size_t use_count, use_room;
};

/* ---- Zones and uses ---- */

/* The nearest block around (or at) `block` that has such a directive of its own: its first. */
static const struct weir__directive *nearest(const struct weir__directive *block, const char *name)
{
    for (; block; block = block->parent)
        for (const struct weir__directive *d = block->first; d; d = d->next)
            if (weir__directive_is(d, name))
                return d;
    return NULL;
}

static const struct weir__directive *find_zone(const struct nginx *nginx, const char *name)
{
    size_t len = strlen(name);
    for (const struct weir__directive *d = nginx->conf->root.first; d; d = weir__nginx_next(nginx->conf, d)) {
        const char *zone = weir__directive_is(d, "limit_req_zone") ? weir__directive_value(d, "zone") : NULL;
        if (zone && strcspn(zone, ":") == len && strncmp(zone, name, len) == 0)
            return d;
    }
    return NULL;
}

static const char *word_of(const struct weir__directive *directive, const char *otherwise)
{
    return directive && directive->count > 1 ? directive->arguments[1] : otherwise;
}

static void add_use(struct nginx *nginx, const struct use *use)
{
    if (nginx->use_count == nginx->use_room) {
        size_t room = nginx->use_room ? 2 * nginx->use_room : 64;
        struct use *uses = realloc(nginx->uses, room * sizeof *uses);
        if (!uses) {
            nginx->convert->failed = true;
            return;
        }
        nginx->uses = uses;
        nginx->use_room = room;
    }
    nginx->uses[nginx->use_count++] = *use;
}

/* Own limit_req lines of a place replace those around it, all of them; status and dry run are inherited by themselves.
 */
static void find_uses(struct nginx *nginx, struct weir__place_text *place)
{
    const char *status = word_of(nearest(place->block, "limit_req_status"), "");
    bool dry = strcmp(word_of(nearest(place->block, "limit_req_dry_run"), "off"), "on") == 0;
    for (const struct weir__directive *d = nearest(place->block, "limit_req"); d; d = d->next) {
        if (!weir__directive_is(d, "limit_req"))
            continue;
        const char *zone = weir__directive_value(d, "zone");
        const char *burst = weir__directive_value(d, "burst");
        const char *delay = weir__directive_value(d, "delay");
        struct use use = {.place = place,
                          .limit_req = d,
                          .zone = zone ? zone : "",
                          .burst = burst ? burst : "0",
                          .delay = delay ? delay : "0",
                          .status = status,
                          .nodelay = weir__directive_has(d, "nodelay"),
                          .dry = dry};
        add_use(nginx, &use);
    }
}

/* True if the two belong into one rule. */
static bool same_use(const struct use *a, const struct use *b)
{
    return strcmp(a->zone, b->zone) == 0 && strcmp(a->burst, b->burst) == 0 && strcmp(a->delay, b->delay) == 0 &&
           strcmp(a->status, b->status) == 0 && a->nodelay == b->nodelay && a->dry == b->dry &&
           strcmp(a->place->hosts, b->place->hosts) == 0;
}

/* ---- The parts of a rule ---- */

/* "$binary_remote_addr$server_name" */
static void put_key(struct nginx *nginx, struct weir__new_rule *rule, const struct weir__directive *zone)
{
    const char *at = zone->count > 1 ? zone->arguments[1] : "";
    bool after_value = false, may_miss = false;
    int pieces = 0;
    while (*at) {
        if (*at != '$') {
            weir__buffer_printf(&rule->key, "%c", *at++);
            after_value = false;
            pieces++;
            continue;
        }
        struct weir__attribute_name name;
        bool braced = at[1] == '{';
        at += 1 + braced;
        size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        bool known = weir__attribute_for_variable(at, len, &name);
        if (!known) {
            weir__convert_warn(
                nginx->convert, rule, zone->line,
                "$%.*s is computed by nginx (map, geo, set): give it to weir as the attribute %s, or say "
                "with match, allow and block what it says",
                (int)len, at, name.text);
        } else if (len == strlen("request_uri") && strncmp(at, "request_uri", len) == 0) {
            weir__buffer_printf(&rule->notes, "$request_uri has the query, too; ${path} has not\n");
        }
        weir__buffer_printf(&rule->key, "%s", after_value ? ":" : "");
        weir__put_template(&rule->key, &name);
        may_miss |= name.kind >= WEIR__NAME_HEADER;
        after_value = true;
        pieces++;
        at += len;
        at += braced && *at == '}';
    }
    /* nginx leaves a request out only if all of the key is empty: to leave out a part of it must not be a way around.
     */
    if (may_miss && pieces > 1)
        weir__buffer_printf(&rule->more, "on_missing_key: share\n");
}

/* "10r/s" */
static bool put_rate(struct nginx *nginx, struct weir__new_rule *rule, const struct weir__directive *zone)
{
    const char *rate = weir__directive_value(zone, "rate");
    char *end = NULL;
    long count = rate ? strtol(rate, &end, 10) : 0;
    if (!rate || count <= 0 || (strcmp(end, "r/s") != 0 && strcmp(end, "r/m") != 0)) {
        weir__convert_warn(nginx->convert, rule, zone->line, "not converted: rate=%s is neither r/s nor r/m",
                           rate ? rate : "");
        return false;
    }
    weir__buffer_printf(&rule->more, "limit: %ld\nwindow: 1%c\n", count, end[2]);
    return true;
}

static bool put_burst(struct nginx *nginx, struct weir__new_rule *rule, const struct use *use, int line)
{
    char *end = NULL, *delay_end = NULL;
    long burst = strtol(use->burst, &end, 10), delay = strtol(use->delay, &delay_end, 10);
    if (*end || *delay_end || burst < 0 || burst >= 4294967295L || delay < 0) {
        weir__convert_warn(nginx->convert, rule, line, "not converted: burst=%s delay=%s", use->burst, use->delay);
        return false;
    }
    bool waits = !use->nodelay && burst > 0 && delay < burst;
    weir__buffer_printf(&rule->more, "burst: %ld\n", burst + 1);
    if (waits && delay == 0)
        weir__buffer_printf(&rule->more, "algorithm: leaky_bucket\non_limit: delay\n");
    else
        weir__buffer_printf(&rule->more, "algorithm: token_bucket\n");
    if (waits && delay > 0)
        weir__convert_warn(
            nginx->convert, rule, line,
            "delay=%ld has no counterpart: there the first %ld beyond the rate pass at once and the rest of "
            "the burst waits; here all of it passes at once",
            delay, delay);
    else if (burst > 0)
        weir__buffer_printf(&rule->notes, "burst=%ld: %ld beyond the one that is due\n", burst, burst);
    return true;
}

/* Uses of one zone in rules of their own count apart here. */
static void warn_shared(struct nginx *nginx, struct weir__new_rule *rule, const struct use *use)
{
    for (const struct use *before = nginx->uses; before < use; before++)
        if (strcmp(before->zone, use->zone) == 0) {
            weir__convert_warn(nginx->convert, rule, use->limit_req->line,
                               "zone '%s' is used in several ways: in nginx they share one counter, here each rule has "
                               "its own",
                               use->zone);
            return;
        }
}

/* For all places that use the zone like this, among those with the same hosts. */
static void make_rule(struct nginx *nginx, const struct use *use)
{
    struct weir__places *places = &nginx->places;
    struct weir__new_rule rule = {0};
    const struct weir__place_text *place = use->place;
    const struct weir__directive *limit_req = use->limit_req;
    for (size_t i = 0; i < places->count; i++)
        places->list[i].chosen = false;
    for (size_t i = 0; i < nginx->use_count; i++)
        if (same_use(&nginx->uses[i], use))
            nginx->uses[i].place->chosen = true;
    weir__buffer_printf(&rule.name, "%s", use->zone);
    weir__buffer_printf(&rule.notes, "%s:%d:", nginx->convert->file, limit_req->line);
    for (int i = 0; i < limit_req->count; i++)
        weir__buffer_printf(&rule.notes, " %s", limit_req->arguments[i]);
    weir__buffer_printf(&rule.notes, "\n");
    const struct weir__directive *zone = find_zone(nginx, use->zone);
    if (!zone) {
        weir__convert_warn(nginx->convert, &rule, limit_req->line,
                           "not converted: there is no limit_req_zone '%s' in this file (nginx -T prints all files)",
                           use->zone);
        weir__convert_rule(nginx->convert, &rule, false);
        return;
    }
    warn_shared(nginx, &rule, use);
    if (*place->hosts)
        weir__buffer_printf(&rule.match, "host: %s\n", place->hosts);
    bool good = weir__put_places(nginx->convert, &rule, places, place->hosts, limit_req->line);
    put_key(nginx, &rule, zone);
    good = good && put_rate(nginx, &rule, zone) && put_burst(nginx, &rule, use, limit_req->line);
    if (use->dry)
        weir__buffer_printf(&rule.more, "shadow: true\n");
    if (*use->status && !use->dry)
        weir__buffer_printf(&rule.more, "response: { status: %s }\n", use->status);
    else if (!*use->status)
        weir__convert_head(nginx->convert, "nginx denies with 503 unless limit_req_status says otherwise; these rules "
                                           "deny with 429.\n");
    weir__convert_rule(nginx->convert, &rule, good);
}

/* ---- The whole ---- */

/* True if an earlier use has made the rule already. */
static bool is_made(const struct nginx *nginx, const struct use *use)
{
    for (const struct use *before = nginx->uses; before < use; before++)
        if (same_use(before, use))
            return true;
    return false;
}

/* A proxy whose word about the client's address counts. */
static void trust(struct weir__convert *convert, const struct weir__directive *directive)
{
    struct weir__buffer network = {0};
    weir__buffer_printf(&network, "'%s'", directive->arguments[1]);
    if (!weir__is_network(directive->arguments[1]))
        weir__convert_warn(convert, NULL, directive->line, "set_real_ip_from %s is left out: it is not a network",
                           directive->arguments[1]);
    else if (network.data && (!convert->trusted.data || !strstr(convert->trusted.data, network.data)))
        weir__buffer_printf(&convert->trusted, "%s%s", convert->trusted.len ? ", " : "", network.data);
    convert->failed |= network.failed;
    free(network.data);
}

/* nginx takes the client's address from X-Real-IP by default; weir from X-Forwarded-For. */
static void warn_of_header(struct nginx *nginx, const struct weir__directive *set_real_ip_from)
{
    const char *header = "X-Real-IP";
    for (const struct weir__directive *d = nginx->conf->root.first; d; d = weir__nginx_next(nginx->conf, d))
        if (weir__directive_is(d, "real_ip_header"))
            header = word_of(d, header);
    if (strcasecmp(header, "X-Forwarded-For") != 0)
        weir__convert_warn(
            nginx->convert, NULL, set_real_ip_from->line,
            "the proxies tell the client's address in %s; weir reads X-Forwarded-For: let them send that", header);
}

/* What else has to do with limits. */
static void visit_others(struct nginx *nginx)
{
    struct weir__convert *convert = nginx->convert;
    const struct weir__directive *trusting = NULL;
    bool included = false;
    for (const struct weir__directive *d = nginx->conf->root.first; d; d = weir__nginx_next(nginx->conf, d)) {
        if (weir__directive_is(d, "set_real_ip_from") && d->count > 1) {
            trust(convert, d);
            trusting = trusting ? trusting : d;
        }
        if (weir__directive_is(d, "limit_conn"))
            weir__convert_warn(convert, NULL, d->line, "limit_conn limits connections at a time; rules limit requests");
        if (weir__directive_is(d, "include") && !included && d->count > 1 && !strstr(d->arguments[1], "mime.types")) {
            included = true;
            weir__convert_warn(convert, NULL, d->line, "include is not followed; nginx -T prints all files as one");
        }
    }
    if (trusting)
        warn_of_header(nginx, trusting);
}

void weir__convert_nginx(struct weir__convert *convert, const char *text, size_t len)
{
    struct weir__nginx_conf conf;
    struct nginx nginx = {.convert = convert, .conf = &conf};
    if (!weir__nginx_read(&conf, text, len)) {
        fprintf(stderr, "%s:%d: error: %s\n", convert->file, conf.error_line, conf.error);
        convert->failed = true;
    } else if (!weir__places_find(&nginx.places, &conf)) {
        convert->failed = true;
    } else {
        weir__convert_head(convert, "From nginx's limit_req, by weir convert.\n");
        visit_others(&nginx);
        for (size_t i = 0; i < nginx.places.count; i++)
            find_uses(&nginx, &nginx.places.list[i]);
        for (size_t i = 0; i < nginx.use_count; i++)
            if (!is_made(&nginx, &nginx.uses[i]))
                make_rule(&nginx, &nginx.uses[i]);
    }
    free(nginx.uses);
    weir__places_drop(&nginx.places);
    weir__nginx_drop(&conf);
}
