/* weir.yaml: rules inside the file. The rules compiler gets a copy of the file with everything else blanked out, so
 * that its messages have the lines and columns of weir.yaml. */
#include "config/config.h"
#include "rules/yaml.h"

/* Members that belong to the rules if `rules` is a list. */
static const char *const rule_members[] = {"identity", "allow", "block", "response", "normalize", "rules"};
enum { RULE_MEMBERS = sizeof rule_members / sizeof *rule_members };

static weir_text file_text(const struct weir__reader *reader)
{
    return reader->config->sources.list[0].text;
}

static size_t mark_len(weir_text file)
{
    return file.len >= 3 && memcmp(file.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* skips a byte order mark */
}

/* The offset of the beginning of a place's line; the file's length: no such line. */
static size_t line_start(const struct weir__reader *reader, struct weir__place place)
{
    weir_text rest;
    if (!weir__place_find(reader->report, place, &rest))
        return file_text(reader).len;
    size_t at = (size_t)(rest.data - file_text(reader).data);
    return at > 0 ? at : mark_len(file_text(reader));
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The offset of a place; its column counts characters. */
static size_t place_start(const struct weir__reader *reader, struct weir__place place)
{
    weir_text file = file_text(reader);
    size_t at = line_start(reader, place);
    for (uint32_t i = 1; i < place.column && at < file.len; i++)
        for (at++; at < file.len && continues(file.data[at]);)
            at++;
    return at;
}

/* The length of a line break at `at`, or 0. YAML has five: CR, LF, NEL, LS, PS. */
static size_t line_end(const char *at, size_t left)
{
    if (*at == '\n' || *at == '\r')
        return 1;
    if (left >= 2 && memcmp(at, "\xc2\x85", 2) == 0)
        return 2;
    return left >= 3 && (memcmp(at, "\xe2\x80\xa8", 3) == 0 || memcmp(at, "\xe2\x80\xa9", 3) == 0) ? 3 : 0;
}

/* Copies line breaks, and a blank for each other character, so that columns stay. */
static size_t blank(weir_text file, size_t from, size_t to, char *out)
{
    size_t used = 0;
    for (size_t i = from; i < to;) {
        size_t end = line_end(file.data + i, to - i);
        if (end) {
            memcpy(out + used, file.data + i, end);
            used += end;
            i += end;
            continue;
        }
        if (!continues(file.data[i]))
            out[used++] = ' ';
        i++;
    }
    return used;
}

static bool is_rule_member(const struct weir__node *member)
{
    for (size_t i = 0; i < RULE_MEMBERS; i++)
        if (weir__text_is(member->name->text, rule_members[i]))
            return true;
    return false;
}

/* True if the member's name is the first on its line. */
static bool begins_line(const struct weir__reader *reader, const struct weir__node *member)
{
    size_t from = line_start(reader, member->name->place), to = place_start(reader, member->name->place);
    for (size_t i = from; i < to; i++)
        if (file_text(reader).data[i] != ' ')
            return false;
    return true;
}

/* Makes the copy, with the rule members and their names, or with the value of `rules` alone. */
static void cut_out(struct weir__reader *reader, const struct weir__node *root, bool with_names)
{
    struct weir__config *config = reader->config;
    weir_text file = file_text(reader);
    char *out = weir__arena_take(&config->arena, file.len + 1);
    size_t used = 0, done = mark_len(file);
    if (!out)
        return;
    for (const struct weir__node *member = root->first; member; member = member->next) {
        if (!begins_line(reader, member)) {
            weir__report_error(reader->report, member->name->place,
                               "with rules in this file, each of its members must begin a line");
            return;
        }
        if (with_names ? !is_rule_member(member) : !weir__text_is(member->name->text, "rules"))
            continue;
        size_t from = with_names ? line_start(reader, member->name->place) : place_start(reader, member->place);
        size_t to = member->next ? line_start(reader, member->next->name->place) : file.len;
        used += blank(file, done, from, out + used);
        memcpy(out + used, file.data + from, to - from);
        used += to - from;
        done = to;
    }
    config->rules_text = (weir_text){out, used};
}

/* Rule members have no effect if the rules are elsewhere: reports them. */
static void refuse_rule_members(struct weir__reader *reader, const struct weir__node *root, const char *where)
{
    for (size_t i = 0; i + 1 < RULE_MEMBERS; i++) {
        const struct weir__node *member = weir__node_get(root, rule_members[i]);
        if (member)
            weir__report_error(reader->report, member->name->place,
                               "%s belongs beside the rules: in %s, or here if rules is a list", rule_members[i],
                               where);
    }
}

void weir__config_rules(struct weir__reader *reader, const struct weir__node *root)
{
    struct weir__config *config = reader->config;
    const struct weir__node *rules = weir__node_get(root, "rules");
    if (config->origin.url || (!rules && config->admin.listener)) {
        refuse_rule_members(reader, root, "the settings of the rules service");
        return; /* they are in its database */
    }
    if (!rules) {
        weir__report_error(reader->report, root->place,
                           "there are no rules: name a file or a directory, or write them here under rules");
        return;
    }
    config->rules_place = rules->place;
    if (rules->kind == WEIR__LIST) {
        cut_out(reader, root, true);
        return;
    }
    refuse_rule_members(reader, root, rules->kind == WEIR__MAP ? "rules" : "the file that rules names");
    if (rules->kind == WEIR__MAP)
        cut_out(reader, root, false);
    else
        config->rules_path = weir__config_path(reader, rules, "rules");
}
