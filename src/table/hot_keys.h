/*
 * Hot keys: the heaviest keys of each rule, by admitted and by denied units; keys near their limit; and how much of
 * their limit keys use. In memory of fixed size, shared by all processes, without locks.
 *
 * Each rule has a slot (struct weir__hot_rule) with two sketches of 2048 counters, each with a key and a weight. A key
 * has two candidate counters. If one of them is the key's, its weight grows; if not, the lighter one grows, and the key
 * takes it over with the probability of its share (CocoSketch, 2021; Space-Saving would need an order among the
 * counters that all processes agree on, here each sample is one addition). The estimate of a key's weight is unbiased;
 * its standard error is about sqrt(weight * total / 2048). Sampling one request in n adds a standard error of
 * sqrt(weight * n).
 *
 * Statistics only: words are updated one by one, and two concurrent writers may combine the key of one with the weight
 * of the other once. No decision depends on it. A key text is verified by its hash when it is read, so a torn one is
 * never shown.
 */
#ifndef WEIR_TABLE_HOT_KEYS_H
#define WEIR_TABLE_HOT_KEYS_H

#include "base/atomic.h"
#include "table/row_file.h"

#include <stddef.h>

#define WEIR__HOT_COUNTERS    2048       /* counters of a sketch; a power of two */
#define WEIR__HOT_TEXTS       128        /* texts of the heaviest keys; a power of two */
#define WEIR__HOT_NEAR        64         /* keys near their limit; a power of two */
#define WEIR__HOT_KEY_SAMPLES 256        /* keys whose use is known; a power of two */
#define WEIR__HOT_TEXT_MAX    112        /* stored bytes of a key text; longer ones are cut */
#define WEIR__HOT_IDLE        5          /* minutes without a sample after which another rule may take the slot */
#define WEIR__HOT_CLEARING    UINT64_MAX /* not a rule's id: the slot is being cleared for a new rule */

enum weir__hot_kind { WEIR__HOT_ADMITTED, WEIR__HOT_DENIED, WEIR__HOT_KINDS };

struct weir__hot_counter {
    uint64_t key; /* its hash; 0: unused */
    uint64_t weight;
};

/* The text of a key. */
struct weir__hot_text {
    uint64_t key; /* its hash; 0: being written, or empty */
    uint64_t info;
    uint64_t word[WEIR__HOT_TEXT_MAX / 8];
};

struct weir__hot_sketch {
    uint64_t total; /* sum of all sampled weights, aged */
    uint64_t pad[7];
    struct weir__hot_counter counter[WEIR__HOT_COUNTERS];
    struct weir__hot_text text[WEIR__HOT_TEXTS]; /* info: the key's length */
};

struct weir__hot_rule {
    uint64_t rule; /* its id; 0: free; or WEIR__HOT_CLEARING */
    uint64_t peak; /* minute of the last sample, and the largest share of its limit that a key had used in it */
    uint64_t pad[6];
    struct weir__hot_sketch sketch[WEIR__HOT_KINDS];
    struct weir__hot_text near[WEIR__HOT_NEAR];             /* info: length, per mille of the limit, minute */
    struct weir__hot_counter sample[WEIR__HOT_KEY_SAMPLES]; /* weight: per mille of the limit, minute */
};

struct weir__hot_header {
    struct weir__row_header file;
    uint64_t without; /* times a rule found no free slot */
    uint64_t seconds; /* seconds that the weights cover: incremented each second, halved with the weights; 0: no agent
                         runs */
    uint64_t pad[3];
};

/* A mapped file of hot keys: addresses in this process. */
struct weir__hot {
    struct weir__hot_header *header;
    struct weir__hot_rule *rule_slot;
    uint32_t rule_slots;
};

extern const struct weir__row_format weir__hot_format;
/* Attaches to a file. False: another format, or damaged. */
bool weir__hot_attach(void *memory, size_t bytes, struct weir__hot *hot);

/*
 * The rule's slot. A rule without one gets a free slot, or that of the rule that was idle for the longest time, at
 * least WEIR__HOT_IDLE minutes; a rule that returns gets a slot again. So a caller that caches the slot checks before
 * each sample that it is still the rule's, and looks it up again from time to time. NULL: all are in use, or another
 * process is claiming one.
 */
struct weir__hot_rule *weir__hot_find(const struct weir__hot *hot, uint64_t rule, uint32_t minute);
/* For read-only access. */
const struct weir__hot_rule *weir__hot_lookup(const struct weir__hot *hot, uint64_t rule);

struct weir__hot_sample {
    uint64_t hash; /* of the key, keyed by the segment's secret */
    const char *key;
    size_t key_len;
    uint64_t weight; /* cost times the sampling interval */
    enum weir__hot_kind kind;
    uint64_t random;    /* a random number, independent of the key */
    uint32_t per_mille; /* share of its limit that the key has used; above 1000 in debt or soft */
    uint32_t minute;    /* of a monotonic clock */
};

void weir__hot_sample(struct weir__hot_rule *rule_slot, const struct weir__hot_sample *sample);

/* The largest share of its limit, in per mille, that a sampled key had used in this minute and the previous one. */
uint32_t weir__hot_peak(const struct weir__hot_rule *rule_slot, uint32_t minute);

/* Halves all weights (exponential decay); called at fixed intervals. */
void weir__hot_age(struct weir__hot_rule *rule_slot);

struct weir__hot_key {
    uint64_t hash;
    uint64_t weight;
    uint64_t error; /* standard error of the sketch, not of the sampling */
    size_t len;     /* of the full key; 0: its text is unknown */
    size_t shown;   /* bytes of it in text */
    char text[WEIR__HOT_TEXT_MAX];
};

/* The heaviest keys, heaviest first, at peak max (up to 256). `hash_of` is the hash that samples use. */
typedef uint64_t weir__hot_hash(const void *context, const char *key, size_t len);
size_t weir__hot_top(const struct weir__hot_rule *rule_slot, enum weir__hot_kind kind, weir__hot_hash *hash_of,
                     const void *context, struct weir__hot_key *keys, size_t max);
/* Keys near their limit in the last `minutes`; weight is per mille. */
size_t weir__hot_nearest(const struct weir__hot_rule *rule_slot, uint32_t minute, uint32_t minutes,
                         weir__hot_hash *hash_of, const void *context, struct weir__hot_key *keys, size_t max);

/*
 * Distribution of use: count[i] of the sampled keys have used from i * 10 % of their limit on, the last 100 % and more.
 * Each of 256 ranges of the hash keeps the key with the smallest remainder (a KMV sketch), which is a uniform sample of
 * the keys of the last `minutes`. Returns the estimated number of such keys.
 */
#define WEIR__HOT_USES 11
uint64_t weir__hot_uses(const struct weir__hot_rule *rule_slot, uint32_t minute, uint32_t minutes,
                        uint64_t count[WEIR__HOT_USES]);

#endif
