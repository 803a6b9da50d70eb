/* descriptors.h: what applies to a descriptor, and the key of its counter. Runs once a descriptor of each request. */
#include "rules/descriptor_tree.h"

/* ---- looking up ---- */

const struct weir__descriptor_node *weir__domain_get(const weir_rules *set, weir_text domain)
{
    if (!set->domains)
        return NULL;
    uint64_t hash = weir__descriptor_key_hash(NULL, domain);
    return weir__descriptor_get(set->domains, NULL, hash, domain, (weir_text){NULL, 0});
}

bool weir__domain_known(const weir_rules *set, weir_text domain)
{
    return weir__domain_get(set, domain) != NULL;
}

/* The child that an entry leads to: the value itself, the first wildcard that matches, or the bare key. */
static const struct weir__descriptor_node *
step(const struct weir__domain *domains, const struct weir__descriptor_node *at, const weir_descriptor_entry *entry)
{
    const struct weir__descriptor_node *node;
    uint64_t key_hash = weir__descriptor_key_hash(at, entry->key);
    if (entry->value.len) {
        uint64_t hash = weir__descriptor_value_hash(key_hash, entry->value);
        if ((node = weir__descriptor_get(domains, at, hash, entry->key, entry->value)))
            return node;
    }
    const struct weir__descriptor_node *bare =
        weir__descriptor_get(domains, at, key_hash, entry->key, (weir_text){NULL, 0});
    if (!bare)
        return NULL;
    for (node = bare->wildcards; node; node = node->next_wildcard)
        if (weir__glob_match(node->value, entry->value, false, false))
            return node;
    return bare->declared ? bare : NULL;
}

/* ---- the counter's key: "domain:key=value,key=value" ---- */

#define HASH_DIGITS 32

struct writer {
    char *key;
    size_t used, size;
    bool full;
};

static void put(struct writer *w, char c)
{
    if (w->used < w->size)
        w->key[w->used++] = c;
    else
        w->full = true;
}

/* What would end a text too early is written as %XX, and so is '%' itself. */
static void put_text(struct writer *w, weir_text text, char stop, char other_stop)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len && !w->full; i++) {
        char c = text.data[i];
        if (c != '%' && c != stop && c != other_stop) {
            put(w, c);
            continue;
        }
        put(w, '%');
        put(w, digits[(unsigned char)c >> 4]);
        put(w, digits[(unsigned char)c & 15]);
    }
}

/* The value that counts for entry i: its own, or the pattern that it shares a counter by. */
static weir_text counted_value(const weir_descriptor *descriptor, const struct weir__descriptor_node *const *path,
                               size_t i)
{
    return path && path[i]->share ? path[i]->value : descriptor->entries[i].value;
}

static void hash_text(XXH3_state_t *state, weir_text text)
{
    uint64_t len = text.len; /* so that no two lists of texts look the same */
    XXH3_128bits_update(state, &len, sizeof len);
    XXH3_128bits_update(state, text.data, text.len);
}

/* A key that is too long keeps its beginning; a hash of everything stands for the rest. */
static void put_hash(char *to, weir_text domain, const weir_descriptor *descriptor,
                     const struct weir__descriptor_node *const *path)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    hash_text(&state, domain);
    for (size_t i = 0; i < descriptor->entry_count; i++) {
        hash_text(&state, descriptor->entries[i].key);
        hash_text(&state, counted_value(descriptor, path, i));
    }
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    *to++ = '#';
    for (int i = 0; i < HASH_DIGITS; i++) {
        uint64_t half = i < HASH_DIGITS / 2 ? hash.high64 : hash.low64;
        *to++ = "0123456789abcdef"[half >> (60 - 4 * (i & 15)) & 15];
    }
}

static int write_key(weir_text domain, const weir_descriptor *descriptor,
                     const struct weir__descriptor_node *const *path, char *key, size_t size)
{
    /* One byte less than the longest: a key that has not been cut is never as long as one that has. */
    struct writer w = {.key = key, .size = (size < WEIR__KEY_MAX ? size : WEIR__KEY_MAX) - 1};
    put_text(&w, domain, ':', ':');
    for (size_t i = 0; i < descriptor->entry_count && !w.full; i++) {
        put(&w, i ? ',' : ':');
        put_text(&w, descriptor->entries[i].key, '=', ',');
        put(&w, '=');
        put_text(&w, counted_value(descriptor, path, i), ',', ',');
    }
    if (!w.full)
        return (int)w.used;
    put_hash(key + w.size - HASH_DIGITS, domain, descriptor, path);
    return (int)w.size + 1;
}

int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char *key, size_t size)
{
    return write_key(domain, descriptor, NULL, key, size);
}

void weir__descriptor_find(const weir_rules *set, weir_text domain, const weir_descriptor *descriptor, char *key,
                           size_t size, struct weir__descriptor_hit *hit)
{
    const struct weir__descriptor_node *path[WEIR__DESCRIPTOR_DEPTH];
    const struct weir__descriptor_node *at = weir__domain_get(set, domain);

    *hit = (struct weir__descriptor_hit){0};
    if (descriptor->entry_count > WEIR__DESCRIPTOR_DEPTH)
        return;
    for (size_t i = 0; at && i < descriptor->entry_count; i++)
        path[i] = at = step(set->domains, at, &descriptor->entries[i]);
    if (!at || !at->rule)
        return;
    hit->rule = at->rule;
    hit->quota = at->rule->quotas;
    if (hit->quota->kind == WEIR__LIMITED)
        hit->key_len = write_key(domain, descriptor, path, key, size);
}
