/* The agent's whole process: the exchange with the store, and what the threads keeps. */
#ifndef WEIR_SERVE_AGENT_MAIN_H
#define WEIR_SERVE_AGENT_MAIN_H

#include "sync/exchange.h"

/* Runs until told to end, as weir__exchange_run does. For configurations that weir__agent_needed is true of. */
enum weir__exchange_end weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals,
                                        const struct weir__exchange_watch *watch);

#endif
