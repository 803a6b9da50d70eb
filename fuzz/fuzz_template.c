/*
 * Key templates: any text is refused with an error or compiles; two requests get the same key only if their values are
 * the same. A line each: the template, then a, b and c of one request, then those of the other.
 */
#include "rules/key.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static weir_text cut_line(weir_text *text)
{
    const char *end = text->len > 0 ? memchr(text->data, '\n', text->len) : NULL;
    weir_text line = {text->data, end ? (size_t)(end - text->data) : text->len};

    text->data += end ? line.len + 1 : line.len;
    text->len -= end ? line.len + 1 : line.len;
    return line;
}

struct request {
    weir_text value[3];
};

static bool answer(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    const struct request *request = context;

    /* Every attribute has one of the three values. */
    *value = request->value[((size_t)kind + (name.len > 0 ? (unsigned char)name.data[0] : 0)) % 3];
    return true;
}

static int fill(const struct weir__template *tmpl, const struct weir__attributes *all, struct request *request,
                bool share, struct weir__values *values, char key[WEIR__KEY_MAX])
{
    weir_query query = {.lookup = answer, .lookup_context = request};

    weir__values_begin(values, all, &query);
    int len = weir__template_fill(tmpl, values, share, key);
    check(len >= -1 && len <= WEIR__KEY_MAX && !(share && len < 0));
    return len;
}

static void check_filled(const struct weir__template *tmpl, const struct weir__attributes *all, weir_text text)
{
    static struct weir__values values[2];
    struct request request[2];
    char key[2][WEIR__KEY_MAX];
    int len[2];

    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 3; i++)
            request[r].value[i] = cut_line(&text);
        int shared = fill(tmpl, all, &request[r], true, &values[r], key[r]);
        len[r] = fill(tmpl, all, &request[r], false, &values[r], key[r]);
        check(len[r] < 0 || len[r] == shared);
        len[r] = fill(tmpl, all, &request[r], true, &values[r], key[r]);
        check(weir__template_matches(tmpl, (weir_text){key[r], (size_t)len[r]}, NULL));
    }
    bool same = true;
    for (int i = 0; i < tmpl->piece_count; i++) {
        weir_text one, other;
        int attribute = tmpl->pieces[i].attribute;
        if (attribute < 0)
            continue;
        bool has = weir__value(&values[0], attribute, &one), too = weir__value(&values[1], attribute, &other);
        bool several = weir__value_is_several(&values[0], attribute);
        same &= several == weir__value_is_several(&values[1], attribute) &&
                (several || (has == too && weir__text_equal(one, other)));
    }
    check(same == (len[0] == len[1] && memcmp(key[0], key[1], (size_t)len[0]) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__attributes all;
    struct weir__arena arena = {.bytes_max = 1 << 20};
    struct weir__diagnostics report = {.diagnose = NULL};
    struct weir__template tmpl;
    weir_text text = {(const char *)data, size}, template = cut_line(&text);

    all = (struct weir__attributes){.identity = {.ipv4_prefix = 32, .ipv6_prefix = 64}};
    bool good = weir__template_compile(&tmpl, &all, &arena, &report, (struct weir__place){0, 1, 1}, template);
    check(good == (report.errors == 0) && !arena.failed);
    if (good)
        check_filled(&tmpl, &all, text);
    weir__arena_free(&arena);
    return 0;
}
