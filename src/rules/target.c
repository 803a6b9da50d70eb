/* Request targets, query strings and cookies: parsing and decoding. */
#include "rules/target.h"

/* The character of the escape "%xx" at `at`, or -1. */
static int escaped(weir_text text, size_t at)
{
    if (text.len - at < 3)
        return -1;
    int high = weir__hex_value(text.data[at + 1]), low = weir__hex_value(text.data[at + 2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static weir_text after(weir_text text, size_t skip)
{
    return (weir_text){text.data + skip, text.len - skip};
}

/* ---- Targets ---- */

/* A path that is being written. Its last segment is the one that begins at `segment`. */
struct target_writer {
    char *path;
    size_t size, used;
    size_t segment;
    size_t length, dots; /* of the last segment, as it came in; dots only among the first three characters */
    size_t hidden;       /* segments that had no room, so that a ".." can take them back */
    bool lost;           /* the last segment that is not hidden, or the text after it, had no room */
};

static void put(struct target_writer *w, const char *run, size_t len)
{
    size_t room = w->size - w->used, fits = len < room ? len : room;

    for (size_t i = 0; i < len && w->length + i < 3; i++)
        w->dots += run[i] == '.';
    w->length += len;
    memmove(w->path + w->used, run, fits); /* a path may be written over itself */
    w->used += fits;
    w->lost |= fits < len;
}

/* ".." takes the segment before it away. */
static void go_up(struct target_writer *w)
{
    if (w->hidden > 0) {
        if (--w->hidden == 0) {
            w->used = w->segment;
            w->lost = false;
        }
        return;
    }
    if (w->segment > 1)
        do
            w->segment--;
        while (w->path[w->segment - 1] != '/');
    w->used = w->segment;
    w->lost = false;
}

/* A segment is complete; `slash`: another one follows. */
static void end_segment(struct target_writer *w, bool slash)
{
    if (w->length == 1 && w->dots == 1) {
        if (w->hidden == 0) {
            w->used = w->segment;
            w->lost = false;
        }
    } else if (w->length == 2 && w->dots == 2) {
        go_up(w);
    } else if (w->length > 0 && slash) {
        if (w->hidden == 0 && w->used < w->size) {
            w->path[w->used++] = '/';
            w->segment = w->used;
        } else {
            w->hidden++;
            w->lost = true;
        }
    }
    w->length = w->dots = 0;
}

/* The length of a path that was cut, without a last "." or ".." that cutting may have made. */
static size_t without_cut_dots(const struct target_writer *w)
{
    size_t last = w->used - w->segment;

    return (last == 1 || last == 2) && memcmp(w->path + w->segment, "..", last) == 0 ? w->segment : w->used;
}

static bool in_scheme(char c, bool first)
{
    return weir__is_letter(c) || (!first && (weir__is_digit(c) || c == '+' || c == '-' || c == '.'));
}

/* Where the authority, or the path parameters, at `at` end. */
static size_t part_end(weir_text target, size_t at)
{
    while (at < target.len && target.data[at] != '/' && target.data[at] != '?' && target.data[at] != '#')
        at++;
    return at;
}

/* Without "http://host" (any scheme, any authority) if it begins with that. */
static weir_text without_authority(weir_text target)
{
    size_t i = 0;

    while (i < target.len && in_scheme(target.data[i], i == 0))
        i++;
    if (i == 0 || target.len - i < 3 || memcmp(target.data + i, "://", 3) != 0)
        return target;
    return after(target, part_end(target, i + 3));
}

weir_text weir__target_query(weir_text target)
{
    weir_text query = weir__text_cut(&target, '#');
    weir__text_cut(&query, '?');
    return query;
}

/* Decodes and resolves a target; `parameters`: removes path parameters. */
static size_t resolve(weir_text target, bool parameters, char *path, size_t path_size, bool *cut)
{
    static const bool special[256] = {['/'] = true, ['%'] = true, ['?'] = true, ['#'] = true, [';'] = true};
    struct target_writer w = {.path = path, .size = path_size, .used = 1, .segment = 1};
    size_t at = 0;

    *cut = false;
    if (target.len > 0 && target.data[0] == '*' &&
        (target.len == 1 || target.data[1] == '?' || target.data[1] == '#')) {
        path[0] = '*';
        return 1;
    }
    if (target.len > 0 && target.data[0] != '/')
        target = without_authority(target);
    path[0] = '/';
    while (at < target.len) {
        size_t from = at;
        while (at < target.len && !special[(unsigned char)target.data[at]])
            at++;
        if (at > from)
            put(&w, target.data + from, at - from);
        if (at == target.len || target.data[at] == '?' || target.data[at] == '#')
            break;
        if (target.data[at] == ';') {
            if (!parameters)
                put(&w, ";", 1);
            at = parameters ? part_end(target, at) : at + 1;
            continue;
        }
        int code = target.data[at] == '%' ? escaped(target, at) : '/';
        char c = code < 0 ? '%' : (char)code;
        at += target.data[at] == '%' && code >= 0 ? 3 : 1;
        if (c == '/')
            end_segment(&w, true);
        else
            put(&w, &c, 1);
    }
    end_segment(&w, false);
    *cut = w.lost;
    return w.lost ? without_cut_dots(&w) : w.used;
}

size_t weir__target_normalise(weir_text target, char *path, size_t path_size, bool *cut)
{
    return resolve(target, false, path, path_size, cut);
}

/* ---- Normal forms ---- */

static bool is_blank(char c)
{
    return (unsigned char)c <= ' ';
}

/* A segment in its normal form. */
static weir_text bare_segment(weir_text segment, unsigned form)
{
    weir_text rest = segment;
    if (form & WEIR__FORM_PARAMETERS)
        segment = weir__text_cut(&rest, ';');
    while (form & WEIR__FORM_BLANKS && segment.len && is_blank(segment.data[0]))
        segment = after(segment, 1);
    while (form & WEIR__FORM_BLANKS && segment.len && is_blank(segment.data[segment.len - 1]))
        segment.len--;
    return segment;
}

size_t weir__path_normalise(weir_text path, unsigned form, char *to, size_t size, bool *cut)
{
    struct target_writer w = {.path = to, .size = size, .used = 1, .segment = 1};

    *cut = path.len > size;
    if (path.len == 0)
        return 0;
    if (path.data[0] != '/') {
        size = *cut ? size : path.len;
        memmove(to, path.data, size);
        return size;
    }
    to[0] = '/';
    for (size_t at = 1; at <= path.len;) {
        const char *slash = at < path.len ? memchr(path.data + at, '/', path.len - at) : NULL;
        size_t end = slash ? (size_t)(slash - path.data) : path.len;
        weir_text segment = bare_segment((weir_text){path.data + at, end - at}, form);
        put(&w, segment.data, segment.len);
        end_segment(&w, slash != NULL);
        at = end + 1;
    }
    if (form & WEIR__FORM_SLASH && !w.lost && w.used > 1 && w.used == w.segment)
        w.used--;
    for (size_t i = 0; form & WEIR__FORM_CASE && i < w.used; i++)
        to[i] = (char)weir__lower(to[i]);
    *cut = w.lost;
    return w.lost ? without_cut_dots(&w) : w.used;
}

size_t weir__target_form(weir_text target, unsigned form, char *to, size_t size, bool *cut)
{
    bool again;
    size_t len = resolve(target, form & WEIR__FORM_PARAMETERS, to, size, cut);
    len =
        weir__path_normalise((weir_text){to, len}, *cut ? form & ~(unsigned)WEIR__FORM_SLASH : form, to, size, &again);
    *cut |= again;
    return len;
}

bool weir__path_is_spelled(weir_text path, unsigned form)
{
    if (path.len < 2)
        return false;
    if (form & WEIR__FORM_SLASH && path.data[path.len - 1] == '/')
        return true;
    if (form & (WEIR__FORM_PARAMETERS | WEIR__FORM_BLANKS) && weir__text_is_odd(path))
        return true;
    for (size_t i = 0; form & WEIR__FORM_CASE && i < path.len; i++)
        if (weir__lower(path.data[i]) != (unsigned char)path.data[i])
            return true;
    return false;
}

/* ---- Cookies ---- */

/* One more value unless it is there already; those beyond `max` are only counted. */
static size_t add_value(weir_text *values, size_t count, size_t max, weir_text value,
                        bool (*equal)(weir_text, weir_text))
{
    for (size_t i = 0; i < count; i++)
        if (equal(values[i], value))
            return count;
    if (count < max)
        values[count] = value;
    return count + 1;
}

size_t weir__cookie_find(weir_text header, weir_text name, weir_text *values, size_t max)
{
    size_t count = 0;

    while (header.len > 0 && count <= max) {
        weir_text cookie = weir__text_cut(&header, ';'), value = cookie, its_name = weir__text_cut(&value, '=');
        if (its_name.len == cookie.len || !weir__text_equal(weir__text_trim(its_name), name))
            continue;
        value = weir__text_trim(value);
        if (value.len >= 2 && value.data[0] == '"' && value.data[value.len - 1] == '"')
            value = (weir_text){value.data + 1, value.len - 2};
        count = add_value(values, count, max, value, weir__text_equal);
    }
    return count;
}

/* ---- Arguments ---- */

/* The next character of an encoded name or value; *at moves past it. */
static char decoded(weir_text raw, size_t *at)
{
    char c = raw.data[*at];
    int code = c == '%' ? escaped(raw, *at) : -1;

    *at += code < 0 ? 1 : 3;
    return code >= 0 ? (char)code : c == '+' ? ' ' : c;
}

static bool is_name(weir_text raw, weir_text name)
{
    size_t i = 0, j = 0;

    while (i < raw.len && j < name.len)
        if (decoded(raw, &i) != name.data[j++])
            return false;
    return i == raw.len && j == name.len;
}

static bool is_same_decoded(weir_text a, weir_text b)
{
    size_t i = 0, j = 0;

    while (i < a.len && j < b.len)
        if (decoded(a, &i) != decoded(b, &j))
            return false;
    return i == a.len && j == b.len;
}

size_t weir__argument_find(weir_text query, weir_text name, weir_text *raw, size_t max)
{
    size_t count = 0;

    while (query.len > 0 && count <= max) {
        weir_text value = weir__text_cut(&query, '&'), its_name = weir__text_cut(&value, '=');
        if (is_name(its_name, name))
            count = add_value(raw, count, max, value, is_same_decoded);
    }
    return count;
}

bool weir__argument_is_plain(weir_text raw)
{
    for (size_t i = 0; i < raw.len; i++)
        if (raw.data[i] == '%' || raw.data[i] == '+')
            return false;
    return true;
}

size_t weir__argument_decode(weir_text raw, char *to, size_t size, bool *cut)
{
    size_t n = 0, at = 0;

    while (at < raw.len && n < size)
        to[n++] = decoded(raw, &at);
    *cut = at < raw.len;
    return n;
}
