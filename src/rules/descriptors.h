/*
 * The descriptor dialect of envoyproxy/ratelimit: a tree of (key, value) per domain.
 *
 * Look-up per entry: exact key and value, then wildcard values in file order, then the bare key; the first that is
 * there is taken, and nobody comes back to try the next. A limit applies only at exactly the depth of the descriptor.
 */
#ifndef WEIR_RULES_DESCRIPTORS_H
#define WEIR_RULES_DESCRIPTORS_H

#include "rules/set.h"

/* Reads one document that has `domain` into the set under construction. Errors are reported. */
void weir__descriptors_read(struct weir__builder *builder, const struct weir__node *root);

struct weir__descriptor_match {
    const struct weir__rule *rule; /* NULL: nothing matched */
    const struct weir__quota *quota;
    int key_len; /* of the counter's key, written to `key`; 0 for what needs none: banned and unlimited */
};

/*
 * What applies to one descriptor. The counter's key is made of the domain and the entries (with a wildcard's pattern
 * in place of the value under share_threshold), unambiguously; one that is too long is shortened as in key.h. `size` is
 * at least WEIR__KEY_MAX, or else there is no key.
 */
void weir__descriptor_find(const weir_rules *set, weir_text domain, const weir_descriptor *descriptor, char *key,
                           size_t size, struct weir__descriptor_match *hit);

/* For descriptors with a limit of their own, which count only in a domain that is known: */
bool weir__domain_known(const weir_rules *set, weir_text domain);
/* the same key without any rule. Returns its length. */
int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char *key, size_t size);

#endif
