/* weir convert: servers and locations as hosts and paths. */
#define _GNU_SOURCE /* strdup */
#include "cli/nginx_conf.h"
#include "cli/convert.h"

#include <stdlib.h>
#include <string.h>

/* ---- Finding them ---- */

static const struct weir__directive *server_of(const struct weir__directive *block)
{
    while (block && !weir__directive_is(block, "server"))
        block = block->parent;
    return block;
}

static void put_host(struct weir__buffer *to, const char *name)
{
    if (*name == '~') {
        weir__buffer_printf(to, "%s{ regex: ", to->len ? ", " : "");
        weir__put_scalar(to, name + 1);
        weir__buffer_printf(to, " }");
        return;
    }
    weir__buffer_printf(to, "%s", to->len ? ", " : "");
    if (*name == '.') { /* the domain, and all in it */
        weir__put_scalar(to, name + 1);
        weir__buffer_printf(to, ", '*%s'", name);
    } else {
        weir__put_scalar(to, name);
    }
}

/* The hosts of a server as YAML; "" for any, NULL without memory. */
static char *hosts_of(const struct weir__directive *server)
{
    struct weir__buffer list = {0}, all = {0};
    bool several = false;
    for (const struct weir__directive *d = server ? server->first : NULL; d; d = d->next) {
        for (int i = 1; i < d->count && weir__directive_is(d, "server_name"); i++) {
            if (strcmp(d->arguments[i], "_") == 0 || *d->arguments[i] == '\0' || *d->arguments[i] == '$')
                continue;
            several |= list.len > 0 || *d->arguments[i] == '.';
            put_host(&list, d->arguments[i]);
        }
    }
    weir__buffer_printf(&all, several ? "[%s]" : "%s", list.data ? list.data : "");
    bool failed = list.failed || all.failed;
    free(list.data);
    if (!failed)
        return all.data;
    free(all.data);
    return NULL;
}

static void name_place(struct weir__place_text *place)
{
    const struct weir__directive *block = place->block;
    const char *sign = block->count > 2 ? block->arguments[1] : "";
    if (!weir__directive_is(block, "location") || block->count < 2) {
        place->kind = WEIR__PLACE_ALL;
        place->path = "/";
        return;
    }
    place->path = block->arguments[block->count > 2 ? 2 : 1];
    if (*place->path == '@')
        place->kind = WEIR__PLACE_NAMED;
    else if (strcmp(sign, "=") == 0)
        place->kind = WEIR__PLACE_EXACT;
    else if (strcmp(sign, "~") == 0 || strcmp(sign, "~*") == 0)
        place->kind = WEIR__PLACE_REGEX;
    else
        place->kind = strcmp(place->path, "/") == 0 ? WEIR__PLACE_ALL : WEIR__PLACE_PREFIX;
    place->nocase = strcmp(sign, "~*") == 0;
}

/* A server whose location "/" takes everything is no place of its own. */
static bool has_root_location(const struct weir__directive *block)
{
    for (const struct weir__directive *d = block->first; d; d = d->next)
        if (weir__directive_is(d, "location") && d->count > 1 && strcmp(d->arguments[d->count - 1], "/") == 0 &&
            strcmp(d->arguments[1], "=") != 0)
            return true;
    return false;
}

static bool add_place(struct weir__places *places, const struct weir__directive *block)
{
    struct weir__place_text *list = realloc(places->list, (places->count + 1) * sizeof *list);
    if (!list)
        return false;
    places->list = list;
    struct weir__place_text *place = &places->list[places->count];
    *place = (struct weir__place_text){.block = block, .hosts = hosts_of(server_of(block))};
    if (!place->hosts)
        return false;
    places->count++;
    name_place(place);
    return true;
}

bool weir__places_find(struct weir__places *places, const struct weir__nginx_conf *conf)
{
    const struct weir__directive *around = &conf->root; /* of a file without servers: the place of all */
    bool servers = false;
    for (const struct weir__directive *d = conf->root.first; d; d = weir__nginx_next(conf, d)) {
        bool server = weir__directive_is(d, "server") && d->first;
        if (weir__directive_is(d, "http"))
            around = d;
        servers |= server;
        if (((server && !has_root_location(d)) || weir__directive_is(d, "location")) && !add_place(places, d))
            return false;
    }
    return servers || has_root_location(around) || add_place(places, around);
}

void weir__places_drop(struct weir__places *places)
{
    for (size_t i = 0; i < places->count; i++)
        free(places->list[i].hosts);
    free(places->list);
}

/* ---- Paths ---- */

static void put_regex_pattern(struct weir__buffer *to, const struct weir__buffer *regex)
{
    weir__buffer_printf(to, "{ regex: ");
    weir__put_scalar(to, regex->data ? regex->data : "");
    weir__buffer_printf(to, " }");
    to->failed |= regex->failed;
}

/* A place as a pattern of `path`. */
static void put_path(struct weir__buffer *to, const struct weir__place_text *place)
{
    struct weir__buffer text = {0};
    bool ends = *place->path && place->path[strlen(place->path) - 1] == '/';
    if (place->kind == WEIR__PLACE_REGEX) {
        weir__buffer_printf(&text, "%s%s", place->nocase ? "(?i)" : "", place->path);
        put_regex_pattern(to, &text);
    } else if (strchr(place->path, '*')) { /* a star of its own, which no pattern but this can hold */
        weir__buffer_printf(&text, "^");
        weir__put_regex(&text, place->path, false);
        weir__buffer_printf(&text, "%s", place->kind == WEIR__PLACE_EXACT ? "$" : "");
        put_regex_pattern(to, &text);
    } else {
        weir__buffer_printf(&text, "%s%s", place->path, place->kind == WEIR__PLACE_EXACT ? "" : ends ? "*" : "**");
        weir__put_scalar(to, text.data ? text.data : "");
    }
    to->failed |= text.failed;
    free(text.data);
}

/* True if `inner` is a place inside the prefix `outer`, and another one. */
static bool is_inside(const struct weir__place_text *inner, const struct weir__place_text *outer)
{
    size_t len = strlen(outer->path);
    return (inner->kind == WEIR__PLACE_PREFIX || inner->kind == WEIR__PLACE_EXACT) &&
           (outer->kind == WEIR__PLACE_PREFIX || outer->kind == WEIR__PLACE_ALL) &&
           strncmp(inner->path, outer->path, len) == 0 &&
           (inner->path[len] || (inner->kind == WEIR__PLACE_EXACT && outer->kind != WEIR__PLACE_EXACT));
}

/* The places of other limits that a rule for these hosts has to leave out. */
static bool is_other(const struct weir__place_text *place, const char *hosts)
{
    return !place->chosen && strcmp(place->hosts, hosts) == 0 && place->kind != WEIR__PLACE_ALL &&
           place->kind != WEIR__PLACE_NAMED;
}

/* A prefix without the places inside it that are limited otherwise: only a regular expression can say both. */
static void put_path_but(struct weir__buffer *to, const struct weir__places *places,
                         const struct weir__place_text *place, const char *hosts)
{
    struct weir__buffer regex = {0};
    bool any = false;
    weir__buffer_printf(&regex, "^");
    for (size_t i = 0; i < places->count; i++) {
        const struct weir__place_text *other = &places->list[i];
        if (!is_other(other, hosts) || !is_inside(other, place))
            continue;
        weir__buffer_printf(&regex, "%s", any ? "|" : "(?!(?:");
        weir__put_regex(&regex, other->path, false);
        weir__buffer_printf(&regex, "%s", other->kind == WEIR__PLACE_EXACT ? "$" : "");
        any = true;
    }
    if (any) {
        weir__buffer_printf(&regex, "))");
        weir__put_regex(&regex, place->path, false);
        put_regex_pattern(to, &regex);
    } else {
        put_path(to, place);
    }
    to->failed |= regex.failed;
    free(regex.data);
}

/* True if leaving out another place leaves this one out, too. */
static bool is_left_out(const struct weir__places *places, const struct weir__place_text *place, const char *hosts)
{
    for (size_t i = 0; i < places->count; i++)
        if (is_other(&places->list[i], hosts) && is_inside(place, &places->list[i]))
            return true;
    return false;
}

/* Everything but the other places. */
static void put_all_but(struct weir__convert *convert, struct weir__new_rule *rule, const struct weir__places *places,
                        const char *hosts, int line)
{
    struct weir__buffer others = {0};
    for (size_t i = 0; i < places->count; i++) {
        const struct weir__place_text *other = &places->list[i];
        if (!is_other(other, hosts) || is_left_out(places, other, hosts))
            continue;
        weir__buffer_printf(&others, "%s", others.len ? ", " : "");
        put_path(&others, other);
        for (size_t j = 0; j < places->count; j++)
            if (places->list[j].chosen && is_inside(&places->list[j], other))
                weir__convert_warn(convert, rule, line,
                                   "'%s' is left out with '%s', which it is inside of; it needs a rule of its own",
                                   places->list[j].path, other->path);
    }
    if (others.len > 0)
        weir__buffer_printf(&rule->match, "path: { not: [%s] }\n", others.data);
    rule->match.failed |= others.failed;
    free(others.data);
}

bool weir__put_places(struct weir__convert *convert, struct weir__new_rule *rule, const struct weir__places *places,
                      const char *hosts, int line)
{
    struct weir__buffer paths = {0};
    int count = 0;
    bool regex = false, prefix = false;
    for (size_t i = 0; i < places->count; i++) {
        const struct weir__place_text *place = &places->list[i];
        regex |= is_other(place, hosts) && place->kind == WEIR__PLACE_REGEX;
        prefix |= place->chosen && place->kind == WEIR__PLACE_PREFIX;
        if (place->chosen && place->kind == WEIR__PLACE_ALL) {
            put_all_but(convert, rule, places, hosts, line);
            free(paths.data);
            return true;
        }
        if (!place->chosen || place->kind == WEIR__PLACE_NAMED)
            continue;
        weir__buffer_printf(&paths, "%s", count++ ? ", " : "");
        put_path_but(&paths, places, place, hosts);
    }
    if (count == 0) {
        weir__convert_warn(convert, rule, line, "not converted: no request comes to a named location by itself");
        return false;
    }
    weir__buffer_printf(&rule->match, count > 1 ? "path: [%s]\n" : "path: %s\n", paths.data ? paths.data : "");
    if (regex && prefix)
        weir__buffer_printf(&rule->notes,
                            "where a regular expression's location takes a request from this one in nginx, here "
                            "this rule counts it, too\n");
    rule->match.failed |= paths.failed;
    free(paths.data);
    return true;
}
