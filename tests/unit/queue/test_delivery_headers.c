/* Which headers of a deferred request are delivered with it. */
#include "../../test.h"
#include "queue/dispatcher_internal.h"

#include <curl/curl.h>

static weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

static struct curl_slist *headers_of(const char *headers, int attempt)
{
    struct weir__deferred item = {.ticket = "0123456789abcdef0123456789abcdef", .headers = text_of(headers)};
    return weir__delivery_headers(&item, attempt);
}

static int count_of(const struct curl_slist *list, const char *line)
{
    int count = 0;
    for (; list; list = list->next)
        count += strcmp(list->data, line) == 0;
    return count;
}

static bool any_named(const struct curl_slist *list, const char *name)
{
    size_t len = strlen(name);
    for (; list; list = list->next)
        if (strncasecmp(list->data, name, len) == 0 && list->data[len] == ':' && list->data[len + 1])
            return true;
    return false;
}

TEST(end_to_end_headers_are_kept)
{
    struct curl_slist *list = headers_of("Host: shop.example:8080\r\nContent-Type: application/json\r\n"
                                         "authorization:Bearer abc\r\nX-Empty:\r\nX-Two: a\r\nX-Two: b, c\r\n",
                                         1);
    CHECK_EQ(count_of(list, "Host: shop.example:8080"), 1);
    CHECK_EQ(count_of(list, "Content-Type: application/json"), 1);
    CHECK_EQ(count_of(list, "authorization: Bearer abc"), 1);
    CHECK_EQ(count_of(list, "X-Empty;"), 1);
    CHECK_EQ(count_of(list, "X-Two: a"), 1);
    CHECK_EQ(count_of(list, "X-Two: b, c"), 1);
    CHECK_EQ(count_of(list, "Idempotency-Key: 0123456789abcdef0123456789abcdef"), 1);
    CHECK_EQ(count_of(list, "X-Weir-Attempt: 1"), 1);
    CHECK_EQ(count_of(list, "Accept:"), 1); /* keeps libcurl from adding one */
    CHECK_EQ(count_of(list, "Content-Type:"), 0);
    curl_slist_free_all(list);
}

TEST(hop_by_hop_headers_are_dropped)
{
    struct curl_slist *list =
        headers_of("Connection: close, X-Hop ,\tUpgrade\r\nconnection: x-other\r\nX-Hop: 1\r\n"
                   "X-Other: 2\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nTrailer: X-T\r\n"
                   "Transfer-Encoding: chunked\r\nUpgrade: websocket\r\nContent-Length: 7\r\n"
                   "Expect: 100-continue\r\nProxy-Authorization: Basic x\r\nProxy-Connection: x\r\n"
                   "x-weir-attempt: 99\r\nX-Stays: 3\r\n",
                   4);
    static const char *const gone[] = {"Connection",
                                       "X-Hop",
                                       "X-Other",
                                       "Keep-Alive",
                                       "TE",
                                       "Trailer",
                                       "Upgrade",
                                       "Transfer-Encoding",
                                       "Content-Length",
                                       "Expect",
                                       "Proxy-Authorization",
                                       "Proxy-Connection"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        CHECK(!any_named(list, gone[i]));
    CHECK_EQ(count_of(list, "X-Stays: 3"), 1);
    CHECK_EQ(count_of(list, "X-Weir-Attempt: 4"), 1);
    CHECK_EQ(count_of(list, "X-Weir-Attempt: 99") + count_of(list, "x-weir-attempt: 99"), 0);
    curl_slist_free_all(list);
}

TEST(idempotency_key_of_the_client_is_kept)
{
    struct curl_slist *list = headers_of("idempotency-key: mine\r\n", 1);
    CHECK_EQ(count_of(list, "idempotency-key: mine"), 1);
    CHECK_EQ(count_of(list, "Idempotency-Key: 0123456789abcdef0123456789abcdef"), 0);
    curl_slist_free_all(list);
}

TEST(malformed_header_lines_are_dropped)
{
    struct curl_slist *list = headers_of("nonsense\r\n: empty\r\nBad Name: x\r\nX-Split: a\nX-Evil: b\r\n\r\n"
                                         "X-Bell: \a\r\nX-Last: 1",
                                         1);
    CHECK(!any_named(list, "X-Evil") && !any_named(list, "X-Split") && !any_named(list, "X-Bell"));
    CHECK(!any_named(list, "Bad Name") && !any_named(list, ""));
    CHECK_EQ(count_of(list, "X-Last: 1"), 1);
    curl_slist_free_all(list);
    list = headers_of("", 1);
    CHECK_EQ(count_of(list, "X-Weir-Attempt: 1"), 1);
    curl_slist_free_all(list);
}

TEST(malformed_request_lines_are_refused)
{
    static const struct {
        const char *method, *target;
        bool sound;
    } cases[] = {{"GET", "/", true},      {"POST", "/a/../b//c?x=%2e%2E&y", true},
                 {"M-SEARCH", "*", true}, {"GET", "/\xc3\xa4", true},
                 {"", "/", false},        {"GET", "", false},
                 {"GET", "/a b", false},  {"GET", "/a\r\nX: y", false},
                 {"GE T", "/", false},    {"GET\r\n", "/", false},
                 {"GET", "/\x7f", false}, {"G:ET", "/", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir__deferred item = {.method = text_of(cases[i].method), .target = text_of(cases[i].target)};
        CHECK_EQ(weir__delivery_is_sendable(&item), cases[i].sound);
    }
    struct weir__deferred zero = {.method = {"G\0T", 3}, .target = {"/", 1}};
    CHECK(!weir__delivery_is_sendable(&zero));
    zero = (struct weir__deferred){.method = {"GET", 3}, .target = {"/\0", 2}};
    CHECK(!weir__delivery_is_sendable(&zero));
}

TEST_MAIN
