/* Words that look alike: which one was meant by a misspelt one. */
#ifndef WEIR_BASE_SUGGEST_H
#define WEIR_BASE_SUGGEST_H

#include "base/text.h"

#define WEIR__SUGGEST_MAX 64 /* nothing is suggested for, nor from, a longer one */

/*
 * How many letters must be put in, left out, replaced or swapped with their neighbour to make b of a, in any case of
 * letters; no letter twice. More than `max`: max + 1.
 */
size_t weir__edit_distance(weir_text a, weir_text b, size_t max);

/* The word that is nearest, if no more than a third of the letters (but at least one) differ; or NULL. */
const char *weir__suggest(weir_text word, const char *const *candidates, size_t count);

#endif
