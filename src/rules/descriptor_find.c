/* descriptors.h: what applies to a descriptor, and the key of its counter. Runs once a descriptor of each request. */
#include "rules/descriptor_tree.h"
#include "rules/key.h"

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

/* A text in which what would end it too early is written as %XX, and so is '%' itself. */
static void add_text(struct weir__key *key, weir_text text, char stop)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t from = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c != '%' && c != stop)
            continue;
        char escaped[3] = {'%', digits[(unsigned char)c >> 4], digits[(unsigned char)c & 15]};
        weir__key_add(key, (weir_text){text.data + from, i - from});
        weir__key_add(key, (weir_text){escaped, sizeof escaped});
        from = i + 1;
    }
    if (from < text.len)
        weir__key_add(key, (weir_text){text.data + from, text.len - from});
}

/* `path`: the nodes that the entries led to; NULL: every value counts as it is. */
static int write_key(weir_text domain, const weir_descriptor *descriptor,
                     const struct weir__descriptor_node *const *path, char *text, size_t size)
{
    struct weir__key key;
    if (size < WEIR__KEY_MAX)
        return 0;
    weir__key_begin(&key, text);
    add_text(&key, domain, ':');
    for (size_t i = 0; i < descriptor->entry_count; i++) {
        const weir_descriptor_entry *entry = &descriptor->entries[i];
        weir__key_add(&key, i ? WEIR__TEXT(",") : WEIR__TEXT(":"));
        add_text(&key, entry->key, '=');
        weir__key_add(&key, WEIR__TEXT("="));
        add_text(&key, path && path[i]->share ? path[i]->value : entry->value, ',');
    }
    return weir__key_end(&key);
}

int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char *key, size_t size)
{
    return write_key(domain, descriptor, NULL, key, size);
}

void weir__descriptor_find(const weir_rules *set, weir_text domain, const weir_descriptor *descriptor, char *key,
                           size_t size, struct weir__descriptor_match *hit)
{
    const struct weir__descriptor_node *path[WEIR__DESCRIPTOR_DEPTH];
    const struct weir__descriptor_node *at = weir__domain_get(set, domain);

    *hit = (struct weir__descriptor_match){0};
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
