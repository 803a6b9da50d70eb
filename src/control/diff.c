/* Differences of two texts, by lines, and of two trees, by fields. */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

#define CONTEXT   3
#define CELLS_MAX ((size_t)4 << 20) /* of the table below; texts that would need more are shown as replaced */

/* ---- Lines ---- */

/* A line of the diff: ' ' in both texts, '-' in the old one, '+' in the new one. */
struct diff_step {
    char kind;
    size_t a, b; /* the next line of each text */
};

/* Two texts as lines, and the part of them that differs: from line `begin` to a_end and b_end. */
struct diff {
    weir_text *a, *b;
    size_t a_count, b_count, begin, a_end, b_end;
    /* longest[i * width + k] is the length of the longest common subsequence from line begin + i of a and begin + k of
     * b on. NULL: it would be too large, and all lines are taken for different. */
    uint32_t *longest;
    size_t width;
    struct diff_step *steps;
    size_t count;
};

static weir_text *split(const char *text, size_t *count)
{
    size_t room = 1;
    for (const char *c = text; *c; c++)
        room += *c == '\n';
    weir_text *lines = malloc(room * sizeof *lines);
    for (*count = 0; lines && *text; ++*count) {
        size_t len = strcspn(text, "\n");
        lines[*count] = (weir_text){text, len};
        text += len + (text[len] == '\n');
    }
    return lines;
}

static void measure(struct diff *d)
{
    d->a_end = d->a_count;
    d->b_end = d->b_count;
    while (d->begin < d->a_end && d->begin < d->b_end && weir__text_equal(d->a[d->begin], d->b[d->begin]))
        d->begin++;
    for (; d->a_end > d->begin && d->b_end > d->begin; d->a_end--, d->b_end--)
        if (!weir__text_equal(d->a[d->a_end - 1], d->b[d->b_end - 1]))
            break;
    size_t rows = d->a_end - d->begin + 1;
    d->width = d->b_end - d->begin + 1;
    if (rows > CELLS_MAX / d->width || !(d->longest = calloc(rows * d->width, sizeof *d->longest)))
        return;
    for (size_t i = rows - 1; i-- > 0;)
        for (size_t k = d->width - 1; k-- > 0;) {
            uint32_t *cell = &d->longest[i * d->width + k], down = cell[d->width], right = cell[1];
            bool equal = weir__text_equal(d->a[d->begin + i], d->b[d->begin + k]);
            *cell = equal ? cell[d->width + 1] + 1 : down >= right ? down : right;
        }
}

static char next_step(const struct diff *d, size_t i, size_t k)
{
    if (i < d->begin || (i >= d->a_end && k >= d->b_end))
        return ' ';
    if (i >= d->a_end || k >= d->b_end)
        return i >= d->a_end ? '+' : '-';
    if (!d->longest)
        return '-';
    const uint32_t *cell = &d->longest[(i - d->begin) * d->width + (k - d->begin)];
    return weir__text_equal(d->a[i], d->b[k]) ? ' ' : cell[d->width] >= cell[1] ? '-' : '+';
}

static void find_steps(struct diff *d)
{
    d->steps = calloc(d->a_count + d->b_count + 1, sizeof *d->steps);
    for (size_t i = 0, k = 0; d->steps && (i < d->a_count || k < d->b_count);) {
        char kind = next_step(d, i, k);
        d->steps[d->count++] = (struct diff_step){kind, i, k};
        i += kind != '+';
        k += kind != '-';
    }
}

static void put_hunk(FILE *to, const struct diff *d, size_t begin, size_t end)
{
    const struct diff_step *first = &d->steps[begin];
    size_t olds = 0, news = 0;
    for (size_t i = begin; i < end; i++) {
        olds += d->steps[i].kind != '+';
        news += d->steps[i].kind != '-';
    }
    fprintf(to, "@@ -%zu,%zu +%zu,%zu @@\n", first->a + (olds > 0), olds, first->b + (news > 0), news);
    for (size_t i = begin; i < end; i++) {
        const struct diff_step *step = &d->steps[i];
        weir_text line = step->kind == '+' ? d->b[step->b] : d->a[step->a];
        fprintf(to, "%c%.*s\n", step->kind, (int)line.len, line.data);
    }
}

/* Changes that are at most 2 * CONTEXT lines apart are in one hunk. */
static void put_hunks(FILE *to, const struct diff *d)
{
    for (size_t at = 0, done = 0; at < d->count; at++) {
        size_t last = at;
        if (d->steps[at].kind == ' ')
            continue;
        for (size_t i = at; i < d->count && i - last <= 2 * (size_t)CONTEXT; i++)
            last = d->steps[i].kind != ' ' ? i : last;
        size_t begin = at > done + CONTEXT ? at - CONTEXT : done;
        done = last + 1 + CONTEXT < d->count ? last + 1 + CONTEXT : d->count;
        put_hunk(to, d, begin, done);
        at = done - 1;
    }
}

char *weir__diff(const char *from, const char *to, const char *from_label, const char *to_label)
{
    struct diff d = {.longest = NULL};
    char *text = NULL;
    size_t len = 0;
    d.a = split(from, &d.a_count);
    d.b = split(to, &d.b_count);
    bool split_both = d.a && d.b;
    if (split_both) {
        measure(&d);
        find_steps(&d);
    }
    FILE *out = split_both && d.steps ? open_memstream(&text, &len) : NULL;
    if (out && strcmp(from, to) != 0) {
        fprintf(out, "--- %s\n+++ %s\n", from_label, to_label);
        put_hunks(out, &d);
    }
    if (out && fclose(out) != 0) {
        free(text);
        text = NULL;
    }
    free(d.steps);
    free(d.longest);
    free(d.a);
    free(d.b);
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
