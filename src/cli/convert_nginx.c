/*
 * weir convert: limit_req of nginx. A zone with a rate and a key is a counter; each use of it, in a place (a server or
 * a location), has a burst. Places with the same use of one zone share its counter, so they make one rule. nginx
 * selects one location for a request, weir all rules that match: so a rule excludes the places inside its own that have
 * other limits.
 */
#include "cli/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Servers and locations as hosts and paths ---- */

enum nginx_place_kind {
    PLACE_ALL, /* a server, or its location "/" */
    PLACE_PREFIX,
    PLACE_EXACT,
    PLACE_REGEX,
    PLACE_NAMED /* "@name": no request comes here by itself */
};

struct nginx_place {
    const struct weir__directive *block;
    enum nginx_place_kind kind;
    const char *path;  /* or the expression */
    bool nocase;       /* of the expression */
    const char *hosts; /* as YAML; "" for any */
    bool chosen;       /* the rule in the making is for this place */
    bool other;        /* it has other limits, and the rule in the making has to leave it out */
};

/* A use of a zone in a place, as it is after inheritance. */
struct use {
    struct nginx_place *place;
    const struct weir__directive *limit_req;
    const char *zone, *burst, *delay, *status;
    bool nodelay, dry;
    const char *way; /* all of the above and the hosts as text: uses that are equal in it belong into one rule */
    bool made;
};

struct nginx {
    struct weir__convert *convert;
    struct weir__directive root;
    struct nginx_place *places;
    size_t place_count;
    struct use *uses; /* of all places */
    size_t use_count;
    struct weir__new_rule rule; /* in the making */
    int line;                   /* of its limit_req */
};

/* Warns about the rule in the making. */
#define WARN(nginx, ...) weir__convert_warn((nginx)->convert, &(nginx)->rule, (nginx)->line, __VA_ARGS__)

/* A name of a server as a pattern of `host`. */
static const char *host_pattern(const char *name)
{
    if (*name == '~')
        return weir__format("{ regex: %s }", weir__scalar(name + 1));
    if (*name == '.') /* the domain, and all in it */
        return weir__format("%s, %s", weir__scalar(name + 1), weir__scalar(weir__format("*%s", name)));
    return weir__scalar(name);
}

/* The hosts of the server around a block as YAML; "" for any. */
static const char *hosts_of(const struct weir__directive *block)
{
    struct weir__buffer list = {0};
    bool several = false;
    while (block && !weir__directive_is(block, "server"))
        block = block->parent;
    for (const struct weir__directive *d = block ? block->first : NULL; d; d = d->next) {
        for (int i = 1; i < d->count && weir__directive_is(d, "server_name"); i++) {
            if (strcmp(d->arguments[i], "_") == 0 || *d->arguments[i] == '\0' || *d->arguments[i] == '$')
                continue;
            several |= list.len > 0 || *d->arguments[i] == '.';
            weir__buffer_printf(&list, "%s%s", list.len ? ", " : "", host_pattern(d->arguments[i]));
        }
    }
    return weir__format(several ? "[%s]" : "%s", weir__buffer_keep(&list));
}

static void add_place(struct nginx *nginx, const struct weir__directive *block)
{
    nginx->places = weir__grow(nginx->places, nginx->place_count, sizeof *nginx->places);
    struct nginx_place *place = &nginx->places[nginx->place_count++];
    *place = (struct nginx_place){.block = block, .hosts = hosts_of(block), .kind = PLACE_ALL, .path = "/"};
    if (!weir__directive_is(block, "location") || block->count < 2)
        return;
    const char *sign = block->count > 2 ? block->arguments[1] : "";
    place->path = block->arguments[block->count > 2 ? 2 : 1];
    place->nocase = strcmp(sign, "~*") == 0;
    if (*place->path == '@')
        place->kind = PLACE_NAMED;
    else if (strcmp(sign, "=") == 0)
        place->kind = PLACE_EXACT;
    else if (strcmp(sign, "~") == 0 || place->nocase)
        place->kind = PLACE_REGEX;
    else
        place->kind = strcmp(place->path, "/") == 0 ? PLACE_ALL : PLACE_PREFIX;
}

/* True if a location "/" takes all requests: then the server is not a place. */
static bool has_root_location(const struct weir__directive *block)
{
    for (const struct weir__directive *d = block->first; d; d = d->next)
        if (weir__directive_is(d, "location") && d->count > 1 && strcmp(d->arguments[d->count - 1], "/") == 0 &&
            strcmp(d->arguments[1], "=") != 0)
            return true;
    return false;
}

static void find_places(struct nginx *nginx)
{
    const struct weir__directive *around = &nginx->root; /* of a file without servers: the place of all */
    bool servers = false;
    for (const struct weir__directive *d = nginx->root.first; d; d = weir__nginx_next(d)) {
        bool server = weir__directive_is(d, "server") && d->first;
        if (weir__directive_is(d, "http"))
            around = d;
        servers |= server;
        if ((server && !has_root_location(d)) || weir__directive_is(d, "location"))
            add_place(nginx, d);
    }
    if (!servers && !has_root_location(around))
        add_place(nginx, around);
}

/* ---- Paths ---- */

static const char *regex_pattern(const char *regex)
{
    return weir__format("{ regex: %s }", weir__scalar(regex));
}

/* A place as a pattern of `path`. */
static const char *path_pattern(const struct nginx_place *place)
{
    bool ends = *place->path && place->path[strlen(place->path) - 1] == '/', exact = place->kind == PLACE_EXACT;
    if (place->kind == PLACE_REGEX)
        return regex_pattern(weir__format("%s%s", place->nocase ? "(?i)" : "", place->path));
    if (strchr(place->path, '*')) /* a literal star: only a regular expression can match it */
        return regex_pattern(weir__format("^%s%s", weir__regex(place->path, false), exact ? "$" : ""));
    return weir__scalar(weir__format("%s%s", place->path, exact ? "" : ends ? "*" : "**"));
}

/* True if `inner` is a place inside the prefix `outer`, and another one. */
static bool is_inside(const struct nginx_place *inner, const struct nginx_place *outer)
{
    size_t len = strlen(outer->path);
    return (inner->kind == PLACE_PREFIX || inner->kind == PLACE_EXACT) &&
           (outer->kind == PLACE_PREFIX || outer->kind == PLACE_ALL) && strncmp(inner->path, outer->path, len) == 0 &&
           (inner->path[len] || (inner->kind == PLACE_EXACT && outer->kind != PLACE_EXACT));
}

/* A pattern for a prefix without the places inside it that have other limits. */
static const char *path_pattern_but(const struct nginx *nginx, const struct nginx_place *place)
{
    struct weir__buffer others = {0};
    for (size_t i = 0; i < nginx->place_count; i++) {
        const struct nginx_place *other = &nginx->places[i];
        if (other->other && is_inside(other, place))
            weir__buffer_printf(&others, "%s%s%s", others.len ? "|" : "", weir__regex(other->path, false),
                                other->kind == PLACE_EXACT ? "$" : "");
    }
    if (others.len == 0)
        return path_pattern(place);
    return regex_pattern(weir__format("^(?!(?:%s))%s", weir__buffer_keep(&others), weir__regex(place->path, false)));
}

/* Everything but the other places. One that is inside another is left out with that. */
static void put_all_but(struct nginx *nginx)
{
    struct weir__buffer others = {0};
    for (size_t i = 0; i < nginx->place_count; i++) {
        const struct nginx_place *other = &nginx->places[i];
        bool listed = other->other;
        for (size_t k = 0; k < nginx->place_count; k++)
            listed &= !(nginx->places[k].other && is_inside(other, &nginx->places[k]));
        if (!listed)
            continue;
        weir__buffer_printf(&others, "%s%s", others.len ? ", " : "", path_pattern(other));
        for (size_t k = 0; k < nginx->place_count; k++)
            if (nginx->places[k].chosen && is_inside(&nginx->places[k], other))
                WARN(nginx, "'%s' is left out with '%s', which it is inside of; it needs a rule of its own",
                     nginx->places[k].path, other->path);
    }
    if (others.len > 0)
        weir__buffer_printf(&nginx->rule.match, "path: { not: [%s] }\n", weir__buffer_keep(&others));
}

/* False: no request comes to these places. */
static bool put_paths(struct nginx *nginx)
{
    struct weir__buffer paths = {0};
    int count = 0;
    bool regex = false, prefix = false, all = false;
    for (size_t i = 0; i < nginx->place_count; i++) {
        const struct nginx_place *place = &nginx->places[i];
        regex |= place->other && place->kind == PLACE_REGEX;
        prefix |= place->chosen && place->kind == PLACE_PREFIX;
        all |= place->chosen && place->kind == PLACE_ALL;
        if (place->chosen && place->kind != PLACE_NAMED)
            weir__buffer_printf(&paths, "%s%s", count++ ? ", " : "", path_pattern_but(nginx, place));
    }
    if (all)
        put_all_but(nginx);
    else if (count == 0)
        WARN(nginx, "not converted: no request comes to a named location by itself");
    else
        weir__buffer_printf(&nginx->rule.match, count > 1 ? "path: [%s]\n" : "path: %s\n", weir__buffer_keep(&paths));
    if (regex && prefix && !all)
        weir__buffer_printf(&nginx->rule.notes,
                            "where a regular expression's location takes a request from this one in nginx, here "
                            "this rule counts it, too\n");
    weir__buffer_free(&paths);
    return all || count > 0;
}

/* ---- Zones and uses ---- */

/* The first such directive in `block`, or in the nearest block around it that has one. */
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
    for (const struct weir__directive *d = nginx->root.first; d; d = weir__nginx_next(d)) {
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

/* Own limit_req lines of a place replace those around it, all of them; status and dry run are inherited by themselves.
 */
static void find_uses(struct nginx *nginx, struct nginx_place *place)
{
    const char *status = word_of(nearest(place->block, "limit_req_status"), "");
    bool dry = strcmp(word_of(nearest(place->block, "limit_req_dry_run"), "off"), "on") == 0;
    for (const struct weir__directive *d = nearest(place->block, "limit_req"); d; d = d->next) {
        if (!weir__directive_is(d, "limit_req"))
            continue;
        const char *zone = weir__directive_value(d, "zone");
        const char *burst = weir__directive_value(d, "burst");
        const char *delay = weir__directive_value(d, "delay");
        nginx->uses = weir__grow(nginx->uses, nginx->use_count, sizeof *nginx->uses);
        struct use *use = &nginx->uses[nginx->use_count++];
        *use = (struct use){.place = place,
                            .limit_req = d,
                            .zone = zone ? zone : "",
                            .burst = burst ? burst : "0",
                            .delay = delay ? delay : "0",
                            .status = status,
                            .nodelay = weir__directive_has(d, "nodelay"),
                            .dry = dry};
        use->way = weir__format("%s %s %s %s %d %d %s", use->zone, use->burst, use->delay, status, use->nodelay, dry,
                                place->hosts);
    }
}

/* ---- The parts of a rule ---- */

/* "$binary_remote_addr$server_name" */
static void put_key(struct nginx *nginx, const struct weir__directive *zone)
{
    struct weir__new_rule *rule = &nginx->rule;
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
        bool braced = at[1] == '{', known;
        at += 1 + braced;
        size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        const char *attribute = weir__attribute_for_variable(at, len, &known);
        if (!known) {
            weir__convert_warn(nginx->convert, rule, zone->line,
                               "$%.*s is computed by nginx (map, geo, set): pass it to weir as the attribute %s, or "
                               "express it with match, allow and block",
                               (int)len, at, attribute);
        } else if (len == strlen("request_uri") && strncmp(at, "request_uri", len) == 0) {
            weir__buffer_printf(&rule->notes, "$request_uri has the query, too; ${path} has not\n");
        }
        weir__buffer_printf(&rule->key, "%s${%s}", after_value ? ":" : "", attribute);
        may_miss |= !weir__attribute_is_always(attribute);
        after_value = true;
        pieces++;
        at += len;
        at += braced && *at == '}';
    }
    /* nginx exempts a request only if the key is empty: a missing part must not exempt it. */
    if (may_miss && pieces > 1)
        weir__buffer_printf(&rule->more, "on_missing_key: share\n");
}

/* "10r/s" */
static bool put_rate(struct nginx *nginx, const struct weir__directive *zone)
{
    const char *rate = weir__directive_value(zone, "rate");
    char *end = NULL;
    long count = rate ? strtol(rate, &end, 10) : 0;
    if (!rate || count <= 0 || (strcmp(end, "r/s") != 0 && strcmp(end, "r/m") != 0)) {
        weir__convert_warn(nginx->convert, &nginx->rule, zone->line, "not converted: rate=%s is neither r/s nor r/m",
                           rate ? rate : "");
        return false;
    }
    weir__buffer_printf(&nginx->rule.more, "limit: %ld\nwindow: 1%c\n", count, end[2]);
    return true;
}

static bool put_burst(struct nginx *nginx, const struct use *use)
{
    struct weir__new_rule *rule = &nginx->rule;
    char *end = NULL, *delay_end = NULL;
    long burst = strtol(use->burst, &end, 10), delay = strtol(use->delay, &delay_end, 10);
    if (*end || *delay_end || burst < 0 || burst >= 4294967295L || delay < 0) {
        WARN(nginx, "not converted: burst=%s delay=%s", use->burst, use->delay);
        return false;
    }
    bool waits = !use->nodelay && burst > 0 && delay < burst;
    weir__buffer_printf(&rule->more, "burst: %ld\n", burst + 1);
    if (waits && delay == 0)
        weir__buffer_printf(&rule->more, "algorithm: leaky_bucket\non_limit: delay\n");
    else
        weir__buffer_printf(&rule->more, "algorithm: token_bucket\n");
    if (waits && delay > 0)
        WARN(nginx,
             "delay=%ld has no counterpart: there the first %ld beyond the rate pass at once and the rest of "
             "the burst waits; here all of it passes at once",
             delay, delay);
    else if (burst > 0)
        weir__buffer_printf(&rule->notes, "burst=%ld: %ld beyond the one that is due\n", burst, burst);
    return true;
}

/* Makes one rule for all places with the same hosts that use the zone like this. */
static void make_rule(struct nginx *nginx, const struct use *use)
{
    struct weir__new_rule *rule = &nginx->rule;
    const char *hosts = use->place->hosts;
    const struct weir__directive *limit_req = use->limit_req, *zone = find_zone(nginx, use->zone);
    bool shared = false, good = false;
    for (size_t i = 0; i < nginx->place_count; i++)
        nginx->places[i].chosen = false;
    for (struct use *one = nginx->uses; one < nginx->uses + nginx->use_count; one++) {
        shared |= one < use && strcmp(one->zone, use->zone) == 0;
        if (strcmp(one->way, use->way) == 0)
            one->made = one->place->chosen = true;
    }
    for (struct nginx_place *place = nginx->places; place < nginx->places + nginx->place_count; place++)
        place->other = !place->chosen && strcmp(place->hosts, hosts) == 0 && place->kind != PLACE_ALL &&
                       place->kind != PLACE_NAMED;
    nginx->line = limit_req->line;
    weir__buffer_printf(&rule->name, "%s", use->zone);
    weir__buffer_printf(&rule->notes, "%s:%d:", nginx->convert->file, limit_req->line);
    for (int i = 0; i < limit_req->count; i++)
        weir__buffer_printf(&rule->notes, " %s", limit_req->arguments[i]);
    weir__buffer_printf(&rule->notes, "\n");
    if (!zone) {
        WARN(nginx, "not converted: there is no limit_req_zone '%s' in this file (nginx -T prints all files)",
             use->zone);
        weir__convert_rule(nginx->convert, rule, false);
        return;
    }
    if (shared)
        WARN(nginx, "zone '%s' is used in several ways: in nginx they share one counter, here each rule has its own",
             use->zone);
    if (*hosts)
        weir__buffer_printf(&rule->match, "host: %s\n", hosts);
    good = put_paths(nginx);
    put_key(nginx, zone);
    good = good && put_rate(nginx, zone) && put_burst(nginx, use);
    if (use->dry)
        weir__buffer_printf(&rule->more, "shadow: true\n");
    if (*use->status && !use->dry)
        weir__buffer_printf(&rule->more, "response: { status: %s }\n", use->status);
    else if (!*use->status)
        weir__convert_head(nginx->convert, "nginx denies with 503 unless limit_req_status sets another; these rules "
                                           "deny with 429.\n");
    weir__convert_rule(nginx->convert, rule, good);
}

/* ---- The conversion ---- */

/* Visits other directives about limits. */
static void visit_others(struct nginx *nginx)
{
    struct weir__convert *convert = nginx->convert;
    const char *header = "X-Real-IP"; /* from which nginx takes the client's address; weir from X-Forwarded-For */
    int trusting = 0;                 /* line */
    bool included = false;
    for (const struct weir__directive *d = nginx->root.first; d; d = weir__nginx_next(d)) {
        const char *word = word_of(d, ""), *network = weir__format("'%s'", word);
        if (weir__directive_is(d, "real_ip_header"))
            header = word_of(d, header);
        if (weir__directive_is(d, "set_real_ip_from") && d->count > 1) {
            trusting = trusting ? trusting : d->line;
            if (!weir__is_network(word))
                weir__convert_warn(convert, NULL, d->line, "set_real_ip_from %s is left out: it is not a network",
                                   word);
            else if (!strstr(weir__buffer_text(&convert->trusted), network))
                weir__buffer_printf(&convert->trusted, "%s%s", convert->trusted.len ? ", " : "", network);
        }
        if (weir__directive_is(d, "limit_conn"))
            weir__convert_warn(convert, NULL, d->line, "limit_conn limits connections at a time; rules limit requests");
        if (weir__directive_is(d, "include") && !included && d->count > 1 && !strstr(word, "mime.types")) {
            included = true;
            weir__convert_warn(convert, NULL, d->line, "include is not followed; nginx -T prints all files as one");
        }
    }
    if (trusting && strcasecmp(header, "X-Forwarded-For") != 0)
        weir__convert_warn(
            convert, NULL, trusting,
            "the proxies send the client's address in %s; weir reads X-Forwarded-For: let them send that", header);
}

void weir__convert_nginx(struct weir__convert *convert, const char *text, size_t len)
{
    struct nginx nginx = {.convert = convert};
    if (!weir__nginx_read(&nginx.root, convert->file, text, len)) {
        convert->failed = true;
        return;
    }
    find_places(&nginx);
    weir__convert_head(convert, "From nginx's limit_req, by weir convert.\n");
    visit_others(&nginx);
    for (size_t i = 0; i < nginx.place_count; i++)
        find_uses(&nginx, &nginx.places[i]);
    for (size_t i = 0; i < nginx.use_count; i++)
        if (!nginx.uses[i].made)
            make_rule(&nginx, &nginx.uses[i]);
    free(nginx.uses);
    free(nginx.places);
}
