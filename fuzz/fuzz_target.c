/*
 * Targets, cookies and arguments: for any input a path is absolute, resolved and within its buffer, and a found value
 * lies inside of the searched text. The first byte selects the size of the buffer.
 */
#include "rules/target.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_inside(weir_text piece, weir_text whole)
{
    check(piece.len == 0 || (piece.data >= whole.data && piece.data + piece.len <= whole.data + whole.len));
}

/* No empty, "." or ".." segments; only the last one may be empty. */
static void check_path(weir_text path)
{
    check(path.len > 0);
    if (path.len == 1 && path.data[0] == '*')
        return;
    check(path.data[0] == '/');
    for (size_t at = 1; at < path.len;) {
        const char *slash = memchr(path.data + at, '/', path.len - at);
        weir_text segment = {path.data + at, slash ? (size_t)(slash - path.data) - at : path.len - at};
        check(segment.len > 0 && !weir__text_is(segment, ".") && !weir__text_is(segment, ".."));
        at += segment.len + 1;
    }
}

static void check_target(weir_text target, size_t room)
{
    static char whole[1 << 20];
    char *path = malloc(room);
    bool cut;

    check(path != NULL);
    size_t len = weir__target_normalise(target, path, room, &cut);
    check(len <= room);
    check_path((weir_text){path, len});
    check_inside(weir__target_query(target), target);
    if (target.len < sizeof whole) {
        /* With all the room it needs, it begins the same; only dots that cutting left over were dropped. */
        size_t all = weir__target_normalise(target, whole, target.len + 1, &cut);
        check(len <= all && memcmp(path, whole, len) == 0 && len + 2 >= (all < room ? all : room));
    }
    free(path);
}

static void check_found(weir_text text)
{
    const char *newline = text.len > 0 ? memchr(text.data, '\n', text.len) : NULL;
    weir_text name = {text.data, newline ? (size_t)(newline - text.data) : 0}, value, rest = text, all[4];

    if (newline)
        rest = (weir_text){newline + 1, text.len - name.len - 1};
    size_t found = weir__cookie_find(rest, name, &value, 1), count = weir__cookie_find(rest, name, all, 4);
    check(found <= 2 && count <= 5 && found == (count < 2 ? count : 2));
    for (size_t i = 0; i < count && i < 4; i++)
        check_inside(all[i], rest);
    found = weir__argument_find(rest, name, &value, 1);
    count = weir__argument_find(rest, name, all, 4);
    check(found <= 2 && count <= 5 && found == (count < 2 ? count : 2));
    if (!found)
        return;
    check_inside(value, rest);
    char *decoded = malloc(value.len + 1);
    check(decoded != NULL);
    size_t len = weir__argument_decode(value, decoded, value.len, &(bool){false});
    check(len <= value.len);
    if (weir__argument_is_plain(value))
        check(len == value.len && (len == 0 || memcmp(decoded, value.data, len) == 0));
    free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    weir_text text = {(const char *)data + 1, size - 1};

    check_target(text, 1 + data[0]);
    check_found(text);
    return 0;
}
