/* Writing replies of the Redis protocol, RESP2 or RESP3, into memory of the caller's. */
#ifndef WEIR_SERVICES_RESP_WRITE_H
#define WEIR_SERVICES_RESP_WRITE_H

#include <weir/weir.h>

struct weir__resp_out {
    char *at, *end;
    int version;   /* 2 or 3 */
    bool overflow; /* something did not fit; nothing more is written from then on */
};

void weir__resp_simple(struct weir__resp_out *out, const char *text); /* +text */
/* -text; what would end the line early becomes a blank, and what is longer than 512 bytes is cut. */
void weir__resp_error(struct weir__resp_out *out, const char *text, size_t len);
void weir__resp_number(struct weir__resp_out *out, int64_t value);
void weir__resp_bulk(struct weir__resp_out *out, const char *text, size_t len);
/* Text for people: RESP3 says so. */
void weir__resp_verbatim(struct weir__resp_out *out, const char *text, size_t len);
void weir__resp_null(struct weir__resp_out *out);
void weir__resp_array(struct weir__resp_out *out, size_t count);
/* So many pairs follow. In RESP2 an array of twice as many, as Redis does. */
void weir__resp_map(struct weir__resp_out *out, size_t pairs);
/* A set in RESP3, else an array. */
void weir__resp_set(struct weir__resp_out *out, size_t count);

/* For maps. */
void weir__resp_named_number(struct weir__resp_out *out, const char *name, int64_t value);
void weir__resp_named_text(struct weir__resp_out *out, const char *name, const char *value);

/* An array of five numbers: what CL.THROTTLE answers, so it is written at once. */
void weir__resp_five(struct weir__resp_out *out, const int64_t numbers[5]);

#endif
