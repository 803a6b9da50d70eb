/*
 * The load sampler of the agent: samples the kernel and the workers ten times a second, runs the controller and writes
 * the load page. Of several agents of a segment one writes; the others wait for its lock.
 */
#ifndef WEIR_OVERLOAD_SAMPLER_H
#define WEIR_OVERLOAD_SAMPLER_H

#include "config/config.h"
#include "base/log.h"

#define WEIR__LOAD_SAMPLE_MS 100 /* between two steps */

struct weir__load_sampler;

/* NULL: the engine has no load page, or memory is exhausted. All arguments must outlive the sampler. */
struct weir__load_sampler *weir__load_sampler_open(const struct weir__config *config, weir *engine,
                                                   const struct weir__logger *log);
void weir__load_sampler_step(struct weir__load_sampler *sampler);
void weir__load_sampler_close(struct weir__load_sampler *sampler);

#endif
