/* The form of replies of other hosts, and how they are merged. See host_queries.h. */
#include "stats/host_queries.h"
#include "engine/store_request.h"
#include "table/history.h"
#include "table/hot_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Forms ---- */

/*
 * A form is JSON: of an object its members, with "?" after the name if null is allowed, "!" if it may be missing, or
 * "*" for any name; of a list its first element is the form of all, and a second one their maximum number; a number, a
 * string or false stands for its type, and is the value if the reply has none.
 */
#define STRING_OF(number) #number
#define NUMBERS(most)     "[0," STRING_OF(most) "]"
#define RATES             "{'allowed':0,'delayed':0,'denied':0,'shed':0}"
#define SPANS             "{'1s?':" RATES ",'10s?':" RATES ",'60s?':" RATES "}"
#define COUNTED           "[{'key':'','hidden':false,'cut':false,'count':0,'error':0}]"
#define NEAR              "[{'key':'','hidden':false,'cut':false,'used':0}]"
#define USES              "{'keys':0,'tenths':" NUMBERS(WEIR__HOT_USES) "}"
#define SERIES            NUMBERS(WEIR__HISTORY_SECONDS)
#define LOADS             NUMBERS(3)
#define TIMES             NUMBERS(WEIR_TIMES)
#define RULE                                                                                                           \
    "{'name':'','shadow':false,'domain?':'','algorithm?':'','limit?':0,'window_s?':0,'totals':{'allowed':0,"           \
    "'delayed':0,'denied':0,'listed':0,'missing_key':0,'failures':0,'rolled_back':0,'shed':0,'warnings':0},"           \
    "'rates':" SPANS ",'hot!':{'admitted':" COUNTED ",'denied':" COUNTED ",'near':" NEAR ",'near_keys':0,'uses':" USES \
    "}}"
#define DENIAL                                                                                                         \
    "{'rule':'','shadow':false,'reason':'','error?':'','warn_at?':0,'count':0,'first':'','last':'','ago':0,"           \
    "'key':'','hidden':false,'cut':false,'limit':0,'window?':0,'capacity':0,'used':0,'cost':0,'tier?':'',"             \
    "'client?':'','request_id?':'','path?':'','missing?':'','others':[{'rule':'','shadow':false,'passed':false,"       \
    "'limit':0,'remaining':0}],'passes?':false,'retry_after?':0,'in_store':false,'by_tier':false}"

static const char *const forms[WEIR__QUERY_KINDS] = {
    [WEIR__QUERY_STATS] =
        "{'at':0,'version':'','host':{'name':'','load':" LOADS ",'processors':0},'segment?':{'path':'','bytes':0,"
        "'slots':0,'fill?':0,'created':0,'evicted_live':0,'evicted_denied':0,'slab_full':0,'soft':0,'errors':0,"
        "'lost':false},'store?':{'state':'','agent':false,'since_s':0,'lag_s':0,'last_error?':'','requests':0,"
        "'failures':0,'units_sent':0,'units_received':0,'units_dropped':0,'units_leased':0,'units_spent':0,"
        "'units_returned':0,'units_expired':0,'lease_waits':0,'keys':0,'keys_max':0},'rates':" SPANS
        ",'check_seconds':{'p50':0,'p99':0,'below_s!':" TIMES ",'counts!':" TIMES
        "},'reloads':{'ok':0,'failed':0,'polls':0,'rules':0},'history':false,'hot':false,'hot_seconds':0,'rules':[" RULE
        "],'load?':{'known':false,'level':0,'throttle':0,'in_flight':0,'signals':{'*':0},'shed':{'*':0}}}",
    [WEIR__QUERY_HISTORY] = "{'known':false,'until':0,'step':1,'allowed':" SERIES ",'delayed':" SERIES
                            ",'denied':" SERIES ",'shed':" SERIES ",'shadow_denied':" SERIES "}",
    [WEIR__QUERY_HOT_KEYS] = "{'rule':'','shadow':false,'known':false,'by':'','seconds':0,'total':0,'keys':[{'key':'',"
                             "'hidden':false,'cut':false,'count!':0,'error!':0,'used!':0}],'uses':" USES "}",
    [WEIR__QUERY_DENIED] =
        "{'at':'','oldest?':'','entries':0,'denied_keys':0,'more':0,'denials':[" DENIAL "],'warnings':[" DENIAL "]}",
};

#define NUMBER_MAX 9007199254740992.0 /* 2^53 */

static json_t *read_form(enum weir__query_kind kind)
{
    char *text = strdup(forms[kind]);
    for (char *c = text; c && *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *form = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return form;
}

static bool has_type(const json_t *form, const json_t *value)
{
    return json_is_number(form)    ? json_is_number(value)
           : json_is_boolean(form) ? json_is_boolean(value)
                                   : value && json_typeof(form) == json_typeof(value);
}

static double bounded(double number)
{
    return fmax(fmin(number, NUMBER_MAX), -NUMBER_MAX);
}

/*
 * The size of a value in bytes of the shortest text that a host sends for it: "key":0, for a member and 0, for a number
 * in a list. A member takes some 110 bytes of memory, a number 40.
 */
enum { MEMBER_BYTES = 8, NUMBER_BYTES = 2 };

static size_t size_of(const json_t *value)
{
    size_t size = json_object_size(value) * MEMBER_BYTES, i;
    const char *name;
    json_t *part;
    json_object_foreach((json_t *)value, name, part) size += size_of(part);
    json_array_foreach(value, i, part) size += json_is_number(part) ? NUMBER_BYTES : size_of(part);
    return size;
}

static bool spend(size_t *left, size_t size)
{
    bool enough = *left >= size;
    *left = enough ? *left - size : 0;
    return enough;
}

static json_t *formed(const json_t *form, const json_t *value, size_t *left);

/* `left`: the size that may still be made, as a form adds the members that are missing. */
static json_t *formed_object(const json_t *form, const json_t *value, size_t *left)
{
    enum { ANY_MAX = 64 };
    json_t *made = json_object(), *any = json_object_get(form, "*"), *part;
    const char *name;
    json_object_foreach(any ? (json_t *)value : NULL, name, part)
    {
        if (json_object_size(made) < ANY_MAX && has_type(any, part))
            json_object_set_new(made, name, formed(any, part, left));
    }
    json_object_foreach(any ? NULL : (json_t *)form, name, part)
    {
        char plain[32];
        size_t len = strcspn(name, "?!");
        snprintf(plain, sizeof plain, "%.*s", (int)len, name);
        const json_t *given = json_object_get(value, plain);
        if ((given || name[len] != '!') && !spend(left, MEMBER_BYTES))
            break;
        if (has_type(part, given) || !name[len])
            json_object_set_new(made, plain, formed(part, given, left));
        else if (name[len] == '?' || json_is_null(given))
            json_object_set_new(made, plain, json_null());
    }
    return made;
}

/* The value with the types of the form; its recursion is as deep as the form. */
static json_t *formed(const json_t *form, const json_t *value, size_t *left)
{
    size_t i;
    json_t *element, *made, *of = json_array_get(form, 0);
    if (json_is_object(form))
        return formed_object(form, value, left);
    if (json_is_array(form)) {
        json_t *most = json_array_get(form, 1);
        made = json_array();
        json_array_foreach(value, i, element)
        {
            if (most && json_array_size(made) == (size_t)json_integer_value(most))
                break;
            if (has_type(of, element) && spend(left, json_is_number(of) ? NUMBER_BYTES : 0) && *left)
                json_array_append_new(made, formed(of, element, left));
        }
        return made;
    }
    if (!has_type(form, value))
        return json_incref((json_t *)form);
    double number = json_number_value(value), kept = bounded(number);
    return kept < number || kept > number ? json_real(kept) : json_incref((json_t *)value);
}

json_t *weir__reply_form(enum weir__query_kind kind, const json_t *reply, size_t len)
{
    enum { ADDED = 32768 }; /* size of members that a short reply of an older version may lack */
    size_t left = len < SIZE_MAX ? len + ADDED : SIZE_MAX;
    json_t *form = json_is_object(reply) ? read_form(kind) : NULL;
    json_t *made = form ? formed(form, reply, &left) : NULL;
    json_decref(form);
    if (left)
        return made;
    json_decref(made);
    return NULL;
}

/* ---- Lists ---- */

static double number_in(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static int by_number(const void *a, const void *b, void *name)
{
    const json_t *left = *(json_t *const *)a, *right = *(json_t *const *)b;
    double one = number_in(left, name), other = number_in(right, name);
    return one < other ? 1 : one > other ? -1 : 0;
}

/* Texts such as times, the latest first. */
static int by_text(const void *a, const void *b, void *name)
{
    const json_t *left = json_object_get(*(json_t *const *)a, name);
    const json_t *right = json_object_get(*(json_t *const *)b, name);
    return strcmp(json_string_value(right), json_string_value(left));
}

/* Sorts a list of objects by a member, which all have, and cuts it. Returns how many were cut off. */
static size_t sort_list(struct weir__merge *merge, json_t *list, int (*order)(const void *, const void *, void *),
                        char *member, size_t most)
{
    size_t count = json_array_size(list), kept = count < most ? count : most;
    json_t **all = count ? calloc(count, sizeof(json_t *)) : NULL;
    for (size_t i = 0; all && i < count; i++)
        all[i] = json_incref(json_array_get(list, i));
    if (!all)
        return 0;
    qsort_r(all, count, sizeof(json_t *), order, member);
    json_array_clear(list);
    for (size_t i = 0; i < count; i++)
        if (i < kept) {
            json_array_append_new(list, all[i]);
        } else {
            merge->left += size_of(all[i]);
            json_decref(all[i]);
        }
    free(all);
    return count - kept;
}

/* ---- Merging ---- */

/* Adds the numbers of an object to those of another. */
static void add_numbers(json_t *sum, const json_t *more)
{
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(sum, next, name, value)
    {
        const json_t *added = json_object_get(more, name);
        double both = bounded(json_number_value(value) + json_number_value(added));
        if (json_is_number(value) && json_is_number(added))
            json_object_set_new(sum, name,
                                json_is_integer(value) && json_is_integer(added) ? json_integer((json_int_t)both)
                                                                                 : json_real(both));
    }
}

/* Adds a list of numbers; their last elements are `shift` apart. */
static void add_lists(json_t *sum, const json_t *more, int64_t shift)
{
    int64_t count = (int64_t)json_array_size(sum), others = (int64_t)json_array_size(more);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = others - count + i + shift;
        if (k >= 0 && k < others)
            json_array_set_new(sum, (size_t)i,
                               weir__hundredths(bounded(json_number_value(json_array_get(sum, (size_t)i)) +
                                                        json_number_value(json_array_get(more, (size_t)k)))));
    }
}

/* Adds a part of a reply to a list of the sum. */
static void append(struct weir__merge *merge, json_t *list, json_t *part)
{
    merge->left -= size_of(part);
    json_array_append(list, part);
}

/* Makes a part of a reply a member of the sum. */
static void set(struct weir__merge *merge, json_t *sum, const char *name, json_t *part)
{
    merge->left -= size_of(part);
    json_object_set(sum, name, part);
}

static void add_member(struct weir__merge *merge, json_t *sum, const json_t *reply, const char *name)
{
    json_t *to = json_object_get(sum, name), *from = json_object_get(reply, name);
    if (json_is_object(from) && !json_is_object(to))
        set(merge, sum, name, from);
    else
        add_numbers(to, from);
}

static void merge_rates(struct weir__merge *merge, json_t *sum, const json_t *reply)
{
    json_t *to = json_object_get(sum, "rates"), *from = json_object_get(reply, "rates");
    static const char *const spans[] = {"1s", "10s", "60s"};
    for (size_t i = 0; i < WEIR__COUNT(spans); i++)
        add_member(merge, to, from, spans[i]);
}

static void merge_uses(json_t *sum, const json_t *reply)
{
    json_t *to = json_object_get(sum, "uses"), *from = json_object_get(reply, "uses");
    add_lists(json_object_get(to, "tenths"), json_object_get(from, "tenths"), 0);
    add_numbers(to, from);
}

static const char *key_name(const json_t *key)
{
    return json_string_value(json_object_get(key, "key"));
}

/*
 * Adds keys to a list. It keeps the first 4 n to 8 n of them by `member`, a count or a share, until the n first of all
 * are chosen: so memory and time do not grow with the number of hosts.
 */
static void merge_keys(struct weir__merge *merge, json_t *sum, const json_t *more, char *member)
{
    enum { KEPT = 4 };
    size_t n = merge->query->n > 0 ? (size_t)merge->query->n : SIZE_MAX / (2 * KEPT);
    json_t *index = json_object(), *key;
    size_t i;
    json_array_foreach(sum, i, key) json_object_set(index, key_name(key), key);
    json_array_foreach(more, i, key)
    {
        json_t *known = json_object_get(index, key_name(key));
        if (!known) {
            append(merge, sum, key);
            continue;
        }
        double error = bounded(hypot(number_in(known, "error"), number_in(key, "error")));
        double used = fmax(number_in(known, "used"), number_in(key, "used"));
        add_numbers(known, key);
        if (json_object_get(known, "error"))
            json_object_set_new(known, "error", json_integer((json_int_t)error));
        if (json_object_get(known, "used"))
            json_object_set_new(known, "used", json_real(used));
    }
    json_decref(index);
    if (json_array_size(sum) > 2 * KEPT * n)
        sort_list(merge, sum, by_number, member, KEPT * n);
}

static char by_count[] = "count", by_use[] = "used";
static const struct {
    const char *name;
    char *member;
} key_lists[] = {{"admitted", by_count}, {"denied", by_count}, {"near", by_use}};

static void merge_hot(struct weir__merge *merge, json_t *sum, const json_t *reply)
{
    json_t *to = json_object_get(sum, "hot"), *from = json_object_get(reply, "hot");
    if (merge->query->n < 1) /* the query wants none, and they would not be cut */
        return;
    if (!json_is_object(to) && json_is_object(from))
        set(merge, sum, "hot", from);
    if (!json_is_object(to) || !json_is_object(from))
        return;
    for (size_t i = 0; i < WEIR__COUNT(key_lists); i++)
        merge_keys(merge, json_object_get(to, key_lists[i].name), json_object_get(from, key_lists[i].name),
                   key_lists[i].member);
    merge_uses(to, from);
    add_numbers(to, from);
}

/* A rule's place in the index: enforced and shadow rules may have one name. */
static char *rule_name(const json_t *rule)
{
    char *name = NULL;
    int len = asprintf(&name, "%d%s", json_is_true(json_object_get(rule, "shadow")),
                       json_string_value(json_object_get(rule, "name")));
    return len < 0 ? NULL : name;
}

static void merge_stats(struct weir__merge *merge, const json_t *reply)
{
    json_t *sum = merge->sum, *rules = json_object_get(sum, "rules"), *seen = json_object(), *rule;
    size_t i;
    merge_rates(merge, sum, reply);
    if (number_in(reply, "hot_seconds") > number_in(sum, "hot_seconds"))
        json_object_set(sum, "hot_seconds", json_object_get(reply, "hot_seconds"));
    if (json_is_true(json_object_get(reply, "hot")))
        json_object_set_new(sum, "hot", json_true());
    json_array_foreach(json_object_get(reply, "rules"), i, rule)
    {
        char *name = rule_name(rule);
        json_t *known = name ? json_object_get(merge->rules, name) : NULL;
        /* No host sends a rule twice. Each time would cost a search of all its keys. */
        bool repeated = !name || json_object_get(seen, name);
        if (!repeated && known) {
            add_member(merge, known, rule, "totals");
            merge_rates(merge, known, rule);
            merge_hot(merge, known, rule);
        } else if (!repeated) {
            append(merge, rules, rule);
            json_object_set(merge->rules, name, rule);
        }
        if (!repeated)
            json_object_set_new(seen, name, json_true());
        free(name);
    }
    json_decref(seen);
}

static json_t *index_rules(const json_t *sum)
{
    json_t *index = json_object(), *rule;
    size_t i;
    json_array_foreach(json_object_get(sum, "rules"), i, rule)
    {
        char *name = rule_name(rule);
        if (name)
            json_object_set(index, name, rule);
        free(name);
    }
    return index;
}

static void merge_history(json_t *sum, const json_t *reply)
{
    static const char *const series[] = {"allowed", "delayed", "denied", "shed", "shadow_denied"};
    double step = fmax(number_in(sum, "step"), 1), apart = number_in(reply, "until") - number_in(sum, "until");
    int64_t shift = json_is_true(json_object_get(sum, "known")) ? -(int64_t)round(apart / step) : 0;
    if (!json_is_true(json_object_get(reply, "known")))
        return;
    if (!json_is_true(json_object_get(sum, "known"))) {
        json_object_set(sum, "until", json_object_get(reply, "until"));
        json_object_set_new(sum, "known", json_true());
    }
    for (size_t i = 0; i < WEIR__COUNT(series); i++)
        add_lists(json_object_get(sum, series[i]), json_object_get(reply, series[i]), shift);
}

static void merge_hot_keys(struct weir__merge *merge, const json_t *reply)
{
    json_t *sum = merge->sum;
    json_object_set_new(sum, "seconds", json_real(fmax(number_in(sum, "seconds"), number_in(reply, "seconds"))));
    json_object_set_new(sum, "total", json_real(bounded(number_in(sum, "total") + number_in(reply, "total"))));
    if (json_is_true(json_object_get(reply, "known")))
        json_object_set_new(sum, "known", json_true());
    merge_keys(merge, json_object_get(sum, "keys"), json_object_get(reply, "keys"),
               merge->query->near ? by_use : by_count);
    merge_uses(sum, reply);
}

/* Cuts the lists to those with the latest times, denials first; "more" counts the others. */
static void sort_denied(struct weir__merge *merge)
{
    static char last[] = "last";
    json_t *denied = json_object_get(merge->sum, "denials"), *warnings = json_object_get(merge->sum, "warnings");
    size_t more = sort_list(merge, denied, by_text, last, merge->most);
    more += sort_list(merge, warnings, by_text, last, merge->most - json_array_size(denied));
    json_object_set_new(merge->sum, "more",
                        json_integer((json_int_t)bounded(number_in(merge->sum, "more") + (double)more)));
}

static void merge_denied(struct weir__merge *merge, const json_t *reply)
{
    enum { SPARE = 4096 }; /* entries beyond those that are kept, so that sorting is rare */
    static const char *const lists[] = {"denials", "warnings"};
    const char *oldest = json_string_value(json_object_get(merge->sum, "oldest"));
    const char *other = json_string_value(json_object_get(reply, "oldest"));
    json_t *entry;
    size_t i, count = 0;
    if (other && (!oldest || strcmp(other, oldest) < 0))
        json_object_set(merge->sum, "oldest", json_object_get(reply, "oldest"));
    add_numbers(merge->sum, reply);
    for (size_t k = 0; k < WEIR__COUNT(lists); k++) {
        json_t *list = json_object_get(merge->sum, lists[k]);
        json_array_foreach(json_object_get(reply, lists[k]), i, entry) append(merge, list, entry);
        count += json_array_size(list);
    }
    if (count > merge->most && count - merge->most > SPARE)
        sort_denied(merge);
}

/* Shows the text of the key that was looked for in place of its hash. */
static void show_subject(const json_t *entries, const char *digest, weir_text subject)
{
    json_t *entry;
    size_t i;
    json_array_foreach(entries, i, entry)
    {
        const char *key = json_string_value(json_object_get(entry, "key"));
        if (*key == '~' && strlen(key) == WEIR__NAME_DIGITS + 1 && strncmp(key + 1, digest, WEIR__NAME_DIGITS) == 0) {
            json_object_set_new(entry, "key", json_stringn(subject.data, subject.len));
            json_object_set_new(entry, "hidden", json_false());
        }
    }
}

void weir__reply_name(enum weir__query_kind kind, json_t *reply, const char *name, bool here)
{
    json_t *entry;
    size_t i;
    for (int list = 0; list < 2 && kind == WEIR__QUERY_DENIED; list++)
        json_array_foreach(json_object_get(reply, list ? "warnings" : "denials"), i, entry)
        {
            json_object_set_new(entry, "host", json_string(name));
            json_object_set_new(entry, "here", json_boolean(here));
        }
}

/* ---- All replies ---- */

/* The first reply becomes the sum. */
static void merge_first(struct weir__merge *merge, json_t *reply)
{
    enum { OTHERS = 4096 }; /* denials of other hosts that are kept if the query wants all */
    size_t count =
        json_array_size(json_object_get(reply, "denials")) + json_array_size(json_object_get(reply, "warnings"));
    merge->sum = json_incref(reply);
    merge->rules = index_rules(reply);
    merge->most = merge->query->n > 0 ? (size_t)merge->query->n : count + OTHERS;
    merge->left = WEIR__QUERY_MERGED;
}

bool weir__merge_add(struct weir__merge *merge, json_t *reply)
{
    merge->full |= merge->count && size_of(reply) > merge->left;
    if (merge->full)
        return false;
    if (!merge->count++)
        merge_first(merge, reply);
    else if (merge->kind == WEIR__QUERY_HISTORY)
        merge_history(merge->sum, reply);
    else if (merge->kind == WEIR__QUERY_HOT_KEYS)
        merge_hot_keys(merge, reply);
    else if (merge->kind == WEIR__QUERY_DENIED)
        merge_denied(merge, reply);
    else
        merge_stats(merge, reply);
    return true;
}

static void sort_hot(struct weir__merge *merge, json_t *hot, size_t most)
{
    for (size_t i = 0; i < WEIR__COUNT(key_lists); i++)
        sort_list(merge, json_object_get(hot, key_lists[i].name), by_number, key_lists[i].member, most);
}

/* Sorts the lists, and cuts them to what the query wants. */
static void sort_lists(struct weir__merge *merge)
{
    const struct weir__host_query *query = merge->query;
    size_t most = query->n > 0 ? (size_t)query->n : SIZE_MAX, i;
    char digest[WEIR__SUBJECT_DIGEST];
    json_t *sum = merge->sum, *rule;
    if (merge->kind == WEIR__QUERY_HOT_KEYS)
        sort_list(merge, json_object_get(sum, "keys"), by_number, query->near ? by_use : by_count, most);
    if (merge->kind == WEIR__QUERY_STATS)
        json_array_foreach(json_object_get(sum, "rules"), i, rule) sort_hot(merge, json_object_get(rule, "hot"), most);
    if (merge->kind != WEIR__QUERY_DENIED)
        return;
    if (merge->hash_keys && query->key.len && *query->key.data != '~') {
        weir__subject_digest(query->key.data, digest);
        show_subject(json_object_get(sum, "denials"), digest, query->key);
        show_subject(json_object_get(sum, "warnings"), digest, query->key);
    }
    sort_denied(merge);
}

json_t *weir__merge_finish(struct weir__merge *merge)
{
    if (merge->count > 1 || merge->hash_keys) /* one reply is sorted and cut */
        sort_lists(merge);
    json_decref(merge->rules);
    return merge->sum;
}
