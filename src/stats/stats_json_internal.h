/* What the files of the figures share. */
#ifndef WEIR_STATS_STATS_JSON_INTERNAL_H
#define WEIR_STATS_STATS_JSON_INTERNAL_H

#include "stats/stats_json.h"

#include <jansson.h>

/* Texts come from outside: what is no UTF-8 is shown by its bytes. */
json_t *weir__stats_json_text(const char *data, size_t len);
/* Null, if they are not known. */
json_t *weir__stats_json_rates(const struct weir__rates *rates);
/* {"fleet": …, "hosts": […]}. NULL: no memory. */
json_t *weir__stats_json_membership(const struct weir__membership *membership);
/* Takes `root` over, which becomes the text if all is `good`. */
int weir__stats_json_finish(json_t *root, bool good, char **json);

#endif
