/* The delta ledger against a naive model, with concurrent threads, and with files that are not ledgers. */
#include "table/ledger.h"

#include <weir/weir.h>

#include <pthread.h>

#include "../../test.h"

#define SENDER "0123456789abcdef0123456789abcdef"

static struct weir__ledger make(uint64_t bytes, void **memory)
{
    struct weir__ledger ledger = {0};
    *memory = aligned_alloc(4096, bytes);
    memset(*memory, 0, bytes);
    CHECK_EQ(weir__ledger_format(*memory, bytes, SENDER), 0);
    CHECK_EQ(weir__ledger_attach(*memory, bytes, &ledger), 0);
    return ledger;
}

static uint64_t identity_of(uint64_t key)
{
    return (key + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct weir__ledger_text text_of(uint64_t key)
{
    struct weir__ledger_text text = {.rule = key * 7, .tier = key % 3, .key_len = 8};
    snprintf(text.key, sizeof text.key, "k%07u", (unsigned)key);
    return text;
}

static bool put(const struct weir__ledger *ledger, uint64_t key, int64_t amount)
{
    struct weir__ledger_text text = text_of(key);
    return weir__ledger_add(ledger, identity_of(key), amount) ||
           weir__ledger_add_entry(ledger, identity_of(key), &text, amount);
}

static bool is_text_of(const struct weir__ledger_text *text, uint64_t key)
{
    struct weir__ledger_text expected = text_of(key);
    return text->rule == expected.rule && text->tier == expected.tier && text->key_len == expected.key_len &&
           memcmp(text->key, expected.key, sizeof text->key) == 0;
}

static uint64_t key_of(const struct weir__ledger_text *text)
{
    return strtoull(text->key + 1, NULL, 10);
}

TEST(added_amounts_are_found)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    struct weir__ledger_entry entry;
    CHECK(ledger.entries >= 900);
    CHECK(!weir__ledger_add(&ledger, identity_of(1), 5));
    CHECK(put(&ledger, 1, 5));
    CHECK(weir__ledger_add(&ledger, identity_of(1), -7));
    int found = 0;
    for (uint64_t word = 0; word < ledger.entries / 64; word++) {
        uint64_t bits = weir__ledger_dirty(&ledger, word);
        CHECK_EQ(weir__ledger_dirty(&ledger, word), 0);
        for (uint64_t i = 0; i < 64; i++)
            if (bits >> i & 1) {
                weir__ledger_read(&ledger, word * 64 + i, &entry);
                CHECK(entry.ready && entry.identity == identity_of(1) && is_text_of(&entry.text, 1));
                CHECK_EQ(entry.amount, -2);
                CHECK(!weir__ledger_free(&ledger, word * 64 + i, entry.identity));
                weir__ledger_discard(&ledger, word * 64 + i, entry.identity, -2);
                CHECK(weir__ledger_free(&ledger, word * 64 + i, entry.identity));
                CHECK(!weir__ledger_free(&ledger, word * 64 + i, entry.identity));
                found++;
            }
    }
    CHECK_EQ(found, 1);
    free(memory);
}

TEST(batch_is_subtracted_once)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    uint64_t identity = identity_of(9), index = 0;
    CHECK(put(&ledger, 9, 10));
    while (index < ledger.entries && ledger.cell[index].lo != identity)
        index++;
    for (uint64_t batch = 1; batch < (UINT64_C(1) << 25); batch += (UINT64_C(1) << 23) - (batch == 1)) {
        /* 1, 2^23, 2^24, …: numbers that are the same modulo 2^23 are not the same batch. */
        CHECK(weir__ledger_begin_batch(&ledger, index, identity, batch));
        for (int again = 0; again < 3; again++)
            weir__ledger_ack(&ledger, index, identity, 10, batch);
        CHECK_EQ(weir__ledger_read_cell(&ledger, index).amount, 0);
        CHECK(weir__ledger_add(&ledger, identity, 10));
    }
    CHECK(!weir__ledger_begin_batch(&ledger, index, identity + 1, 77));
    struct weir__ledger_cell read_cell = weir__ledger_read_cell(&ledger, index);
    CHECK(read_cell.identity == identity && read_cell.amount == 10);
    free(memory);
}

TEST(torn_text_is_written_again)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    struct weir__ledger_entry entry;
    uint64_t identity = identity_of(3), index = 0;
    CHECK(put(&ledger, 3, 4));
    while (index < ledger.entries && ledger.cell[index].lo != identity)
        index++;
    /* Another counter's text, complete in itself; then a torn one. */
    CHECK(put(&ledger, 4, 1));
    uint64_t other = 0;
    while (other < ledger.entries && ledger.cell[other].lo != identity_of(4))
        other++;
    for (int torn = 0; torn < 2; torn++) {
        ledger.text[index] = ledger.text[other];
        ledger.text[index].key[3] ^= (char)torn;
        weir__ledger_read(&ledger, index, &entry);
        CHECK(!entry.ready);
        CHECK_EQ(entry.amount, 4 + torn);
        CHECK(!weir__ledger_add(&ledger, identity, 1));
        CHECK(put(&ledger, 3, 1));
        weir__ledger_read(&ledger, index, &entry);
        CHECK(entry.ready && is_text_of(&entry.text, 3));
        CHECK_EQ(entry.amount, 5 + torn);
    }
    CHECK_EQ(ledger.header->torn, 2);
    free(memory);
}

/* Bytes after a key are those of a longer one before. */
TEST(short_text_replaces_a_long_one)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    struct weir__ledger_entry entry;
    for (unsigned len = 0; len <= WEIR__LEDGER_KEY; len++) {
        struct weir__ledger_text text = {.rule = 7, .key_len = (uint16_t)len};
        memset(text.key, 'a', len);
        uint64_t identity = identity_of(len), index = 0;
        memset(ledger.text, 'x', ledger.entries * sizeof *ledger.text);
        CHECK(weir__ledger_add_entry(&ledger, identity, &text, 1));
        while (index < ledger.entries && ledger.cell[index].lo != identity)
            index++;
        weir__ledger_read(&ledger, index, &entry);
        text.check = entry.text.check;
        CHECK(entry.ready && memcmp(&entry.text, &text, sizeof text) == 0);
        /* Every bit of it is checked, those of the length too. */
        size_t bytes = offsetof(struct weir__ledger_text, key) + len;
        unsigned char *byte = (unsigned char *)&ledger.text[index] + (len * 37 + 5) % bytes;
        *byte ^= (unsigned char)(1U << len % 8);
        weir__ledger_read(&ledger, index, &entry);
        CHECK(!entry.ready);
    }
    free(memory);
}

TEST(fast_read_agrees_with_the_full_read)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    CHECK(put(&ledger, 5, -3) && put(&ledger, 6, 1000));
    for (uint64_t i = 0; i < ledger.entries; i++) {
        struct weir__ledger_entry entry;
        weir__ledger_read(&ledger, i, &entry);
        struct weir__ledger_cell read_cell = weir__ledger_read_cell(&ledger, i);
        CHECK(read_cell.identity == entry.identity && read_cell.amount == entry.amount);
    }
    free(memory);
}

TEST(full_ledger_is_counted_and_harmless)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    uint64_t put_in = 0, refused = 0;
    for (uint64_t key = 0; key < 3 * ledger.entries; key++) {
        bool done = put(&ledger, key, 1);
        put_in += done;
        refused += !done;
        if (key == ledger.entries * 3 / 4)
            CHECK_EQ(refused, 0); /* three quarters of it can be used */
    }
    CHECK_EQ(ledger.header->full, refused);
    CHECK(put_in <= ledger.entries && put_in > ledger.entries * 9 / 10);
    /* An excessive amount is refused as well, and does not change the sum. */
    int64_t sum = 1;
    uint64_t key = 0, index = 0;
    while (weir__ledger_add(&ledger, identity_of(key), INT64_C(0xffffffff)))
        sum += INT64_C(0xffffffff);
    while (index < ledger.entries && ledger.cell[index].lo != identity_of(key))
        index++;
    CHECK(sum > INT64_C(1) << 38);
    struct weir__ledger_cell read_cell = weir__ledger_read_cell(&ledger, index);
    CHECK_EQ(read_cell.identity, identity_of(key));
    CHECK_EQ(read_cell.amount, sum);
    free(memory);
}

TEST(random_operations_agree_with_a_model)
{
    enum { KEYS = 700 };
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    int64_t *model = calloc(KEYS, sizeof *model), *sent = calloc(KEYS, sizeof *sent);
    uint64_t seed = 5, batch = 0;
    for (int64_t step = 0; step < test_scaled(400000, 40000); step++) {
        uint64_t key = test_random(&seed) % KEYS;
        int64_t amount = (int64_t)(test_random(&seed) % 9) - 3;
        if (put(&ledger, key, amount))
            model[key] += amount;
        else
            CHECK(ledger.header->full > 0);
        if (test_random(&seed) % 400)
            continue;
        batch++;
        for (uint64_t word = 0; word < ledger.entries / 64; word++)
            for (uint64_t bits = weir__ledger_dirty(&ledger, word); bits; bits &= bits - 1) {
                uint64_t index = word * 64 + (uint64_t)__builtin_ctzll(bits);
                struct weir__ledger_entry entry;
                weir__ledger_read(&ledger, index, &entry);
                if (!entry.identity)
                    continue;
                uint64_t which = key_of(&entry.text);
                CHECK(entry.ready && is_text_of(&entry.text, which) && entry.identity == identity_of(which));
                CHECK(weir__ledger_begin_batch(&ledger, index, entry.identity, batch));
                weir__ledger_ack(&ledger, index, entry.identity, entry.amount, batch);
                sent[which] += entry.amount;
                if (test_random(&seed) % 2)
                    CHECK(weir__ledger_free(&ledger, index, entry.identity));
            }
        for (int i = 0; i < KEYS; i++)
            CHECK_EQ(sent[i], model[i]);
    }
    free(model);
    free(sent);
    free(memory);
}

/* ---- Threads ---- */

enum { THREAD_KEYS = 64, ADDERS = 3 };

struct shared_state {
    struct weir__ledger ledger;
    int64_t rounds;
    int64_t added[ADDERS][THREAD_KEYS];
    int64_t sent[THREAD_KEYS];
    uint64_t ended, number;
};

static void *add_much(void *context)
{
    struct shared_state *shared_state = context;
    uint64_t me = __atomic_fetch_add(&shared_state->number, 1, __ATOMIC_SEQ_CST), seed = me + 1;
    for (int64_t i = 0; i < shared_state->rounds; i++) {
        uint64_t key = test_random(&seed) % THREAD_KEYS;
        int64_t amount = (int64_t)(test_random(&seed) % 4) - 1;
        if (put(&shared_state->ledger, key, amount))
            shared_state->added[me][key] += amount;
    }
    __atomic_fetch_add(&shared_state->ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void collect(struct shared_state *shared_state, uint64_t batch)
{
    for (uint64_t word = 0; word < shared_state->ledger.entries / 64; word++)
        for (uint64_t bits = weir__ledger_dirty(&shared_state->ledger, word); bits; bits &= bits - 1) {
            uint64_t index = word * 64 + (uint64_t)__builtin_ctzll(bits);
            struct weir__ledger_entry entry;
            weir__ledger_read(&shared_state->ledger, index, &entry);
            if (!entry.identity || !entry.ready)
                continue;
            uint64_t key = key_of(&entry.text);
            CHECK(key < THREAD_KEYS && is_text_of(&entry.text, key));
            CHECK(weir__ledger_begin_batch(&shared_state->ledger, index, entry.identity, batch));
            weir__ledger_ack(&shared_state->ledger, index, entry.identity, entry.amount, batch);
            shared_state->sent[key] += entry.amount;
            weir__ledger_free(&shared_state->ledger, index, entry.identity);
        }
}

TEST(concurrent_adds_while_one_thread_collects)
{
    void *memory;
    struct shared_state *shared_state = calloc(1, sizeof *shared_state);
    shared_state->ledger = make(WEIR__LEDGER_BYTES_MIN, &memory);
    shared_state->rounds = test_scaled(1000000, 20000);
    pthread_t thread[ADDERS];
    for (int i = 0; i < ADDERS; i++)
        pthread_create(&thread[i], NULL, add_much, shared_state);
    uint64_t batch = 1;
    while (__atomic_load_n(&shared_state->ended, __ATOMIC_SEQ_CST) < ADDERS)
        collect(shared_state, batch++);
    for (int i = 0; i < ADDERS; i++)
        pthread_join(thread[i], NULL);
    collect(shared_state, batch);
    for (int key = 0; key < THREAD_KEYS; key++) {
        int64_t added = 0;
        for (int i = 0; i < ADDERS; i++)
            added += shared_state->added[i][key];
        CHECK_EQ(shared_state->sent[key], added);
    }
    CHECK_EQ(shared_state->ledger.header->full, 0);
    free(memory);
    free(shared_state);
}

/* ---- Invalid files ---- */

TEST(only_a_valid_ledger_is_attached)
{
    void *memory;
    struct weir__ledger ledger = make(WEIR__LEDGER_BYTES_MIN, &memory), other;
    unsigned char *byte = memory;
    CHECK_EQ(strcmp(ledger.header->sender, SENDER), 0);
    CHECK_EQ(weir__ledger_attach(memory, WEIR__LEDGER_BYTES_MIN - 1, &other), WEIR_ETRUNCATED);
    CHECK_EQ(weir__ledger_attach(memory, 64, &other), WEIR_ETRUNCATED);
    CHECK_EQ(weir__ledger_attach(memory, WEIR__LEDGER_BYTES_MIN + 4096, &other), 0);
    for (size_t i = 0; i < offsetof(struct weir__ledger_header, check) + 8; i++)
        for (int bit = 0; bit < 8; bit++) {
            byte[i] ^= (unsigned char)(1 << bit);
            CHECK(weir__ledger_attach(memory, WEIR__LEDGER_BYTES_MIN, &other) != 0);
            byte[i] ^= (unsigned char)(1 << bit);
        }
    /* A header that is consistent in itself, but does not match the file size. */
    ledger.header->entries += 64;
    CHECK_EQ(weir__ledger_attach(memory, WEIR__LEDGER_BYTES_MIN, &other), WEIR_EDAMAGED);
    void *small = calloc(1, WEIR__LEDGER_BYTES_MIN);
    CHECK_EQ(weir__ledger_format(small, WEIR__LEDGER_BYTES_MIN - 1, SENDER), WEIR_ESIZE);
    CHECK_EQ(weir__ledger_attach(small, WEIR__LEDGER_BYTES_MIN, &other), WEIR_ENOTSEG);
    free(small);
    free(memory);
}

TEST(areas_do_not_overlap_at_any_size)
{
    for (uint64_t bytes = WEIR__LEDGER_BYTES_MIN; bytes < WEIR__LEDGER_BYTES_MIN + 70000; bytes += 97) {
        struct weir__ledger_header *h = calloc(1, sizeof *h);
        CHECK_EQ(weir__ledger_format(h, bytes, SENDER), 0);
        CHECK(h->entries % 64 == 0 && h->entries > 0);
        CHECK(h->dirty_at + h->entries / 8 <= h->cells_at);
        CHECK(h->cells_at + h->entries * 16 <= h->texts_at);
        CHECK(h->texts_at + h->entries * 112 <= bytes);
        free(h);
    }
}

TEST_MAIN
