/* A segment in plain memory, and limits on it. */
#ifndef WEIR_TEST_SEGMENTS_H
#define WEIR_TEST_SEGMENTS_H

#include <weir/weir.h>

#include "../../test.h"

#define NOW          ((weir_time){WEIR_DAY * 20000, WEIR_DAY * 20000})
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline weir_segment *make(void)
{
    weir_segment *segment = NULL;
    weir_segment_options options = {.size = 1 << 20};
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    return segment;
}

static inline weir_limit limit_of(weir_params params)
{
    weir_limit limit = {0};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

#endif
