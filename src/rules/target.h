/* Request targets, query strings and cookies: finding and decoding what rules ask about. */
#ifndef WEIR_RULES_TARGET_H
#define WEIR_RULES_TARGET_H

#include "rules/text.h"

/*
 * A raw request target into a path and a query: the query is cut off (and a fragment), "%xx" decoded, an absolute
 * form's scheme and authority dropped, "//" merged, "." and ".." resolved, as nginx does. The path begins with '/', or
 * is "*". One that is too long for the buffer is cut, after it was resolved; what does not decode stays as it is.
 * Returns the path's length. path_size is at least 1; `query` may be NULL.
 */
size_t weir__target_normalise(weir_text target, char *path, size_t path_size, weir_text *query);
/* Only the raw query. */
weir_text weir__target_query(weir_text target);

/* The first cookie of this name (letters in this case) in a Cookie header; its value without quotes around it. */
bool weir__cookie_find(weir_text header, weir_text name, weir_text *value);

/* The first argument of this name (which may be encoded in the query), as it stands there. */
bool weir__argument_find(weir_text query, weir_text name, weir_text *raw);
/* True if decoding would not change it. */
bool weir__argument_is_plain(weir_text raw);
/* Decodes "%xx" and '+' into a buffer of `size` bytes; what does not fit is left out. Returns the length. */
size_t weir__argument_decode(weir_text raw, char *to, size_t size);

#endif
