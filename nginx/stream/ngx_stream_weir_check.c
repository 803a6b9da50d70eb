/*
 * WEIR.CHECK [COST n] [DRY] name value [name value …]
 * WEIR.CHECK DOMAIN domain [HITS n] [DRY] key value [key value …]
 * WEIR.PEEK: the same, and takes nothing. WEIR.RELEASE, WEIR.RENEW: permits. And commands that wait for the store.
 */
#include "ngx_stream_weir.h"

#include "base/text.h"

#define PAIRS_MAX  64
#define AHEAD_MAX  64 /* checks sent to the store together */
#define NAME_SHOWN 64 /* bytes of a name in an error */

/* The arguments of WEIR.CHECK. */
typedef struct {
    ngx_uint_t dry_run, has_cost;
    int64_t cost;
    weir_text domain;       /* data NULL: none */
    const weir_text *pairs; /* name, value, name, value … */
    size_t pair_count;
    weir_async *async;     /* requests to the store, or NULL */
    weir_permits *permits; /* where the permits go, or NULL */
} ngx_stream_weir_check_t;

/* ---- Arguments ---- */

/* Reads one option at *at. 0: there is none; -1 after an error reply. */
static int ngx_stream_weir_option(ngx_stream_weir_call_t *call, size_t *at, ngx_stream_weir_check_t *check)
{
    weir_text word = call->args[*at];
    if (weir__resp_is(word, "dry")) {
        check->dry_run = 1;
        *at += 1;
        return 1;
    }
    ngx_uint_t is_cost = weir__resp_is(word, "cost") || weir__resp_is(word, "hits");
    if ((!is_cost && !weir__resp_is(word, "domain")) || *at + 1 == call->count)
        return 0;
    weir_text value = call->args[*at + 1];
    *at += 2;
    if (!is_cost) {
        check->domain = value;
        return 1;
    }
    check->has_cost = 1;
    if (weir__resp_integer(value, &check->cost))
        return 1;
    ngx_stream_weir_error(call, "ERR value is not an integer or out of range");
    return -1;
}

static bool ngx_stream_weir_is_peek(const weir_text *args)
{
    return weir__resp_is(args[0], "weir.peek");
}

/* The name without the prefix "header:", of which case does not matter; data NULL: another attribute. */
static weir_text ngx_stream_weir_header_name(weir_text name)
{
    static const weir_text prefix = {"header:", 7};
    if (name.len <= prefix.len || !weir__text_equal_nocase((weir_text){name.data, prefix.len}, prefix))
        return (weir_text){NULL, 0};
    return (weir_text){name.data + prefix.len, name.len - prefix.len};
}

/* Names of headers are case-insensitive, others are not. */
static bool ngx_stream_weir_same_name(weir_text a, weir_text b)
{
    return ngx_stream_weir_header_name(a).data ? weir__text_equal_nocase(a, b) : weir__text_equal(a, b);
}

/* A duplicate name, or NULL. Rules would use one of its values, and an upstream perhaps the other. */
static const weir_text *ngx_stream_weir_twice(const ngx_stream_weir_check_t *check)
{
    for (size_t i = 1; i < check->pair_count; i++)
        for (size_t j = 0; j < i; j++)
            if (ngx_stream_weir_same_name(check->pairs[2 * i], check->pairs[2 * j]))
                return &check->pairs[2 * i];
    return NULL;
}

/* 0 after an error reply. */
static ngx_uint_t ngx_stream_weir_read_check(ngx_stream_weir_call_t *call, ngx_stream_weir_check_t *check)
{
    size_t at = 1;
    int result = 1;
    while (at < call->count && result > 0)
        result = ngx_stream_weir_option(call, &at, check);
    if (result < 0)
        return 0;
    check->pairs = call->args + at;
    check->pair_count = (call->count - at) / 2;
    if ((call->count - at) % 2 != 0 || check->pair_count == 0) {
        ngx_stream_weir_error(call, "ERR syntax error; names and values come in pairs, options before them");
        return 0;
    }
    if (check->pair_count > PAIRS_MAX) {
        ngx_stream_weir_error(call, "ERR more than %d pairs", PAIRS_MAX);
        return 0;
    }
    const weir_text *twice = check->domain.data ? NULL : ngx_stream_weir_twice(check);
    if (twice) {
        ngx_stream_weir_error(call, "ERR '%*s' is given twice", ngx_min(twice->len, NAME_SHOWN), twice->data);
        return 0;
    }
    return 1;
}

/* ---- Decision ---- */

/* weir_lookup: the attributes are the pairs. */
static bool ngx_stream_weir_lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    static const weir_text names[] = {
        [WEIR_ATTR_PATH] = {"path", 4},     [WEIR_ATTR_TARGET] = {"target", 6}, [WEIR_ATTR_QUERY] = {"query", 5},
        [WEIR_ATTR_METHOD] = {"method", 6}, [WEIR_ATTR_HOST] = {"host", 4},     [WEIR_ATTR_PEER] = {"ip", 2},
        [WEIR_ATTR_HEADER] = {"header", 6}, [WEIR_ATTR_NAMED] = {"", 0}};
    const ngx_stream_weir_check_t *check = context;
    weir_text wanted = kind == WEIR_ATTR_NAMED ? name : names[kind];
    for (size_t i = 0; i < check->pair_count; i++) {
        weir_text given = check->pairs[2 * i];
        if (kind == WEIR_ATTR_HEADER ? weir__text_equal_nocase(ngx_stream_weir_header_name(given), name)
                                     : weir__text_equal(given, wanted)) {
            *value = check->pairs[2 * i + 1];
            return true;
        }
    }
    return false;
}

static int ngx_stream_weir_check_rules(weir *engine, ngx_stream_weir_check_t *check, weir_result *result)
{
    weir_query query = {.lookup = ngx_stream_weir_lookup,
                        .lookup_context = check,
                        .has_cost = check->has_cost,
                        .cost = check->cost,
                        .dry_run = check->dry_run,
                        .async = check->async,
                        .permits = check->permits};
    return result ? weir_check(engine, &query, result) : weir_check_begin(engine, &query);
}

static int ngx_stream_weir_check_domain(weir *engine, ngx_stream_weir_check_t *check, weir_result *result)
{
    weir_descriptor_entry entries[PAIRS_MAX];
    weir_outcome outcome;
    for (size_t i = 0; i < check->pair_count; i++)
        entries[i] = (weir_descriptor_entry){check->pairs[2 * i], check->pairs[2 * i + 1]};
    weir_descriptor descriptor = {
        .entries = entries, .entry_count = check->pair_count, .has_hits = check->has_cost, .hits = check->cost};
    weir_descriptor_query query = {.domain = check->domain,
                                   .descriptors = &descriptor,
                                   .descriptor_count = 1,
                                   .dry_run = check->dry_run,
                                   .async = check->async,
                                   .outcomes = &outcome};
    return result ? weir_check_descriptors(engine, &query, result) : weir_check_descriptors_begin(engine, &query);
}

/* As weir_check; with a NULL result as weir_check_begin. */
static int ngx_stream_weir_decide(weir *engine, ngx_stream_weir_check_t *check, weir_result *result)
{
    return check->domain.data ? ngx_stream_weir_check_domain(engine, check, result)
                              : ngx_stream_weir_check_rules(engine, check, result);
}

/*
 * ---- Waiting for the store ----
 *
 * Commands of a connection are carried out in order, so one that waits delays those behind it; checks that follow it
 * are sent to the store together with it.
 */

static struct weir__resp_command ngx_stream_weir_next;

weir_async *ngx_stream_weir_session_async(ngx_stream_weir_session_t *session)
{
    if (session->wait == NULL)
        session->wait = ngx_weir_wait_new(session->store);
    return session->wait ? session->wait->async : NULL;
}

/* Sets the check's `async`. True: the command must wait for the store. */
static ngx_uint_t ngx_stream_weir_needs_store(ngx_stream_weir_call_t *call, ngx_stream_weir_check_t *check)
{
    ngx_stream_weir_session_t *session = call->session;
    check->async = ngx_stream_weir_session_async(session);
    if (session->prepared || check->async == NULL)
        return 0;
    call->needs_store = ngx_stream_weir_decide(session->engine, check, NULL) == 1;
    return call->needs_store;
}

void ngx_stream_weir_store_used(ngx_stream_weir_session_t *session)
{
    if (session->prepared)
        session->prepared--;
    if (session->wait && session->prepared == 0) {
        ngx_weir_wait_end(session->wait);
        session->wait = NULL;
    }
}

/* Prepares the check that follows. 0: it depends on the commands before it. */
static ngx_uint_t ngx_stream_weir_prepare_next(ngx_stream_weir_session_t *session)
{
    char discarded[1024];
    struct weir__resp_out out = {.at = discarded, .end = discarded + sizeof(discarded), .version = session->version};
    const struct weir__resp_command *next = &ngx_stream_weir_next;
    ngx_stream_weir_call_t call = {.session = session, .args = next->args, .count = next->count, .out = &out};
    bool peek = ngx_stream_weir_is_peek(next->args);
    ngx_stream_weir_check_t check = {.dry_run = peek, .async = session->wait->async};
    if (weir__resp_is(next->args[0], "cl.throttle"))
        return 1;
    if (!peek && !weir__resp_is(next->args[0], "weir.check"))
        return 0;
    if (!ngx_stream_weir_read_check(&call, &check))
        return 1; /* it gets an error reply, without the store */
    if (ngx_stream_weir_decide(session->engine, &check, NULL) < 0)
        return 0;
    session->prepared++;
    return 1;
}

void ngx_stream_weir_prepare_ahead(ngx_stream_weir_call_t *call, char *at, size_t len)
{
    ngx_stream_weir_session_t *session = call->session;
    char *end = at + len;
    session->prepared = 1;
    if (!weir__resp_is(call->args[0], "weir.check") && !ngx_stream_weir_is_peek(call->args))
        return; /* what follows depends on it */
    /* parsing an inline command changes it, so it is parsed only once */
    while (session->prepared < AHEAD_MAX && at < end && *at == '*' &&
           weir__resp_parse(at, (size_t)(end - at), false, &ngx_stream_weir_next) == WEIR__RESP_COMMAND) {
        if (ngx_stream_weir_next.count && !ngx_stream_weir_prepare_next(session))
            break;
        at += ngx_stream_weir_next.length;
    }
}

static void ngx_stream_weir_store_replied(ngx_weir_wait_t *wait)
{
    ngx_stream_weir_session_t *session = wait->data;
    session->waiting = 0;
    ngx_stream_weir_resume(session);
}

void ngx_stream_weir_store_begin(ngx_stream_weir_session_t *session)
{
    session->wait->data = session;
    session->waiting = 1;
    ngx_weir_wait_begin(session->wait, 0, ngx_stream_weir_store_replied);
}

void ngx_stream_weir_store_end(ngx_stream_weir_session_t *session)
{
    ngx_weir_wait_end(session->wait);
    session->wait = NULL;
    session->waiting = 0;
}

/* ---- Reply ---- */

/* Rounded up; negative: never. */
static int64_t ngx_stream_weir_ms(int64_t ns)
{
    return ns < 0 ? -1 : ns / 1000000 + (ns % 1000000 != 0);
}

/* `lease`: the permits as a text; empty: none. */
static void ngx_stream_weir_reply_decision(struct weir__resp_out *out, const weir_result *result, const char *lease)
{
    const weir_decision *decision = &result->decision;
    const char *word = !weir_passes(decision) ? "deny" : decision->verdict == WEIR_DELAY ? "delay" : "allow";
    ngx_uint_t denied = !weir_passes(decision), blocked = decision->verdict == WEIR_BLOCKED;
    weir__resp_map(out, 8 + (*lease != '\0') + denied + (result->missing[0] != '\0'));
    weir__resp_named_text(out, "decision", word);
    weir__resp_named_text(out, "rule", result->decided_by.rule);
    weir__resp_bulk(out, "key", 3);
    weir__resp_bulk(out, result->decided_by.key, result->decided_by.key_len);
    weir__resp_named_number(out, "limit", blocked ? -1 : decision->limit);
    weir__resp_named_number(out, "remaining", blocked ? -1 : decision->remaining);
    weir__resp_named_number(out, "reset_ms", ngx_stream_weir_ms(decision->reset_after_ns));
    weir__resp_named_number(out, "retry_after_ms", ngx_stream_weir_ms(decision->retry_after_ns));
    weir__resp_named_number(out, "delay_ms", ngx_stream_weir_ms(decision->delay_ns));
    if (*lease)
        weir__resp_named_text(out, "lease", lease);
    if (denied)
        weir__resp_named_text(out, "reason", weir_outcome_reason(&result->decided_by));
    if (result->missing[0])
        weir__resp_named_text(out, "missing", result->missing);
}

void ngx_stream_weir_check(ngx_stream_weir_call_t *call)
{
    weir_permits permits;
    ngx_stream_weir_check_t check = {.dry_run = ngx_stream_weir_is_peek(call->args), .permits = &permits};
    char lease[WEIR_PERMITS_TEXT_MAX + 1] = "";
    weir_result result;
    permits.count = 0;
    if (!ngx_stream_weir_has_rules(call) || !ngx_stream_weir_read_check(call, &check) ||
        ngx_stream_weir_needs_store(call, &check))
        return;
    int error = ngx_stream_weir_decide(call->session->engine, &check, &result);
    ngx_stream_weir_store_used(call->session);
    if (error) {
        ngx_stream_weir_failure(call, error);
        return;
    }
    if (result.decided_by.error)
        ngx_weir_log_limited(call->session->stream->connection->log, result.decided_by.error,
                             "on_store_failure decides for rule", result.decided_by.rule);
    if (permits.count)
        (void)weir_permits_to_text(call->session->engine, &permits, lease);
    ngx_stream_weir_reply_decision(call->out, &result, lease);
}

/* ---- WEIR.RELEASE lease: the number of permits released; WEIR.RENEW lease: the lease that replaces it ---- */

/* 0 after an error reply. */
static ngx_uint_t ngx_stream_weir_read_lease(ngx_stream_weir_call_t *call, weir_permits *permits)
{
    if (!ngx_stream_weir_has_rules(call))
        return 0;
    int error = weir_permits_from_text(call->session->engine, call->args[1], permits);
    if (error)
        ngx_stream_weir_error(call, "ERR this is no lease of this segment");
    return error == 0;
}

/* NULL: none of the permits is in the store. */
static weir_async *ngx_stream_weir_permits_async(ngx_stream_weir_call_t *call, const weir_permits *permits)
{
    return permits->names_len ? ngx_stream_weir_session_async(call->session) : NULL;
}

void ngx_stream_weir_release(ngx_stream_weir_call_t *call)
{
    weir_permits permits;
    ngx_stream_weir_session_t *session = call->session;
    if (!ngx_stream_weir_read_lease(call, &permits))
        return;
    weir_async *async = ngx_stream_weir_permits_async(call, &permits);
    call->needs_store =
        async && !session->prepared && weir_permits_release_begin(session->engine, &permits, async) == 1;
    if (call->needs_store)
        return;
    int released = weir_permits_release_finish(session->engine, &permits, async);
    if (async)
        ngx_stream_weir_store_used(session);
    if (released < 0)
        ngx_stream_weir_failure(call, released);
    else
        weir__resp_number(call->out, released);
}

/* Replies null if the lease has expired. */
void ngx_stream_weir_renew(ngx_stream_weir_call_t *call)
{
    weir_permits permits;
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    ngx_stream_weir_session_t *session = call->session;
    if (!ngx_stream_weir_read_lease(call, &permits))
        return;
    weir_async *async = ngx_stream_weir_permits_async(call, &permits);
    call->needs_store =
        async && !session->prepared && weir_permits_renew_begin(session->engine, &permits, false, async) == 1;
    if (call->needs_store)
        return;
    int error = weir_permits_renew_finish(session->engine, &permits, false, async);
    if (async)
        ngx_stream_weir_store_used(session);
    size_t len = error ? 0 : weir_permits_to_text(session->engine, &permits, text);
    if (error)
        ngx_stream_weir_failure(call, error);
    else if (len)
        weir__resp_bulk(call->out, text, len);
    else
        weir__resp_null(call->out);
}
