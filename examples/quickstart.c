/* Three requests a minute, in one process: gcc quickstart.c $(pkg-config --cflags --libs weir) && ./a.out */
#include <weir/weir.h>

#include <stdio.h>

int main(void)
{
    weir_segment_options how = {.size = 1 << 20}; /* anonymous; give it a .path to share it between processes */
    weir_params three_a_minute = {.limit = 3, .window_ns = 60 * WEIR_SECOND};
    weir_segment *segment;
    weir_limit limit;
    int error, passed = 0;

    if ((error = weir_segment_open(&how, &segment)) || (error = weir_limit_init(&limit, &three_a_minute))) {
        fprintf(stderr, "%s: %s\n", weir_error_name(error), weir_strerror(error));
        return 1;
    }
    for (int i = 0; i < 5; i++) {
        weir_decision d;
        error = weir_take(segment, &limit, "user:42", 7, 1, weir_clock(segment), &d);
        if (error) {
            fprintf(stderr, "%s: %s\n", weir_error_name(error), weir_strerror(error));
            return 1;
        }
        passed += weir_passes(&d);
        if (weir_passes(&d))
            printf("request %d passes, %lld left\n", i + 1, (long long)d.remaining);
        else
            printf("request %d must wait %.1f s\n", i + 1, (double)d.retry_after_ns / 1e9);
    }
    printf("%d of 5 passed\n", passed);
    weir_segment_close(segment);
    return 0;
}
