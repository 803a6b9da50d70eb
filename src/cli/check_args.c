/* weir check: the command line. */
#include "base/text.h"
#include "base/duration.h"
#include "cli/check.h"
#include "cli/input.h"
#include "cli/options.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define COST_MAX   INT64_C(4294967295)
#define REPEAT_MAX 1000000

static const char usage[] =
    "usage: weir check [--rules FILE|DIR] [OPTIONS] [METHOD] URL\n"
    "       weir check [--rules FILE|DIR] --domain DOMAIN [OPTIONS] KEY=VALUE[,KEY=VALUE...]...\n"
    "Plays a request against rules and says what would happen and why. The URL is absolute, or a path.\n"
    "With --domain it plays descriptors, one an argument ('\\,' is a comma in a value).\n"
    "\n"
    "  -r, --rules PATH        a file, a directory, '-' for standard input, or a weir.yaml (the default)\n"
    "  -i, --ip ADDR           the address the connection comes from\n"
    "  -H, --header 'N: V'     a header of the request; may be given several times\n"
    "  -A, --attribute N=V     a named attribute, such as user_id=42; the same\n"
    "      --cost N            what it costs, whatever the rules say; 0 looks, negative gives back\n"
    "      --hits N            the same for descriptors\n"
    "      --at TIME           when: seconds since 1970, or ISO 8601 (2026-01-02T03:04:05Z)\n"
    "      --repeat N          play it N times and show each (--all: also if they are many)\n"
    "      --every DURATION    with so much time in between (100ms, 2s, 1m); default: none\n"
    "      --segment PATH      use the counters there, or those of a weir.yaml; look only, unless:\n"
    "      --take              take from them\n"
    "      --json              one object\n"
    "      --exit-code         exit with 1 if it is denied\n"
    "\n"
    "Without --segment the counters are fresh and thrown away afterwards. Exits with 0 if it could be\n"
    "played, 1 if not (the rules have errors, no such segment), 2 for a wrong command line.\n";

enum { RULES, SEGMENT, DOMAIN, AT, REPEAT, EVERY, COST, HITS, IP, HEADER, ATTRIBUTE, TAKE, JSON, EXIT_CODE, ALL, HELP };

static const struct weir__option options[] = {
    [RULES] = {"rules", 'r', true},
    [SEGMENT] = {"segment", 's', true},
    [DOMAIN] = {"domain", 'd', true},
    [AT] = {"at", 0, true},
    [REPEAT] = {"repeat", 'n', true},
    [EVERY] = {"every", 0, true},
    [COST] = {"cost", 0, true},
    [HITS] = {"hits", 0, true},
    [IP] = {"ip", 'i', true},
    [HEADER] = {"header", 'H', true},
    [ATTRIBUTE] = {"attribute", 'A', true},
    [TAKE] = {"take", 0, false},
    [JSON] = {"json", 0, false},
    [EXIT_CODE] = {"exit-code", 0, false},
    [ALL] = {"all", 'a', false},
    [HELP] = {"help", 'h', false},
};

static bool wrong(const char *option, const char *given, const char *expected)
{
    fprintf(stderr, "weir check: %s '%s': %s\n", option, given, expected);
    return false;
}

static bool is_address(const char *text)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* Options whose value is text or a flag; false if it is another one. */
static bool take_simple(struct weir__check *check, int option, const char *value)
{
    switch (option) {
    case RULES:
        check->rules = value;
        return true;
    case SEGMENT:
        check->segment = value;
        return true;
    case DOMAIN:
        check->domain = value;
        return true;
    case TAKE:
        check->take = true;
        return true;
    case JSON:
        check->json = true;
        return true;
    case EXIT_CODE:
        check->exit_code = true;
        return true;
    case ALL:
        check->all = true;
        return true;
    default:
        return false;
    }
}

static bool take_option(struct weir__check *check, int option, const char *value)
{
    switch (option) {
    case AT:
        check->has_at = weir__read_time(value, &check->at_ns) && check->at_ns > 0;
        return check->has_at ||
               wrong("--at", value, "not a time; use seconds since 1970 or 2026-01-02T03:04:05Z, from 1970 to 2199");
    case REPEAT:
        return weir__read_int(value, 1, REPEAT_MAX, &check->repeat) ||
               wrong("--repeat", value, "use a number from 1 to 1000000");
    case EVERY:
        return weir__parse_duration(weir__text_of(value), INT64_C(90000) * 86400 * WEIR_SECOND, &check->every_ns) ||
               wrong("--every", value, "not a duration; use seconds, or a number with us, ms, s, m, h, d, w, mo or y");
    case COST:
        check->has_cost = weir__read_int(value, -COST_MAX, COST_MAX, &check->cost);
        return check->has_cost || wrong("--cost", value, "use a whole number from -4294967295 to 4294967295");
    case HITS:
        return weir__read_int(value, 1, COST_MAX, &check->hits) ||
               wrong("--hits", value, "use a whole number from 1 to 4294967295");
    case IP:
        check->ip = value;
        return is_address(value) || wrong("--ip", value, "not an IPv4 or IPv6 address");
    case HEADER:
        return weir__check_add_header(check, value);
    case ATTRIBUTE:
        return weir__check_add_named(check, value);
    default:
        return take_simple(check, option, value);
    }
}

/* Options that contradict one another, once all are known. */
static bool makes_sense(const struct weir__check *check)
{
    const char *why = NULL;
    if (!check->rules)
        why = "which rules? give --rules FILE; there is no weir.yaml in this folder";
    else if (check->take && !check->segment)
        why = "--take is for --segment; without one the counters are thrown away";
    else if (check->domain && (check->has_cost || check->ip || check->attribute_count > 0))
        why = "--cost, --ip, -H and -A are of requests; with --domain give descriptors and --hits";
    else if (!check->domain && check->hits > 0)
        why = "--hits is for descriptors (--domain); requests have --cost";
    else if (check->argument_count == 0)
        why = check->domain ? "which descriptor? give KEY=VALUE,KEY=VALUE" : "which request? give METHOD URL";
    if (why)
        fprintf(stderr, "weir check: %s\n'weir check --help' says more\n", why);
    return !why;
}

int weir__check_parse(struct weir__check *check, int argc, char **argv)
{
    struct weir__args args = {"check", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    int option;
    *check = (struct weir__check){.repeat = 1};
    check->arguments = calloc((size_t)argc, sizeof *check->arguments);
    if (!check->arguments) {
        fprintf(stderr, "weir check: %s\n", weir_strerror(WEIR_ENOMEM));
        return 1;
    }
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (option == WEIR__ARG_WORD)
            check->arguments[check->argument_count++] = argv[args.at - 1];
        else if (!take_option(check, option, args.value))
            return 2;
    }
    check->rules = check->rules ? check->rules : weir__input_default();
    return makes_sense(check) && weir__check_finish(check) ? -1 : 2;
}
