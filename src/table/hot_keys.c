/* Hot keys: see hot_keys.h. */
#include "table/hot_keys.h"

#include <string.h>

#define PROBES        64  /* probes before the file counts as full */
#define NEAR          800 /* per mille of its limit from which a key counts as near */
#define NEAR_WAYS     4   /* associativity of the near set; with 1, every 64th pair of keys would collide */
#define TEXT_SHARE    512 /* the text of a key with more than this fraction of the total is kept */
#define PER_MILLE_MAX 0xffff
#define TRIES         8 /* retries of a halving under concurrent additions */

const struct weir__row_format weir__hot_format = {.magic = UINT64_C(0x0a544f48524945f7),
                                                  .layout = 1,
                                                  .rows_min = 1,
                                                  .header_bytes = sizeof(struct weir__hot_header),
                                                  .row_bytes = sizeof(struct weir__hot_rule)};

bool weir__hot_attach(void *memory, size_t bytes, struct weir__hot *hot)
{
    struct weir__hot_header *header = memory;
    uint32_t rule_slots = weir__row_file_rows(memory, bytes, &weir__hot_format);
    if (!rule_slots)
        return false;
    *hot = (struct weir__hot){
        .header = header, .rule_slot = (struct weir__hot_rule *)(void *)(header + 1), .rule_slots = rule_slots};
    return true;
}

/* ---- Slots of rules ---- */

/* Minute and share in one word, so that they belong together. */
static uint64_t used_when(uint32_t per_mille, uint32_t minute)
{
    return (uint64_t)minute << 16 | (per_mille < PER_MILLE_MAX ? per_mille : PER_MILLE_MAX);
}

static uint32_t minute_of(uint64_t used)
{
    return (uint32_t)(used >> 16);
}

static struct weir__hot_rule *at_probe(const struct weir__hot *hot, uint64_t rule, uint32_t probe)
{
    return probe < PROBES && probe < hot->rule_slots ? &hot->rule_slot[(rule + probe) % hot->rule_slots] : NULL;
}

/* The rule's slot, or NULL and the first free one, if any. */
static struct weir__hot_rule *probe(const struct weir__hot *hot, uint64_t rule, struct weir__hot_rule **empty)
{
    struct weir__hot_rule *rule_slot;
    *empty = NULL;
    for (uint32_t i = 0; (rule_slot = at_probe(hot, rule, i)) != NULL; i++) {
        uint64_t current = weir__load64(&rule_slot->rule);
        if (current == rule)
            return rule_slot;
        if (!current) {
            *empty = rule_slot;
            return NULL;
        }
    }
    return NULL;
}

/* Minutes since the last sample. Clocks of processes may differ slightly; a clock that was reset counts as idle. */
static uint32_t idle_since(uint64_t peak, uint32_t minute)
{
    int32_t passed = (int32_t)(minute - minute_of(peak));
    return passed >= 0 ? (uint32_t)passed : passed > -WEIR__HOT_IDLE ? 0 : UINT32_MAX;
}

/* The slot that was idle longest; NULL: none long enough, or one is being cleared. */
static struct weir__hot_rule *idlest(const struct weir__hot *hot, uint64_t rule, uint32_t minute)
{
    struct weir__hot_rule *rule_slot, *found = NULL;
    uint32_t longest = WEIR__HOT_IDLE - 1;
    for (uint32_t i = 0; (rule_slot = at_probe(hot, rule, i)) != NULL; i++) {
        uint32_t idle = idle_since(weir__load64(&rule_slot->peak), minute);
        /* It may be for this rule, which must not get two. A claim left by a dead process becomes idle, too. */
        if (weir__load64(&rule_slot->rule) == WEIR__HOT_CLEARING && idle < WEIR__HOT_IDLE)
            return NULL;
        if (idle > longest) {
            longest = idle;
            found = rule_slot;
        }
    }
    return found;
}

/* Data of the previous rule must not be shown under the new one. */
static void clear(struct weir__hot_rule *rule_slot)
{
    uint64_t *word = (uint64_t *)(void *)rule_slot->sketch, *end = (uint64_t *)(void *)(rule_slot + 1);
    for (; word < end; word++)
        weir__store64(word, 0);
}

static bool claim(struct weir__hot_rule *rule_slot, uint64_t rule, uint32_t minute)
{
    uint64_t current = weir__load64(&rule_slot->rule), peak = weir__load64(&rule_slot->peak);
    if (!current) {
        bool mine = weir__cas64(&rule_slot->rule, &current, rule) || current == rule;
        if (mine)
            weir__store64(&rule_slot->peak, used_when(0, minute)); /* starts the idle time */
        return mine;
    }
    /* Of several claimants one succeeds; a concurrent sample keeps the slot. */
    if (idle_since(peak, minute) < WEIR__HOT_IDLE || !weir__cas64(&rule_slot->peak, &peak, used_when(0, minute)) ||
        !weir__cas64(&rule_slot->rule, &current, WEIR__HOT_CLEARING))
        return false;
    clear(rule_slot);
    weir__store64(&rule_slot->rule, rule);
    return true;
}

struct weir__hot_rule *weir__hot_find(const struct weir__hot *hot, uint64_t rule, uint32_t minute)
{
    struct weir__hot_rule *empty = NULL, *rule_slot = NULL;
    if (rule && rule != WEIR__HOT_CLEARING) {
        while (!(rule_slot = probe(hot, rule, &empty)) && empty) /* each iteration has one free slot fewer */
            if (claim(empty, rule, minute))
                return empty;
        struct weir__hot_rule *idle = rule_slot ? NULL : idlest(hot, rule, minute);
        if (idle && claim(idle, rule, minute))
            return idle;
    }
    if (!rule_slot)
        weir__count(&hot->header->without, 1);
    return rule_slot;
}

const struct weir__hot_rule *weir__hot_lookup(const struct weir__hot *hot, uint64_t rule)
{
    struct weir__hot_rule *unused;
    return rule && rule != WEIR__HOT_CLEARING ? probe(hot, rule, &unused) : NULL;
}

/* ---- Sampling ---- */

static struct weir__hot_counter *counter_of(struct weir__hot_sketch *sketch, uint64_t hash, int which)
{
    return &sketch->counter[(which ? hash >> 32 : hash) % WEIR__HOT_COUNTERS];
}

/* The estimated weight of a key; 0: it has no counter. */
static uint64_t weight_of(struct weir__hot_sketch *sketch, uint64_t hash)
{
    for (int i = 0; i < 2; i++) {
        struct weir__hot_counter *counter = counter_of(sketch, hash, i);
        if (weir__load64(&counter->key) == hash)
            return weir__load64(&counter->weight);
    }
    return 0;
}

/* True with probability part / total. */
static bool with_probability(uint64_t random, uint64_t part, uint64_t total)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)random * total) >> 64) < part;
}

static void write_text(struct weir__hot_text *text, uint64_t hash, const char *key, size_t len, uint64_t info)
{
    size_t shown = len < WEIR__HOT_TEXT_MAX ? len : WEIR__HOT_TEXT_MAX;
    weir__store64(&text->key, 0);
    for (size_t i = 0; i < shown; i += 8) {
        uint64_t word = 0;
        memcpy(&word, key + i, shown - i < 8 ? shown - i : 8);
        weir__store64(&text->word[i / 8], word);
    }
    weir__store64(&text->info, info);
    weir__store64(&text->key, hash);
}

/* Stores the text of a heavy key in counter of a lighter one. */
static void keep_text(struct weir__hot_sketch *sketch, const struct weir__hot_sample *sample, uint64_t weight)
{
    struct weir__hot_text *lightest = NULL;
    uint64_t least = weight;
    for (int i = 0; i < 2; i++) {
        struct weir__hot_text *text = &sketch->text[(i ? sample->hash >> 48 : sample->hash >> 20) % WEIR__HOT_TEXTS];
        uint64_t current = weir__load64(&text->key);
        if (current == sample->hash)
            return;
        uint64_t holds = current ? weight_of(sketch, current) : 0;
        if (holds < least) {
            least = holds;
            lightest = text;
        }
    }
    if (lightest)
        write_text(lightest, sample->hash, sample->key, sample->key_len, sample->key_len);
}

static void sample_weight(struct weir__hot_sketch *sketch, const struct weir__hot_sample *sample)
{
    struct weir__hot_counter *counter[2] = {counter_of(sketch, sample->hash, 0), counter_of(sketch, sample->hash, 1)};
    uint64_t weight[2];
    weir__count(&sketch->total, sample->weight);
    for (int i = 0; i < 2; i++) {
        weight[i] = weir__load64(&counter[i]->weight) + sample->weight;
        if (weir__load64(&counter[i]->key) != sample->hash)
            continue;
        weir__count(&counter[i]->weight, sample->weight);
        if (weight[i] > weir__load64(&sketch->total) / TEXT_SHARE)
            keep_text(sketch, sample, weight[i]);
        return;
    }
    int lighter = weight[1] < weight[0];
    weir__count(&counter[lighter]->weight, sample->weight);
    if (with_probability(sample->random, sample->weight, weight[lighter]))
        weir__store64(&counter[lighter]->key, sample->hash);
}

static void sample_use(struct weir__hot_rule *rule_slot, const struct weir__hot_sample *sample)
{
    struct weir__hot_counter *kept = &rule_slot->sample[sample->hash % WEIR__HOT_KEY_SAMPLES];
    uint64_t current = weir__load64(&kept->key), used = weir__load64(&kept->weight);
    bool stale = current && (uint32_t)(sample->minute - minute_of(used)) > 10;
    if (current != sample->hash && current && !stale &&
        current / WEIR__HOT_KEY_SAMPLES <= sample->hash / WEIR__HOT_KEY_SAMPLES)
        return;
    uint64_t now = used_when(sample->per_mille, sample->minute);
    /* Keeps the maximum of a minute, so that the result does not depend on the time of reading. */
    if (current == sample->hash && minute_of(used) == sample->minute && (used & PER_MILLE_MAX) >= (now & PER_MILLE_MAX))
        return;
    weir__store64(&kept->key, sample->hash);
    weir__store64(&kept->weight, now);
}

/* First index of the set that a key near its limit belongs to. */
static size_t near_of(uint64_t hash)
{
    return (hash >> 8) % WEIR__HOT_NEAR & ~(size_t)(NEAR_WAYS - 1);
}

/* The key's text, or an empty one, or the least recently updated of the set. */
static struct weir__hot_text *near_text(struct weir__hot_rule *rule_slot, uint64_t hash)
{
    struct weir__hot_text *set = &rule_slot->near[near_of(hash)], *found = NULL;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < NEAR_WAYS; i++) {
        uint64_t current = weir__load64(&set[i].key), used = current ? weir__load64(&set[i].info) >> 16 : 0;
        if (current == hash)
            return &set[i];
        if (!found || used < least) {
            found = &set[i];
            least = used;
        }
    }
    return found;
}

/* info: length (16 bits), then used_when. */
static void sample_near(struct weir__hot_rule *rule_slot, const struct weir__hot_sample *sample)
{
    struct weir__hot_text *text = near_text(rule_slot, sample->hash);
    uint64_t current = weir__load64(&text->key), used = weir__load64(&text->info) >> 16;
    uint64_t now = used_when(sample->per_mille, sample->minute & 0xffffffff);
    if (current == sample->hash && used == (now & UINT64_C(0xffffffffffff)))
        return;
    if (current && current != sample->hash && minute_of(used) == sample->minute &&
        (used & PER_MILLE_MAX) >= (now & PER_MILLE_MAX))
        return;
    write_text(text, sample->hash, sample->key, sample->key_len, now << 16 | (sample->key_len & 0xffff));
}

static void sample_peak(struct weir__hot_rule *rule_slot, const struct weir__hot_sample *sample)
{
    uint64_t current = weir__load64(&rule_slot->peak), now = used_when(sample->per_mille, sample->minute);
    if (minute_of(current) != sample->minute || (current & PER_MILLE_MAX) < (now & PER_MILLE_MAX))
        weir__store64(&rule_slot->peak, now);
}

void weir__hot_sample(struct weir__hot_rule *rule_slot, const struct weir__hot_sample *sample)
{
    if (!sample->hash || !sample->weight)
        return;
    sample_weight(&rule_slot->sketch[sample->kind], sample);
    sample_use(rule_slot, sample);
    sample_peak(rule_slot, sample);
    if (sample->per_mille >= NEAR)
        sample_near(rule_slot, sample);
}

/* By compare-and-swap: a subtraction would underflow after a concurrent clear. */
static void halve(uint64_t *word)
{
    uint64_t weight = weir__load64(word);
    for (int i = 0; i < TRIES && weight && !weir__cas64(word, &weight, weight / 2); i++)
        continue;
}

void weir__hot_age(struct weir__hot_rule *rule_slot)
{
    for (int kind = 0; kind < WEIR__HOT_KINDS; kind++) {
        struct weir__hot_sketch *sketch = &rule_slot->sketch[kind];
        halve(&sketch->total);
        for (size_t i = 0; i < WEIR__HOT_COUNTERS; i++)
            halve(&sketch->counter[i].weight);
    }
}

/* ---- Reading ---- */

uint32_t weir__hot_peak(const struct weir__hot_rule *rule_slot, uint32_t minute)
{
    uint64_t current = weir__load64(&rule_slot->peak);
    return (uint32_t)(minute - minute_of(current)) <= 1 ? (uint32_t)(current & PER_MILLE_MAX) : 0;
}

/* Copies a text into `key`, if it belongs to the key. */
static void read_text(const struct weir__hot_text *text, size_t len, weir__hot_hash *hash_of, const void *context,
                      struct weir__hot_key *key)
{
    size_t shown = len < WEIR__HOT_TEXT_MAX ? len : WEIR__HOT_TEXT_MAX;
    char bytes[WEIR__HOT_TEXT_MAX];
    for (size_t i = 0; i < WEIR__HOT_TEXT_MAX / 8; i++) {
        uint64_t word = weir__load64(&text->word[i]);
        memcpy(bytes + i * 8, &word, 8);
    }
    /* A cut text cannot be verified by the hash: then an unchanged key word must suffice. */
    if (weir__load64(&text->key) != key->hash || (len == shown && hash_of(context, bytes, len) != key->hash))
        return;
    memcpy(key->text, bytes, shown);
    key->len = len;
    key->shown = shown;
}

static uint64_t root(uint64_t square)
{
    uint64_t low = 0, high = UINT32_MAX;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (middle * middle <= square)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Inserts a key into the sorted list; drops the last one of a full list. */
static size_t insert(struct weir__hot_key *keys, size_t count, size_t max, uint64_t hash, uint64_t weight)
{
    size_t at = count;
    while (at && keys[at - 1].weight < weight)
        at--;
    if (at == max)
        return count;
    size_t end = count < max ? count : max - 1;
    memmove(&keys[at + 1], &keys[at], (end - at) * sizeof *keys);
    keys[at] = (struct weir__hot_key){.hash = hash, .weight = weight};
    return end + 1;
}

size_t weir__hot_top(const struct weir__hot_rule *rule_slot, enum weir__hot_kind kind, weir__hot_hash *hash_of,
                     const void *context, struct weir__hot_key *keys, size_t max)
{
    const struct weir__hot_sketch *sketch = &rule_slot->sketch[kind];
    size_t count = 0;
    if (!max)
        return 0;
    for (size_t i = 0; i < WEIR__HOT_COUNTERS; i++) {
        uint64_t hash = weir__load64(&sketch->counter[i].key), weight = weir__load64(&sketch->counter[i].weight);
        if (hash && weight && (count < max || weight > keys[count - 1].weight))
            count = insert(keys, count, max, hash, weight);
    }
    uint64_t part = weir__load64(&sketch->total) / WEIR__HOT_COUNTERS;
    for (size_t i = 0; i < count; i++) {
        struct weir__hot_key *key = &keys[i];
        key->error = part && key->weight > UINT64_MAX / part ? UINT64_MAX : root(key->weight * part);
        for (int which = 0; which < 2 && !key->len; which++) {
            const struct weir__hot_text *text =
                &sketch->text[(which ? key->hash >> 48 : key->hash >> 20) % WEIR__HOT_TEXTS];
            if (weir__load64(&text->key) == key->hash)
                read_text(text, (size_t)weir__load64(&text->info), hash_of, context, key);
        }
    }
    return count;
}

size_t weir__hot_nearest(const struct weir__hot_rule *rule_slot, uint32_t minute, uint32_t minutes,
                         weir__hot_hash *hash_of, const void *context, struct weir__hot_key *keys, size_t max)
{
    size_t count = 0;
    if (!max)
        return 0;
    for (size_t i = 0; i < WEIR__HOT_NEAR; i++) {
        uint64_t hash = weir__load64(&rule_slot->near[i].key), used = weir__load64(&rule_slot->near[i].info) >> 16;
        bool twice = false; /* inserted twice by concurrent writers */
        for (size_t k = i & ~(size_t)(NEAR_WAYS - 1); k < i; k++)
            twice |= weir__load64(&rule_slot->near[k].key) == hash;
        if (hash && !twice && (uint32_t)(minute - minute_of(used)) <= minutes)
            count = insert(keys, count, max, hash, used & PER_MILLE_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        const struct weir__hot_text *set = &rule_slot->near[near_of(keys[i].hash)];
        for (int k = 0; k < NEAR_WAYS && !keys[i].len; k++)
            if (weir__load64(&set[k].key) == keys[i].hash)
                read_text(&set[k], (size_t)(weir__load64(&set[k].info) & 0xffff), hash_of, context, &keys[i]);
    }
    return count;
}

uint64_t weir__hot_uses(const struct weir__hot_rule *rule_slot, uint32_t minute, uint32_t minutes,
                        uint64_t count[WEIR__HOT_USES])
{
    __extension__ typedef unsigned __int128 wide;
    const uint64_t range = UINT64_MAX / WEIR__HOT_KEY_SAMPLES; /* range of the remainders */
    uint64_t taken = 0;
    wide rests = 0;
    memset(count, 0, WEIR__HOT_USES * sizeof *count);
    for (size_t i = 0; i < WEIR__HOT_KEY_SAMPLES; i++) {
        uint64_t hash = weir__load64(&rule_slot->sample[i].key), used = weir__load64(&rule_slot->sample[i].weight);
        if (!hash || (uint32_t)(minute - minute_of(used)) > minutes)
            continue;
        uint64_t tenth = (used & PER_MILLE_MAX) / 100;
        count[tenth < WEIR__HOT_USES ? tenth : WEIR__HOT_USES - 1]++;
        rests += hash / WEIR__HOT_KEY_SAMPLES;
        taken++;
    }
    /*
     * The smallest of n remainders is at range / (n + 1) on average. With half of the ranges empty there is at peak
     * about one key a range, and counting them is more precise.
     */
    if (!taken || taken < WEIR__HOT_KEY_SAMPLES / 2)
        return taken;
    uint64_t mean = (uint64_t)(rests / taken);
    uint64_t a_part = range / (mean ? mean : 1);
    return a_part > 1 ? (a_part - 1) * taken > taken ? (a_part - 1) * taken : taken : taken;
}
