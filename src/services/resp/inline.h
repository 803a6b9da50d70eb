/* Inline commands: a line of words. */
#ifndef WEIR_SERVICES_RESP_INLINE_H
#define WEIR_SERVICES_RESP_INLINE_H

#include "services/resp/parse.h"

/* As weir__resp_parse, for data that does not begin with '*'. */
enum weir__resp_result weir__resp_inline(char *data, size_t len, bool unauthenticated,
                                         struct weir__resp_command *command);
/* Notes why; returns WEIR__RESP_INVALID. */
enum weir__resp_result weir__resp_invalid(struct weir__resp_command *command, const char *why);

#endif
