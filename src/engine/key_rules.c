/* The rules whose key a text is, or of whose key it is the only value. See key_commands.h. */
#include "engine/evaluation.h"

#include <ctype.h>
#include <stdio.h>

static bool has_counter(const struct weir__rule *rule)
{
    for (size_t i = 0; i < rule->quota_count; i++)
        if (rule->quotas[i].kind == WEIR__LIMITED)
            return true;
    return false;
}

/* True if operators may name keys of the rule without its name. */
static bool is_keyed(const struct weir__rule *rule)
{
    return !rule->shadow && rule->match && has_counter(rule);
}

/* The address as keys have it: grouped by its prefix. Returns its length; 0: it is no address. */
static size_t counted_address(const weir_rules *rules, weir_text value, char text[WEIR__ADDRESS_TEXT])
{
    const struct weir__identity *identity = &rules->attributes.identity;
    struct weir__address address;
    if (!weir__address_parse(value, &address))
        return 0;
    int group = weir__address_is4(&address) ? 96 + identity->ipv4_prefix : identity->ipv6_prefix;
    weir__address_mask(&address, group);
    return weir__address_text(&address, group, text);
}

/* True for an address as keys have it: neither another network nor one address of several that share a key. */
static bool is_counted_address(const weir_rules *rules, weir_text value)
{
    char text[WEIR__ADDRESS_TEXT];
    const char *slash = value.len ? memchr(value.data, '/', value.len) : NULL;
    weir_text address = {value.data, slash ? (size_t)(slash - value.data) : value.len};
    return weir__text_equal((weir_text){text, counted_address(rules, address, text)}, value);
}

static bool is_client_ip(const weir_rules *rules, int attribute)
{
    return rules->attributes.list[attribute].kind == WEIR__ATTR_CLIENT_IP;
}

/*
 * True if the rule counts the key, which is in *found; an address is replaced by its group. Sets *literal if the
 * template has literal text.
 */
static bool is_key_of(const weir_rules *rules, const struct weir__rule *rule, weir_text key, bool *literal,
                      struct weir__key_rule *found)
{
    char text[WEIR__ADDRESS_TEXT];
    weir_text values[WEIR__TEMPLATE_PIECES] = {{NULL, 0}};
    const struct weir__template *tmpl = &rule->key;
    bool has_literal = !tmpl->piece_count, replaced = false; /* true only if the address is the only value */
    if (tmpl->piece_count ? !weir__template_matches(tmpl, key, values) : !weir__text_is(key, "*"))
        return false;
    for (int i = 0, at = 0; i < tmpl->piece_count; i++) {
        has_literal |= tmpl->pieces[i].literal.len > 0;
        if (tmpl->pieces[i].attribute < 0)
            break;
        if (values[at].len && is_client_ip(rules, tmpl->pieces[i].attribute)) {
            weir_text address = {text, counted_address(rules, values[at], text)};
            replaced = address.len && weir__template_fill_value(tmpl, address, found->key, &found->key_len);
            if (!replaced && !is_counted_address(rules, values[at]))
                return false;
        }
        at++;
    }
    if (!replaced) {
        memcpy(found->key, key.data, key.len);
        found->key_len = key.len;
    }
    *literal |= has_literal;
    return true;
}

/* True for a text such as key:42 that is no address: it begins with the literal text of a template. */
static bool has_prefix(weir_text value)
{
    struct weir__address address;
    size_t i = 0;
    while (i < value.len && (isalnum((unsigned char)value.data[i]) || value.data[i] == '_' || value.data[i] == '-'))
        i++;
    return i > 0 && i < value.len && value.data[i] == ':' && !weir__address_parse(value, &address);
}

/* True if the rule's key has one attribute, which may have the value; writes that key. */
static bool fill(const weir_rules *rules, const struct weir__rule *rule, weir_text value, struct weir__key_rule *found)
{
    const struct weir__template *tmpl = &rule->key;
    char text[WEIR__ADDRESS_TEXT];
    if (!tmpl->piece_count || tmpl->pieces[0].attribute < 0)
        return false;
    if (is_client_ip(rules, tmpl->pieces[0].attribute)) {
        value = (weir_text){text, counted_address(rules, value, text)};
        if (!value.len)
            return false;
    } else if (has_prefix(value)) {
        return false; /* user:key:42 is not the key of any client */
    }
    return weir__template_fill_value(tmpl, value, found->key, &found->key_len);
}

static bool was_found(const struct weir__key_rule *found, size_t count, weir_text name)
{
    for (size_t i = 0; i < count; i++)
        if (weir__text_is(name, found[i].rule))
            return true;
    return false;
}

size_t weir__key_rules(weir *engine, weir_text about, struct weir__key_rule found[WEIR__KEY_RULES_MAX])
{
    char text[WEIR__KEY_MAX];
    size_t count = 0;
    bool literal = false;
    int at;
    if (!about.len)
        return 0;
    weir__watch(engine);
    weir_text key = weir__key_counted(about, text);
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const weir_rules *rules = ruleset->rules;
    for (int pass = 0; pass < 2 && !(pass && literal); pass++)
        for (size_t i = 0; i < rules->count && count < WEIR__KEY_RULES_MAX; i++) {
            const struct weir__rule *rule = rules->rules[i];
            struct weir__key_rule *next = &found[count];
            if (!is_keyed(rule) || was_found(found, count, rule->base))
                continue;
            if (pass ? !fill(rules, rule, about, next) : !is_key_of(rules, rule, key, &literal, next))
                continue;
            snprintf(next->rule, sizeof next->rule, "%.*s", (int)rule->base.len, rule->base.data);
            count++;
        }
    weir__hazard_release(&engine->hazards, at);
    return count;
}

size_t weir__key_templates(weir *engine, char found[][WEIR__KEY_MAX], size_t max)
{
    size_t count = 0, k;
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const weir_rules *rules = ruleset->rules;
    for (size_t i = 0; i < rules->count && count < max; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (!is_keyed(rule) || !rule->key.piece_count)
            continue;
        snprintf(found[count], WEIR__KEY_MAX, "%.*s", (int)rule->key.source.len, rule->key.source.data);
        for (k = 0; strcmp(found[k], found[count]) != 0; k++)
            ;
        count += k == count;
    }
    weir__hazard_release(&engine->hazards, at);
    return count;
}
