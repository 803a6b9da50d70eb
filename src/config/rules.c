/* weir.yaml: rules inside the file. The rules compiler gets a copy of the file with everything else blanked out, so
 * that its messages have the lines and columns of weir.yaml. */
#include "config/config.h"
#include "rules/yaml.h"

/* Members that belong to the rules if `rules` is a list. */
static const char *const rule_members[] = {"identity", "allow", "block", "response", "normalize", "rules"};
enum { RULE_MEMBERS = WEIR__COUNT(rule_members) };

static bool is_rule_member(const struct weir__node *member)
{
    for (size_t i = 0; i < RULE_MEMBERS; i++)
        if (weir__text_is(member->name->text, rule_members[i]))
            return true;
    return false;
}

static bool is_before(struct weir__place a, struct weir__place b)
{
    return a.line != b.line ? a.line < b.line : a.column < b.column;
}

/*
 * Makes the copy, with the rule members and their names, or with the value of `rules` alone. A blank replaces each
 * other character except line breaks, so that places stay.
 */
static void cut_out(struct weir__config *config, const struct weir__node *root, bool with_names)
{
    weir_text file = config->sources.list[0].text;
    char *out = weir__arena_take(&config->arena, file.len + 1);
    const struct weir__node *member = NULL, *next = root->first;
    struct weir__place at = {0, 1, 1};
    bool blank = true;              /* the line up to here */
    size_t used = 0, len = 0, step; /* len: up to the end of the last rule member */
    for (size_t i = weir__has_byte_order_mark(file) ? 3 : 0; out && i < file.len; i += step) {
        if (next && !is_before(at, next->name->place)) {
            if (!blank) {
                weir__node_error(next->name, "with rules in this file, each of its members must begin a line");
                return;
            }
            member = next;
            next = next->next;
        }
        bool ends_line = (step = weir__line_break(file.data + i, file.len - i)) > 0;
        for (step += !ends_line; !ends_line && i + step < file.len && (file.data[i + step] & 0xc0) == 0x80;)
            step++; /* all bytes of a character */
        bool kept =
            member && (with_names ? is_rule_member(member)
                                  : weir__text_is(member->name->text, "rules") && !is_before(at, member->place));
        if (kept || ends_line)
            memcpy(out + used, file.data + i, step);
        else
            out[used] = ' ';
        used += kept || ends_line ? step : 1;
        len = kept ? used : len;
        blank = ends_line || (blank && file.data[i] == ' ');
        at = (struct weir__place){0, at.line + ends_line, ends_line ? 1 : at.column + 1};
    }
    config->rules_text = (weir_text){out, len};
}

/* Rule members have no effect if the rules are elsewhere: reports them. */
static void refuse_rule_members(const struct weir__node *root, const char *where)
{
    for (size_t i = 0; i + 1 < RULE_MEMBERS; i++) {
        const struct weir__node *member = weir__node_get(root, rule_members[i]);
        if (member)
            weir__node_error(member->name, "%s belongs beside the rules: in %s, or here if rules is a list",
                             rule_members[i], where);
    }
}

void weir__config_rules(struct weir__config *config, const struct weir__node *root)
{
    const struct weir__node *rules = weir__node_get(root, "rules");
    if (config->origin.url || (!rules && config->admin.listener)) {
        refuse_rule_members(root, "the settings of the rules service");
        return; /* they are in its database */
    }
    if (!rules) {
        weir__node_error(root, "there are no rules: name a file or a directory, or write them here under rules");
        return;
    }
    config->rules_place = rules->place;
    if (rules->kind != WEIR__LIST)
        refuse_rule_members(root, rules->kind == WEIR__MAP ? "rules" : "the file that rules names");
    if (rules->kind == WEIR__SCALAR)
        weir__config_path(config, rules, "rules", &config->rules_path);
    else
        cut_out(config, root, rules->kind == WEIR__LIST);
}
