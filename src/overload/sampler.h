/*
 * The agent's part of the load level: reads the signals, runs the control laws, writes the load page. One writes a
 * page at a time; another agent of the same segment stands by.
 */
#ifndef WEIR_OVERLOAD_SAMPLER_H
#define WEIR_OVERLOAD_SAMPLER_H

#include "config/config.h"
#include "base/log.h"

#define WEIR__LOAD_SAMPLE_MS 100 /* between two turns */

struct weir__load_sampler;

/* NULL: the engine has no load page, or there is no memory. The engine and the others must stay. */
struct weir__load_sampler *weir__load_sampler_open(const struct weir__config *config, weir *engine,
                                                   const struct weir__logger *log);
void weir__load_sampler_step(struct weir__load_sampler *sampler);
void weir__load_sampler_close(struct weir__load_sampler *sampler);

#endif
