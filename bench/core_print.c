/* Output: a table for people, or one JSON object a line. */
#include "core.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void weir__bench_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fputs("weir bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* 38123456 as "38.1 M". */
static void friendly(double value, char *out, size_t size)
{
    static const char *const unit[] = {"", " k", " M", " G"};
    int i = 0;
    for (; i < 3 && value >= 999.5; i++)
        value /= 1000;
    int decimals = value == floor(value) ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
    snprintf(out, size, "%.*f%s", decimals, value, unit[i]);
}

static bool holds(const struct weir__bench_result *r)
{
    return !r->unsound && (r->sense == WEIR__BENCH_AT_LEAST ? r->value >= r->bar : r->value <= r->bar);
}

void weir__bench_print_head(bool json)
{
    if (!json)
        printf("%-27s %-26s %7s %7s  %-12s %8s %-12s%s\n", "case", "algorithm", "keys", "threads", "distribution",
               "value", "unit", " bar");
}

static void print_json(const struct weir__bench_result *r)
{
    printf("{\"bench\":\"core\",\"case\":\"%s\",\"algorithm\":\"%s\",\"keys\":%llu,\"threads\":%d,"
           "\"distribution\":\"%s\",\"value\":%.10g,\"unit\":\"%s\"",
           r->name, r->algorithm, (unsigned long long)r->keys, r->threads, r->distribution,
           r->value >= 1000 ? round(r->value) : round(r->value * 1e4) / 1e4, r->unit);
    if (r->sense)
        printf(",\"bar\":%.10g,%s\"holds\":%s", r->bar, r->sense == WEIR__BENCH_AT_MOST ? "\"most\":true," : "",
               holds(r) ? "true" : "false");
    printf("}\n");
}

void weir__bench_print(bool json, const struct weir__bench_result *r)
{
    if (json) {
        print_json(r);
    } else {
        char keys[32], value[32], bar[64] = "";
        friendly((double)r->keys, keys, sizeof keys);
        friendly(r->value, value, sizeof value);
        printf("%-27s %-26s %7s %7d  %-12s %8s %-*s", r->name, r->algorithm, keys, r->threads, r->distribution, value,
               r->sense ? 12 : 0, r->unit); /* no spaces at the end of a line */
        if (r->sense) {
            friendly(r->bar, bar, sizeof bar);
            printf(" %s %s: %s", r->sense == WEIR__BENCH_AT_LEAST ? "at least" : "at most", bar,
                   holds(r) ? "holds" : "MISSED");
        }
        putchar('\n');
    }
    fflush(stdout);
}
