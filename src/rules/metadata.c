/* YAML nodes as JSON: measured first, then written, by the same code. See yaml.h. */
#include "rules/yaml.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct metadata_writer {
    char *to; /* NULL: only count */
    size_t len;
};

static void put(struct metadata_writer *w, const char *bytes, size_t len)
{
    if (w->to && len)
        memcpy(w->to + w->len, bytes, len);
    w->len += len;
}

static void put_string(struct metadata_writer *w, weir_text text)
{
    static const char digits[] = "0123456789abcdef";
    put(w, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            put(w, (char[]){'\\', (char)c}, 2);
        else if (c < 0x20)
            put(w, (char[]){'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]}, 6);
        else
            put(w, (const char *)&text.data[i], 1);
    }
    put(w, "\"", 1);
}

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

static void put_scalar(struct metadata_writer *w, const struct weir__node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const yes[] = {"true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"};
    static const char *const no[] = {"false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"};
    if (node->quoted)
        put_string(w, node->text);
    else if (is_number(node->text))
        put(w, node->text.data, node->text.len);
    else if (is_one_of(node->text, nulls, COUNT(nulls)))
        put(w, "null", 4);
    else if (is_one_of(node->text, yes, COUNT(yes)))
        put(w, "true", 4);
    else if (is_one_of(node->text, no, COUNT(no)))
        put(w, "false", 5);
    else
        put_string(w, node->text);
}

/* Depth first, with a stack of those that are still open: as deep as the reader lets YAML be. */
static void put_node(struct metadata_writer *w, const struct weir__node *node)
{
    enum { DEPTH_MAX = WEIR__YAML_DEPTH + 1 };
    const struct weir__node *open[DEPTH_MAX];
    size_t depth = 0;

    while (node) {
        if (node->name && depth) { /* that of the first one belongs to the map around it */
            put_string(w, node->name->text);
            put(w, ":", 1);
        }
        if (node->kind != WEIR__SCALAR && node->first && depth < DEPTH_MAX) {
            put(w, node->kind == WEIR__MAP ? "{" : "[", 1);
            open[depth++] = node;
            node = node->first;
            continue;
        }
        if (node->kind == WEIR__SCALAR)
            put_scalar(w, node);
        else
            put(w, node->kind == WEIR__MAP ? "{}" : "[]", 2);
        while (depth && !node->next) { /* the last one: those that it ends are closed */
            node = open[--depth];
            put(w, node->kind == WEIR__MAP ? "}" : "]", 1);
        }
        if (depth)
            put(w, ",", 1);
        node = depth ? node->next : NULL;
    }
}

weir_text weir__node_json(struct weir__arena *arena, const struct weir__node *node)
{
    struct metadata_writer w = {NULL, 0};
    put_node(&w, node);
    if (!(w.to = weir__arena_take(arena, w.len + 1)))
        return (weir_text){NULL, 0};
    w.len = 0;
    put_node(&w, node);
    return (weir_text){w.to, w.len};
}
