/* The attributes that a rule set refers to, and their names. */
#include "rules/attribute.h"
#include "base/text.h"

#include <stdio.h>

/* ---- The table ---- */

static bool is_same(const struct weir__attribute *attribute, enum weir__attribute_kind kind, weir_text name,
                    int segment, uint8_t form)
{
    if (attribute->kind != kind || attribute->segment != segment || attribute->form != form)
        return false;
    return kind == WEIR__ATTR_HEADER ? weir__text_equal_nocase(attribute->name, name)
                                     : weir__text_equal(attribute->name, name);
}

static uint8_t form_of(const struct weir__attributes *all, enum weir__attribute_kind kind)
{
    return kind == WEIR__ATTR_PATH || kind == WEIR__ATTR_SEGMENT ? all->form : 0;
}

static int find(const struct weir__attributes *all, enum weir__attribute_kind kind, weir_text name, int segment)
{
    for (int i = 0; i < all->count; i++)
        if (is_same(&all->list[i], kind, name, segment, form_of(all, kind)))
            return i;
    return -1;
}

int weir__attribute_add(struct weir__attributes *all, struct weir__arena *arena, enum weir__attribute_kind kind,
                        weir_text name, int segment)
{
    int known = find(all, kind, name, segment);
    if (known >= 0 || all->count == WEIR__ATTRIBUTES_MAX)
        return known;

    struct weir__attribute *added = &all->list[all->count];
    char *copy = weir__arena_take(arena, name.len + 1);
    if (!copy)
        return -1;
    for (size_t i = 0; i < name.len; i++)
        copy[i] = kind == WEIR__ATTR_HEADER ? (char)weir__lower(name.data[i]) : name.data[i];
    all->arguments += kind == WEIR__ATTR_QUERY;
    *added = (struct weir__attribute){
        .kind = kind, .segment = segment, .form = form_of(all, kind), .source = -1, .name = {copy, name.len}};
    return all->count++;
}

/* ---- Names ---- */

/* Built-in and well-known attributes. */
static const char *const known_names[] = {"client_ip", "path", "method", "host", "user_id", "api_key", "tier"};
static const enum weir__attribute_kind known_kinds[] = {WEIR__ATTR_CLIENT_IP, WEIR__ATTR_PATH,  WEIR__ATTR_METHOD,
                                                        WEIR__ATTR_HOST,      WEIR__ATTR_NAMED, WEIR__ATTR_NAMED,
                                                        WEIR__ATTR_NAMED};

/* Names of the built-in attributes in other products. */
static const char *const elsewhere[][2] = {
    {"client_ip", "ip,ip_address,remote_addr,remote_address,remote_ip,client_addr,client_address"},
    {"path", "uri,url,request_uri"},
    {"method", "request_method,verb"},
    {"host", "hostname,http_host,server_name"},
};

/* The prefixes of attributes with a name. */
static const struct {
    const char *name;
    enum weir__attribute_kind kind;
    const char *what;
} kinds[] = {{"header", WEIR__ATTR_HEADER, "header"},
             {"cookie", WEIR__ATTR_COOKIE, "cookie"},
             {"query", WEIR__ATTR_QUERY, "query argument"}};
static const char *const prefixes[] = {"header", "cookie", "query", "path"};

/* Names of the prefixes in other products. */
static const char *const prefixes_elsewhere[][2] = {
    {"header", "http,hdr,request"}, {"query", "arg,args,param"}, {"path", "segment"}};

/* The "token" of HTTP: names of headers and cookies. */
static bool is_token(weir_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!weir__is_token(text.data[i]))
            return false;
    return text.len > 0;
}

bool weir__attribute_is_name(weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (!(c >= 'a' && c <= 'z') && c != '_' && (i == 0 || !weir__is_digit(c)))
            return false;
    }
    return text.len > 0;
}

bool weir__attribute_is_known(const struct weir__attributes *all, weir_text name)
{
    for (size_t i = 0; i < WEIR__COUNT(known_names); i++)
        if (weir__text_is(name, known_names[i]))
            return true;
    int named = find(all, WEIR__ATTR_NAMED, name, 0);
    return named >= 0 && all->list[named].source >= 0;
}

bool weir__attribute_is_length(const struct weir__attributes *all, int index)
{
    if (index >= 0 && all->list[index].kind == WEIR__ATTR_NAMED && !all->list[index].mapping)
        index = all->list[index].source;
    return index >= 0 && all->list[index].kind == WEIR__ATTR_HEADER &&
           weir__text_is(all->list[index].name, "content-length");
}

/* ---- Suggestions ---- */

/*
 * True if a short word differs from `near` by a replaced letter: more often another word (cost, host) than a mistake.
 */
static bool is_another_word(weir_text word, const char *near)
{
    int difference = 0;

    if (word.len > 4 || strlen(near) != word.len)
        return false;
    for (size_t i = 0; i < word.len; i++)
        difference += weir__lower(word.data[i]) - weir__lower(near[i]);
    return difference != 0; /* 0 for the same letters in another order */
}

/* The bare name that was perhaps meant, or NULL. */
static const char *meant_name(weir_text text)
{
    char word[WEIR__SUGGEST_MAX];

    if (text.len > sizeof word)
        return NULL;
    for (size_t i = 0; i < text.len; i++)
        word[i] = (char)(text.data[i] == '-' ? '_' : weir__lower(text.data[i]));
    weir_text lower = {word, text.len};
    const char *meant = weir__report_meant(lower, WEIR__LIST_OF(elsewhere));
    if (meant)
        return meant;
    const char *near = weir__suggest(lower, WEIR__LIST_OF(known_names));
    return near && !is_another_word(lower, near) ? near : NULL;
}

/* ---- Reading ---- */

/* The context of parsing an attribute. */
struct attribute_reader {
    struct weir__attributes *all;
    struct weir__arena *arena;
    struct weir__diagnostics *report;
    struct weir__place place;
    char shown[WEIR__SHOWN]; /* the text, for messages */
};

static int add(struct attribute_reader *r, enum weir__attribute_kind kind, weir_text name, int segment)
{
    int index = weir__attribute_add(r->all, r->arena, kind, name, segment);

    /* Without memory, the load fails as a whole and reports that. */
    if (index < 0 && !r->arena->failed)
        weir__report_error(r->report, r->place,
                           "a set of rules can use %d different attributes, and \"%s\" is one more",
                           WEIR__ATTRIBUTES_MAX, r->shown);
    if (index >= 0 && !r->all->first_use[index].line)
        r->all->first_use[index] = r->place;
    return index;
}

static int read_segment(struct attribute_reader *r, weir_text text)
{
    int64_t number;

    if (weir__parse_int(text, &number) && number >= 1 && number <= WEIR__SEGMENT_MAX)
        return add(r, WEIR__ATTR_SEGMENT, (weir_text){"", 0}, (int)number);
    weir__report_error(r->report, r->place, "\"%s\": the parts of a path have numbers from 1 to %d", r->shown,
                       WEIR__SEGMENT_MAX);
    return -1;
}

static int unknown_prefix(struct attribute_reader *r, weir_text prefix, weir_text rest)
{
    const char *meant = weir__report_meant(prefix, WEIR__LIST_OF(prefixes_elsewhere));
    if (!meant)
        meant = weir__suggest(prefix, WEIR__LIST_OF(prefixes));
    char suggestion[WEIR__SHOWN + 8], shown[WEIR__SHOWN];

    if (meant)
        (void)snprintf(suggestion, sizeof suggestion, "%s:%s", meant, weir__printable(rest, shown, sizeof shown));
    weir__report_suggest(r->report, r->place, meant ? suggestion : NULL,
                         "unknown attribute \"%s\": the prefixes are header, cookie, query and path", r->shown);
    return -1;
}

/* "header:X" and the like. */
static int read_prefixed(struct attribute_reader *r, weir_text prefix, weir_text rest)
{
    size_t i = 0;

    if (weir__text_is(prefix, "path"))
        return read_segment(r, rest);
    while (i < WEIR__COUNT(kinds) && !weir__text_is(prefix, kinds[i].name))
        i++;
    if (i == WEIR__COUNT(kinds))
        return unknown_prefix(r, prefix, rest);
    if (kinds[i].kind == WEIR__ATTR_QUERY ? rest.len > 0 && weir__text_sound(rest) : is_token(rest))
        return add(r, kinds[i].kind, rest, 0);
    if (rest.len == 0)
        weir__report_error(r->report, r->place, "\"%s\" needs a name after the colon", r->shown);
    else
        weir__report_error(r->report, r->place, "\"%s\": a %s's name cannot have such characters", r->shown,
                           kinds[i].what);
    return -1;
}

static int read_bare(struct attribute_reader *r, weir_text text)
{
    for (size_t i = 0; i < WEIR__COUNT(known_names); i++)
        if (weir__text_is(text, known_names[i]))
            return add(r, known_kinds[i], known_kinds[i] == WEIR__ATTR_NAMED ? text : WEIR__TEXT(""), 0);
    int known = find(r->all, WEIR__ATTR_NAMED, text, 0);
    if (known >= 0)
        return known;
    for (size_t i = 0; i < WEIR__COUNT(prefixes); i++)
        if (weir__text_is(text, prefixes[i])) { /* "path" was built in */
            weir__report_error(r->report, r->place, "\"%s\" needs a colon and a name after it", r->shown);
            return -1;
        }
    const char *meant = meant_name(text);
    if (meant) {
        weir__report_suggest(r->report, r->place, meant, "unknown attribute \"%s\"", r->shown);
        return -1;
    }
    if (weir__attribute_is_name(text))
        return add(r, WEIR__ATTR_NAMED, text, 0);
    weir__report_error(r->report, r->place,
                       "\"%s\" is no attribute: names are made of small letters, digits and underscores", r->shown);
    return -1;
}

int weir__attribute_parse(struct weir__attributes *all, struct weir__arena *arena, struct weir__diagnostics *report,
                          struct weir__place place, weir_text text)
{
    struct attribute_reader r = {.all = all, .arena = arena, .report = report, .place = place};

    if (text.len == 0) {
        weir__report_error(report, place, "an attribute's name is missing");
        return -1;
    }
    weir__printable(text, r.shown, sizeof r.shown);
    weir_text rest = text, prefix = weir__text_cut(&rest, ':');
    return prefix.len == text.len ? read_bare(&r, text) : read_prefixed(&r, prefix, rest);
}
