/* weir convert: the command line, and the whole of the result. */
#include "base/suggest.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/convert.h"
#include "cli/diagnose.h"
#include "cli/options.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: weir convert [--from descriptors|nginx] FILE...\n"
    "Turns other limiters' configurations into weir's rules, on standard output: the descriptors of\n"
    "envoyproxy/ratelimit, and the limit_req_zone and limit_req lines of nginx. Which of them a file is\n"
    "is seen from what is in it. '-' is standard input: nginx -T | weir convert -\n"
    "\n"
    "What cannot be said in rules, or not quite, is a comment there and a warning on standard error.\n"
    "Exits with 0 if there are rules, 1 if a file could not be read or made nothing, 2 for a wrong\n"
    "command line.\n";

enum source { UNKNOWN, DESCRIPTORS, NGINX, OWN };

/* True if a line of the text begins with `word`, after blanks if `indented`. */
static bool has_line(const char *text, const char *word, bool indented)
{
    for (const char *at = text; at;) {
        if (indented)
            at += strspn(at, " \t");
        if (strncmp(at, word, strlen(word)) == 0)
            return true;
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return false;
}

static enum source source_of(const char *text)
{
    if (has_line(text, "domain:", false) || has_line(text, "descriptors:", false))
        return DESCRIPTORS;
    if (has_line(text, "rules:", false))
        return OWN;
    return strstr(text, "limit_req") ? NGINX : UNKNOWN;
}

static bool convert_file(struct weir__convert *convert, const char *path, enum source from)
{
    size_t len;
    char *text = weir__read_all(path, WEIR__INPUT_MAX, &len);
    convert->file = strcmp(path, "-") == 0 ? "<stdin>" : path;
    if (!text) {
        fprintf(stderr, "%s: error: cannot be read: %s\n", convert->file, strerror(errno));
        return false;
    }
    if (from == UNKNOWN)
        from = source_of(text);
    if (from == DESCRIPTORS)
        weir__convert_descriptors(convert, text, len);
    else if (from == NGINX)
        weir__convert_nginx(convert, text, len);
    else
        fprintf(stderr, "%s: error: %s\n", convert->file,
                from == OWN ? "these are weir's own rules already"
                            : "neither descriptors nor nginx's limit_req; --from says which");
    free(text);
    return (from == DESCRIPTORS || from == NGINX) && !convert->failed;
}

/* The result as one text. */
static void put_all(const struct weir__convert *convert, struct weir__buffer *to)
{
    if (convert->head.data)
        weir__buffer_printf(to, "%s\n", convert->head.data);
    if (convert->identity.len > 0 || convert->trusted.len > 0)
        weir__buffer_printf(to, "identity:\n");
    if (convert->identity.len > 0)
        weir__buffer_printf(
            to, "  # Where an attribute comes from if the application does not give it. These are guesses: set\n"
                "  # them right, and let only a trusted proxy set such headers.\n");
    for (const char *at = convert->identity.data; at && *at;) {
        size_t len = strcspn(at, "\n");
        weir__buffer_printf(to, "  %.*s\n", (int)len, at);
        at += len + 1;
    }
    if (convert->trusted.len > 0)
        weir__buffer_printf(to, "  client_ip: { trusted_proxies: [%s] }\n", convert->trusted.data);
    weir__buffer_printf(to, "rules:%s\n%s", convert->name_count ? "" : " []",
                        convert->rules.data ? convert->rules.data : "");
}

/* Whatever was read, what comes out must be rules: the library has the last word. Its warnings are for weir lint. */
static bool is_good(const struct weir__buffer *result)
{
    struct weir__findings findings = {.to = stderr};
    weir_rules *rules = NULL;
    int error = weir_rules_parse("<converted>", result->data, result->len, weir__find_errors, &findings, &rules);
    if (error)
        weir__find_failure(&findings, "<converted>", error);
    weir_rules_free(rules);
    weir__findings_free(&findings);
    return error == 0;
}

static int convert_all(char **paths, size_t count, enum source from)
{
    struct weir__convert convert = {0};
    struct weir__buffer result = {0};
    bool good = true;
    for (size_t i = 0; i < count; i++)
        good &= convert_file(&convert, paths[i], from);
    if (good && convert.name_count == 0) {
        fprintf(stderr, "weir convert: no limit found\n");
        good = false;
    }
    put_all(&convert, &result);
    if (convert.failed || result.failed || !result.data) {
        fprintf(stderr, "weir convert: nothing was converted\n");
        good = false;
    } else if (convert.name_count > 0) {
        fputs(result.data, stdout);
        good &= is_good(&result);
    }
    if (convert.warnings > 0)
        fprintf(stderr, "weir convert: %zu rule%s, %d warning%s; read the comments\n", convert.name_count,
                convert.name_count == 1 ? "" : "s", convert.warnings, convert.warnings == 1 ? "" : "s");
    for (size_t i = 0; i < convert.name_count; i++)
        free(convert.names[i]);
    free(convert.names);
    free(convert.rules.data);
    free(convert.identity.data);
    free(convert.trusted.data);
    free(convert.head.data);
    free(result.data);
    if (fflush(stdout)) {
        perror("weir: standard output");
        good = false;
    }
    return good ? 0 : 1;
}

static bool read_source(const char *text, enum source *from)
{
    static const char *const formats[] = {"descriptors", "nginx"};
    for (size_t i = 0; i < 2; i++)
        if (strcmp(text, formats[i]) == 0) {
            *from = i == 0 ? DESCRIPTORS : NGINX;
            return true;
        }
    const char *likely = weir__suggest(weir__text_of(text), formats, 2);
    fprintf(stderr, "weir convert: --from '%s': ", text);
    if (likely)
        fprintf(stderr, "did you mean '%s'?\n", likely);
    else
        fprintf(stderr, "use descriptors or nginx\n");
    return false;
}

int weir__cmd_convert(int argc, char **argv)
{
    enum { FROM, HELP };
    static const struct weir__option options[] = {[FROM] = {"from", 0, true}, [HELP] = {"help", 'h', false}};
    struct weir__args args = {"convert", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    char **paths = calloc((size_t)argc, sizeof *paths);
    enum source from = UNKNOWN;
    size_t count = 0;
    int option, code = 2;
    while (paths && (option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD || (option == FROM && !read_source(args.value, &from)))
            goto done;
        if (option == HELP) {
            fputs(usage, stdout);
            code = 0;
            goto done;
        }
        if (option == WEIR__ARG_WORD)
            paths[count++] = argv[args.at - 1];
    }
    if (count == 0)
        fprintf(stderr, "weir convert: which file?\n%s", usage);
    else
        code = convert_all(paths, count, from);
done:
    free(paths);
    return code;
}
