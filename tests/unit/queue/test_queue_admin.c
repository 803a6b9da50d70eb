/* The queue as administrators see it, and what is hidden from them. */
#include "../../private_dir.h"
#include "put_all.h"
#include "base/host_calls.h"
#include "queue/queue_internal.h"

#include <jansson.h>
#include <time.h>
#include <unistd.h>

#define COUNT 4

static char folder[64], database[128], socket_path[128];
static struct weir__config config;
static const struct weir__logger terminal = {.file = 2, .plain = true};
static char tickets[COUNT][WEIR__TICKET_LEN + 1];

static weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

/* A queue with some requests in it. */
static struct weir__control_queue *begin(void)
{
    static const weir_text keys[COUNT] = {{"user:7", 6}, {"a\0b\xff", 4}, {"\xe2\x80\xae", 3}, {"user:7", 6}};
    struct weir__deferred items[COUNT];
    struct weir__queue_bounds bounds[COUNT] = {0};
    struct weir__queue *queue = NULL;
    char why[WEIR__QUEUE_SOURCE_TEXT];
    int errors[COUNT];
    snprintf(folder, sizeof folder, "%s/weir-admin-XXXXXX", private_root());
    CHECK(mkdtemp(folder) != NULL);
    snprintf(database, sizeof database, "sqlite:%s/queue.db", folder);
    snprintf(socket_path, sizeof socket_path, "%s/queue.sock", folder);
    config = (struct weir__config){
        .state_path = folder,
        .queue = {.wanted = true, .max = 100, .max_bytes = 1 << 20, .database = database, .socket = socket_path}};
    for (size_t i = 0; i < COUNT; i++)
        items[i] = (struct weir__deferred){.rule = text_of(i == 3 ? "other" : "api"),
                                           .key = keys[i],
                                           .cost = 2,
                                           .method = text_of("POST"),
                                           .target = text_of("/x?token=s3cret"),
                                           .headers = text_of("Authorization: Bearer s3cret\r\nX-A: b\r\n"),
                                           .body = text_of("s3cret")};
    CHECK_EQ(weir__queue_open_configured(&config, "test", &terminal, &queue, why), 0);
    CHECK_EQ(put_all(queue, items, bounds, errors, COUNT), 0);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(tickets[i], items[i].ticket, sizeof tickets[i]);
    weir__queue_close(queue);
    return weir__queue_admin_open(&config, &terminal);
}

static void end(struct weir__control_queue *calls)
{
    char command[128];
    weir__queue_admin_close(calls);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_EQ(system(command), 0);
}

/* Parses and frees the text; checks that it contains no secret. */
static json_t *parse_reply(char *json)
{
    CHECK(json && !strstr(json, "s3cret"));
    json_t *object = json ? json_loads(json, 0, NULL) : NULL;
    free(json);
    return object;
}

static const char *word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "(none)";
}

TEST(list_shows_printable_fields)
{
    struct weir__control_queue *calls = begin();
    char *json = NULL, why[WEIR__HOST_WHY];
    struct weir__host_deferred which = {.limit = 3, .full_tickets = true};
    CHECK_EQ(calls->list(calls->context, &which, &json, why), 0);
    json_t *page = parse_reply(json), *items = json_object_get(page, "items");
    CHECK_EQ(json_array_size(items), 3);
    CHECK(strcmp(word(json_array_get(items, 0), "ticket"), tickets[0]) == 0);
    CHECK(strcmp(word(json_array_get(items, 0), "key"), "user:7") == 0);
    CHECK(strcmp(word(json_array_get(items, 0), "path"), "/x") == 0);
    CHECK(strcmp(word(json_array_get(items, 1), "key_hex"), "610062ff") == 0);
    CHECK(json_object_get(json_array_get(items, 1), "key") == NULL);
    CHECK(strcmp(word(json_array_get(items, 2), "key"), "\xe2\x80\xae") == 0);
    which.after = json_integer_value(json_object_get(page, "next"));
    json_decref(page);
    CHECK_EQ(calls->list(calls->context, &which, &json, why), 0);
    page = parse_reply(json);
    CHECK_EQ(json_array_size(json_object_get(page, "items")), 1);
    CHECK(json_is_null(json_object_get(page, "next")));
    json_decref(page);
    end(calls);
}

TEST(tickets_are_hidden_without_the_right_to_cancel)
{
    struct weir__control_queue *calls = begin();
    char *json = NULL, why[WEIR__HOST_WHY];
    struct weir__host_deferred which = {.limit = 10, .rule = "other"};
    CHECK_EQ(calls->list(calls->context, &which, &json, why), 0);
    CHECK(json && !strstr(json, tickets[3]));
    json_t *page = parse_reply(json);
    const char *shown = word(json_array_get(json_object_get(page, "items"), 0), "ticket");
    CHECK_EQ(strlen(shown), 8 + strlen("…"));
    CHECK(strncmp(shown, tickets[3], 8) == 0);
    json_decref(page);
    end(calls);
}

TEST(one_request_is_shown_and_cancelled)
{
    struct weir__control_queue *calls = begin();
    char *json = NULL, why[WEIR__HOST_WHY];
    CHECK_EQ(calls->ticket(calls->context, tickets[0], WEIR__HOST_UNCHANGED, &json, why), 0);
    json_t *one = parse_reply(json), *headers = json_object_get(one, "headers");
    CHECK_EQ(json_array_size(headers), 2);
    CHECK(strcmp(json_string_value(json_array_get(headers, 0)), "Authorization") == 0);
    CHECK_EQ(json_integer_value(json_object_get(one, "body_bytes")), 6);
    json_decref(one);
    CHECK_EQ(calls->ticket(calls->context, tickets[0], WEIR__HOST_REQUEUE, &json, why), WEIR__HOST_OTHER_STATE);
    CHECK_EQ(calls->ticket(calls->context, tickets[0], WEIR__HOST_CANCEL, &json, why), 0);
    one = parse_reply(json);
    CHECK(strcmp(word(one, "state"), "cancelled") == 0);
    json_decref(one);
    CHECK_EQ(calls->ticket(calls->context, tickets[0], WEIR__HOST_CANCEL, &json, why), WEIR__HOST_OTHER_STATE);
    CHECK_EQ(calls->ticket(calls->context, "00000000000000000000000000000000", WEIR__HOST_UNCHANGED, &json, why),
             WEIR__HOST_NO_TICKET);
    CHECK_EQ(calls->ticket(calls->context, "", WEIR__HOST_UNCHANGED, &json, why), WEIR__HOST_NO_TICKET);
    CHECK_EQ(calls->ticket(calls->context, "' OR 1 = 1 --                   ", WEIR__HOST_UNCHANGED, &json, why),
             WEIR__HOST_NO_TICKET);
    end(calls);
}

TEST(stats_by_rule_and_in_total)
{
    struct weir__control_queue *calls = begin();
    char *json = NULL, why[WEIR__HOST_WHY];
    CHECK_EQ(calls->stats(calls->context, &json, why), 0);
    json_t *all = parse_reply(json), *rules = json_object_get(all, "rules");
    CHECK_EQ(json_integer_value(json_object_get(all, "waiting")), 4);
    CHECK_EQ(json_array_size(rules), 2);
    CHECK(strcmp(word(json_array_get(rules, 0), "rule"), "api") == 0);
    CHECK_EQ(json_integer_value(json_object_get(json_array_get(rules, 0), "waiting")), 3);
    CHECK(json_is_real(json_object_get(all, "oldest_s")));
    json_decref(all);
    end(calls);
}

TEST(queue_that_cannot_be_opened)
{
    struct weir__control_queue *calls = begin();
    char *json = NULL, why[WEIR__HOST_WHY] = "";
    config.queue.database = "sqlite:/proc/none/queue.db";
    CHECK_EQ(calls->stats(calls->context, &json, why), WEIR__HOST_QUEUE_UNAVAILABLE);
    CHECK(*why && !json);
    config.queue.database = database;
    CHECK_EQ(calls->stats(calls->context, &json, why), 0); /* opening is tried again */
    free(json);
    end(calls);
}

/* An upstream that is unavailable for longer than the maximal wait: all requests become dead letters, and none is
 * dropped. */
TEST(all_waiting_requests_can_become_dead_letters)
{
    enum { BATCH = 1000, BATCHES = 12 };
    static struct weir__deferred items[BATCH];
    static struct weir__queue_bounds bounds[BATCH];
    static int errors[BATCH];
    struct weir__queue *queue = NULL;
    char why[WEIR__QUEUE_SOURCE_TEXT], *json = NULL;
    struct weir__control_queue *calls = begin();
    config.queue.max = COUNT + BATCH * BATCHES;
    config.queue.max_bytes = 1 << 30;
    CHECK_EQ(weir__queue_open_configured(&config, "test", &terminal, &queue, why), 0);
    for (int i = 0; i < BATCHES; i++) {
        for (int j = 0; j < BATCH; j++) {
            items[j] = (struct weir__deferred){
                .rule = text_of("api"), .key = text_of("k"), .method = text_of("GET"), .target = text_of("/")};
            bounds[j] = (struct weir__queue_bounds){.max_age_ms = 1};
        }
        CHECK_EQ(put_all(queue, items, bounds, errors, BATCH), 0);
    }
    for (int i = 0; i < 2 * BATCHES; i++)
        CHECK(weir__queue_expire(queue, (int64_t)time(NULL) * 1000 + 10000) >= 0);
    weir__queue_close(queue);
    CHECK_EQ(calls->stats(calls->context, &json, why), 0);
    CHECK(strstr(json, "\"dead\":12000,") != NULL);
    free(json);
    end(calls);
}

TEST_MAIN
