/* Reads the algorithm of a limit and its parameters. One table lists which algorithms have each parameter. */
#include "rules/set.h"

#define LEASE_NS     (60 * WEIR_SECOND)
#define LEASE_MIN_NS (WEIR_SECOND / 10)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const algorithms[] = {"token_bucket",       "leaky_bucket",           "fixed_window",
                                         "sliding_window_log", "sliding_window_counter", "concurrency"};
static const char *const refills[] = {"continuous", "interval"};
static const char *const aligns[] = {"clock", "first_request"};
static const char *const rounds[] = {"down", "up"};

_Static_assert(COUNT(algorithms) == WEIR_CONCURRENCY + 1, "one word for each algorithm, in their order");

#define OF(algorithm) (1u << (algorithm))

/* Which algorithms have a parameter, as a set of bits. */
static const struct {
    const char *name;
    unsigned algorithms;
    const char *who;
} parameters[] = {
    {"burst", OF(WEIR_TOKEN_BUCKET) | OF(WEIR_LEAKY_BUCKET), "token_bucket and leaky_bucket"},
    {"refill", OF(WEIR_TOKEN_BUCKET), "token_bucket"},
    {"align", OF(WEIR_FIXED_WINDOW), "fixed_window"},
    {"timezone", OF(WEIR_FIXED_WINDOW), "fixed_window"},
    {"buckets", OF(WEIR_SLIDING_WINDOW_COUNTER), "sliding_window_counter"},
    {"round", OF(WEIR_SLIDING_WINDOW_COUNTER), "sliding_window_counter"},
    {"count_rejected", OF(WEIR_SLIDING_WINDOW_LOG), "sliding_window_log"},
    {"lease", OF(WEIR_CONCURRENCY), "concurrency"},
};

static const struct weir__node *field(const struct weir__limit_nodes *nodes, const char *name)
{
    const struct weir__node *node = weir__node_get(nodes->map, name);
    return node || !nodes->outer ? node : weir__node_get(nodes->outer, name);
}

static struct weir__place place_of(const struct weir__limit_nodes *nodes, const struct weir__node *node)
{
    return node ? node->place : nodes->map->place;
}

/* Its author meant something by a parameter that the algorithm does not have: refused rather than ignored. */
static bool check_parameters(struct weir__diagnostics *report, const struct weir__limit_nodes *nodes, int algorithm)
{
    bool good = true;
    for (size_t i = 0; i < COUNT(parameters); i++) {
        const struct weir__node *node = field(nodes, parameters[i].name);
        if (!node || (parameters[i].algorithms & OF(algorithm)))
            continue;
        good = weir__report_error(report, node->name->place, "%s is a parameter of %s, but the algorithm is %s%s",
                                  parameters[i].name, parameters[i].who, algorithms[algorithm],
                                  field(nodes, "algorithm") ? "" : ", the default");
    }
    return good;
}

/* Clock, calendar or first request; and the zone of the calendar. */
static bool read_align(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                       const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params)
{
    const struct weir__node *align = field(nodes, "align"), *timezone = field(nodes, "timezone");
    int word = 0;
    bool good = !align || weir__field_choice(builder->report, align, "align", aligns, COUNT(aligns), &word);
    if (word == 1)
        params->align = WEIR_ALIGN_FIRST_REQUEST;

    if (timezone && !window->calendar) {
        good = weir__report_error(builder->report, timezone->name->place,
                                  "timezone needs a window of exactly one day, week, month or year");
    } else if (timezone && params->align == WEIR_ALIGN_FIRST_REQUEST) {
        good = weir__report_error(builder->report, timezone->name->place,
                                  "timezone contradicts align: first_request, whose windows follow no calendar");
    }
    weir_text name;
    if (timezone && good) {
        good = weir__field_text(builder->report, timezone, "timezone", &name);
        params->zone = good ? weir__builder_zone(builder, timezone->place, name) : NULL;
        good = params->zone != NULL;
    }
    if (params->align == WEIR_ALIGN_CLOCK && window->calendar && (timezone || dialect == WEIR__NATIVE)) {
        params->align = WEIR_ALIGN_CALENDAR;
        params->calendar = window->unit;
    }
    return good;
}

static bool read_sliding(struct weir__diagnostics *report, const struct weir__limit_nodes *nodes, weir_params *params)
{
    const struct weir__node *buckets = field(nodes, "buckets"), *round = field(nodes, "round");
    int64_t count = 2;
    int word = 0;
    bool good = !buckets || weir__field_int(report, buckets, "buckets", 2, 60, &count);
    if (round && !weir__field_choice(report, round, "round", rounds, COUNT(rounds), &word))
        good = false;
    if (round && count > 2)
        good = weir__report_error(report, round->name->place,
                                  "round is for 2 buckets; with more of them nothing is rounded");
    params->buckets = (int)count;
    params->round = (enum weir_round)word;
    return good;
}

bool weir__algorithm_is_concurrency(const struct weir__limit_nodes *nodes)
{
    const struct weir__node *node = field(nodes, "algorithm");
    return node && node->kind == WEIR__SCALAR && weir__text_is(node->text, algorithms[WEIR_CONCURRENCY]);
}

/* How long a slot is held at most. */
static bool read_lease(struct weir__diagnostics *report, const struct weir__limit_nodes *nodes,
                       enum weir__dialect dialect, weir_params *params)
{
    const struct weir__node *lease = field(nodes, "lease");
    struct weir__parsed_window length = {.ns = LEASE_NS};
    if (dialect == WEIR__DESCRIPTORS)
        return weir__report_error(report, field(nodes, "algorithm")->place,
                                  "concurrency is not for descriptors: their protocol has no way to give a slot back");
    if (nodes->window)
        return weir__report_error(report, nodes->window->name->place,
                                  "window is not for concurrency; how long a slot is held at most is its lease");
    if (lease && !weir__field_window(report, lease, "lease", &length))
        return false;
    if (length.ns < LEASE_MIN_NS || length.ns > WEIR_DAY)
        return weir__report_error(report, lease->place, "lease is 100ms to 1d");
    params->window_ns = length.ns;
    return true;
}

bool weir__algorithm_read(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params)
{
    struct weir__diagnostics *report = builder->report;
    const struct weir__node *node = field(nodes, "algorithm");
    int word = dialect == WEIR__NATIVE ? WEIR_TOKEN_BUCKET : WEIR_FIXED_WINDOW;
    if (node && !weir__field_choice(report, node, "algorithm", algorithms, COUNT(algorithms), &word))
        return false; /* the other fields depend on it */
    params->algorithm = (enum weir_algorithm)word;
    params->window_ns = window->ns;

    bool good = true;
    if ((node = field(nodes, "soft")))
        good = weir__field_percent(report, node, "soft", &params->soft_percent);
    if (!check_parameters(report, nodes, word))
        return false;
    if ((node = field(nodes, "burst")))
        good &= weir__field_int(report, node, "burst", 1, UINT32_MAX, &params->burst);
    if ((node = field(nodes, "refill"))) {
        good &= weir__field_choice(report, node, "refill", refills, COUNT(refills), &word);
        params->refill = (enum weir_refill)word;
    }
    if ((node = field(nodes, "count_rejected")))
        good &= weir__field_bool(report, node, "count_rejected", &params->count_rejected);
    if (params->algorithm == WEIR_FIXED_WINDOW)
        good &= read_align(builder, nodes, window, dialect, params);
    if (params->algorithm == WEIR_SLIDING_WINDOW_COUNTER)
        good &= read_sliding(report, nodes, params);
    if (params->algorithm == WEIR_CONCURRENCY)
        good &= read_lease(report, nodes, dialect, params);
    return good;
}

bool weir__algorithm_make(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const weir_params *params, weir_limit *limit)
{
    int error = weir_limit_init(limit, params);
    if (error == 0)
        return true;

    const struct weir__node *burst = field(nodes, "burst"), *blamed = nodes->limit;
    if (error == WEIR_EWINDOW)
        blamed = nodes->window;
    else if (error == WEIR_EBURST || (error == WEIR_EOVERFLOW && burst))
        blamed = burst;
    else if (error == WEIR_EBUCKETS)
        blamed = field(nodes, "buckets");
    else if (error == WEIR_ESOFT)
        blamed = field(nodes, "soft");
    return weir__report_error(builder->report, place_of(nodes, blamed), "%s", weir_strerror(error));
}

int64_t weir__algorithm_window_ns(const weir_params *params)
{
    static const int64_t days[] = {
        [WEIR_CALENDAR_DAY] = 1, [WEIR_CALENDAR_WEEK] = 7, [WEIR_CALENDAR_MONTH] = 31, [WEIR_CALENDAR_YEAR] = 366};
    return params->align == WEIR_ALIGN_CALENDAR ? days[params->calendar] * WEIR_DAY : params->window_ns;
}
