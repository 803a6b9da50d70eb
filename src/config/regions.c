/* weir.yaml: `region`, the name of this region, and `regions`, the stores of the others. */
#include "config/config.h"
#include "engine/store_options.h"
#include "rules/yaml.h"

#include <stdio.h>

#define NAME_RULE "1 to 31 lower-case letters, digits and dashes"

static bool name_is_sound(weir_text text)
{
    bool good = text.len > 0 && text.len <= WEIR__REGION_NAME && text.data[0] != '-';
    for (size_t i = 0; i < text.len; i++)
        good &= weir__is_digit(text.data[i]) || text.data[i] == '-' || (text.data[i] >= 'a' && text.data[i] <= 'z');
    return good;
}

static bool region_name_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    weir_text name;
    (void)config;
    if (!weir__field_text(node, what, &name))
        return false;
    if (!name_is_sound(name))
        return weir__node_error(node, "the name of a region is " NAME_RULE);
    *(const char **)to = name.data;
    return true;
}

static bool interval_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    return weir__config_ms(config, node, what, to) && ((*(int64_t *)to >= 50 && *(int64_t *)to <= 60000) ||
                                                       weir__node_error(node, "interval must be from 50ms to 1m"));
}

/* A name, or a map with one. */
bool weir__config_region(void *config, const struct weir__node *region, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"name", WEIR__FIELD_READ, WEIR__IN(struct weir__region_config, name),
         .place = offsetof(struct weir__region_config, place), .read = region_name_read},
        {"interval", WEIR__FIELD_READ, WEIR__IN(struct weir__region_config, interval_ms), .read = interval_read},
        {"hot", WEIR__FIELD_PERCENT, WEIR__IN(struct weir__region_config, hot_percent), .min = 0, .max = 100},
    };
    return weir__fields_or_first(region, what, WEIR__LIST_OF(fields), to, config);
}

static bool has_interval(const char *url)
{
    return strstr(url, "?sync_interval=") || strstr(url, "&sync_interval=");
}

bool weir__config_regions(void *config, const struct weir__node *regions, const char *what, void *to)
{
    struct weir__region_config *region = to;
    char shown[WEIR__REGION_NAME + 16];
    if (regions->kind != WEIR__MAP || !regions->first)
        return weir__node_error(regions,
                                "%s is a map of the other regions and their stores, such as { us-east: "
                                "rediss://10.1.0.5:6379 }",
                                what);
    for (const struct weir__node *member = regions->first; member; member = member->next) {
        if (!name_is_sound(member->name->text))
            return weir__node_error(member->name, "the name of a region is " NAME_RULE);
        if (region->other_count == WEIR__REGIONS_MAX)
            return weir__node_error(member->name, "there are more than %d other regions", WEIR__REGIONS_MAX);
        struct weir__other_region_config *other = &region->others[region->other_count];
        snprintf(shown, sizeof shown, "region %s", member->name->text.data);
        (void)!weir__config_store(config, member, shown, &other->store);
        if (!other->store.url)
            return false;
        const struct weir__node *setting = weir__node_get(member, "consistency");
        setting = setting ? setting : weir__node_get(member, "sync_interval");
        if (setting || has_interval(other->store.url))
            return weir__node_error(setting ? setting->name : member,
                                    "consistency and sync_interval belong in `store`; region: { interval: … } is the "
                                    "time between two exchanges with other regions");
        other->store.place = member->name->place;
        other->name = member->name->text.data;
        region->other_count++;
    }
    return true;
}

/* ---- What they have in common ---- */

static bool is_same_server(const struct weir__store_options *a, const struct weir__store_options *b)
{
    return a->kind == b->kind && a->database == b->database && strcmp(a->seeds[0].name, b->seeds[0].name) == 0 &&
           a->seeds[0].port == b->seeds[0].port && strcmp(a->master, b->master) == 0;
}

/* The parts that secrets do not matter for. */
static bool parse(const struct weir__store *store, struct weir__store_options *options)
{
    char why[256];
    if (weir__store_parse(store->url, options, why, sizeof why) != 0)
        return false;
    for (size_t i = 0; i < store->setting_count; i++)
        if (strcmp(store->settings[i].name, "prefix") == 0 || strcmp(store->settings[i].name, "hash_keys") == 0)
            (void)!weir__store_option(options, store->settings[i].name, store->settings[i].value, why, sizeof why);
    return true;
}

/* Compares a region's store with the one at `index` of all stores. */
static bool check_pair(const struct weir__config *config, struct weir__diagnostics *report, size_t index,
                       const struct weir__other_region_config *other, const struct weir__store_options *its)
{
    const struct weir__region_config *region = &config->region;
    const struct weir__store *store = index ? &region->others[index - 1].store : &config->store;
    const char *name = index ? region->others[index - 1].name : region->name;
    struct weir__store_options options;
    if (!parse(store, &options))
        return true;
    if (is_same_server(&options, its))
        return weir__report_error(report, other->store.place, "regions %s and %s have the same store: %s", name,
                                  other->name, other->store.shown);
    if (!index && (strcmp(options.prefix, its->prefix) != 0 || options.hash_keys != its->hash_keys))
        return weir__report_error(report, other->store.place,
                                  "prefix and hash_keys of region %s must be those of `store`: a counter has one name "
                                  "in all regions",
                                  other->name);
    return true;
}

void weir__config_check_regions(const struct weir__config *config, const struct weir__node *root)
{
    const struct weir__region_config *region = &config->region;
    const struct weir__node *own = weir__node_get(root, "region"), *others = weir__node_get(root, "regions");
    struct weir__store_options its;
    if (own && !others)
        weir__node_error(own, "region goes with regions: the stores of the others");
    if (others && !own)
        weir__node_error(others, "regions goes with region: the name of this one");
    if ((own || others) && !weir__node_get(root, "store"))
        weir__node_error(own ? own : others, "regions exchange through their stores, and there is no store");
    if (!config->store.url || !region->name)
        return;
    if (region->other_count && parse(&config->store, &its) && its.kind == WEIR__CLUSTER)
        weir__report_error(root->report, config->store.place,
                           "the store of a region cannot be a cluster: its scripts cannot change a counter and what "
                           "other regions are to receive together");
    for (size_t i = 0; i < region->other_count; i++) {
        const struct weir__other_region_config *other = &region->others[i];
        if (strcmp(other->name, region->name) == 0)
            weir__report_error(root->report, other->store.place, "region %s is this one: regions has the others",
                               other->name);
        if (!parse(&other->store, &its))
            continue;
        if (its.kind == WEIR__CLUSTER)
            weir__report_error(root->report, other->store.place,
                               "the store of region %s cannot be a cluster: a repeated batch would count twice there",
                               other->name);
        for (size_t k = 0; k <= i && check_pair(config, root->report, k, other, &its); k++)
            continue;
    }
}
