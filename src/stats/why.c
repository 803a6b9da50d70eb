/*
 * Denials of this host as JSON: what was denied to a client, a key or a request, by which rule and why, and when it
 * would pass; and which keys came near their limit (warn_at). Reads the ring of recent denials (table/denial_ring.h);
 * whether a key would pass now comes from its counter. why_print.c has the command.
 */
#include "base/duration.h"
#include "base/json_writer.h"
#include "engine/denial_recorder.h"
#include "engine/response.h"
#include "engine/store_request.h"
#include "stats/open_host.h"
#include "stats/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
    const char *digest; /* instead of all that: its hashes; NULL: none */
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

/* The hash by which the store knows a text; of a text that is such a hash, that. */
static void put_digest(weir_text text, char digits[WEIR__NAME_DIGITS])
{
    weir_text rest = text;
    if (weir__text_skip(&rest, "~") && rest.len == WEIR__NAME_DIGITS)
        memcpy(digits, rest.data, rest.len);
    else
        weir__store_digits(text, digits);
}

void weir__subject_digest(const char *about, char digest[WEIR__SUBJECT_DIGEST])
{
    char key[WEIR__KEY_MAX], client[WEIR__ADDRESS_TEXT];
    struct weir__address address;
    weir_text text = weir__text_of(about);
    memset(digest, 0, WEIR__SUBJECT_DIGEST);
    put_digest(weir__key_counted(text, key), digest);
    if (!weir__address_parse(text, &address))
        return;
    digest[WEIR__NAME_DIGITS] = ' ';
    weir__store_digits((weir_text){client, weir__address_text(&address, 128, client)}, digest + WEIR__NAME_DIGITS + 1);
}
_Static_assert(WEIR__SUBJECT_DIGEST == 2 * WEIR__NAME_DIGITS + 2, "two hashes");

static bool has_digest(const struct subject *subject, weir_text text)
{
    char digits[WEIR__NAME_DIGITS + 1] = "";
    put_digest(text, digits);
    return text.len && strstr(subject->digest, digits);
}

/* As is_about, for a subject whose hashes alone are known: no parts of keys, and the first request alone. */
static bool digest_is_about(const struct subject *subject, const struct weir__denial *entry)
{
    static const enum weir__denial_text texts[] = {WEIR__DENIAL_RULE, WEIR__DENIAL_KEY, WEIR__DENIAL_CLIENT,
                                                   WEIR__DENIAL_REQUEST};
    for (size_t i = 0; i < WEIR__COUNT(texts); i++)
        if (has_digest(subject, weir__denial_text(entry, texts[i])))
            return true;
    return false;
}

/* True if the entry's key, its client or one of its requests is the subject. */
static bool is_about(const weir_segment *segment, const struct subject *subject, const struct weir__denial *entry)
{
    if (subject->digest)
        return digest_is_about(subject, entry);
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
    const char *rule;                      /* as in the query */
    bool digest;
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

enum passes { PASSES, WAITS, NEVER, IN_STORE, UNKNOWN };

/*
 * Whether the first request of the entry would pass its counter now; *wait_ns is set for WAITS, -1 if the time is not
 * known. IN_STORE: the rule is strict, so its counter is in the store, which is not read here. *by_tier: the answer
 * holds for the tier of that time. UNKNOWN: the rule or the text of the key is not known, or something else than this
 * counter denied: a list, the load of the host, a reserve, the failure of the store.
 */
static enum passes passes_now(const struct why *why, const struct weir__denial *entry, int64_t *wait_ns, bool *by_tier)
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
        bool here = decision.verdict == WEIR_NEVER_FITS || decision.verdict == WEIR_BLOCKED; /* as blocks are */
        enum weir__consistency consistency = weir__consistency_of(engine, ruleset, rule);
        bool in_store = consistency == WEIR__STRICT || consistency == WEIR__LEASED;
        passes = !here && in_store                     ? IN_STORE
                 : weir_passes(&decision)              ? PASSES
                 : decision.verdict == WEIR_NEVER_FITS ? NEVER
                                                       : WAITS;
        *by_tier = rule->quota_count > 1;
    }
    weir__hazard_release(&engine->hazards, at);
    return passes;
}

/* ---- JSON ---- */

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

static void add_others(const struct weir__denial *entry, struct weir__buffer *json)
{
    struct weir__denial_other other;
    weir_text name;
    const char *before = "";
    for (size_t at = 0; weir__denial_next_other(entry, &at, &other, &name); before = ",") {
        bool passes = other.verdict == WEIR_ALLOW || other.verdict == WEIR_DELAY;
        bool counts = other.verdict != WEIR_BLOCKED; /* else what is left did not decide */
        weir__buffer_add(json, before, strlen(before));
        weir__json_add(json, "{\"rule\":%t,\"shadow\":%b,\"passed\":%b,\"limit\":%d,\"remaining\":%d}", name,
                       other.shadow != 0, passes, counts ? other.capacity : -1, counts ? other.remaining : -1);
    }
}

static bool is_hidden(const struct why *why, const struct weir__denial *entry)
{
    return why->digest || entry->flags & WEIR__DENIAL_HIDDEN;
}

/* The key as it is shown; for the store: as the store knows it. */
static weir_text shown_key(const struct why *why, const struct weir__denial *entry, char *text, size_t size)
{
    weir_text key = weir__denial_text(entry, WEIR__DENIAL_KEY);
    if (key.len && why->digest) {
        *text = '~';
        put_digest(key, text + 1);
        return (weir_text){text, WEIR__NAME_DIGITS + 1};
    }
    if (key.len && !is_hidden(why, entry))
        return key;
    return weir__text_of(entry->key ? weir__denial_key(why->snapshot->engine->segment, entry, text, size) : "");
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
    bool by_tier = false;
    enum passes passes = passes_now(why, entry, &wait_ns, &by_tier);
    weir__time_text((int64_t)entry->first_ms, first);
    weir__time_text((int64_t)entry->last_ms, last);
    weir__json_add(json, "{\"rule\":%t,\"shadow\":%b,\"reason\":%s,\"count\":%d,\"first\":%s,\"last\":%s",
                   weir__denial_text(entry, WEIR__DENIAL_RULE), (entry->flags & WEIR__DENIAL_SHADOW) != 0,
                   reason_name(entry), (int64_t)entry->count, first, last);
    weir__json_add(json, ",\"ago\":%n,\"error\":%s,\"warn_at\":%d",
                   why->now_ms > entry->last_ms ? (int64_t)(why->now_ms - entry->last_ms) * 1000000 : INT64_C(0),
                   entry->error ? weir_strerror(entry->error) : NULL, (int64_t)entry->warn_at);
    weir__json_add(json, ",\"key\":%t,\"hidden\":%b,\"cut\":%b", shown_key(why, entry, key, sizeof key),
                   entry->key && (!text.len || is_hidden(why, entry)), (entry->flags & WEIR__DENIAL_KEY_CUT) != 0);
    weir__json_add(json, ",\"limit\":%d,\"window\":%n,\"capacity\":%d,\"used\":%d,\"cost\":%d", entry->limit,
                   entry->window_ns, entry->capacity, used_of(entry), entry->cost);
    add_text(json, "tier", entry, WEIR__DENIAL_TIER);
    if (is_hidden(why, entry))
        weir__buffer_add_literal(json, ",\"client\":null");
    else
        add_text(json, "client", entry, WEIR__DENIAL_CLIENT);
    if (why->digest) { /* both may have the key's text */
        weir__buffer_add_literal(json, ",\"request_id\":null,\"path\":null");
    } else {
        add_text(json, "request_id", entry, WEIR__DENIAL_REQUEST);
        add_text(json, "path", entry, WEIR__DENIAL_PATH);
    }
    add_text(json, "missing", entry, WEIR__DENIAL_MISSING);
    weir__buffer_add_literal(json, ",\"others\":[");
    add_others(entry, json);
    weir__buffer_add_literal(json, "],\"passes\":");
    if (passes == UNKNOWN || passes == IN_STORE)
        weir__buffer_add_literal(json, "null");
    else
        weir__json_add(json, "%b", passes == PASSES);
    weir__json_add(json, ",\"retry_after\":%n,\"in_store\":%b,\"by_tier\":%b}",
                   passes == WAITS    ? wait_ns
                   : passes == PASSES ? INT64_C(0)
                                      : INT64_C(-1),
                   passes == IN_STORE, by_tier);
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
    weir__json_add(json, "{\"at\":%s,\"oldest\":%s,\"entries\":%d,\"denied_keys\":%d,\"more\":%d,\"denials\":[", now,
                   oldest, (int64_t)why->all, (int64_t)(why->all - why->warnings), (int64_t)why->more);
    add_entries(why, false, json);
    weir__buffer_add_literal(json, "],\"warnings\":[");
    add_entries(why, true, json);
    weir__buffer_add(json, "]}", sizeof "]}");
}

/* ---- Opening ---- */

static int open_ring(struct why *why)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.denials", why->snapshot->segment);
    struct weir__file_spec spec = {.path = path,
                                   .read_only = true,
                                   .owner = why->snapshot->engine->segment->mapped.owner,
                                   .check = weir__row_file_check,
                                   .plan = &weir__denial_format};
    int error = weir__mapped_open(&spec, &why->mapped);
    return error || weir__denial_attach(why->mapped.memory, why->mapped.bytes, &why->ring) ? error : WEIR_EDAMAGED;
}

int weir__stats_json_denied(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json)
{
    struct why why = {.snapshot = snapshot,
                      .limit = (size_t)query->n,
                      .rule = query->rule,
                      .digest = query->digest,
                      .now_ms = (uint64_t)snapshot->now.wall_ns / 1000000};
    struct weir__buffer text = {0};
    int error = open_ring(&why);
    read_subject(snapshot->engine->segment, query->key.data, &why.subject);
    why.subject.digest = query->about;
    if (!error && !collect(&why, query->seconds * WEIR_SECOND))
        error = WEIR_ENOMEM;
    if (!error)
        write_json(&why, &text);
    weir__mapped_close(&why.mapped);
    free(why.entries);
    if (text.failed)
        error = WEIR_ENOMEM;
    if (error)
        weir__buffer_free(&text);
    else
        *json = text.data;
    return error;
}
