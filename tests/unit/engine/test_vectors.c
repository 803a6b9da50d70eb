/* Every line of the worked examples, through the public API: one by one, and in batches. */
#include <weir/weir.h>

#include "../../test.h"

#define NOT_GIVEN INT64_MIN

struct vector_step {
    int64_t at_ns, repeat, cost, allow, remaining;
};

struct vector {
    const char *name;
    weir_params params;
    int steps;
    struct vector_step step[8];
};

#include "vectors.h"

/* t = 0 of the examples: a boundary of every window in them, on both clocks, and not zero. */
#define START (WEIR_DAY * 20000)

static void play(const struct vector *vector, bool batched)
{
    weir_segment_options options = {.size = 1 << 20};
    weir_segment *segment;
    weir_limit limit;
    int before = test_failures;

    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    CHECK_EQ(weir_limit_init(&limit, &vector->params), 0);
    for (int i = 0; i < vector->steps; i++) {
        const struct vector_step *step = &vector->step[i];
        weir_time now = {START + step->at_ns, START + step->at_ns};
        weir_request requests[256];
        int64_t allowed = 0, remaining = NOT_GIVEN;
        for (int64_t k = 0; k < step->repeat; k++) {
            requests[k] = (weir_request){.limit = &limit, .key = "k", .key_len = 1, .cost = step->cost};
            weir_decision *d = &requests[k].decision;
            if (!batched)
                CHECK_EQ(weir_take(segment, &limit, "k", 1, step->cost, now, d), 0);
        }
        if (batched)
            CHECK_EQ(weir_take_batch(segment, requests, (size_t)step->repeat, now), 0);
        for (int64_t k = 0; k < step->repeat; k++) {
            allowed += weir_passes(&requests[k].decision);
            /* Nothing passes after the first denial. */
            CHECK_EQ(weir_passes(&requests[k].decision), k < step->allow);
            remaining = requests[k].decision.remaining;
        }
        CHECK_EQ(allowed, step->allow);
        if (step->remaining != NOT_GIVEN)
            CHECK_EQ(remaining, step->remaining);
    }
    weir_segment_close(segment);
    if (test_failures != before)
        printf("  in the example \"%s\"\n", vector->name);
}

TEST(worked_examples)
{
    int count = (int)(sizeof vectors / sizeof *vectors);
    CHECK(count >= 16);
    for (int i = 0; i < count; i++)
        play(&vectors[i], false);
}

TEST(worked_examples_in_batches)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        play(&vectors[i], true);
}

TEST_MAIN
