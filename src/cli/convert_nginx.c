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
};

struct nginx_places {
    struct nginx_place *list;
    size_t count;
};

static const struct weir__directive *server_of(const struct weir__directive *block)
{
    while (block && !weir__directive_is(block, "server"))
        block = block->parent;
    return block;
}

/* A name of a server as a pattern of `host`. */
static const char *host_pattern(const char *name)
{
    if (*name == '~')
        return weir__text("{ regex: %s }", weir__scalar(name + 1));
    if (*name == '.') /* the domain, and all in it */
        return weir__text("%s, '*%s'", weir__scalar(name + 1), name);
    return weir__scalar(name);
}

/* The hosts of a server as YAML; "" for any. */
static const char *hosts_of(const struct weir__directive *server)
{
    struct weir__buffer list = {0};
    bool several = false;
    for (const struct weir__directive *d = server ? server->first : NULL; d; d = d->next) {
        for (int i = 1; i < d->count && weir__directive_is(d, "server_name"); i++) {
            if (strcmp(d->arguments[i], "_") == 0 || *d->arguments[i] == '\0' || *d->arguments[i] == '$')
                continue;
            several |= list.len > 0 || *d->arguments[i] == '.';
            weir__buffer_printf(&list, "%s%s", list.len ? ", " : "", host_pattern(d->arguments[i]));
        }
    }
    const char *hosts = weir__text(several ? "[%s]" : "%s", weir__buffer_text(&list));
    weir__buffer_free(&list);
    return hosts;
}

static void name_place(struct nginx_place *place)
{
    const struct weir__directive *block = place->block;
    const char *sign = block->count > 2 ? block->arguments[1] : "";
    if (!weir__directive_is(block, "location") || block->count < 2) {
        place->kind = PLACE_ALL;
        place->path = "/";
        return;
    }
    place->path = block->arguments[block->count > 2 ? 2 : 1];
    if (*place->path == '@')
        place->kind = PLACE_NAMED;
    else if (strcmp(sign, "=") == 0)
        place->kind = PLACE_EXACT;
    else if (strcmp(sign, "~") == 0 || strcmp(sign, "~*") == 0)
        place->kind = PLACE_REGEX;
    else
        place->kind = strcmp(place->path, "/") == 0 ? PLACE_ALL : PLACE_PREFIX;
    place->nocase = strcmp(sign, "~*") == 0;
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

static void add_place(struct nginx_places *places, const struct weir__directive *block)
{
    places->list = weir__grow(places->list, places->count, sizeof *places->list);
    struct nginx_place *place = &places->list[places->count++];
    *place = (struct nginx_place){.block = block, .hosts = hosts_of(server_of(block))};
    name_place(place);
}

static void places_find(struct nginx_places *places, const struct weir__directive *root)
{
    const struct weir__directive *around = root; /* of a file without servers: the place of all */
    bool servers = false;
    for (const struct weir__directive *d = root->first; d; d = weir__nginx_next(d)) {
        bool server = weir__directive_is(d, "server") && d->first;
        if (weir__directive_is(d, "http"))
            around = d;
        servers |= server;
        if ((server && !has_root_location(d)) || weir__directive_is(d, "location"))
            add_place(places, d);
    }
    if (!servers && !has_root_location(around))
        add_place(places, around);
}

/* ---- Paths ---- */

static const char *regex_pattern(const char *regex)
{
    return weir__text("{ regex: %s }", weir__scalar(regex));
}

/* A place as a pattern of `path`. */
static const char *path_pattern(const struct nginx_place *place)
{
    bool ends = *place->path && place->path[strlen(place->path) - 1] == '/', exact = place->kind == PLACE_EXACT;
    if (place->kind == PLACE_REGEX)
        return regex_pattern(weir__text("%s%s", place->nocase ? "(?i)" : "", place->path));
    if (strchr(place->path, '*')) /* a literal star: only a regular expression can match it */
        return regex_pattern(weir__text("^%s%s", weir__regex(place->path, false), exact ? "$" : ""));
    return weir__scalar(weir__text("%s%s", place->path, exact ? "" : ends ? "*" : "**"));
}

/* True if `inner` is a place inside the prefix `outer`, and another one. */
static bool is_inside(const struct nginx_place *inner, const struct nginx_place *outer)
{
    size_t len = strlen(outer->path);
    return (inner->kind == PLACE_PREFIX || inner->kind == PLACE_EXACT) &&
           (outer->kind == PLACE_PREFIX || outer->kind == PLACE_ALL) && strncmp(inner->path, outer->path, len) == 0 &&
           (inner->path[len] || (inner->kind == PLACE_EXACT && outer->kind != PLACE_EXACT));
}

/* The places of other limits that a rule for these hosts has to leave out. */
static bool is_other(const struct nginx_place *place, const char *hosts)
{
    return !place->chosen && strcmp(place->hosts, hosts) == 0 && place->kind != PLACE_ALL && place->kind != PLACE_NAMED;
}

/* A pattern for a prefix without the places inside it that have other limits. */
static const char *path_pattern_but(const struct nginx_places *places, const struct nginx_place *place,
                                    const char *hosts)
{
    struct weir__buffer others = {0};
    for (size_t i = 0; i < places->count; i++) {
        const struct nginx_place *other = &places->list[i];
        if (is_other(other, hosts) && is_inside(other, place))
            weir__buffer_printf(&others, "%s%s%s", others.len ? "|" : "", weir__regex(other->path, false),
                                other->kind == PLACE_EXACT ? "$" : "");
    }
    const char *pattern = others.len
                              ? regex_pattern(weir__text("^(?!(?:%s))%s", others.data, weir__regex(place->path, false)))
                              : path_pattern(place);
    weir__buffer_free(&others);
    return pattern;
}

/* True if leaving out another place leaves this one out, too. */
static bool is_left_out(const struct nginx_places *places, const struct nginx_place *place, const char *hosts)
{
    for (size_t i = 0; i < places->count; i++)
        if (is_other(&places->list[i], hosts) && is_inside(place, &places->list[i]))
            return true;
    return false;
}

/* Everything but the other places. */
static void put_all_but(struct weir__convert *convert, struct weir__new_rule *rule, const struct nginx_places *places,
                        const char *hosts, int line)
{
    struct weir__buffer others = {0};
    for (size_t i = 0; i < places->count; i++) {
        const struct nginx_place *other = &places->list[i];
        if (!is_other(other, hosts) || is_left_out(places, other, hosts))
            continue;
        weir__buffer_printf(&others, "%s%s", others.len ? ", " : "", path_pattern(other));
        for (size_t j = 0; j < places->count; j++)
            if (places->list[j].chosen && is_inside(&places->list[j], other))
                weir__convert_warn(convert, rule, line,
                                   "'%s' is left out with '%s', which it is inside of; it needs a rule of its own",
                                   places->list[j].path, other->path);
    }
    if (others.len > 0)
        weir__buffer_printf(&rule->match, "path: { not: [%s] }\n", weir__buffer_text(&others));
    weir__buffer_free(&others);
}

static bool put_places(struct weir__convert *convert, struct weir__new_rule *rule, const struct nginx_places *places,
                       const char *hosts, int line)
{
    struct weir__buffer paths = {0};
    int count = 0;
    bool regex = false, prefix = false;
    for (size_t i = 0; i < places->count; i++) {
        const struct nginx_place *place = &places->list[i];
        regex |= is_other(place, hosts) && place->kind == PLACE_REGEX;
        prefix |= place->chosen && place->kind == PLACE_PREFIX;
        if (place->chosen && place->kind == PLACE_ALL) {
            put_all_but(convert, rule, places, hosts, line);
            weir__buffer_free(&paths);
            return true;
        }
        if (!place->chosen || place->kind == PLACE_NAMED)
            continue;
        weir__buffer_printf(&paths, "%s%s", count++ ? ", " : "", path_pattern_but(places, place, hosts));
    }
    if (count == 0) {
        weir__convert_warn(convert, rule, line, "not converted: no request comes to a named location by itself");
        return false;
    }
    weir__buffer_printf(&rule->match, count > 1 ? "path: [%s]\n" : "path: %s\n", weir__buffer_text(&paths));
    if (regex && prefix)
        weir__buffer_printf(&rule->notes,
                            "where a regular expression's location takes a request from this one in nginx, here "
                            "this rule counts it, too\n");
    weir__buffer_free(&paths);
    return true;
}

/* A use of a zone in a place, as it is after inheritance. */
struct use {
    struct nginx_place *place;
    const struct weir__directive *limit_req;
    const char *zone, *burst, *delay, *status;
    bool nodelay, dry;
};

struct nginx {
    struct weir__convert *convert;
    struct weir__directive root;
    struct nginx_places places;
    struct use *uses; /* of all places */
    size_t use_count;
};

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
        nginx->uses[nginx->use_count++] = (struct use){.place = place,
                                                       .limit_req = d,
                                                       .zone = zone ? zone : "",
                                                       .burst = burst ? burst : "0",
                                                       .delay = delay ? delay : "0",
                                                       .status = status,
                                                       .nodelay = weir__directive_has(d, "nodelay"),
                                                       .dry = dry};
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
            weir__convert_warn(nginx->convert, rule, zone->line,
                               "$%.*s is computed by nginx (map, geo, set): pass it to weir as the attribute %s, or "
                               "express it with match, allow and block",
                               (int)len, at, name.text);
        } else if (len == strlen("request_uri") && strncmp(at, "request_uri", len) == 0) {
            weir__buffer_printf(&rule->notes, "$request_uri has the query, too; ${path} has not\n");
        }
        weir__buffer_printf(&rule->key, "%s%s", after_value ? ":" : "", weir__template(&name));
        may_miss |= name.kind >= WEIR__NAME_HEADER;
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

/* Makes one rule for all places with the same hosts that use the zone like this. */
static void make_rule(struct nginx *nginx, const struct use *use)
{
    struct nginx_places *places = &nginx->places;
    struct weir__new_rule rule = {0};
    const struct nginx_place *place = use->place;
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
    bool good = put_places(nginx->convert, &rule, places, place->hosts, limit_req->line);
    put_key(nginx, &rule, zone);
    good = good && put_rate(nginx, &rule, zone) && put_burst(nginx, &rule, use, limit_req->line);
    if (use->dry)
        weir__buffer_printf(&rule.more, "shadow: true\n");
    if (*use->status && !use->dry)
        weir__buffer_printf(&rule.more, "response: { status: %s }\n", use->status);
    else if (!*use->status)
        weir__convert_head(nginx->convert, "nginx denies with 503 unless limit_req_status sets another; these rules "
                                           "deny with 429.\n");
    weir__convert_rule(nginx->convert, &rule, good);
}

/* ---- The conversion ---- */

/* True if an earlier use has made the rule already. */
static bool is_made(const struct nginx *nginx, const struct use *use)
{
    for (const struct use *before = nginx->uses; before < use; before++)
        if (same_use(before, use))
            return true;
    return false;
}

/* Adds a trusted proxy. */
static void trust(struct weir__convert *convert, const struct weir__directive *directive)
{
    const char *network = weir__text("'%s'", directive->arguments[1]);
    if (!weir__is_network(directive->arguments[1]))
        weir__convert_warn(convert, NULL, directive->line, "set_real_ip_from %s is left out: it is not a network",
                           directive->arguments[1]);
    else if (!strstr(weir__buffer_text(&convert->trusted), network))
        weir__buffer_printf(&convert->trusted, "%s%s", convert->trusted.len ? ", " : "", network);
}

/* nginx takes the client's address from X-Real-IP by default; weir from X-Forwarded-For. */
static void warn_of_header(struct nginx *nginx, const struct weir__directive *set_real_ip_from)
{
    const char *header = "X-Real-IP";
    for (const struct weir__directive *d = nginx->root.first; d; d = weir__nginx_next(d))
        if (weir__directive_is(d, "real_ip_header"))
            header = word_of(d, header);
    if (strcasecmp(header, "X-Forwarded-For") != 0)
        weir__convert_warn(
            nginx->convert, NULL, set_real_ip_from->line,
            "the proxies send the client's address in %s; weir reads X-Forwarded-For: let them send that", header);
}

/* Visits other directives about limits. */
static void visit_others(struct nginx *nginx)
{
    struct weir__convert *convert = nginx->convert;
    const struct weir__directive *trusting = NULL;
    bool included = false;
    for (const struct weir__directive *d = nginx->root.first; d; d = weir__nginx_next(d)) {
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
    struct nginx nginx = {.convert = convert};
    if (!weir__nginx_read(&nginx.root, convert->file, text, len)) {
        convert->failed = true;
        return;
    }
    places_find(&nginx.places, &nginx.root);
    weir__convert_head(convert, "From nginx's limit_req, by weir convert.\n");
    visit_others(&nginx);
    for (size_t i = 0; i < nginx.places.count; i++)
        find_uses(&nginx, &nginx.places.list[i]);
    for (size_t i = 0; i < nginx.use_count; i++)
        if (!is_made(&nginx, &nginx.uses[i]))
            make_rule(&nginx, &nginx.uses[i]);
    free(nginx.uses);
    free(nginx.places.list);
}
