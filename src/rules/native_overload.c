/* Native rules: elastic, adaptive, reserve and priority. */
#include "algo/arith.h"
#include "algo/algo.h"
#include "rules/native.h"

#define FULL_PER_MILLE 1000
#define ELASTIC_RANGE  100 /* per mille of load: below `while` an elastic limit grows to up_to over this range */

/* ---- Scale ---- */

int64_t weir__overload_scale(const struct weir__overload_policy *policy, uint32_t level, uint32_t throttle)
{
    int64_t shrunk = 100 * FULL_PER_MILLE, stretched = 100 * ELASTIC_RANGE;
    if (throttle > FULL_PER_MILLE)
        throttle = FULL_PER_MILLE;
    if (policy->max)
        shrunk = (int64_t)policy->min * FULL_PER_MILLE + (int64_t)(policy->max - policy->min) * throttle;
    /* A limit that is both is stretched only while the throttle is full. */
    if (policy->up_to && !(policy->max && throttle < FULL_PER_MILLE)) {
        int64_t room = (int64_t)policy->below * 10 - (int64_t)level;
        stretched += (policy->up_to - 100) * (room < 0 ? 0 : room > ELASTIC_RANGE ? ELASTIC_RANGE : room);
    }
    return shrunk *
           stretched; /* per cent × per mille × per cent × ELASTIC_RANGE: WEIR__SCALE_ONE is all of them at 100 % */
}

_Static_assert(INT64_C(100) * FULL_PER_MILLE * 100 * ELASTIC_RANGE == WEIR__SCALE_ONE,
               "weir__overload_scale returns a scale");

/* ---- Parsing ---- */

static bool read_share(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int least,
                       int most, int *value)
{
    if (!weir__field_percent(report, node, what, value))
        return false;
    if (*value >= least && *value <= most)
        return true;
    weir__report_error(report, node->place, "%s is %d%% to %d%%, not %d%%", what, least, most, *value);
    return false;
}

static void read_elastic(struct weir__diagnostics *report, const struct weir__node *node,
                         struct weir__overload_policy *to)
{
    static const char *const names[] = {"up_to", "while"};
    const struct weir__node *at[2];
    int up_to = 0, below = 70;
    if (!weir__native_pick(report, node, "elastic", names, WEIR__COUNT(names), at))
        return;
    if (!at[0])
        weir__report_error(report, node->place,
                           "up_to is missing: how much may the limit grow, in per cent of the limit?");
    else if (read_share(report, at[0], "up_to", 101, WEIR__PERCENT_MAX, &up_to) &&
             (!at[1] || read_share(report, at[1], "while", 1, 100, &below))) {
        to->up_to = (uint16_t)up_to;
        to->below = (uint16_t)below;
    }
}

static void read_adaptive(struct weir__diagnostics *report, const struct weir__node *node,
                          struct weir__overload_policy *to)
{
    static const char *const names[] = {"min", "max"};
    const struct weir__node *at[2];
    int min = 0, max = 100;
    if (!weir__native_pick(report, node, "adaptive", names, WEIR__COUNT(names), at))
        return;
    if (!at[0])
        weir__report_error(report, node->place, "min is missing: the limit under overload, in per cent of the limit");
    else if (read_share(report, at[0], "min", 1, WEIR__PERCENT_MAX, &min) &&
             (!at[1] || read_share(report, at[1], "max", 1, WEIR__PERCENT_MAX, &max))) {
        if (min >= max) {
            weir__report_error(report, at[0]->place, "min must be less than max, which is %d%%", max);
            return;
        }
        to->min = (uint16_t)min;
        to->max = (uint16_t)max;
    }
}

/* A class, or a number: of several rules that deny, the one with the highest number is reported. */
static void read_priority(struct weir__diagnostics *report, const struct weir__node *node, struct weir__rule *rule)
{
    static const char *const classes[] = {"critical", "high", "normal", "low"};
    int64_t number = 0;
    int word = 0;
    char first = node->kind == WEIR__SCALAR && node->text.len ? node->text.data[0] : 0;
    if ((first < 'a' || first > 'z') && (first < 'A' || first > 'Z')) {
        if (weir__field_int(report, node, "priority", INT32_MIN, INT32_MAX, &number))
            rule->priority = (int)number;
        return;
    }
    if (!weir__field_choice(report, node, "priority", classes, WEIR__COUNT(classes), &word))
        return;
    rule->overload.has_class = true;
    rule->overload.class = (enum weir_priority)word;
}

void weir__native_overload(struct weir__builder *builder, const struct weir__overload_nodes *nodes,
                           struct weir__rule *rule)
{
    struct weir__diagnostics *report = builder->report;
    int reserve = 0;
    if (nodes->priority)
        read_priority(report, nodes->priority, rule);
    if (nodes->elastic)
        read_elastic(report, nodes->elastic, &rule->overload);
    if (nodes->adaptive)
        read_adaptive(report, nodes->adaptive, &rule->overload);
    if (nodes->reserve && read_share(report, nodes->reserve, "reserve", 1, 99, &reserve))
        rule->overload.reserve = (uint8_t)reserve;
    if (nodes->priority && rule->shadow && rule->overload.has_class)
        weir__report_warning(report, nodes->priority->place, "priority has no effect in a shadow rule");
    else if (nodes->reserve && rule->overload.has_class && rule->overload.class == WEIR_CRITICAL)
        weir__report_warning(report, nodes->reserve->place,
                             "the reserve has no effect: every request of this rule is critical");
}

bool weir__native_reserve(struct weir__diagnostics *report, const struct weir__overload_nodes *nodes,
                          enum weir_algorithm algorithm)
{
    if (!nodes->reserve || (algorithm != WEIR_TOKEN_BUCKET && algorithm != WEIR_LEAKY_BUCKET))
        return true;
    weir__report_error(report, nodes->reserve->name->place,
                       "token and leaky buckets cannot have a reserve; use fixed_window, sliding_window_log, "
                       "sliding_window_counter or concurrency");
    return false;
}

/* ---- Scaled limits ---- */

static int64_t scaled(int64_t units, int64_t scale)
{
    int64_t at = weir__mul_div(units, scale, WEIR__SCALE_ONE);
    return units && at < 1 ? 1 : at;
}

/* The limit at a scale, checked as if it were written in the rule. */
static bool limit_at(struct weir__diagnostics *report, const struct weir__node *field, const weir_params *params,
                     int64_t scale, weir_limit *limit)
{
    weir_params there = *params;
    there.limit = scaled(params->limit, scale);
    there.burst = scaled(params->burst, scale);
    int error = weir_limit_init(limit, &there);
    if (!error)
        return true;
    weir__report_error(report, field->name->place, "%s: a limit of %lld is too much: %s", field->name->text.data,
                       (long long)there.limit, weir_strerror(error));
    return false;
}

bool weir__native_scaled_limit(struct weir__builder *builder, const struct weir__overload_nodes *nodes,
                               const struct weir__rule *rule, const weir_params *params, struct weir__quota *quota)
{
    const struct weir__overload_policy *policy = &rule->overload;
    weir_limit floor, *ceiling;
    if (!weir__overload_is_scaled(policy))
        return true;
    ceiling = weir__arena_take(&builder->set->arena, sizeof *ceiling);
    if (!ceiling)
        return false;
    if (!limit_at(builder->report, nodes->elastic ? nodes->elastic : nodes->adaptive, params,
                  weir__overload_scale(policy, 0, FULL_PER_MILLE), ceiling) ||
        (nodes->adaptive &&
         !limit_at(builder->report, nodes->adaptive, params, weir__overload_scale(policy, UINT32_MAX, 0), &floor)))
        return false;
    weir__limit_init_scaled(ceiling, ceiling);
    weir__limit_init_scaled(&quota->limit, ceiling);
    quota->ceiling = ceiling;
    return true;
}
