/*
 * weir.yaml: rules that stand in the file itself. They are read from a copy of the file in which everything else is
 * blank, so that every line and column stays where its author sees it.
 */
#include "config/config.h"
#include "rules/field.h"

/* Members of weir.yaml that are rules when `rules` is a list. */
static const char *const parts[] = {"identity", "allow", "block", "response", "normalize", "rules"};
enum { PARTS = sizeof parts / sizeof *parts };

static weir_text file_text(const struct weir__reader *reader)
{
    return reader->config->sources.list[0].text;
}

static size_t mark_len(weir_text file)
{
    return file.len >= 3 && memcmp(file.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark is no text */
}

/* The byte at which a place's line begins; the file's length if there is none. */
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

/* The byte of a place, whose column counts characters. */
static size_t place_start(const struct weir__reader *reader, struct weir__place place)
{
    weir_text file = file_text(reader);
    size_t at = line_start(reader, place);
    for (uint32_t i = 1; i < place.column && at < file.len; i++)
        for (at++; at < file.len && continues(file.data[at]);)
            at++;
    return at;
}

/* How many bytes end a line here: YAML knows more ends than the usual two. */
static size_t line_end(const char *at, size_t left)
{
    if (*at == '\n' || *at == '\r')
        return 1;
    if (left >= 2 && memcmp(at, "\xc2\x85", 2) == 0)
        return 2;
    return left >= 3 && (memcmp(at, "\xe2\x80\xa8", 3) == 0 || memcmp(at, "\xe2\x80\xa9", 3) == 0) ? 3 : 0;
}

/* Blanks all but the lines' ends. A character of several bytes becomes one blank, lest the columns behind it move. */
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

static bool is_part(const struct weir__node *member)
{
    for (size_t i = 0; i < PARTS; i++)
        if (weir__text_is(member->name->text, parts[i]))
            return true;
    return false;
}

/* True if only blanks stand before the member's name on its line. */
static bool begins_line(const struct weir__reader *reader, const struct weir__node *member)
{
    size_t from = line_start(reader, member->name->place), to = place_start(reader, member->name->place);
    for (size_t i = from; i < to; i++)
        if (file_text(reader).data[i] != ' ')
            return false;
    return true;
}

/* The copy: with the members that are rules, names and all; or only with what `rules` has for a value. */
static void cut_out(struct weir__reader *reader, const struct weir__node *root, bool whole_members)
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
        if (whole_members ? !is_part(member) : !weir__text_is(member->name->text, "rules"))
            continue;
        size_t from = whole_members ? line_start(reader, member->name->place) : place_start(reader, member->place);
        size_t to = member->next ? line_start(reader, member->next->name->place) : file.len;
        used += blank(file, done, from, out + used);
        memcpy(out + used, file.data + from, to - from);
        used += to - from;
        done = to;
    }
    config->rules_text = (weir_text){out, used};
}

/* What is for rules that are elsewhere would have no effect here. */
static void refuse_parts(struct weir__reader *reader, const struct weir__node *root, const char *where)
{
    for (size_t i = 0; i + 1 < PARTS; i++) {
        const struct weir__node *member = weir__node_get(root, parts[i]);
        if (member)
            weir__report_error(reader->report, member->name->place,
                               "%s stands beside the rules it is for: in %s, or here if rules is a list", parts[i],
                               where);
    }
}

void weir__config_rules(struct weir__reader *reader, const struct weir__node *root)
{
    struct weir__config *config = reader->config;
    const struct weir__node *rules = weir__node_get(root, "rules");
    if (config->origin.url || (!rules && config->admin.listener)) {
        refuse_parts(reader, root, "the settings of the rules service");
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
    refuse_parts(reader, root, rules->kind == WEIR__MAP ? "rules" : "the file that rules names");
    if (rules->kind == WEIR__MAP)
        cut_out(reader, root, false);
    else
        config->rules_path = weir__config_path(reader, rules, "rules");
}
