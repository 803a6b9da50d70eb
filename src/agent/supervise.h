/* Looking after nginx: starting, reloading, stopping, and saying what it says. */
#ifndef WEIR_AGENT_SUPERVISE_H
#define WEIR_AGENT_SUPERVISE_H

#include "agent/plan.h"

/* Runs until told to end. Takes the plan, which has been tried in the folder. Returns the exit code. */
int weir__supervise(struct weir__plan *plan, const struct weir__nginx *nginx, const struct weir__private *folder,
                    struct weir__journal *journal, int signals);

#endif
