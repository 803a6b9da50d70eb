/*
 * The memory of JSON. A body is a dozen little pieces that all go together when it is answered, so they come from one
 * piece that is there already, and giving one back is nothing. What does not fit is the C library's.
 */
#ifndef WEIR_SERVICES_HTTP_MEMORY_H
#define WEIR_SERVICES_HTTP_MEMORY_H

/* From now on jansson asks here; for all of the process, of which only one thread may be between begin and end. */
void weir__api_memory_use(void);
/* What is allocated between these two must be freed between them. */
void weir__api_memory_begin(void);
void weir__api_memory_end(void);

#endif
