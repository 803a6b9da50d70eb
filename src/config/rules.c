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

/* The path of a file that `identity` names. Workers read the copy elsewhere: there the path has to be absolute. */
struct named_file {
    const struct weir__node *node;
    const char *path;
    struct named_file *next;
};

/* Those of `identity` in a map of rule members, in their order. *bytes grows by what they may need in quotes. */
static struct named_file *find_files(struct weir__config *config, const struct weir__node *rules, size_t *bytes)
{
    const struct weir__node *identity = weir__node_get(rules, "identity");
    struct named_file *first = NULL, **end = &first;
    for (const struct weir__node *member = identity ? identity->first : NULL; member; member = member->next) {
        const struct weir__node *node = weir__node_get(member, "file");
        struct named_file *file;
        if (!node || node->kind != WEIR__SCALAR || !(file = weir__arena_take(&config->arena, sizeof *file)) ||
            !weir__config_path(config, node, "file", &file->path))
            continue;
        file->node = node;
        *end = file;
        end = &file->next;
        *bytes += 2 * strlen(file->path) + 2;
    }
    return first;
}

/* Writes a text in single quotes of YAML; returns its length. */
static size_t write_quoted(char *to, const char *text)
{
    char *at = to;
    *at++ = '\'';
    for (; *text; text++) {
        *at++ = *text;
        if (*text == '\'')
            *at++ = '\'';
    }
    *at++ = '\'';
    return (size_t)(at - to);
}

/*
 * Makes the copy, with the rule members and their names, or with the value of `rules` alone. A blank replaces each
 * other character except line breaks, so that places stay, up to the end of a line that names a file.
 */
static void cut_out(struct weir__config *config, const struct weir__node *root, bool with_names)
{
    weir_text file = config->sources.list[0].text;
    size_t bytes = file.len + 1;
    const struct named_file *named = find_files(config, with_names ? root : weir__node_get(root, "rules"), &bytes);
    char *out = weir__arena_take(&config->arena, bytes);
    const struct weir__node *member = NULL, *next = root->first;
    bool within = false; /* the name of a file */
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
        if (named && !within && !is_before(at, named->node->place)) {
            used += write_quoted(out + used, named->path);
            within = true;
        }
        if (within && !is_before(at, named->node->end)) {
            named = named->next;
            within = false;
        }
        if (kept || ends_line)
            memcpy(out + used, file.data + i, step);
        else
            out[used] = ' ';
        used += within ? 0 : kept || ends_line ? step : 1;
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

bool weir__has_listener(const struct weir__config *config, enum weir__listener_kind kind)
{
    for (size_t i = 0; i < config->listener_count; i++)
        if (config->listeners[i].kind == kind)
            return true;
    return false;
}

struct weir__rules_host weir__config_host(const struct weir__config *config)
{
    bool gateway = weir__has_listener(config, WEIR__GATEWAY);
    bool service = weir__has_listener(config, WEIR__HTTP_API) || weir__has_listener(config, WEIR__RESP);
    return (struct weir__rules_host){.segment_bytes = config->segment_bytes,
                                     .has_store = config->store.url != NULL,
                                     .consistency = (int)config->store.consistency,
                                     .counts_denied =
                                         weir__has_listener(config, WEIR__GRPC) && config->rls_count_denied,
                                     .callers = !gateway  ? WEIR__CALLERS_UNKNOWN
                                                : service ? WEIR__CALLERS_SERVICE
                                                          : WEIR__CALLERS_NONE};
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
