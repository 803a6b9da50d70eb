/* weir check: prints the result as text and as JSON. */
#include "base/duration.h"
#include "cli/check.h"
#include "cli/text.h"
#include "rules/set.h"

#include <inttypes.h>
#include <string.h>

/* ---- Names ---- */

static const char *verdict_name(enum weir_verdict verdict)
{
    return verdict == WEIR_ALLOW ? "allow" : verdict == WEIR_DELAY ? "delay" : "deny";
}

/* True for a limit of requests in flight, whose retry time is unknown. */
static bool is_in_flight(const weir_outcome *outcome)
{
    return outcome->reason == WEIR_BY_LIMIT && outcome->decision.reset_after_ns < 0;
}

/* The text of a reason. */
static const char *reason_text(const weir_outcome *outcome)
{
    static const char *const reasons[] = {
        [WEIR_BY_NOTHING] = "no rule matches",
        [WEIR_BY_ALLOW_LIST] = "on the allow list",
        [WEIR_BY_BLOCK_LIST] = "on the block list",
        [WEIR_BY_BAN] = "the limit is 0",
        [WEIR_BY_UNLIMITED] = "unlimited",
        [WEIR_BY_MISSING_KEY] = "the request lacks an attribute of the key",
        [WEIR_BY_FAILURE] = "the counter could not be reached; on_store_failure decided",
        [WEIR_BY_SHED] = "shed: the host is busy with more important requests",
    };
    static const char *const by_limit[] = {
        [WEIR_ALLOW] = "within the limit",
        [WEIR_DELAY] = "it has to wait",
        [WEIR_DENY] = "over the limit",
        [WEIR_NEVER_FITS] = "it costs more than the limit can ever hold",
        [WEIR_BLOCKED] = "an operator blocked the key",
    };
    const weir_decision *decision = &outcome->decision;
    if (outcome->reason == WEIR_BY_SHED && decision->limit >= 0)
        return "shed: the rest of the limit is for critical requests";
    if (outcome->reason != WEIR_BY_LIMIT)
        return reasons[outcome->reason];
    if (decision->verdict == WEIR_DENY && is_in_flight(outcome))
        return "as many requests are in flight as the limit allows";
    if (decision->verdict == WEIR_ALLOW && decision->flags & WEIR_OVER_SOFT)
        return "over the limit, within its soft margin";
    return by_limit[decision->verdict];
}

static const char *status_phrase(int status)
{
    static const struct phrase {
        int status;
        const char *text;
    } phrases[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {420, "Enhance Your Calm"},
        {429, "Too Many Requests"},
        {444, "No Response"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {509, "Bandwidth Limit Exceeded"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (phrases[i].status == status)
            return phrases[i].text;
    return "";
}

/* Milliseconds without zeros at their end: "2026-11-15T10:15:49.25Z". */
static const char *time_text(int64_t wall_ns, char buffer[WEIR__TIME_TEXT])
{
    weir__time_text(wall_ns / 1000000, buffer);
    char *end = buffer + strcspn(buffer, "Z");
    while (end[-1] == '0')
        end--;
    snprintf(end - (end[-1] == '.'), 2, "Z");
    return buffer;
}

/* True if a counter decided: only then `remaining` has a meaning. */
static bool has_counter(const weir_outcome *outcome)
{
    return (outcome->reason == WEIR_BY_LIMIT && outcome->decision.verdict != WEIR_BLOCKED) ||
           (outcome->reason == WEIR_BY_SHED && outcome->decision.limit >= 0);
}

/* on_missing_key: skip */
static bool is_skipped(const weir_outcome *outcome)
{
    return outcome->reason == WEIR_BY_MISSING_KEY && weir_passes(&outcome->decision);
}

/* "allow, 4 of 5 left, all back in 12 s" */
static void print_decision(const weir_outcome *outcome, const weir_decision *d)
{
    char text[WEIR__DURATION_TEXT];
    fputs(verdict_name(d->verdict), stdout);
    if (d->verdict == WEIR_DELAY)
        printf(" by %s s", weir__wait_text(d->delay_ns, text));
    bool counted = has_counter(outcome);
    if (counted)
        printf(", %" PRId64 " of %" PRId64 " left", d->remaining, d->limit);
    if ((counted || d->verdict == WEIR_BLOCKED) && !weir_passes(d) && d->retry_after_ns >= 0)
        printf(", retry in %s s", weir__wait_text(d->retry_after_ns, text));
    if (!counted)
        return;
    if (d->reset_after_ns > 0)
        printf(", all back in %s s", weir__wait_text(d->reset_after_ns, text));
}

void weir__check_line(int64_t number, int64_t since_ns, const struct weir__check *check)
{
    char text[WEIR__DURATION_TEXT];
    const weir_result *reply = &check->result;
    printf("%7" PRId64 "  +%-8s  ", number, weir__seconds_text(since_ns, text));
    print_decision(&reply->decided_by, &reply->decision);
    weir__print_line(stdout, "%s%s%s", reply->decided_by.rule[0] ? "  " : "", reply->decided_by.rule,
                     reply->shadow_denied ? "  (denied in shadow)" : "");
}

static void print_label(const char *label)
{
    printf("    %-10s", label);
}

/* Prints the outcome of a rule, below the descriptor that found it, or NULL. */
static void print_outcome(const weir_outcome *outcome, const char *descriptor)
{
    char text[WEIR__DURATION_TEXT];
    if (descriptor)
        weir__print_line(stdout, "  %s", descriptor);
    weir__print_line(stdout, "  %s%s%s", descriptor ? "  rule      " : "", outcome->rule,
                     outcome->shadow ? " (shadow: counted, not enforced)" : "");
    if (outcome->key[0])
        weir__print_line(stdout, "    key       %s%s", outcome->key,
                         outcome->key_cut                 ? "…"
                         : strcmp(outcome->key, "*") == 0 ? " (one counter for all)"
                                                          : "");
    if (outcome->quota >= 0 && outcome->window_ns > 0) {
        print_label("limit");
        bool in_flight = is_in_flight(outcome);
        printf(in_flight ? "%" PRId64 " in flight, each for %s at most" : "%" PRId64 " in %s", outcome->quota,
               weir__window_text(outcome->window_ns, text));
        if (outcome->effective_limit != outcome->quota)
            printf(", %" PRId64 " effective", outcome->effective_limit);
        if (outcome->cost != 1)
            printf(", this costs %" PRId64, outcome->cost);
        putchar('\n');
    }
    print_label("decision");
    if (is_skipped(outcome))
        fputs("none, the rule does not apply", stdout);
    else
        print_decision(outcome, &outcome->decision);
    putchar('\n');
    print_label("why");
    fputs(reason_text(outcome), stdout);
    if (outcome->reason == WEIR_BY_FAILURE)
        printf(" (%s)", weir_strerror(outcome->error));
    else if (outcome->error)
        printf(", by the counter of this host: %s", weir_strerror(outcome->error));
    putchar('\n');
}

/* Prints the request or the descriptors as they were given. */
static void print_request(const struct weir__check *check)
{
    char text[WEIR__TIME_TEXT];
    time_text(check->result.now.wall_ns, text);
    if (!check->domain) {
        weir__print_line(stdout, "%s %s%s%s%s%s at %s", check->method, check->target, check->host ? " of " : "",
                         check->host ? check->host : "", check->ip ? " from " : "", check->ip ? check->ip : "", text);
        return;
    }
    fputs("domain ", stdout);
    weir__print_text(stdout, check->domain);
    for (size_t i = 0; i < check->given->argument_count; i++) {
        putchar(' ');
        weir__print_text(stdout, check->given->arguments[i]);
    }
    printf(" at %s\n", text);
}

/* Prints the normal form of the path, which most rules match as well, if it differs. */
static void print_normal(const struct weir__check *check)
{
    enum { ROOM = 4096 };
    char sent[ROOM], normal[ROOM + 1];
    bool cut;
    weir_text target = {check->target, check->target ? strlen(check->target) : 0};
    size_t sent_len = weir__target_normalise(target, sent, sizeof sent, &cut);
    size_t len = weir__target_form(target, WEIR__FORM_DEFAULT, normal, ROOM, &cut);
    if (check->domain || !check->target || (len == sent_len && memcmp(sent, normal, len) == 0))
        return;
    normal[len] = 0;
    weir__print_line(stdout, "normal form %s: rules match it, too, unless their normalize is different", normal);
}

static void print_outcomes(const struct weir__check *check)
{
    bool lacks_address = false;
    if (check->domain)
        printf("\n%zu descriptor%s against %zu rule%s\n", check->outcome_count, check->outcome_count == 1 ? "" : "s",
               check->rule_count, check->rule_count == 1 ? "" : "s");
    else
        printf("\n%zu of %zu rule%s match%s\n", check->result.matched, check->rule_count,
               check->rule_count == 1 ? "" : "s", check->result.matched == 1 ? "es" : "");
    for (size_t i = 0; i < check->outcome_count; i++) {
        const weir_outcome *outcome = &check->outcomes[i];
        if (outcome->reason != WEIR_BY_NOTHING) {
            print_outcome(outcome, check->domain ? check->given->arguments[i] : NULL);
        } else {
            weir__print_line(stdout, "  %s", check->given->arguments[i]);
            fputs("    no rule matches\n", stdout);
        }
        lacks_address |= outcome->reason == WEIR_BY_MISSING_KEY;
    }
    if (lacks_address)
        printf("  (-H, -A and%s give what keys need)\n", check->ip ? " the URL" : " --ip");
}

/* `context` is a title that is printed before the first header. */
static void print_header(void *context, enum weir_header header, const char *value, size_t len)
{
    const char **title = context;
    (void)len;
    fputs(*title, stdout);
    *title = "";
    weir__print_line(stdout, "  %s: %s", weir_header_name(header), value);
}

static void print_body(const char *body)
{
    while (*body) {
        size_t len = strcspn(body, "\n");
        weir__print_line(stdout, "%s%.*s", len ? "  " : "", (int)len, body);
        body += len + (body[len] == '\n');
    }
}

static void print_client(const struct weir__check *check)
{
    const weir_result *reply = &check->result;
    bool passes = weir_passes(&reply->decision);
    char body[WEIR__CHECK_TEXT];
    const char *type = NULL;
    const char *title = "";
    if (check->domain) {
        printf("\nEnvoy gets %s", passes ? "OK" : "OVER_LIMIT");
        title = ", with\n";
    } else if (passes) {
        fputs("\nthe client sees the application's response", stdout);
        title = ", with\n";
    } else {
        const char *phrase = status_phrase(reply->status);
        printf("\nthe client sees\n  HTTP/1.1 %d%s%s\n", reply->status, *phrase ? " " : "", phrase);
    }
    weir_result_headers(reply, check->outcomes, print_header, &title);
    const char *challenge = check->domain ? NULL : weir_result_challenge(reply);
    if (challenge)
        printf("  WWW-Authenticate: %s\n", challenge);
    if (*title)
        putchar('\n');
    if (passes || check->domain)
        return;
    size_t len = weir_result_body(reply, check->accepts_problem, body, sizeof body, &type);
    if (len == 0)
        return;
    printf("  Content-Type: %s\n\n", type);
    print_body(body);
}

void weir__check_print(const struct weir__check *check)
{
    const weir_result *reply = &check->result;
    print_request(check);
    print_normal(check);
    print_outcomes(check);
    fputs("\ndecision: ", stdout);
    print_decision(&reply->decided_by, &reply->decision);
    bool skipped = is_skipped(&reply->decided_by), named = reply->decided_by.rule[0] && !skipped;
    weir__print_line(stdout, " (%s%s%s)", skipped ? "no rule applies" : reason_text(&reply->decided_by),
                     named ? ", " : "", named ? reply->decided_by.rule : "");
    if (reply->missing[0])
        weir__print_line(stdout, "it lacks the %s", reply->missing);
    if (reply->shadow_denied)
        fputs("a shadow rule would have denied it\n", stdout);
    print_client(check);
}

/* ---- JSON ---- */

/* The decision of a rule, or of all rules. */
static json_t *decision_json(const weir_outcome *outcome, const weir_decision *d)
{
    bool counted = has_counter(outcome), known = counted || outcome->reason == WEIR_BY_BAN;
    return json_pack("{s:s, s:s, s:o, s:o, s:o?, s:o?, s:o, s:o, s:o, s:s*}", "decision", verdict_name(d->verdict),
                     "reason", weir_outcome_reason(outcome), "rule",
                     weir__json_of_text(outcome->rule[0] ? outcome->rule : NULL), "key",
                     weir__json_of_text(outcome->key[0] ? outcome->key : NULL), "limit",
                     known ? json_integer(d->limit) : NULL, "remaining", known ? json_integer(d->remaining) : NULL,
                     "reset_s", weir__json_of_seconds(counted ? d->reset_after_ns : -1), "retry_after_s",
                     weir__json_of_seconds(weir_passes(d) ? -1 : d->retry_after_ns), "delay_s",
                     weir__json_of_seconds(d->verdict == WEIR_DELAY ? d->delay_ns : 0), "store_error",
                     outcome->error ? weir_strerror(outcome->error) : NULL);
}

json_t *weir__check_line_json(const struct weir__check *check)
{
    char text[WEIR__TIME_TEXT];
    const weir_result *reply = &check->result;
    json_t *line = json_pack("{s:s}", "at", time_text(reply->now.wall_ns, text));
    json_object_update_new(line, decision_json(&reply->decided_by, &reply->decision));
    json_object_set_new(line, "shadow_denied", json_boolean(reply->shadow_denied));
    return line;
}

static json_t *outcome_json(const weir_outcome *outcome, const char *descriptor)
{
    json_t *one = json_pack("{s:o*}", "descriptor", descriptor ? weir__json_of_text(descriptor) : NULL);
    json_object_update_new(one, decision_json(outcome, &outcome->decision));
    json_object_update_new(
        one,
        json_pack("{s:b, s:I, s:o?, s:o?, s:o, s:b}", "key_cut", outcome->key_cut, "cost", (json_int_t)outcome->cost,
                  "quota", outcome->quota >= 0 ? json_integer(outcome->quota) : NULL, "in_force",
                  outcome->effective_limit >= 0 ? json_integer(outcome->effective_limit) : NULL, "window_s",
                  weir__json_of_seconds(outcome->window_ns > 0 ? outcome->window_ns : -1), "shadow", outcome->shadow));
    return one;
}

static void add_header(void *context, enum weir_header header, const char *value, size_t len)
{
    (void)len;
    json_object_set_new(context, weir_header_name(header), weir__json_of_text(value));
}

json_t *weir__check_json(const struct weir__check *check)
{
    const weir_result *reply = &check->result;
    bool denied = !weir_passes(&reply->decision) && !check->domain;
    char text[WEIR__TIME_TEXT];
    json_t *rules = json_array(), *headers = json_object();
    for (size_t i = 0; i < check->outcome_count; i++)
        json_array_append_new(rules,
                              outcome_json(&check->outcomes[i], check->domain ? check->given->arguments[i] : NULL));
    weir_result_headers(reply, check->outcomes, add_header, headers);
    if (weir_result_challenge(reply))
        json_object_set_new(headers, "WWW-Authenticate", json_string(weir_result_challenge(reply)));
    json_t *all = decision_json(&reply->decided_by, &reply->decision);
    json_object_update_new(all, json_pack("{s:s, s:b, s:o, s:o?, s:o}", "at", time_text(reply->now.wall_ns, text),
                                          "shadow_denied", reply->shadow_denied, "rules", rules, "status",
                                          denied ? json_integer(reply->status) : NULL, "headers", headers));
    if (denied) {
        char body[WEIR__CHECK_TEXT];
        const char *type = NULL;
        size_t len = weir_result_body(reply, check->accepts_problem, body, sizeof body, &type);
        body[len < sizeof body ? len : sizeof body - 1] = '\0';
        if (reply->missing[0])
            json_object_set_new(all, "missing", weir__json_of_text(reply->missing));
        json_object_set_new(all, "content_type", weir__json_of_text(len ? type : NULL));
        json_object_set_new(all, "body", weir__json_of_text(len ? body : ""));
    }
    return all;
}
