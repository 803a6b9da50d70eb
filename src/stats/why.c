/*
 * weir why: what was denied to a client, a key or a request, by which rule and why, and when it would pass; and which
 * keys came near their limit (warn_at). Reads the ring of recent denials (table/denial_ring.h); whether a key would
 * pass now comes from its counter.
 */
#include "base/duration.h"
#include "base/json_writer.h"
#include "engine/denial_recorder.h"
#include "engine/response.h"
#include "stats/open_host.h"
#include "stats/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_MAX 20 /* keys that are printed as text */

/* ---- The subject ---- */

struct subject {
    weir_text text; /* empty: everything */
    weir_text key;  /* the text as rules count it */
    uint64_t hash;  /* of that, as a key or a request's id */
    uint64_t client;
    uint64_t pseudonym;
    bool is_pseudonym; /* "~" and 16 digits */
    char client_text[WEIR__ADDRESS_TEXT];
    size_t client_len; /* 0: not an address */
    char key_text[WEIR__KEY_MAX];
};

static void read_subject(const weir_segment *segment, const char *given, struct subject *subject)
{
    struct weir__address address;
    subject->text = weir__text_of(given ? given : "");
    weir_text rest = subject->text;
    subject->key = weir__key_counted(subject->text, subject->key_text);
    subject->hash = weir__hot_sampler_hash(segment, subject->key.data, subject->key.len);
    if (weir__address_parse(subject->text, &address)) {
        subject->client_len = weir__address_text(&address, 128, subject->client_text);
        subject->client = weir__hot_sampler_hash(segment, subject->client_text, subject->client_len);
    }
    subject->is_pseudonym = weir__text_skip(&rest, "~") && rest.len == 16;
    for (size_t i = 0; i < rest.len && subject->is_pseudonym; i++) {
        int digit = weir__hex_value(rest.data[i]);
        subject->is_pseudonym = digit >= 0;
        subject->pseudonym = subject->pseudonym << 4 | (uint64_t)(digit & 15);
    }
}

/* True if the subject is the key, or a part of it: "42" of "user:42", "10.0.0.1" of "ip:10.0.0.1|login". */
static bool is_in_key(const struct subject *subject, weir_text key)
{
    static const char between[] = ":/|,;= ";
    size_t len = subject->text.len;
    for (size_t i = 0; len && i + len <= key.len; i++)
        if (memcmp(key.data + i, subject->text.data, len) == 0 && (i == 0 || strchr(between, key.data[i - 1])) &&
            (i + len == key.len || strchr(between, key.data[i + len])))
            return true;
    return false;
}

/* True if the entry's key, its client or one of its requests is the subject. */
static bool is_about(const weir_segment *segment, const struct subject *subject, const struct weir__denial *entry)
{
    if (!subject->text.len || entry->key == subject->hash ||
        weir__text_equal(subject->text, weir__denial_text(entry, WEIR__DENIAL_RULE)) ||
        is_in_key(subject, weir__denial_text(entry, WEIR__DENIAL_KEY)))
        return true;
    for (size_t i = 0; i < WEIR__DENIAL_RECENT && i < entry->count; i++) {
        const struct weir__denied_request *recent = &entry->recent[i];
        if ((subject->client && recent->client == subject->client) || (recent->id && recent->id == subject->hash) ||
            (subject->is_pseudonym && recent->client && weir__pseudonym(segment, recent->client) == subject->pseudonym))
            return true;
    }
    /* The first request of an entry with many. */
    return weir__text_equal(subject->text, weir__denial_text(entry, WEIR__DENIAL_REQUEST)) ||
           (subject->client_len && weir__text_equal((weir_text){subject->client_text, subject->client_len},
                                                    weir__denial_text(entry, WEIR__DENIAL_CLIENT))) ||
           (subject->is_pseudonym && entry->key && weir__pseudonym(segment, entry->key) == subject->pseudonym);
}

/* ---- Reading the ring ---- */

struct why {
    const struct weir__snapshot *snapshot; /* refreshed */
    const char *rule, *ticket;             /* as in the options */
    bool has_store;                        /* which is not read here */
    struct weir__mapped mapped;
    struct weir__denial_ring ring;
    struct subject subject;
    size_t limit;                 /* of `entries`; 0: none */
    struct weir__denial *entries; /* about the subject; those of one rule, key and reason are one. Newest first */
    size_t count;
    size_t more;        /* that are older */
    size_t all;         /* entries of the ring */
    size_t warnings;    /* of them */
    uint64_t oldest_ms; /* of them; 0: there are none */
    uint64_t now_ms;
};

static bool is_warning(const struct weir__denial *entry)
{
    return entry->flags & WEIR__DENIAL_WARNING;
}

/* What is read first of an entry about the subject: a ring may have many, of which a reply has the newest. */
struct found {
    uint64_t identity, count, first_ms, last_ms, ticket;
    uint32_t row;
};

static int by_last(const void *a, const void *b)
{
    const struct found *left = a, *right = b;
    if (left->last_ms != right->last_ms)
        return left->last_ms < right->last_ms ? 1 : -1;
    return left->ticket < right->ticket ? 1 : -1;
}

static int by_identity(const void *a, const void *b)
{
    const struct found *left = a, *right = b;
    if (left->identity != right->identity)
        return left->identity < right->identity ? -1 : 1;
    return by_last(a, b);
}

/* Merges the entries of one rule, key and reason into the newest of them. Returns how many are left, newest first. */
static size_t merge(struct found *found, size_t count)
{
    size_t kept = 0;
    qsort(found, count, sizeof *found, by_identity);
    for (size_t i = 0; i < count; i++) {
        struct found *newer = kept ? &found[kept - 1] : NULL;
        if (!newer || newer->identity != found[i].identity) {
            found[kept++] = found[i];
            continue;
        }
        newer->count += found[i].count;
        newer->first_ms = found[i].first_ms < newer->first_ms ? found[i].first_ms : newer->first_ms;
    }
    qsort(found, kept, sizeof *found, by_last);
    return kept;
}

/* Reads the entries that were found, up to the limit, unless they were replaced meanwhile. False: no memory. */
static bool read_found(struct why *why, const struct found *found, size_t count)
{
    size_t shown = why->limit && why->limit < count ? why->limit : count;
    why->entries = calloc(shown + 1, sizeof *why->entries);
    why->more = count - shown;
    for (size_t i = 0; why->entries && i < shown; i++) {
        struct weir__denial *entry = &why->entries[why->count];
        if (!weir__denial_read(&why->ring, found[i].row, entry) || entry->ticket != found[i].ticket)
            continue;
        entry->count = found[i].count;
        entry->first_ms = found[i].first_ms;
        entry->last_ms = found[i].last_ms;
        why->count++;
    }
    return why->entries;
}

/* True for denials by the wanted rule, or by one of its limits ("rule/1h"). */
static bool is_by_rule(const struct why *why, const struct weir__denial *entry)
{
    weir_text name = weir__denial_text(entry, WEIR__DENIAL_RULE);
    return !why->rule || (weir__text_skip(&name, why->rule) && (!name.len || name.data[0] == '/'));
}

/* False: no memory. */
static bool collect(struct why *why, int64_t since_ns)
{
    const weir_segment *segment = why->snapshot->engine->segment;
    uint64_t span_ms = (uint64_t)since_ns / 1000000;
    uint64_t since_ms = since_ns && span_ms < why->now_ms ? why->now_ms - span_ms : 0;
    struct found *found = calloc(why->ring.rows, sizeof *found);
    struct weir__denial entry;
    size_t count = 0;
    for (uint32_t i = 0; found && i < why->ring.rows; i++) {
        if (!weir__denial_read(&why->ring, i, &entry))
            continue;
        why->all++;
        why->warnings += is_warning(&entry);
        if (!why->oldest_ms || entry.first_ms < why->oldest_ms)
            why->oldest_ms = entry.first_ms;
        if (entry.last_ms >= since_ms && is_by_rule(why, &entry) && is_about(segment, &why->subject, &entry))
            found[count++] =
                (struct found){entry.identity, entry.count, entry.first_ms, entry.last_ms, entry.ticket, i};
    }
    bool good = found && read_found(why, found, merge(found, count));
    free(found);
    return good;
}

/* ---- The present ---- */

enum passes { PASSES, WAITS, NEVER, UNKNOWN };

/*
 * Whether the first request of the entry would pass its counter now; *wait_ns is set for WAITS, -1 if the time is not
 * known. UNKNOWN: the rule or the text of the key is not known, or something else than this counter denied: a list, the
 * load of the host, a reserve, the failure of the store.
 */
static enum passes passes_now(const struct why *why, const struct weir__denial *entry, int64_t *wait_ns)
{
    weir *engine = why->snapshot->engine;
    char name[WEIR_NAME_MAX + 1];
    weir_text key = weir__denial_text(entry, WEIR__DENIAL_KEY), rule_name = weir__denial_text(entry, WEIR__DENIAL_RULE);
    if (entry->flags & (WEIR__DENIAL_HIDDEN | WEIR__DENIAL_KEY_CUT))
        key = entry->key == why->subject.hash ? why->subject.key : (weir_text){0};
    if (!key.len || !rule_name.len || rule_name.len > WEIR_NAME_MAX || why->snapshot->unnamed ||
        entry->reason == WEIR_BY_BLOCK_LIST || entry->reason == WEIR_BY_MISSING_KEY || entry->reason == WEIR_BY_SHED ||
        entry->reason == WEIR_BY_FAILURE)
        return UNKNOWN;
    snprintf(name, sizeof name, "%.*s", (int)rule_name.len, rule_name.data);
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const struct weir__rule *rule = weir__rule_named(ruleset->rules, name, entry->flags & WEIR__DENIAL_SHADOW);
    const weir_taken taken = {
        .quota = entry->limit, .window_ns = entry->window_ns, .tier = weir__denial_text(entry, WEIR__DENIAL_TIER)};
    const struct weir__quota *quota = rule ? weir__quota_taken(rule, &taken) : NULL;
    enum passes passes = UNKNOWN;
    struct weir__quota scaled;
    weir_decision decision;
    weir_time now = why->snapshot->now;
    if (quota)
        quota = weir__quota_effective(engine, rule, quota, now, &scaled);
    if (quota && weir_peek(engine->segment, &quota->limit, key.data, key.len, entry->cost, now, &decision) == 0) {
        *wait_ns = decision.retry_after_ns;
        passes = weir_passes(&decision) ? PASSES : decision.verdict == WEIR_NEVER_FITS ? NEVER : WAITS;
    }
    weir__hazard_release(&engine->hazards, at);
    return passes;
}

/* ---- Text ---- */

/* The name of a reason, in JSON. The file's content is not trusted. */
static const char *reason_name(const struct weir__denial *entry)
{
    if (is_warning(entry))
        return "warning";
    enum weir_reason reason = entry->reason <= WEIR_BY_SHED ? (enum weir_reason)entry->reason : WEIR_BY_LIMIT;
    return weir__reason_name(reason, (enum weir_verdict)entry->verdict, entry->flags & WEIR__DENIAL_CONCURRENCY);
}

/* -1: not known. */
static int64_t used_of(const struct weir__denial *entry)
{
    int64_t used;
    bool known = entry->capacity >= 0 && !__builtin_sub_overflow(entry->capacity, entry->remaining, &used);
    return known ? used : -1;
}

/* The reason as the end of a sentence. */
static void print_reason(const struct weir__denial *entry)
{
    char window[WEIR__DURATION_TEXT], missing[WEIR_MISSING_MAX + 1];
    const char *reason = reason_name(entry);
    weir_text lacked = weir__denial_text(entry, WEIR__DENIAL_MISSING);
    bool calendar = entry->window_ns <= 0;
    weir__window_text(entry->window_ns, window);
    if (strcmp(reason, "block_list") == 0)
        printf("it is on a block list");
    else if (strcmp(reason, "ban") == 0)
        printf("the rule's limit is 0");
    else if (strcmp(reason, "missing_key") == 0)
        printf("the request lacked the %s, and on_missing_key of the rule is deny",
               weir__printable(lacked, missing, sizeof missing));
    else if (strcmp(reason, "store_failure") == 0)
        printf("its counter could not be read (%s), and on_store_failure of the rule is closed",
               weir_strerror(entry->error));
    else if (strcmp(reason, "shed") == 0)
        printf("the host was overloaded, or the rest of the limit was reserved; more important requests came first");
    else if (strcmp(reason, "blocked") == 0)
        printf("an operator had blocked the key");
    else if (strcmp(reason, "never_fits") == 0)
        printf("the request cost %" PRId64 ", and the rule never admits more than %" PRId64 " at once", entry->cost,
               entry->capacity);
    else if (strcmp(reason, "concurrency") == 0)
        printf("%" PRId64 " of its requests were in flight, and the limit is %" PRId64, used_of(entry),
               entry->capacity);
    else {
        printf("%" PRId64 " of %" PRId64 " were used; the limit is %" PRId64 "%s%s", used_of(entry), entry->capacity,
               entry->limit, calendar ? "" : " in ", calendar ? "" : window);
        if (is_warning(entry))
            printf(", and warn_at is %d%%", entry->warn_at);
    }
}

/* "2026-11-15T10:15:49Z" */
static const char *time_of(uint64_t ms, char text[WEIR__TIME_TEXT])
{
    weir__time_text((int64_t)ms, text);
    char *fraction = strchr(text, '.');
    if (fraction)
        memcpy(fraction, "Z", sizeof "Z");
    return text;
}

/* The key as it is shown. */
static const char *key_of(const struct why *why, const struct weir__denial *entry, char *text, size_t size)
{
    if (!entry->key && !weir__denial_text(entry, WEIR__DENIAL_KEY).len)
        return "a request";
    return weir__denial_key(why->snapshot->engine->segment, entry, text, size);
}

static const char *verdict_of(const struct weir__denial_other *other)
{
    bool passes = other->verdict == WEIR_ALLOW || other->verdict == WEIR_DELAY;
    return other->shadow ? passes ? "would have allowed it" : "would have denied it"
           : passes      ? "allowed it"
                         : "denied it, too";
}

static void print_others(const struct weir__denial *entry)
{
    struct weir__denial_other other;
    weir_text name;
    char text[WEIR_NAME_MAX + 8];
    for (size_t at = 0; weir__denial_next_other(entry, &at, &other, &name);) {
        printf("  rule %s%s %s", weir__printable(name, text, sizeof text), other.shadow ? " (shadow)" : "",
               verdict_of(&other));
        if (other.capacity > 0)
            printf(": %" PRId64 " of %" PRId64 " left", other.remaining, other.capacity);
        putchar('\n');
    }
}

static void print_request(const struct weir__denial *entry)
{
    static const struct {
        const char *name;
        enum weir__denial_text which;
    } texts[] = {{"path", WEIR__DENIAL_PATH},
                 {"client", WEIR__DENIAL_CLIENT},
                 {"request", WEIR__DENIAL_REQUEST},
                 {"tier", WEIR__DENIAL_TIER}};
    char shown[512];
    const char *before = "  the first had ";
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        weir_text text = weir__denial_text(entry, texts[i].which);
        if (!text.len)
            continue;
        printf("%s%s %s", before, texts[i].name, weir__printable(text, shown, sizeof shown));
        before = ", ";
    }
    if (entry->cost != 1)
        printf("%scost %" PRId64, before, entry->cost);
    if (entry->cost != 1 || *before == ',')
        putchar('\n');
}

static void print_next(const struct why *why, const struct weir__denial *entry)
{
    char text[WEIR__DURATION_TEXT], at[WEIR__TIME_TEXT];
    int64_t wait_ns = -1;
    enum passes passes = passes_now(why, entry, &wait_ns);
    if (passes == PASSES)
        printf("  it would pass now");
    else if (passes == NEVER)
        printf("  such a request never passes");
    else if (passes == WAITS && wait_ns >= 0)
        printf("  it would pass in %s s, at %s", weir__wait_text(wait_ns, text),
               time_of(why->now_ms + (uint64_t)wait_ns / 1000000 + 1, at));
    else if (passes == WAITS)
        printf("  it would not pass now");
    else
        return;
    puts(why->has_store ? ", by the counters of this host" : "");
}

static void print_entry(const struct why *why, const struct weir__denial *entry)
{
    char key[512], rule[WEIR_NAME_MAX + 8], first[WEIR__TIME_TEXT], last[WEIR__TIME_TEXT], ago[WEIR__DURATION_TEXT];
    bool shadow = entry->flags & WEIR__DENIAL_SHADOW, once = entry->count == 1;
    uint64_t ago_s = why->now_ms > entry->last_ms ? (why->now_ms - entry->last_ms) / 1000 : 0;
    weir_text name = weir__denial_text(entry, WEIR__DENIAL_RULE);
    weir__seconds_text((int64_t)ago_s * WEIR_SECOND, ago);
    if (name.len)
        printf("rule %s%s ", weir__printable(name, rule, sizeof rule), shadow ? " (shadow)" : "");
    else
        printf(entry->reason == WEIR_BY_BLOCK_LIST ? "the block list of all rules " : "a limit of the request's own ");
    printf("%s %s",
           is_warning(entry) ? "warned of"
           : shadow          ? "would have denied"
                             : "denied",
           key_of(why, entry, key, sizeof key));
    if (once)
        printf(" at %s, %s s ago:\n  ", time_of(entry->last_ms, last), ago);
    else
        printf(" %" PRIu64 " times from %s to %s, %s s ago:\n  ", entry->count, time_of(entry->first_ms, first),
               time_of(entry->last_ms, last), ago);
    print_reason(entry);
    putchar('\n');
    print_request(entry);
    print_others(entry);
    if (!is_warning(entry))
        print_next(why, entry);
}

static void print_text(const struct why *why, const struct weir__why_options *options)
{
    char subject[256], oldest[WEIR__TIME_TEXT], span[WEIR__DURATION_TEXT];
    size_t shown = why->count < SHOWN_MAX ? why->count : SHOWN_MAX;
    for (size_t i = 0; i < shown; i++) {
        if (i)
            putchar('\n');
        print_entry(why, &why->entries[i]);
    }
    if (shown < why->count)
        printf("\n%zu more; --json has all of them\n", why->count - shown);
    if (why->count)
        return;
    printf("no denial%s%s", why->subject.text.len ? " of " : "",
           weir__printable(why->subject.text, subject, sizeof subject));
    if (options->since_ns)
        printf(" in the last %s", weir__window_text(options->since_ns, span));
    if (why->oldest_ms)
        printf("; the records have %zu denied keys and begin at %s\n", why->all - why->warnings,
               time_of(why->oldest_ms, oldest));
    else
        printf("; nothing was denied since the records began\n");
}

/* ---- JSON ---- */

static void add_others(const struct weir__denial *entry, struct weir__buffer *json)
{
    struct weir__denial_other other;
    weir_text name;
    const char *before = "";
    for (size_t at = 0; weir__denial_next_other(entry, &at, &other, &name); before = ",") {
        bool passes = other.verdict == WEIR_ALLOW || other.verdict == WEIR_DELAY;
        weir__buffer_add(json, before, strlen(before));
        weir__json_add(json, "{\"rule\":%t,\"shadow\":%b,\"passed\":%b,\"limit\":%d,\"remaining\":%d}", name,
                       other.shadow != 0, passes, other.capacity, other.remaining);
    }
}

static void add_text(struct weir__buffer *json, const char *name, const struct weir__denial *entry,
                     enum weir__denial_text which)
{
    weir_text text = weir__denial_text(entry, which);
    weir__buffer_printf(json, ",\"%s\":", name);
    if (text.len)
        weir__json_add_string(json, text);
    else
        weir__buffer_add_literal(json, "null");
}

static void add_entry(const struct why *why, const struct weir__denial *entry, struct weir__buffer *json)
{
    char key[512], first[WEIR__TIME_TEXT], last[WEIR__TIME_TEXT];
    weir_text text = weir__denial_text(entry, WEIR__DENIAL_KEY);
    int64_t wait_ns = -1;
    enum passes passes = passes_now(why, entry, &wait_ns);
    weir__time_text((int64_t)entry->first_ms, first);
    weir__time_text((int64_t)entry->last_ms, last);
    weir__json_add(json, "{\"rule\":%t,\"shadow\":%b,\"reason\":%s,\"count\":%d,\"first\":%s,\"last\":%s",
                   weir__denial_text(entry, WEIR__DENIAL_RULE), (entry->flags & WEIR__DENIAL_SHADOW) != 0,
                   reason_name(entry), (int64_t)entry->count, first, last);
    weir__json_add(json, ",\"key\":%t,\"hidden\":%b,\"cut\":%b",
                   text.len ? text : weir__text_of(entry->key ? key_of(why, entry, key, sizeof key) : ""),
                   !text.len && entry->key, (entry->flags & WEIR__DENIAL_KEY_CUT) != 0);
    weir__json_add(json, ",\"limit\":%d,\"window\":%n,\"capacity\":%d,\"used\":%d,\"cost\":%d", entry->limit,
                   entry->window_ns, entry->capacity, used_of(entry), entry->cost);
    add_text(json, "tier", entry, WEIR__DENIAL_TIER);
    add_text(json, "client", entry, WEIR__DENIAL_CLIENT);
    add_text(json, "request_id", entry, WEIR__DENIAL_REQUEST);
    add_text(json, "path", entry, WEIR__DENIAL_PATH);
    add_text(json, "missing", entry, WEIR__DENIAL_MISSING);
    weir__buffer_add_literal(json, ",\"others\":[");
    add_others(entry, json);
    weir__buffer_add_literal(json, "],\"passes\":");
    if (passes == UNKNOWN)
        weir__buffer_add_literal(json, "null");
    else
        weir__json_add(json, "%b", passes == PASSES);
    weir__json_add(json, ",\"retry_after\":%n}",
                   passes == WAITS    ? wait_ns
                   : passes == PASSES ? INT64_C(0)
                                      : INT64_C(-1));
}

static void add_entries(const struct why *why, bool warnings, struct weir__buffer *json)
{
    bool first = true;
    for (size_t i = 0; i < why->count; i++) {
        if (is_warning(&why->entries[i]) != warnings)
            continue;
        if (!first)
            weir__buffer_add_literal(json, ",");
        first = false;
        add_entry(why, &why->entries[i], json);
    }
}

static void write_json(const struct why *why, struct weir__buffer *json)
{
    char now[WEIR__TIME_TEXT], oldest[WEIR__TIME_TEXT] = "";
    weir__time_text((int64_t)why->now_ms, now);
    if (why->oldest_ms)
        weir__time_text((int64_t)why->oldest_ms, oldest);
    weir__json_add(json, "{\"at\":%s,\"oldest\":%s,\"entries\":%d,\"more\":%d", now, oldest, (int64_t)why->all,
                   (int64_t)why->more);
    if (why->ticket)
        weir__buffer_printf(json, ",\"ticket\":%s", why->ticket);
    weir__buffer_add_literal(json, ",\"denials\":[");
    add_entries(why, false, json);
    weir__buffer_add_literal(json, "],\"warnings\":[");
    add_entries(why, true, json);
    weir__buffer_add(json, "]}", sizeof "]}");
}

/* ---- Opening ---- */

static int open_ring(struct why *why, char path[4200])
{
    snprintf(path, 4200, "%s.denials", why->snapshot->segment);
    struct weir__file_spec spec = {.path = path,
                                   .read_only = true,
                                   .owner = why->snapshot->engine->segment->mapped.owner,
                                   .check = weir__row_file_check,
                                   .plan = &weir__denial_format};
    int error = weir__mapped_open(&spec, &why->mapped);
    return error || weir__denial_attach(why->mapped.memory, why->mapped.bytes, &why->ring) ? error : WEIR_EDAMAGED;
}

/* Reads what is recorded about the subject. 0 or an error of the file at `path`, or WEIR_ENOMEM. */
static int read_all(struct why *why, const char *subject, int64_t since_ns, char path[4200])
{
    int error = open_ring(why, path);
    if (error)
        return error;
    why->now_ms = (uint64_t)why->snapshot->now.wall_ns / 1000000;
    read_subject(why->snapshot->engine->segment, subject, &why->subject);
    return collect(why, since_ns) ? 0 : WEIR_ENOMEM;
}

static void free_all(struct why *why)
{
    weir__mapped_close(&why->mapped);
    free(why->entries);
}

int weir__stats_json_denied(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json)
{
    struct why why = {.snapshot = snapshot, .limit = (size_t)query->n};
    struct weir__buffer text = {0};
    char path[4200];
    int error = read_all(&why, query->key.data, query->seconds * WEIR_SECOND, path);
    if (!error)
        write_json(&why, &text);
    free_all(&why);
    if (text.failed)
        error = WEIR_ENOMEM;
    if (error)
        weir__buffer_free(&text);
    else
        *json = text.data;
    return error;
}

/* ---- The command ---- */

static int report_error(const char *path, int error)
{
    char why[256];
    if (error == WEIR_ENOENT)
        fprintf(stderr,
                "weir why: %s does not exist: no denials are recorded (denials in weir.yaml, weir_denials in nginx)\n",
                path);
    else
        fprintf(stderr, "weir why: %s: %s\n", path, weir__mapped_why(path, error, why, sizeof why));
    return 1;
}

static int run(struct why *why, const struct weir__why_options *options)
{
    char path[4200];
    int error = read_all(why, options->subject, options->since_ns, path);
    if (error)
        return report_error(path, error);
    if (!options->json) {
        print_text(why, options);
        return (!why->count && !why->ticket) || fflush(stdout) != 0;
    }
    struct weir__buffer json = {0};
    write_json(why, &json);
    bool failed = json.failed || puts(json.data) < 0;
    weir__buffer_free(&json);
    return failed || (!why->count && !why->ticket) || fflush(stdout) != 0;
}

int weir__why_run(const struct weir__why_options *options, weir_diagnose *diagnose, void *context)
{
    struct weir__opened_host host;
    struct why why = {.snapshot = &host.snapshot, .rule = options->rule, .ticket = options->ticket};
    int code = 1;
    if (weir__open_host(&host, options->what, options->rules, diagnose, context)) {
        why.has_store = host.config.store.url;
        code = run(&why, options);
    }
    free_all(&why);
    weir__close_host(&host);
    return code;
}
