/* The words for the library's enums. */
#ifndef WEIR_CLI_NAMES_H
#define WEIR_CLI_NAMES_H

#include <weir/weir.h>

/* As in rules: "token_bucket". */
const char *weir__algorithm_name(enum weir_algorithm algorithm);
/* "allow", "delay" or "deny". */
const char *weir__verdict_name(enum weir_verdict verdict);
/* True for a limit of requests in flight, whose retry time is unknown. */
bool weir__is_in_flight(const weir_outcome *outcome);
/* One word for why: "limit", "no_rule", "block_list" … */
const char *weir__reason_name(const weir_outcome *outcome);
/* The same as a sentence's part for people. */
const char *weir__reason_text(const weir_outcome *outcome);
/* "Too Many Requests"; "" for a status without a usual phrase. */
const char *weir__status_phrase(int status);

#endif
