/*
 * The descriptor dialect of envoyproxy/ratelimit: a tree of (key, value) per domain.
 *
 * Each entry is looked up as the exact key and value, then wildcard values in file order, then the bare key. The first
 * match is taken, without backtracking. A limit applies only to a descriptor of exactly its depth.
 */
#ifndef WEIR_RULES_DESCRIPTORS_H
#define WEIR_RULES_DESCRIPTORS_H

#include "rules/set.h"

/* Reads one document that has `domain` into the set under construction. Errors are reported. */
void weir__descriptors_read(struct weir__builder *builder, const struct weir__node *root);

struct weir__descriptor_match {
    const struct weir__rule *rule; /* NULL: nothing matched */
    const struct weir__quota *quota;
    int key_len; /* length of the counter's key in `key`; 0: no counter (banned, unlimited) */
};

/*
 * Finds the limit of one descriptor and builds its counter's key from the domain and the entries, unambiguously (under
 * share_threshold a wildcard's pattern replaces the value); a key that is too long is shortened as in key.h. With
 * `size` less than WEIR__KEY_MAX there is no key.
 */
void weir__descriptor_find(const weir_rules *set, weir_text domain, const weir_descriptor *descriptor, char *key,
                           size_t size, struct weir__descriptor_match *hit);

/* For descriptors that bring their own limit, which count only in a known domain. */
bool weir__domain_known(const weir_rules *set, weir_text domain);
/* The same key, without a rule. Returns its length. */
int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char *key, size_t size);

#endif
