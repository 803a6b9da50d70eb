/*
 * Hot keys: which keys are the heaviest under each rule, by what was admitted and by what was denied; which are near
 * their limit; and how much of it keys use. In memory of fixed size, shared by all processes, without locks.
 *
 * A rule has a panel. For the heavy ones a panel has two sketches of 2048 places, each with a key and a weight. A key
 * has two places where it may be: if it is in one, that place's weight grows; if not, the lighter one's does, and the
 * key takes it over with the probability of its share. (This is CocoSketch, of 2021. Space-Saving, which is better
 * known, needs an order among the places that processes would have to agree on; here each note is one addition.) The
 * estimate of a key's weight is unbiased; its standard error is about the square root of weight x total / 2048.
 *
 * What is noted may be a sample, its weight scaled accordingly: that adds a standard error of the square root of
 * weight x the one in how many that were noted.
 *
 * Statistics only: words are changed one by one, and two who write at the same time may mix up a key and a weight for
 * once. Nothing is decided by it. Texts are checked by their hash when they are read, so that a mixed one is never
 * shown.
 */
#ifndef WEIR_TABLE_HOT_KEYS_H
#define WEIR_TABLE_HOT_KEYS_H

#include "base/atomic.h"

#include <stddef.h>

#define WEIR__HOT_LAYOUT      1
#define WEIR__HOT_MAGIC       UINT64_C(0x0a544f48524945f7)
#define WEIR__HOT_COUNTERS    2048       /* a sketch; a power of two */
#define WEIR__HOT_TEXTS       128        /* of the heaviest keys' texts; a power of two */
#define WEIR__HOT_NEAR        64         /* keys near their limit; a power of two */
#define WEIR__HOT_KEY_SAMPLES 256        /* keys whose use is known; a power of two */
#define WEIR__HOT_TEXT_MAX    112        /* bytes of a key that are kept; of longer ones only the beginning */
#define WEIR__HOT_IDLE        5          /* minutes without a note after which a panel may become another rule's */
#define WEIR__HOT_CLEARING    UINT64_MAX /* no rule's id: somebody is making the panel his */

enum weir__hot_kind { WEIR__HOT_ADMITTED, WEIR__HOT_DENIED, WEIR__HOT_KINDS };

struct weir__hot_counter {
    uint64_t key; /* its hash; 0: nobody */
    uint64_t weight;
};

/* A key as it is written. */
struct weir__hot_text {
    uint64_t key; /* its hash; 0: being written, or empty */
    uint64_t info;
    uint64_t word[WEIR__HOT_TEXT_MAX / 8];
};

struct weir__hot_sketch {
    uint64_t total; /* of all weights that were ever noted and have not aged */
    uint64_t pad[7];
    struct weir__hot_counter place[WEIR__HOT_COUNTERS];
    struct weir__hot_text text[WEIR__HOT_TEXTS]; /* info: the key's length */
};

struct weir__hot_rule {
    uint64_t rule; /* its id; 0: free; or WEIR__HOT_CLEARING */
    uint64_t most; /* of the minute in which something was noted last: the most of its limit that a key had used */
    uint64_t pad[6];
    struct weir__hot_sketch sketch[WEIR__HOT_KINDS];
    struct weir__hot_text near[WEIR__HOT_NEAR];             /* info: length, per mille of the limit, and when */
    struct weir__hot_counter sample[WEIR__HOT_KEY_SAMPLES]; /* weight: per mille of the limit, and when */
};

struct weir__hot_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t rule_slots;
    uint64_t bytes;
    uint64_t without; /* how often a rule found no panel */
    uint64_t seconds; /* that the weights stand for: each second one more, halved when they are; 0: nobody counts */
    uint64_t pad[3];
};

/* A mapped area: where things are in this process. */
struct weir__hot {
    struct weir__hot_header *header;
    struct weir__hot_rule *rule_slot;
    uint32_t rule_slots;
};

/* How many bytes an area with so many panels takes. */
size_t weir__hot_bytes(uint32_t panels);
/* Makes an empty area of zeroed memory, as many panels as fit. False: not even one does. */
bool weir__hot_make(void *memory, size_t bytes);
/* Attaches to one. False: it is none, or damaged. */
bool weir__hot_attach(void *memory, size_t bytes, struct weir__hot *hot);

/*
 * The rule's panel. If it has none yet it gets a free one, or that of the rule under which nothing was noted for the
 * longest time, at least WEIR__HOT_IDLE minutes: rules that are gone need not be told apart from those that nobody
 * asks about, and the latter get one again when somebody does. So whoever keeps a panel looks before each note whether
 * it is still his, and finds another now and then. NULL: all are in use, or somebody is claiming one just now.
 */
struct weir__hot_rule *weir__hot_find(const struct weir__hot *hot, uint64_t rule, uint32_t minute);
/* For those who only look. */
const struct weir__hot_rule *weir__hot_lookup(const struct weir__hot *hot, uint64_t rule);

struct weir__hot_sample {
    uint64_t hash; /* of the key; the segment's, with its secret */
    const char *key;
    size_t key_len;
    uint64_t weight; /* cost, scaled by how many stand for one that is noted */
    enum weir__hot_kind kind;
    uint64_t dice;      /* any number that does not depend on the key */
    uint32_t per_mille; /* of the limit that the key has used; above 1000 in debt or soft */
    uint32_t minute;    /* any clock's, in minutes */
};

void weir__hot_sample(struct weir__hot_rule *panel, const struct weir__hot_sample *note);

/* The most of its limit, in per mille, that any key had used of those noted in this minute and the one before. */
uint32_t weir__hot_peak(const struct weir__hot_rule *panel, uint32_t minute);

/* Halves all weights: called in fixed steps, it makes the list one of the recent past. */
void weir__hot_age(struct weir__hot_rule *panel);

struct weir__hot_key {
    uint64_t hash;
    uint64_t weight;
    uint64_t error; /* standard error of the sketch, not of the sampling */
    size_t len;     /* of the whole key; 0: its text is not known */
    size_t shown;   /* bytes of it in text */
    char text[WEIR__HOT_TEXT_MAX];
};

/* The heaviest keys, heaviest first, at most max (up to 256). `hash_of` hashes a text as notes do. */
typedef uint64_t weir__hot_hash(const void *context, const char *key, size_t len);
size_t weir__hot_top(const struct weir__hot_rule *panel, enum weir__hot_kind kind, weir__hot_hash *hash_of,
                     const void *context, struct weir__hot_key *keys, size_t max);
/* Keys that were near their limit in the last `minutes`; weight is per mille. */
size_t weir__hot_nearest(const struct weir__hot_rule *panel, uint32_t minute, uint32_t minutes, weir__hot_hash *hash_of,
                         const void *context, struct weir__hot_key *keys, size_t max);

/*
 * How much of their limit keys use: count[i] of the sampled keys use from i x 10 % on, the last one 100 % and more.
 * Each of 256 parts of all hashes keeps its key with the smallest rest, which is a uniform sample of the keys noted in
 * the last `minutes`. Returns about how many such keys there are.
 */
#define WEIR__HOT_USES 11
uint64_t weir__hot_uses(const struct weir__hot_rule *panel, uint32_t minute, uint32_t minutes,
                        uint64_t count[WEIR__HOT_USES]);

#endif
