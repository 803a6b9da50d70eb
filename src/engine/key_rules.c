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

static bool is_in_address(char c)
{
    return weir__hex_value(c) >= 0 || c == '.' || c == ':' || c == '/';
}

/* What weir__address_text writes: an address or a prefix. */
static bool is_address_text(weir_text value)
{
    size_t i = 0;
    while (i < value.len && is_in_address(value.data[i]))
        i++;
    return i == value.len && (memchr(value.data, '.', value.len) || memchr(value.data, ':', value.len));
}

static bool is_client_ip(const weir_rules *rules, int attribute)
{
    return rules->attributes.list[attribute].kind == WEIR__ATTR_CLIENT_IP;
}

/* True if the rule counts the key. Sets *literal if the template has literal text. */
static bool is_key_of(const weir_rules *rules, const struct weir__rule *rule, weir_text key, bool *literal)
{
    weir_text values[WEIR__TEMPLATE_PIECES] = {{NULL, 0}};
    const struct weir__template *tmpl = &rule->key;
    bool has_literal = !tmpl->piece_count;
    if (tmpl->piece_count ? !weir__template_matches(tmpl, key, values) : !weir__text_is(key, "*"))
        return false;
    for (int i = 0, at = 0; i < tmpl->piece_count; i++) {
        has_literal |= tmpl->pieces[i].literal.len > 0;
        if (tmpl->pieces[i].attribute < 0)
            break;
        if (values[at].len && is_client_ip(rules, tmpl->pieces[i].attribute) && !is_address_text(values[at]))
            return false;
        at++;
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
    const struct weir__identity *identity = &rules->attributes.identity;
    char text[WEIR__ADDRESS_TEXT];
    struct weir__address address;
    if (!tmpl->piece_count || tmpl->pieces[0].attribute < 0)
        return false;
    if (is_client_ip(rules, tmpl->pieces[0].attribute)) {
        if (!weir__address_parse(value, &address))
            return false;
        int group = weir__address_is4(&address) ? 96 + identity->ipv4_prefix : identity->ipv6_prefix;
        weir__address_mask(&address, group);
        value = (weir_text){text, weir__address_text(&address, group, text)};
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
            if (pass ? !fill(rules, rule, about, next) : !is_key_of(rules, rule, key, &literal))
                continue;
            if (!pass) {
                memcpy(next->key, key.data, key.len);
                next->key_len = key.len;
            }
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
