/* Small files beside the segment that the agent replaces every few seconds, for workers of another user and commands.
 */
#ifndef WEIR_AGENT_BESIDE_H
#define WEIR_AGENT_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whoever reads it sees the old one or the new one; after a loss of power perhaps neither, and nobody minds. Everybody
 * may read it: it must hold no keys. False: errno says why.
 */
bool weir__beside_write(const char *path, const char *text, size_t len);

#endif
