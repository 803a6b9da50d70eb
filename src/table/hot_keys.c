/* Hot keys: see hot_keys.h. */
#include "table/hot_keys.h"

#include <string.h>

#define PROBES        64  /* then the area counts as full */
#define NEAR          800 /* per mille from which on a key is near its limit */
#define NEAR_WAYS     4   /* places for each of these; with one, every 64th pair of keys shows as one key */
#define TEXT_SHARE    512 /* a key with more than this part of the total gets its text kept */
#define PER_MILLE_MAX 0xffff
#define TRIES         8 /* at halving what others add to */

size_t weir__hot_bytes(uint32_t panels)
{
    return sizeof(struct weir__hot_header) + panels * sizeof(struct weir__hot_rule);
}

bool weir__hot_make(void *memory, size_t bytes)
{
    struct weir__hot_header *header = memory;
    if (bytes < weir__hot_bytes(1))
        return false;
    size_t panels = (bytes - sizeof *header) / sizeof(struct weir__hot_rule);
    *header = (struct weir__hot_header){
        .layout = WEIR__HOT_LAYOUT, .rule_slots = panels > UINT32_MAX ? UINT32_MAX : (uint32_t)panels, .bytes = bytes};
    weir__store64(&header->magic, WEIR__HOT_MAGIC);
    return true;
}

bool weir__hot_attach(void *memory, size_t bytes, struct weir__hot *hot)
{
    struct weir__hot_header *header = memory;
    if (bytes < weir__hot_bytes(1))
        return false;
    uint32_t panels = weir__load32(&header->rule_slots); /* once: another process may change it after the check */
    if (weir__load64(&header->magic) != WEIR__HOT_MAGIC || header->layout != WEIR__HOT_LAYOUT ||
        header->bytes != bytes || !panels || panels > (bytes - sizeof *header) / sizeof(struct weir__hot_rule))
        return false;
    *hot = (struct weir__hot){
        .header = header, .rule_slot = (struct weir__hot_rule *)(void *)(header + 1), .rule_slots = panels};
    return true;
}

/* ---- Panels ---- */

/* Two numbers in one word, so that they belong together. */
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

/* The rule's own, or NULL and, if there is one, the first that is free. */
static struct weir__hot_rule *probe(const struct weir__hot *hot, uint64_t rule, struct weir__hot_rule **empty)
{
    struct weir__hot_rule *panel;
    *empty = NULL;
    for (uint32_t i = 0; (panel = at_probe(hot, rule, i)) != NULL; i++) {
        uint64_t held = weir__load64(&panel->rule);
        if (held == rule)
            return panel;
        if (!held) {
            *empty = panel;
            return NULL;
        }
    }
    return NULL;
}

/* For how many minutes nothing was noted. Clocks of processes may differ by a moment; one that began anew says nothing.
 */
static uint32_t idle_since(uint64_t most, uint32_t minute)
{
    int32_t passed = (int32_t)(minute - minute_of(most));
    return passed >= 0 ? (uint32_t)passed : passed > -WEIR__HOT_IDLE ? 0 : UINT32_MAX;
}

/* The one that is idle for the longest time; NULL: none is for long enough, or somebody else is at it. */
static struct weir__hot_rule *idlest(const struct weir__hot *hot, uint64_t rule, uint32_t minute)
{
    struct weir__hot_rule *panel, *found = NULL;
    uint32_t longest = WEIR__HOT_IDLE - 1;
    for (uint32_t i = 0; (panel = at_probe(hot, rule, i)) != NULL; i++) {
        uint32_t idle = idle_since(weir__load64(&panel->most), minute);
        /* It may be for this very rule, which must not get two. Who was killed at it is not idle for ever. */
        if (weir__load64(&panel->rule) == WEIR__HOT_CLEARING && idle < WEIR__HOT_IDLE)
            return NULL;
        if (idle > longest) {
            longest = idle;
            found = panel;
        }
    }
    return found;
}

/* What another rule has left there must not be shown under this one. */
static void clear(struct weir__hot_rule *panel)
{
    uint64_t *word = (uint64_t *)(void *)panel->sketch, *end = (uint64_t *)(void *)(panel + 1);
    for (; word < end; word++)
        weir__store64(word, 0);
}

static bool claim(struct weir__hot_rule *panel, uint64_t rule, uint32_t minute)
{
    uint64_t held = weir__load64(&panel->rule), most = weir__load64(&panel->most);
    if (!held) {
        bool mine = weir__cas64(&panel->rule, &held, rule) || held == rule;
        if (mine)
            weir__store64(&panel->most, used_when(0, minute)); /* idle from now on, not since ever */
        return mine;
    }
    /* Of several who see it idle one gets it; a note that comes in between keeps it. */
    if (idle_since(most, minute) < WEIR__HOT_IDLE || !weir__cas64(&panel->most, &most, used_when(0, minute)) ||
        !weir__cas64(&panel->rule, &held, WEIR__HOT_CLEARING))
        return false;
    clear(panel);
    weir__store64(&panel->rule, rule);
    return true;
}

struct weir__hot_rule *weir__hot_find(const struct weir__hot *hot, uint64_t rule, uint32_t minute)
{
    struct weir__hot_rule *empty = NULL, *panel = NULL;
    if (rule && rule != WEIR__HOT_CLEARING) {
        panel = probe(hot, rule, &empty);
        while (!panel && empty) { /* each turn finds one fewer */
            if (claim(empty, rule, minute))
                return empty;
            panel = probe(hot, rule, &empty);
        }
        struct weir__hot_rule *idle = panel ? NULL : idlest(hot, rule, minute);
        if (idle && claim(idle, rule, minute))
            return idle;
    }
    if (!panel)
        weir__count(&hot->header->without, 1);
    return panel;
}

const struct weir__hot_rule *weir__hot_lookup(const struct weir__hot *hot, uint64_t rule)
{
    struct weir__hot_rule *unused;
    return rule && rule != WEIR__HOT_CLEARING ? probe(hot, rule, &unused) : NULL;
}

/* ---- Noting ---- */

static struct weir__hot_counter *place_of(struct weir__hot_sketch *sketch, uint64_t hash, int which)
{
    return &sketch->place[(which ? hash >> 32 : hash) % WEIR__HOT_COUNTERS];
}

/* The weight a key is believed to have; 0: it is in none of its places. */
static uint64_t weight_of(struct weir__hot_sketch *sketch, uint64_t hash)
{
    for (int i = 0; i < 2; i++) {
        struct weir__hot_counter *place = place_of(sketch, hash, i);
        if (weir__load64(&place->key) == hash)
            return weir__load64(&place->weight);
    }
    return 0;
}

/* True with the probability part / whole. */
static bool comes_up(uint64_t dice, uint64_t part, uint64_t whole)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)dice * whole) >> 64) < part;
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

/* Keeps the text of a key that is among the heavy ones, in the place of one that is lighter. */
static void keep_text(struct weir__hot_sketch *sketch, const struct weir__hot_sample *note, uint64_t weight)
{
    struct weir__hot_text *lightest = NULL;
    uint64_t least = weight;
    for (int i = 0; i < 2; i++) {
        struct weir__hot_text *text = &sketch->text[(i ? note->hash >> 48 : note->hash >> 20) % WEIR__HOT_TEXTS];
        uint64_t held = weir__load64(&text->key);
        if (held == note->hash)
            return;
        uint64_t holds = held ? weight_of(sketch, held) : 0;
        if (holds < least) {
            least = holds;
            lightest = text;
        }
    }
    if (lightest)
        write_text(lightest, note->hash, note->key, note->key_len, note->key_len);
}

static void note_weight(struct weir__hot_sketch *sketch, const struct weir__hot_sample *note)
{
    struct weir__hot_counter *place[2] = {place_of(sketch, note->hash, 0), place_of(sketch, note->hash, 1)};
    uint64_t weight[2];
    weir__count(&sketch->total, note->weight);
    for (int i = 0; i < 2; i++) {
        weight[i] = weir__load64(&place[i]->weight) + note->weight;
        if (weir__load64(&place[i]->key) != note->hash)
            continue;
        weir__count(&place[i]->weight, note->weight);
        if (weight[i] > weir__load64(&sketch->total) / TEXT_SHARE)
            keep_text(sketch, note, weight[i]);
        return;
    }
    int lighter = weight[1] < weight[0];
    weir__count(&place[lighter]->weight, note->weight);
    if (comes_up(note->dice, note->weight, weight[lighter]))
        weir__store64(&place[lighter]->key, note->hash);
}

static void note_use(struct weir__hot_rule *panel, const struct weir__hot_sample *note)
{
    struct weir__hot_counter *seat = &panel->sample[note->hash % WEIR__HOT_KEY_SAMPLES];
    uint64_t held = weir__load64(&seat->key), used = weir__load64(&seat->weight);
    bool stale = held && (uint32_t)(note->minute - minute_of(used)) > 10;
    if (held != note->hash && held && !stale && held / WEIR__HOT_KEY_SAMPLES <= note->hash / WEIR__HOT_KEY_SAMPLES)
        return;
    uint64_t now = used_when(note->per_mille, note->minute);
    /* The most of a minute stays, so that what is seen does not depend on when one looks. */
    if (held == note->hash && minute_of(used) == note->minute && (used & PER_MILLE_MAX) >= (now & PER_MILLE_MAX))
        return;
    weir__store64(&seat->key, note->hash);
    weir__store64(&seat->weight, now);
}

/* The first of the NEAR_WAYS places where a key may be that is near its limit. */
static size_t near_of(uint64_t hash)
{
    return (hash >> 8) % WEIR__HOT_NEAR & ~(size_t)(NEAR_WAYS - 1);
}

/* The key's own place, or an empty one, or the one of the key that was last seen nearest the longest ago. */
static struct weir__hot_text *near_place(struct weir__hot_rule *panel, uint64_t hash)
{
    struct weir__hot_text *set = &panel->near[near_of(hash)], *found = NULL;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < NEAR_WAYS; i++) {
        uint64_t held = weir__load64(&set[i].key), used = held ? weir__load64(&set[i].info) >> 16 : 0;
        if (held == hash)
            return &set[i];
        if (!found || used < least) {
            found = &set[i];
            least = used;
        }
    }
    return found;
}

/* info of one that is near: length (16 bits), and used_when. */
static void note_near(struct weir__hot_rule *panel, const struct weir__hot_sample *note)
{
    struct weir__hot_text *text = near_place(panel, note->hash);
    uint64_t held = weir__load64(&text->key), used = weir__load64(&text->info) >> 16;
    uint64_t now = used_when(note->per_mille, note->minute & 0xffffffff);
    if (held == note->hash && used == (now & UINT64_C(0xffffffffffff)))
        return;
    if (held && held != note->hash && minute_of(used) == note->minute &&
        (used & PER_MILLE_MAX) >= (now & PER_MILLE_MAX))
        return;
    write_text(text, note->hash, note->key, note->key_len, now << 16 | (note->key_len & 0xffff));
}

static void note_most(struct weir__hot_rule *panel, const struct weir__hot_sample *note)
{
    uint64_t held = weir__load64(&panel->most), now = used_when(note->per_mille, note->minute);
    if (minute_of(held) != note->minute || (held & PER_MILLE_MAX) < (now & PER_MILLE_MAX))
        weir__store64(&panel->most, now);
}

void weir__hot_sample(struct weir__hot_rule *panel, const struct weir__hot_sample *note)
{
    if (!note->hash || !note->weight)
        return;
    note_weight(&panel->sketch[note->kind], note);
    note_use(panel, note);
    note_most(panel, note);
    if (note->per_mille >= NEAR)
        note_near(panel, note);
}

/* Only what is still there: taking away from what somebody clears meanwhile would leave a weight beyond all others. */
static void halve(uint64_t *word)
{
    uint64_t weight = weir__load64(word);
    for (int i = 0; i < TRIES && weight && !weir__cas64(word, &weight, weight / 2); i++)
        continue;
}

void weir__hot_age(struct weir__hot_rule *panel)
{
    for (int kind = 0; kind < WEIR__HOT_KINDS; kind++) {
        struct weir__hot_sketch *sketch = &panel->sketch[kind];
        halve(&sketch->total);
        for (size_t i = 0; i < WEIR__HOT_COUNTERS; i++)
            halve(&sketch->place[i].weight);
    }
}

/* ---- Looking ---- */

uint32_t weir__hot_peak(const struct weir__hot_rule *panel, uint32_t minute)
{
    uint64_t held = weir__load64(&panel->most);
    return (uint32_t)(minute - minute_of(held)) <= 1 ? (uint32_t)(held & PER_MILLE_MAX) : 0;
}

/* Fills in what a text says of a key; nothing if it is not the key's. */
static void read_text(const struct weir__hot_text *text, size_t len, weir__hot_hash *hash_of, const void *context,
                      struct weir__hot_key *key)
{
    size_t shown = len < WEIR__HOT_TEXT_MAX ? len : WEIR__HOT_TEXT_MAX;
    char bytes[WEIR__HOT_TEXT_MAX];
    for (size_t i = 0; i < WEIR__HOT_TEXT_MAX / 8; i++) {
        uint64_t word = weir__load64(&text->word[i]);
        memcpy(bytes + i * 8, &word, 8);
    }
    /* Of a longer key the end is missing, and the hash cannot tell: then it must be enough that nobody wrote meanwhile.
     */
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

/* Puts a key where it belongs by weight; what falls off the end is forgotten. */
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

size_t weir__hot_top(const struct weir__hot_rule *panel, enum weir__hot_kind kind, weir__hot_hash *hash_of,
                     const void *context, struct weir__hot_key *keys, size_t max)
{
    const struct weir__hot_sketch *sketch = &panel->sketch[kind];
    size_t count = 0;
    if (!max)
        return 0;
    for (size_t i = 0; i < WEIR__HOT_COUNTERS; i++) {
        uint64_t hash = weir__load64(&sketch->place[i].key), weight = weir__load64(&sketch->place[i].weight);
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

size_t weir__hot_nearest(const struct weir__hot_rule *panel, uint32_t minute, uint32_t minutes, weir__hot_hash *hash_of,
                         const void *context, struct weir__hot_key *keys, size_t max)
{
    size_t count = 0;
    if (!max)
        return 0;
    for (size_t i = 0; i < WEIR__HOT_NEAR; i++) {
        uint64_t hash = weir__load64(&panel->near[i].key), used = weir__load64(&panel->near[i].info) >> 16;
        bool twice = false; /* two who noted it at the same time */
        for (size_t k = i & ~(size_t)(NEAR_WAYS - 1); k < i; k++)
            twice |= weir__load64(&panel->near[k].key) == hash;
        if (hash && !twice && (uint32_t)(minute - minute_of(used)) <= minutes)
            count = insert(keys, count, max, hash, used & PER_MILLE_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        const struct weir__hot_text *set = &panel->near[near_of(keys[i].hash)];
        for (int k = 0; k < NEAR_WAYS && !keys[i].len; k++)
            if (weir__load64(&set[k].key) == keys[i].hash)
                read_text(&set[k], (size_t)(weir__load64(&set[k].info) & 0xffff), hash_of, context, &keys[i]);
    }
    return count;
}

uint64_t weir__hot_uses(const struct weir__hot_rule *panel, uint32_t minute, uint32_t minutes,
                        uint64_t count[WEIR__HOT_USES])
{
    __extension__ typedef unsigned __int128 wide;
    const uint64_t range = UINT64_MAX / WEIR__HOT_KEY_SAMPLES; /* of the rests, among which the smallest was kept */
    uint64_t taken = 0;
    wide rests = 0;
    memset(count, 0, WEIR__HOT_USES * sizeof *count);
    for (size_t i = 0; i < WEIR__HOT_KEY_SAMPLES; i++) {
        uint64_t hash = weir__load64(&panel->sample[i].key), used = weir__load64(&panel->sample[i].weight);
        if (!hash || (uint32_t)(minute - minute_of(used)) > minutes)
            continue;
        uint64_t tenth = (used & PER_MILLE_MAX) / 100;
        count[tenth < WEIR__HOT_USES ? tenth : WEIR__HOT_USES - 1]++;
        rests += hash / WEIR__HOT_KEY_SAMPLES;
        taken++;
    }
    /*
     * Of n keys in a part the smallest rest is at range / (n + 1) on average. With half of the parts empty there is
     * about one key a part at most, and those that are there say it better.
     */
    if (!taken || taken < WEIR__HOT_KEY_SAMPLES / 2)
        return taken;
    uint64_t mean = (uint64_t)(rests / taken);
    uint64_t a_part = range / (mean ? mean : 1);
    return a_part > 1 ? (a_part - 1) * taken > taken ? (a_part - 1) * taken : taken : taken;
}
