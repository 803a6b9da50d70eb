/* The words for the library's enums. */
#include "cli/names.h"

const char *weir__algorithm_name(enum weir_algorithm algorithm)
{
    switch (algorithm) {
    case WEIR_TOKEN_BUCKET:
        return "token_bucket";
    case WEIR_LEAKY_BUCKET:
        return "leaky_bucket";
    case WEIR_FIXED_WINDOW:
        return "fixed_window";
    case WEIR_SLIDING_WINDOW_LOG:
        return "sliding_window_log";
    case WEIR_SLIDING_WINDOW_COUNTER:
        return "sliding_window_counter";
    case WEIR_CONCURRENCY:
        return "concurrency";
    }
    return "unknown";
}

const char *weir__verdict_name(enum weir_verdict verdict)
{
    return verdict == WEIR_ALLOW ? "allow" : verdict == WEIR_DELAY ? "delay" : "deny";
}

bool weir__is_in_flight(const weir_outcome *outcome)
{
    return outcome->reason == WEIR_BY_LIMIT && outcome->decision.reset_after_ns < 0;
}

/* Word and text for each reason; a limit's is further told by its verdict. */
struct reason_text {
    const char *name, *text;
};

static struct reason_text reason_of(const weir_outcome *outcome)
{
    switch (outcome->reason) {
    case WEIR_BY_NOTHING:
        return (struct reason_text){"no_rule", "no rule matches"};
    case WEIR_BY_ALLOW_LIST:
        return (struct reason_text){"allow_list", "on the allow list"};
    case WEIR_BY_BLOCK_LIST:
        return (struct reason_text){"block_list", "on the block list"};
    case WEIR_BY_BAN:
        return (struct reason_text){"ban", "the limit is 0"};
    case WEIR_BY_UNLIMITED:
        return (struct reason_text){"unlimited", "unlimited"};
    case WEIR_BY_MISSING_KEY:
        return (struct reason_text){"missing_key", "the request lacks an attribute of the key"};
    case WEIR_BY_FAILURE:
        return (struct reason_text){"store_failure", "the counter could not be reached; on_store_failure decided"};
    case WEIR_BY_SHED:
        return (struct reason_text){"shed", outcome->decision.limit < 0
                                                ? "shed: the host is busy with more important requests"
                                                : "shed: what is left is for critical requests"};
    case WEIR_BY_LIMIT:
        break;
    }
    switch (outcome->decision.verdict) {
    case WEIR_DENY:
        return (struct reason_text){"limit",
                                    weir__is_in_flight(outcome) ? "as many as may be are in flight" : "over the limit"};
    case WEIR_NEVER_FITS:
        return (struct reason_text){"never_fits", "it costs more than the limit can ever hold"};
    case WEIR_BLOCKED:
        return (struct reason_text){"blocked", "an operator blocked the key"};
    case WEIR_DELAY:
        return (struct reason_text){"limit", "it has to wait"};
    case WEIR_ALLOW:
        break;
    }
    if (outcome->decision.flags & WEIR_OVER_SOFT)
        return (struct reason_text){"soft", "over the limit, within soft"};
    return (struct reason_text){"limit", "within the limit"};
}

const char *weir__reason_name(const weir_outcome *outcome)
{
    return reason_of(outcome).name;
}

const char *weir__reason_text(const weir_outcome *outcome)
{
    return reason_of(outcome).text;
}

const char *weir__status_phrase(int status)
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
