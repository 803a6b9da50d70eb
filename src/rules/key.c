/* Keys of counters: long ones, which end in a hash that is the same in every process, and templates. See key.h. */
#include "rules/key.h"
#include "base/hash.h"

#define DIGITS 32 /* of the hash */

_Static_assert(sizeof(XXH3_state_t) <= WEIR__KEY_HASH, "the state of the hash fits");

static XXH3_state_t *state_of(struct weir__key *key)
{
    return (XXH3_state_t *)(void *)key->hash;
}

void weir__key_add_long(struct weir__key *key, weir_text piece)
{
    XXH3_state_t *state = state_of(key);

    if (key->len < WEIR__KEY_MAX) {
        size_t fits = WEIR__KEY_MAX - key->len;
        XXH3_128bits_reset(state);
        XXH3_128bits_update(state, key->text, key->len);
        memcpy(key->text + key->len, piece.data, fits);
        key->len = WEIR__KEY_MAX;
    }
    XXH3_128bits_update(state, piece.data, piece.len);
}

void weir__key_end_long(struct weir__key *key)
{
    XXH128_canonical_t hash;
    char *to = key->text + WEIR__KEY_MAX - DIGITS;

    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state_of(key)));
    to[-1] = '#';
    weir__write_hex(to, hash.digest, sizeof hash.digest);
}

/* ---- Compiling a template ---- */

struct template_reader {
    struct weir__attributes *all;
    struct weir__arena *arena;
    struct weir__diagnostics *report;
    struct weir__place place;
    weir_text text;
    struct weir__template_piece pieces[WEIR__TEMPLATE_PIECES];
    int count;
    bool failed;
    char *literals;     /* of all parts, concatenated */
    size_t used, start; /* of them; the literal that is being read begins at start */
};

/* The place of a byte of the template, if that is on one line; columns count characters. */
static struct weir__place place_of(const struct template_reader *r, size_t offset)
{
    struct weir__place place = r->place;

    if (place.line > 0)
        for (size_t i = 0; i < offset; i++)
            place.column += ((unsigned char)r->text.data[i] & 0xc0) != 0x80;
    return place;
}

static void add_literal(struct template_reader *r, char c)
{
    /* After a value, a single '%' could be read as the beginning of an escape. */
    if (c == '%' && r->count > 0 && r->used == r->start)
        r->literals[r->used++] = '%';
    r->literals[r->used++] = c;
}

/* Adds a part: the literal read so far and the attribute after it (-1: none). False: too many parts. */
static bool add_part(struct template_reader *r, int attribute, size_t offset)
{
    if (r->count == WEIR__TEMPLATE_PIECES)
        return weir__report_error(r->report, place_of(r, offset), "a key can have %d parts, and this is one more",
                                  WEIR__TEMPLATE_PIECES);
    weir_text literal = {r->literals + r->start, r->used - r->start};
    if (r->count > 0)
        r->pieces[r->count - 1].stop = literal.data[0];
    r->pieces[r->count++] = (struct weir__template_piece){.literal = literal, .attribute = (int16_t)attribute};
    r->start = r->used;
    return true;
}

/* Where the name in the "${" at `at` ends; 0 after an error, which was reported. */
static size_t name_end(struct template_reader *r, size_t at)
{
    const char *data = r->text.data;

    for (size_t i = at + 2; i < r->text.len; i++) {
        if (data[i] == '}')
            return i;
        if (data[i] == '$' && i + 1 < r->text.len && data[i + 1] == '{') {
            weir__report_error(r->report, place_of(r, i), "\"${\" inside of another: attributes cannot be nested");
            return 0;
        }
    }
    weir__report_error(r->report, place_of(r, at), "\"${\" without a \"}\" after it");
    return 0;
}

/* Reads the "${…}" at *at and moves past it. False after an error that ends the reading. */
static bool read_attribute(struct template_reader *r, size_t *at)
{
    size_t name = *at + 2, end = name_end(r, *at);
    int attribute = -1;

    if (end == 0)
        return false;
    if (end == name)
        weir__report_error(r->report, place_of(r, *at), "\"${}\" names no attribute");
    else
        attribute = weir__attribute_parse(r->all, r->arena, r->report, place_of(r, name),
                                          (weir_text){r->text.data + name, end - name});
    r->failed |= attribute < 0;
    if (r->count > 0 && r->used == r->start) {
        weir__report_warning(r->report, place_of(r, *at),
                             "two adjacent values: \"%%%%\" will separate them in the key; better write a "
                             "separator such as ':'");
        add_literal(r, '%');
    }
    bool fits = add_part(r, attribute, *at);
    *at = end + 1;
    return fits;
}

/* False after an error that ends the reading. */
static bool read_all(struct template_reader *r)
{
    for (size_t at = 0; at < r->text.len;) {
        char c = r->text.data[at], next = at + 1 < r->text.len ? r->text.data[at + 1] : '\0';
        if (c == '$' && next == '{') {
            if (!read_attribute(r, &at))
                return false;
            continue;
        }
        if (c == '$' && next == '$') {
            at++;
        } else if (c == '$') {
            weir__report_error(r->report, place_of(r, at),
                               "a lone '$': write ${name} for an attribute, or $$ for a "
                               "dollar");
            r->failed = true;
        } else if ((unsigned char)c < 0x20 || c == 0x7f) {
            weir__report_error(r->report, place_of(r, at), "control characters cannot be part of a key");
            r->failed = true;
        }
        add_literal(r, c);
        at++;
    }
    return r->used == r->start || add_part(r, -1, r->text.len - 1);
}

bool weir__template_compile(struct weir__template *tmpl, struct weir__attributes *all, struct weir__arena *arena,
                            struct weir__diagnostics *report, struct weir__place place, weir_text text)
{
    struct template_reader r = {.all = all, .arena = arena, .report = report, .place = place, .text = text};

    if (text.len > WEIR__TEMPLATE_MAX)
        return weir__report_error(report, place, "a key's template can have %d bytes", WEIR__TEMPLATE_MAX);
    /* Each part may get one or two '%' in addition. */
    r.literals = weir__arena_take(arena, text.len + 2 * (WEIR__TEMPLATE_PIECES + 1));
    if (!r.literals || !read_all(&r) || r.failed)
        return false;
    struct weir__template_piece *pieces = weir__arena_array(arena, (size_t)r.count, sizeof *pieces);
    weir_text source = weir__arena_copy(arena, text);
    if (!pieces || !source.data)
        return false;
    memcpy(pieces, r.pieces, (size_t)r.count * sizeof *pieces);
    *tmpl = (struct weir__template){.source = source, .pieces = pieces, .piece_count = r.count};
    return true;
}

/* ---- Filling in ---- */

void weir__key_add_escaped(struct weir__key *key, weir_text value, char stop)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t from = 0;

    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (c != '%' && c != stop)
            continue;
        char escape[3] = {'%', digits[(unsigned char)c >> 4], digits[(unsigned char)c & 15]};
        weir__key_add(key, (weir_text){value.data + from, i - from});
        weir__key_add(key, (weir_text){escape, sizeof escape});
        from = i + 1;
    }
    if (from < value.len)
        weir__key_add(key, (weir_text){value.data + from, value.len - from});
}

/* Adds the last value of a template. */
static void add_last(struct weir__key *key, weir_text value)
{
    if (value.data[0] == '%') {
        weir__key_add(key, WEIR__TEXT("%25"));
        value.data++;
        value.len--;
    }
    weir__key_add(key, value);
}

bool weir__template_is_address(const struct weir__template *tmpl, const struct weir__attributes *all)
{
    const struct weir__template_piece *part = tmpl->pieces;

    return tmpl->piece_count == 1 && part->attribute >= 0 && all->list[part->attribute].kind == WEIR__ATTR_CLIENT_IP &&
           !all->identity.trusted && all->identity.ipv4_prefix == 32 &&
           part->literal.len < WEIR__KEY_MAX - WEIR__ADDRESS4_ROOM;
}

/* Selects one of the combinations of several values. */
struct choice {
    size_t number; /* of the combination, divided by the numbers of values of the parts before */
    struct weir__several several;
};

static weir_text choose(struct choice *choice, struct weir__values *values, int attribute)
{
    bool cut;

    weir__value_several(values, attribute, &choice->several);
    size_t which = choice->number % choice->several.count;
    choice->number /= choice->several.count;
    return weir__several_value(&choice->several, which, &cut);
}

/* `choice` NULL: several values are WEIR__SEVERAL_VALUE. Not inlined: most keys are addresses, and never get here. */
static __attribute__((noinline)) int fill_pieces(const struct weir__template *tmpl, struct weir__values *values,
                                                 bool share, char *key, struct choice *choice)
{
    struct weir__key filled;

    weir__key_begin(&filled, key);
    for (int i = 0; i < tmpl->piece_count; i++) {
        const struct weir__template_piece *part = &tmpl->pieces[i];
        weir_text value;
        weir__key_add(&filled, part->literal);
        if (part->attribute < 0)
            break;
        bool present = weir__value(values, part->attribute, &value);
        if (weir__value_is_several(values, part->attribute)) {
            if (!choice) {
                weir__key_add(&filled, WEIR__TEXT(WEIR__SEVERAL_VALUE));
                continue;
            }
            value = choose(choice, values, part->attribute);
            present = value.len > 0;
        }
        if (!present) {
            if (!share)
                return -1;
            weir__key_add(&filled, WEIR__TEXT(WEIR__MISSING_VALUE));
        } else if (part->stop) {
            weir__key_add_escaped(&filled, value, part->stop);
        } else {
            add_last(&filled, value);
        }
    }
    return weir__key_end(&filled);
}

int weir__template_fill(const struct weir__template *tmpl, struct weir__values *values, bool share,
                        char key[WEIR__KEY_MAX])
{
    const weir_query *query = values->query;
    if (query->peer && query->peer_len == 4 && weir__template_is_address(tmpl, values->all))
        return (int)weir__template_dotted(tmpl, query->peer, key);
    return fill_pieces(tmpl, values, share, key, NULL);
}

int weir__template_missing(const struct weir__template *tmpl, struct weir__values *values)
{
    weir_text value;

    for (int i = 0; i < tmpl->piece_count; i++) {
        int attribute = tmpl->pieces[i].attribute;
        if (attribute >= 0 && !weir__value(values, attribute, &value) && !weir__value_is_several(values, attribute))
            return attribute;
    }
    return -1;
}

size_t weir__template_keys(const struct weir__template *tmpl, struct weir__values *values)
{
    struct weir__several several;
    size_t keys = 0;

    for (int i = 0; i < tmpl->piece_count && keys <= WEIR__KEYS_MAX; i++) {
        int attribute = tmpl->pieces[i].attribute;
        if (attribute < 0 || !weir__value_is_several(values, attribute))
            continue;
        weir__value_several(values, attribute, &several);
        keys = several.more ? WEIR__KEYS_MAX + 1 : (keys ? keys : 1) * several.count;
    }
    return keys;
}

int weir__template_fill_one(const struct weir__template *tmpl, struct weir__values *values, bool share, size_t number,
                            char key[WEIR__KEY_MAX])
{
    struct choice choice = {.number = number};

    return fill_pieces(tmpl, values, share, key, &choice);
}

/* ---- Matching a key ---- */

static bool is_hex_digit(char c)
{
    return weir__hex_value(c) >= 0;
}

/* The length of the value at the beginning of a text, which ends at the first `stop` outside of escapes; 0: none. */
static size_t value_length(weir_text text, char stop)
{
    size_t i = 0;
    while (i < text.len) {
        weir_text rest = {text.data + i, text.len - i};
        if (rest.data[0] == '%' && rest.len > 2 && is_hex_digit(rest.data[1]) && is_hex_digit(rest.data[2]))
            i += 3;
        else if (weir__text_skip(&rest, WEIR__MISSING_VALUE) || weir__text_skip(&rest, WEIR__SEVERAL_VALUE))
            i = text.len - rest.len;
        else if (rest.data[0] == stop)
            break;
        else
            i++;
    }
    return i;
}

bool weir__template_matches(const struct weir__template *tmpl, weir_text key, weir_text values[WEIR__TEMPLATE_PIECES])
{
    /* Of a key that was cut, the beginning is left. */
    bool cut = key.len == WEIR__KEY_MAX && key.data[WEIR__KEY_KEPT] == '#';
    size_t count = 0;
    key.len = cut ? WEIR__KEY_KEPT : key.len;
    for (int i = 0; i < tmpl->piece_count; i++) {
        const struct weir__template_piece *part = &tmpl->pieces[i];
        size_t len = part->literal.len;
        if (cut && len > key.len)
            return memcmp(part->literal.data, key.data, key.len) == 0;
        if (len > key.len || memcmp(part->literal.data, key.data, len) != 0)
            return false;
        key = (weir_text){key.data + len, key.len - len};
        if (part->attribute < 0)
            break;
        size_t value = part->stop ? value_length(key, part->stop) : key.len;
        if (!value)
            return cut;
        if (values)
            values[count++] = (weir_text){key.data, value};
        key = (weir_text){key.data + value, key.len - value};
    }
    return cut || !key.len;
}

bool weir__template_fill_value(const struct weir__template *tmpl, weir_text value, char key[WEIR__KEY_MAX], size_t *len)
{
    struct weir__key filled;
    int attributes = 0;
    weir__key_begin(&filled, key);
    for (int i = 0; i < tmpl->piece_count; i++) {
        const struct weir__template_piece *part = &tmpl->pieces[i];
        weir__key_add(&filled, part->literal);
        if (part->attribute < 0)
            break;
        attributes++;
        if (part->stop)
            weir__key_add_escaped(&filled, value, part->stop);
        else if (value.len)
            add_last(&filled, value);
    }
    *len = (size_t)weir__key_end(&filled);
    return attributes == 1 && value.len > 0;
}
