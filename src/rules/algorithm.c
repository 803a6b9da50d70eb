/* Reads the algorithm of a limit and its parameters. One table lists which algorithms have each parameter. */
#include "rules/set.h"

#define LEASE_NS     (60 * WEIR_SECOND)
#define LEASE_MIN_NS (WEIR_SECOND / 10)

static const char *const algorithms[] = {"token_bucket",
                                         "leaky_bucket",
                                         "fixed_window",
                                         "sliding_window_log",
                                         "sliding_window_counter",
                                         "concurrency",
                                         NULL};
static const char *const refills[] = {"continuous", "interval", NULL};
static const char *const aligns[] = {"clock", "first_request", NULL};
static const char *const rounds[] = {"down", "up", NULL};

_Static_assert(WEIR__COUNT(algorithms) == WEIR_CONCURRENCY + 2, "one word for each algorithm, in their order");

#define OF(algorithm) (1u << (algorithm))
#define IN(member)    WEIR__IN(weir_params, member)

/* The parameters, and which algorithms have them, as a set of bits. read_align and read_lease read those to skip. */
static const struct {
    unsigned algorithms;
    const char *who;
    struct weir__field field;
} parameters[] = {
    {~0U, "all", {"soft", WEIR__FIELD_PERCENT, IN(soft_percent)}},
    {OF(WEIR_TOKEN_BUCKET) | OF(WEIR_LEAKY_BUCKET),
     "token_bucket and leaky_bucket",
     {"burst", WEIR__FIELD_INT, IN(burst), .min = 1, .max = UINT32_MAX}},
    {OF(WEIR_TOKEN_BUCKET), "token_bucket", {"refill", WEIR__FIELD_CHOICE, IN(refill), .choices = refills}},
    {OF(WEIR_FIXED_WINDOW), "fixed_window", {"align", WEIR__FIELD_CHOICE, IN(align), .choices = aligns}},
    {OF(WEIR_FIXED_WINDOW), "fixed_window", {.name = "timezone"}},
    {OF(WEIR_SLIDING_WINDOW_COUNTER),
     "sliding_window_counter",
     {"buckets", WEIR__FIELD_INT, IN(buckets), .min = 2, .max = 60}},
    {OF(WEIR_SLIDING_WINDOW_COUNTER),
     "sliding_window_counter",
     {"round", WEIR__FIELD_CHOICE, IN(round), .choices = rounds}},
    {OF(WEIR_SLIDING_WINDOW_LOG), "sliding_window_log", {"count_rejected", WEIR__FIELD_BOOL, IN(count_rejected)}},
    {OF(WEIR_CONCURRENCY), "concurrency", {.name = "lease"}},
};

static const struct weir__node *field(const struct weir__limit_nodes *nodes, const char *name)
{
    const struct weir__node *node = weir__node_get(nodes->map, name);
    return node || !nodes->outer ? node : weir__node_get(nodes->outer, name);
}

/* Its author meant something by a parameter that the algorithm does not have: refused rather than ignored. */
static bool check_parameters(const struct weir__limit_nodes *nodes, int algorithm)
{
    bool good = true;
    for (size_t i = 0; i < WEIR__COUNT(parameters); i++) {
        const struct weir__node *node = field(nodes, parameters[i].field.name);
        if (node && !(parameters[i].algorithms & OF(algorithm)))
            good = weir__node_error(node->name, "%s is a parameter of %s, but the algorithm is %s%s",
                                    parameters[i].field.name, parameters[i].who, algorithms[algorithm],
                                    field(nodes, "algorithm") ? "" : ", the default");
    }
    return good;
}

/* Clock, calendar or first request; and the zone of the calendar. */
static bool read_align(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                       const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params)
{
    const struct weir__node *timezone = field(nodes, "timezone");
    weir_text name;
    if (timezone && !window->calendar)
        return weir__node_error(timezone->name, "timezone needs a window of exactly one day, week, month or year");
    if (timezone && params->align == WEIR_ALIGN_FIRST_REQUEST)
        return weir__node_error(timezone->name,
                                "timezone contradicts align: first_request, whose windows follow no calendar");
    if (timezone) {
        if (!weir__field_text(timezone, "timezone", &name))
            return false;
        params->zone = weir__builder_zone(builder, timezone, name);
        if (!params->zone)
            return false;
    }
    if (params->align == WEIR_ALIGN_CLOCK && window->calendar && (timezone || dialect == WEIR__NATIVE)) {
        params->align = WEIR_ALIGN_CALENDAR;
        params->calendar = window->unit;
    }
    return true;
}

bool weir__algorithm_is_concurrency(const struct weir__limit_nodes *nodes)
{
    const struct weir__node *node = field(nodes, "algorithm");
    return node && node->kind == WEIR__SCALAR && weir__text_is(node->text, algorithms[WEIR_CONCURRENCY]);
}

/* How long a slot is held at most. */
static bool read_lease(const struct weir__limit_nodes *nodes, enum weir__dialect dialect, weir_params *params)
{
    const struct weir__node *lease = field(nodes, "lease");
    struct weir__parsed_window length = {.ns = LEASE_NS};
    if (dialect == WEIR__DESCRIPTORS)
        return weir__node_error(field(nodes, "algorithm"),
                                "concurrency is not for descriptors: their protocol has no way to give a slot back");
    if (nodes->window)
        return weir__node_error(nodes->window->name,
                                "window is not for concurrency; how long a slot is held at most is its lease");
    if (lease && !weir__field_window(lease, "lease", &length))
        return false;
    if (length.ns < LEASE_MIN_NS || length.ns > WEIR_DAY)
        return weir__node_error(lease, "lease is 100ms to 1d");
    params->window_ns = length.ns;
    return true;
}

bool weir__algorithm_read(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params)
{
    const struct weir__node *node = field(nodes, "algorithm");
    int word = dialect == WEIR__NATIVE ? WEIR_TOKEN_BUCKET : WEIR_FIXED_WINDOW;
    if (node && !weir__field_choice(node, "algorithm", algorithms, &word))
        return false; /* the other fields depend on it */
    params->algorithm = (enum weir_algorithm)word;
    params->window_ns = window->ns;
    params->buckets = params->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? 2 : 0;

    bool good = true;
    if (!check_parameters(nodes, word))
        return false;
    for (size_t i = 0; i < WEIR__COUNT(parameters); i++)
        if ((node = field(nodes, parameters[i].field.name)))
            good &= weir__field_read(&parameters[i].field, node, params, NULL);
    if (params->algorithm == WEIR_FIXED_WINDOW)
        good &= read_align(builder, nodes, window, dialect, params);
    if (params->algorithm == WEIR_CONCURRENCY)
        good &= read_lease(nodes, dialect, params);
    if (params->buckets > 2 && (node = field(nodes, "round")))
        good = weir__node_error(node->name, "round is for 2 buckets; with more of them nothing is rounded");
    return good;
}

bool weir__algorithm_make(const struct weir__limit_nodes *nodes, const weir_params *params, weir_limit *limit)
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
    return weir__node_error(blamed ? blamed : nodes->map, "%s", weir_strerror(error));
}

int64_t weir__algorithm_window_ns(const weir_params *params)
{
    static const int64_t days[] = {
        [WEIR_CALENDAR_DAY] = 1, [WEIR_CALENDAR_WEEK] = 7, [WEIR_CALENDAR_MONTH] = 31, [WEIR_CALENDAR_YEAR] = 366};
    return params->align == WEIR_ALIGN_CALENDAR ? days[params->calendar] * WEIR_DAY : params->window_ns;
}
