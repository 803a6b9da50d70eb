/* Differences of two texts, by lines, and of two trees, by fields. */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

#define CONTEXT   3
#define CELLS_MAX ((size_t)4 << 20) /* of the table below; texts that would need more are shown as replaced */

struct diff_lines {
    weir_text *list;
    size_t count;
};

/* ---- Lines ---- */

static bool split(const char *text, struct diff_lines *lines)
{
    size_t room = 1;
    for (const char *c = text; *c; c++)
        room += *c == '\n';
    *lines = (struct diff_lines){malloc(room * sizeof(weir_text)), 0};
    while (lines->list && *text) {
        size_t len = strcspn(text, "\n");
        lines->list[lines->count++] = (weir_text){text, len};
        text += len + (text[len] == '\n');
    }
    return lines->list != NULL;
}

/* The part that differs: longest[i, k] is the length of the longest common subsequence from line i of a and k of b. */
struct middle {
    size_t begin, a_end, b_end;
    uint32_t *longest; /* (a_end - begin + 1) x (b_end - begin + 1); NULL: too large, taken for different */
    size_t width;
};

static void measure(const struct diff_lines *a, const struct diff_lines *b, struct middle *m)
{
    *m = (struct middle){0, a->count, b->count, NULL, 0};
    while (m->begin < m->a_end && m->begin < m->b_end && weir__text_equal(a->list[m->begin], b->list[m->begin]))
        m->begin++;
    while (m->a_end > m->begin && m->b_end > m->begin &&
           weir__text_equal(a->list[m->a_end - 1], b->list[m->b_end - 1])) {
        m->a_end--;
        m->b_end--;
    }
    size_t rows = m->a_end - m->begin + 1;
    m->width = m->b_end - m->begin + 1;
    if (rows > CELLS_MAX / m->width || !(m->longest = calloc(rows * m->width, sizeof *m->longest)))
        return;
    for (size_t i = rows - 1; i-- > 0;)
        for (size_t k = m->width - 1; k-- > 0;) {
            uint32_t *cell = &m->longest[i * m->width + k], down = cell[m->width], right = cell[1];
            *cell = weir__text_equal(a->list[m->begin + i], b->list[m->begin + k]) ? cell[m->width + 1] + 1
                    : down >= right                                                ? down
                                                                                   : right;
        }
}

/* A line of the diff: ' ' in both texts, '-' in the old one, '+' in the new one. */
struct diff_step {
    char kind;
    size_t a, b;
};

static char next_step(const struct diff_lines *a, const struct diff_lines *b, const struct middle *m, size_t i,
                      size_t k)
{
    if (i < m->begin || (i >= m->a_end && k >= m->b_end))
        return ' ';
    if (i >= m->a_end)
        return '+';
    if (k >= m->b_end)
        return '-';
    if (!m->longest)
        return '-';
    const uint32_t *cell = &m->longest[(i - m->begin) * m->width + (k - m->begin)];
    if (weir__text_equal(a->list[i], b->list[k]))
        return ' ';
    return cell[m->width] >= cell[1] ? '-' : '+';
}

static struct diff_step *steps_of(const struct diff_lines *a, const struct diff_lines *b, size_t *count)
{
    struct middle middle;
    struct diff_step *steps = malloc((a->count + b->count + 1) * sizeof *steps);
    size_t i = 0, k = 0;
    *count = 0;
    measure(a, b, &middle);
    while (steps && (i < a->count || k < b->count)) {
        char kind = next_step(a, b, &middle, i, k);
        steps[(*count)++] = (struct diff_step){kind, i, k};
        i += kind != '+';
        k += kind != '-';
    }
    free(middle.longest);
    return steps;
}

/* The end of the hunk that begins at `at`: changes that are at most 2 * CONTEXT lines apart belong together. */
static size_t hunk_end(const struct diff_step *steps, size_t count, size_t at)
{
    size_t last = at;
    for (size_t i = at; i < count && i - last <= 2 * (size_t)CONTEXT; i++)
        if (steps[i].kind != ' ')
            last = i;
    return last + 1;
}

static void put_hunk(FILE *to, const struct diff_lines *a, const struct diff_lines *b, const struct diff_step *steps,
                     size_t begin, size_t end)
{
    size_t olds = 0, news = 0;
    for (size_t i = begin; i < end; i++) {
        olds += steps[i].kind != '+';
        news += steps[i].kind != '-';
    }
    fprintf(to, "@@ -%zu,%zu +%zu,%zu @@\n", steps[begin].a + (olds > 0), olds, steps[begin].b + (news > 0), news);
    for (size_t i = begin; i < end; i++) {
        weir_text line = steps[i].kind == '+' ? b->list[steps[i].b] : a->list[steps[i].a];
        fprintf(to, "%c%.*s\n", steps[i].kind, (int)line.len, line.data);
    }
}

static void put_hunks(FILE *to, const struct diff_lines *a, const struct diff_lines *b, const struct diff_step *steps,
                      size_t count)
{
    for (size_t at = 0, done = 0; at < count; at++) {
        if (steps[at].kind == ' ')
            continue;
        size_t changed = hunk_end(steps, count, at);
        size_t begin = at > done + CONTEXT ? at - CONTEXT : done;
        size_t end = changed + CONTEXT < count ? changed + CONTEXT : count;
        put_hunk(to, a, b, steps, begin, end);
        done = end;
        at = end - 1;
    }
}

char *weir__diff(const char *from, const char *to, const char *from_label, const char *to_label)
{
    struct diff_lines a, b;
    char *text = NULL;
    size_t len = 0, count = 0;
    bool good = split(from, &a);
    good &= split(to, &b);
    struct diff_step *steps = good ? steps_of(&a, &b, &count) : NULL;
    FILE *out = steps ? open_memstream(&text, &len) : NULL;
    if (out && strcmp(from, to) != 0) {
        fprintf(out, "--- %s\n+++ %s\n", from_label, to_label);
        put_hunks(out, &a, &b, steps, count);
    }
    if (out && fclose(out) != 0) {
        free(text);
        text = NULL;
    }
    free(steps);
    free(a.list);
    free(b.list);
    return text;
}

/* ---- Fields ---- */

#define LEAVES_MAX 5000

/* Adds each value of a tree under its path. The depth is bounded by the tree's reader. */
static void flatten(const struct weir__node *node, const char *path, json_t *leaves)
{
    char inner[512], shown[WEIR__SHOWN];
    size_t number = 0;
    if (json_object_size(leaves) >= LEAVES_MAX)
        return;
    if (node->kind == WEIR__SCALAR) {
        json_object_set_new(leaves, path, weir__text_json(node->text));
        return;
    }
    for (const struct weir__node *member = node->first; member; member = member->next, number++) {
        if (member->name)
            snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "",
                     weir__printable(member->name->text, shown, sizeof shown));
        else
            snprintf(inner, sizeof inner, "%s[%zu]", path, number);
        flatten(member, inner, leaves);
    }
}

static void add_change(json_t *changes, const char *field, json_t *from, json_t *to)
{
    json_array_append_new(changes, json_pack("{s:s, s:O, s:O}", "field", field, "from", from ? from : json_null(), "to",
                                             to ? to : json_null()));
}

void weir__document_changes(const struct weir__node *from, const struct weir__node *to, json_t *changes)
{
    json_t *old = json_object(), *new = json_object(), *value;
    const char *field;
    flatten(from, "", old);
    flatten(to, "", new);
    json_object_foreach(old, field, value)
    {
        json_t *other = json_object_get(new, field);
        if (!other || !json_equal(value, other))
            add_change(changes, field, value, other);
    }
    json_object_foreach(new, field, value) if (!json_object_get(old, field)) add_change(changes, field, NULL, value);
    json_decref(old);
    json_decref(new);
}
