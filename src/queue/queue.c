/* The queue's functions: check arguments, then call the storage (sqlite*.c, redis*.c). */
#include "base/clock.h"
#include "queue/queue_internal.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#define LIST_MAX 1000
#define DEAD_MAX 10000
#define URL_MAX  8192

const char *weir__queue_strerror(int error)
{
    static const char *const texts[] = {"no error",
#define WEIR__QUEUE_TEXT(name, number, text) [number] = (text),
                                        WEIR__QUEUE_ERRORS(WEIR__QUEUE_TEXT)
#undef WEIR__QUEUE_TEXT
    };
    return error <= 0 && -error < (int)(sizeof texts / sizeof *texts) ? texts[-error] : "unknown error";
}

const char *weir__deferred_state_name(enum weir__deferred_state state)
{
    static const char *const names[WEIR__DEFERRED_STATES] = {"waiting", "under_way", "delivered", "dead", "cancelled"};
    return (unsigned)state < WEIR__DEFERRED_STATES ? names[state] : "unknown";
}

int64_t weir__deferred_bytes(const struct weir__deferred *item)
{
    const weir_text *texts[] = {&item->rule, &item->key, &item->method, &item->target, &item->headers, &item->body};
    int64_t bytes = WEIR__QUEUE_OVERHEAD;
    /* Each length is clamped, so that the sum cannot overflow. */
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        bytes += (int64_t)(texts[i]->len < (size_t)INT32_MAX ? texts[i]->len : (size_t)INT32_MAX);
    return bytes;
}

void weir__queue_set_why(struct weir__queue *queue, const char *why)
{
    snprintf(queue->why, sizeof queue->why, "%s", why);
}

const char *weir__queue_why(const struct weir__queue *queue)
{
    return queue->why;
}

int64_t weir__queue_now(const struct weir__queue *queue)
{
    return queue->options.clock_ms ? queue->options.clock_ms() : weir__wall_ms();
}

bool weir__queue_fits(const struct weir__queue_bounds *bounds, int64_t count, int64_t bytes, int64_t more)
{
    return (bounds->max <= 0 || count < bounds->max) &&
           (bounds->max_bytes <= 0 || (more <= bounds->max_bytes && bytes <= bounds->max_bytes - more));
}

/* ---- Open and close ---- */

static void set_default(int64_t *value, int64_t initial)
{
    if (*value <= 0)
        *value = initial;
}

int weir__queue_open(const struct weir__queue_options *options, struct weir__queue **queue, char *why)
{
    char unused[WEIR__QUEUE_SOURCE_TEXT];
    struct weir__queue made = {.options = *options};
    const char *name = options->name && options->name[0] ? options->name : "agent";

    why = why ? why : unused;
    why[0] = '\0';
    *queue = NULL;
    snprintf(made.name, sizeof made.name, "%s", name);
    made.options.url = made.options.name = NULL;
    set_default(&made.options.keep_ms, 3600 * 1000);
    set_default(&made.options.keep_max, 100000);
    set_default(&made.options.dead_ms, 7 * 86400 * INT64_C(1000));
    set_default(&made.options.dead_max, DEAD_MAX);
    set_default(&made.options.lease_ms, 5000);
    set_default(&made.options.wait_ms, 3000);
    if (getrandom(&made.session, sizeof made.session, 0) != sizeof made.session)
        return WEIR__QUEUE_UNAVAILABLE;
    made.session &= INT64_MAX; /* SQLite's integers are signed */
    if (!options->url)
        return WEIR__QUEUE_URL;
    if (strncmp(options->url, "sqlite:", 7) == 0)
        return options->url[7] ? weir__queue_sqlite(options->url + 7, &made, queue, why) : WEIR__QUEUE_URL;
    return weir__queue_redis(options->url, &made, queue, why);
}

void weir__queue_close(struct weir__queue *queue)
{
    if (queue)
        queue->calls->close(queue);
}

/* ---- Opening by configuration ---- */

int weir__queue_open_configured(const struct weir__config *config, const char *name, const struct weir__logger *log,
                                struct weir__queue **queue, char *why)
{
    const struct weir__queue_config *wanted = &config->queue;
    char url[URL_MAX];
    struct weir__queue_options options = {.url = wanted->database ? wanted->database : url,
                                          .sync_second = wanted->sync_second,
                                          .bounds = {wanted->max, wanted->max_bytes, wanted->max_age_ms},
                                          /* so that all waiting requests can become dead without one being dropped */
                                          .dead_max = wanted->max > DEAD_MAX ? wanted->max : 0,
                                          .name = name,
                                          .log = log};
    *why = 0;
    if (wanted->database && !weir__file_make_folder(wanted->socket)) {
        snprintf(why, WEIR__QUEUE_SOURCE_TEXT, "%.200s cannot be made: %s", config->state_path, strerror(errno));
        return WEIR__QUEUE_READONLY;
    }
    if (!wanted->database && !weir__store_url(&config->store, url, sizeof url, why, WEIR__QUEUE_SOURCE_TEXT))
        return WEIR__QUEUE_URL;
    return weir__queue_open(&options, queue, why);
}

/* ---- Put ---- */

static int item_error(const struct weir__deferred *item)
{
    if (weir__deferred_bytes(item) > WEIR__QUEUE_ITEM_MAX)
        return WEIR__QUEUE_TOO_LARGE;
    return item->rule.len == 0 || item->method.len == 0 || item->target.len == 0 ? WEIR__QUEUE_INVALID : 0;
}

bool weir__is_ticket(const char *text)
{
    return strlen(text) == WEIR__TICKET_LEN && strspn(text, "0123456789abcdef") == WEIR__TICKET_LEN;
}

static int64_t expiry(int64_t accepted_ms, int64_t age_ms, int64_t all_age_ms)
{
    int64_t age = age_ms <= 0 || (all_age_ms > 0 && all_age_ms < age_ms) ? all_age_ms : age_ms;
    return age <= 0 || age > INT64_MAX - accepted_ms ? INT64_MAX : accepted_ms + age;
}

/* The latest due_ms. */
static int64_t latest(int64_t now_ms)
{
    return now_ms < INT64_MAX - WEIR__QUEUE_AHEAD_MS ? now_ms + WEIR__QUEUE_AHEAD_MS : INT64_MAX;
}

static int64_t due_at(int64_t due_ms, int64_t now_ms)
{
    int64_t most = latest(now_ms);
    return due_ms < 0 ? 0 : due_ms < most ? due_ms : most;
}

/* Sets what the caller does not. 0, or an error. */
static int complete_item(const struct weir__queue *queue, struct weir__queue_put *put, int64_t now_ms)
{
    struct weir__deferred *item = &put->item;
    char bits[WEIR__TICKET_LEN / 2];
    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        return WEIR__QUEUE_UNAVAILABLE;
    *weir__write_hex(item->ticket, bits, sizeof bits) = 0;
    if (item->accepted_ms <= 0)
        item->accepted_ms = now_ms;
    item->due_ms = due_at(item->due_ms, now_ms);
    item->expires_ms = expiry(item->accepted_ms, put->bounds.max_age_ms, queue->options.bounds.max_age_ms);
    item->state = WEIR__WAITING;
    return 0;
}

int weir__queue_put(struct weir__queue *queue, struct weir__queue_put *const *puts, size_t count)
{
    struct weir__queue_put *valid[WEIR__QUEUE_PUT_MAX];
    int64_t now_ms = weir__queue_now(queue);
    size_t good = 0;
    int error = 0;
    if (count > WEIR__QUEUE_PUT_MAX)
        return WEIR__QUEUE_TOO_LARGE;
    for (size_t i = 0; i < count; i++) {
        struct weir__queue_put *put = puts[i];
        put->item.ticket[0] = '\0';
        put->item.sequence = 0;
        put->error = item_error(&put->item);
        if (put->error)
            continue;
        valid[good++] = put;
        error = error ? error : complete_item(queue, put, now_ms);
    }
    if (good && !error)
        error = queue->calls->put(queue, valid, good);
    for (size_t i = 0; i < good; i++) {
        valid[i]->error = error ? error : valid[i]->error;
        if (valid[i]->error)
            valid[i]->item.ticket[0] = '\0';
    }
    return error;
}

size_t weir__queue_cancel_in_doubt(struct weir__queue *queue)
{
    return queue->calls->cancel_in_doubt ? queue->calls->cancel_in_doubt(queue) : 0;
}

/* ---- Claims and transitions ---- */

int weir__queue_claim(struct weir__queue *queue, const struct weir__claim_request *wanted, weir__deferred_visit *visit,
                      void *context)
{
    struct weir__claim_request claim = *wanted;
    claim.claim_ms = claim.claim_ms > 0 ? claim.claim_ms : 0;
    claim.free = claim.free < WEIR__QUEUE_CLAIM_MAX ? claim.free : WEIR__QUEUE_CLAIM_MAX;
    claim.ahead_ms = latest(claim.now_ms);
    return claim.free == 0 ? 0 : queue->calls->claim(queue, &claim, visit, context);
}

int weir__queue_end(struct weir__queue *queue, struct weir__queue_ending *endings, size_t count)
{
    int64_t now_ms = weir__queue_now(queue);
    for (size_t i = 0; i < count; i++) {
        struct weir__queue_ending *ending = &endings[i];
        bool again = ending->kind == WEIR__ENDED_RETRY;
        ending->due_ms = again ? due_at(ending->due_ms, now_ms) : 0;
        ending->aside = again ? ending->aside : 0;
        ending->attempt_counts = again ? ending->attempt_counts : ending->kind < WEIR__ENDED_CANCELLED;
    }
    int error = count ? queue->calls->change(queue, endings, count, now_ms) : 0;
    for (size_t i = 0; i < count && error; i++)
        endings[i].error = error;
    return error;
}

int weir__queue_change(struct weir__queue *queue, const char *ticket, enum weir__queue_end_kind kind)
{
    struct weir__queue_ending ending = {.ticket = ticket, .kind = kind};
    (void)weir__queue_end(queue, &ending, 1);
    return ending.error;
}

/* ---- Find, list, stats ---- */

int weir__queue_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    return weir__is_ticket(ticket) ? queue->calls->find(queue, ticket, visit, context) : WEIR__QUEUE_GONE;
}

int weir__queue_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                     void *context)
{
    struct weir__queue_filter bounded = *filter;
    bounded.limit = bounded.limit < 1 ? 1 : bounded.limit > LIST_MAX ? LIST_MAX : bounded.limit;
    if (bounded.after > (UINT64_C(1) << 53))
        return 0; /* sequences are below 2^53 */
    return queue->calls->list(queue, &bounded, visit, context);
}

int weir__queue_expire(struct weir__queue *queue, int64_t now_ms)
{
    return queue->calls->expire(queue, now_ms);
}

int weir__queue_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context)
{
    return queue->calls->stats(queue, visit, context);
}
