/* YAML nodes as JSON. See yaml.h. */
#include "rules/yaml.h"
#include "base/json_writer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static size_t digits_at(weir_text text, size_t i)
{
    size_t from = i;
    while (i < text.len && text.data[i] >= '0' && text.data[i] <= '9')
        i++;
    return i - from;
}

/* As in JSON: no plus, no leading zeros, digits on both sides of the point. */
static bool is_number(weir_text text)
{
    size_t i = text.len && text.data[0] == '-', n = digits_at(text, i);
    if (n == 0 || (n > 1 && text.data[i] == '0'))
        return false;
    i += n;
    if (i < text.len && text.data[i] == '.') {
        if ((n = digits_at(text, i + 1)) == 0)
            return false;
        i += 1 + n;
    }
    if (i < text.len && (text.data[i] == 'e' || text.data[i] == 'E')) {
        i++;
        if (i < text.len && (text.data[i] == '+' || text.data[i] == '-'))
            i++;
        if ((n = digits_at(text, i)) == 0)
            return false;
        i += n;
    }
    return i == text.len;
}

static bool is_one_of(weir_text text, const char *const *choices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (weir__text_is(text, choices[i]))
            return true;
    return false;
}

static void put_scalar(struct weir__buffer *w, const struct weir__node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const yes[] = {"true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"};
    static const char *const no[] = {"false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"};
    if (node->quoted)
        weir__json_add_string(w, node->text);
    else if (is_number(node->text))
        weir__buffer_add(w, node->text.data, node->text.len);
    else if (is_one_of(node->text, nulls, COUNT(nulls)))
        weir__buffer_add(w, "null", 4);
    else if (is_one_of(node->text, yes, COUNT(yes)))
        weir__buffer_add(w, "true", 4);
    else if (is_one_of(node->text, no, COUNT(no)))
        weir__buffer_add(w, "false", 5);
    else
        weir__json_add_string(w, node->text);
}

/* Depth first, with a stack of those that are still open: as deep as the reader lets YAML be. */
static void put_node(struct weir__buffer *w, const struct weir__node *node)
{
    enum { DEPTH_MAX = WEIR__YAML_DEPTH + 1 };
    const struct weir__node *open[DEPTH_MAX];
    size_t depth = 0;

    while (node) {
        if (node->name && depth) { /* that of the first one belongs to the map around it */
            weir__json_add_string(w, node->name->text);
            weir__buffer_add(w, ":", 1);
        }
        if (node->kind != WEIR__SCALAR && node->first && depth < DEPTH_MAX) {
            weir__buffer_add(w, node->kind == WEIR__MAP ? "{" : "[", 1);
            open[depth++] = node;
            node = node->first;
            continue;
        }
        if (node->kind == WEIR__SCALAR)
            put_scalar(w, node);
        else
            weir__buffer_add(w, node->kind == WEIR__MAP ? "{}" : "[]", 2);
        while (depth && !node->next) { /* the last one: those that it ends are closed */
            node = open[--depth];
            weir__buffer_add(w, node->kind == WEIR__MAP ? "}" : "]", 1);
        }
        if (depth)
            weir__buffer_add(w, ",", 1);
        node = depth ? node->next : NULL;
    }
}

weir_text weir__node_json(struct weir__arena *arena, const struct weir__node *node)
{
    struct weir__buffer w = {0};
    put_node(&w, node);
    arena->failed |= w.failed;
    weir_text json = w.failed ? (weir_text){NULL, 0} : weir__arena_copy(arena, (weir_text){w.data, w.len});
    weir__buffer_free(&w);
    return json;
}
