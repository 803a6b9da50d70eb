/* What weir.yaml says of the store, as one URL for the library. */
#ifndef WEIR_CONFIG_STORE_URL_H
#define WEIR_CONFIG_STORE_URL_H

#include "config/config.h"

/* With all settings, secrets among them. False, and why: it is too long, or password_file cannot be read. */
bool weir__store_url(const struct weir__store *store, char *to, size_t size, char *why, size_t why_size);
/* What rules are that say nothing. */
enum weir_consistency weir__store_consistency(const struct weir__store *store);

#endif
