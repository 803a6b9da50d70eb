/*
 * Writes a tree of nodes as YAML in block style. Plain scalars stay plain: to weir, absent and "absent" differ. See
 * yaml.h.
 */
#include "rules/yaml.h"

#include <stdio.h>
#include <stdlib.h>

static void put_quoted(FILE *to, weir_text text)
{
    fputc('"', to);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        size_t line_break = c < 0x80 ? 0 : weir__line_break(text.data + i, text.len - i);
        if (c == '"' || c == '\\') {
            fprintf(to, "\\%c", c);
        } else if (line_break) { /* those of Unicode, which YAML also has: two bytes or three */
            fputs(line_break == 2 ? "\\N" : text.data[i + 2] == '\xa8' ? "\\L" : "\\P", to);
            i += line_break - 1;
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(to, "\\x%02x", c);
        } else {
            fputc(c, to);
        }
    }
    fputc('"', to);
}

static void put_scalar(FILE *to, const struct weir__node *node)
{
    /* A plain scalar over several lines was folded; its remaining line breaks need quotes. */
    if (node->quoted || memchr(node->text.data, '\n', node->text.len))
        put_quoted(to, node->text);
    else
        fwrite(node->text.data, 1, node->text.len, to);
}

/* The reader bounds the depth of a tree. `begun`: the first member continues the current line. */
static void put_members(FILE *to, const struct weir__node *node, int indent, const char *skip, bool begun)
{
    for (const struct weir__node *member = node->first; member; member = member->next) {
        bool map = node->kind == WEIR__MAP;
        if (skip && map && weir__text_is(member->name->text, skip))
            continue;
        fprintf(to, "%*s", begun ? 0 : indent, "");
        begun = false;
        if (map)
            put_scalar(to, member->name); /* plain keys stay plain */
        fputc(map ? ':' : '-', to);
        if (member->kind == WEIR__SCALAR) {
            fputc(' ', to);
            put_scalar(to, member);
            fputc('\n', to);
        } else if (!member->first) {
            fputs(member->kind == WEIR__MAP ? " {}\n" : " []\n", to);
        } else {
            bool item = !map && member->kind == WEIR__MAP;
            fputc(item ? ' ' : '\n', to);
            put_members(to, member, indent + 2, NULL, item);
        }
    }
}

char *weir__yaml_write(const struct weir__node *map, const char *skip)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    if (!to)
        return NULL;
    put_members(to, map, 0, skip, false);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
