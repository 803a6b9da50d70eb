/* Replies byte by byte, in both versions of the protocol, and buffers that are too small. */
#include "../../test.h"
#include "services/resp/resp.h"

#define WRITES(v, call, expected)                                                                                      \
    do {                                                                                                               \
        char room_[2048];                                                                                              \
        struct weir__resp_out out_ = {.at = room_, .end = room_ + sizeof room_, .version = (v)}, *out = &out_;         \
        call;                                                                                                          \
        size_t len_ = (size_t)(out_.at - room_);                                                                       \
        CHECK(!out_.overflow && len_ == sizeof(expected) - 1 && memcmp(room_, (expected), len_) == 0);                 \
        for (size_t less_ = 0; less_ < len_; less_++) {                                                                \
            memset(room_, '#', sizeof room_);                                                                          \
            out_ = (struct weir__resp_out){.at = room_, .end = room_ + less_, .version = (v)};                         \
            call;                                                                                                      \
            CHECK(out_.overflow &&out_.at <= out_.end && room_[less_] == '#');                                         \
        }                                                                                                              \
    } while (0)

TEST(replies)
{
    static const int64_t five[] = {0, 16, 15, -1, 2}, wide[] = {1, INT64_MAX, INT64_MIN, 10, 9};
    WRITES(2, weir__resp_simple(out, "OK"), "+OK\r\n");
    WRITES(2, weir__resp_number(out, 0), ":0\r\n");
    WRITES(2, weir__resp_number(out, INT64_MIN), ":-9223372036854775808\r\n");
    WRITES(2, weir__resp_number(out, INT64_MAX), ":9223372036854775807\r\n");
    WRITES(2, weir__resp_bulk(out, "a\r\nb", 4), "$4\r\na\r\nb\r\n");
    WRITES(2, weir__resp_bulk(out, NULL, 0), "$0\r\n\r\n");
    WRITES(2, weir__resp_null(out), "$-1\r\n");
    WRITES(3, weir__resp_null(out), "_\r\n");
    WRITES(2, weir__resp_array(out, 3), "*3\r\n");
    WRITES(2, weir__resp_map(out, 3), "*6\r\n");
    WRITES(3, weir__resp_map(out, 3), "%3\r\n");
    WRITES(2, weir__resp_set(out, 3), "*3\r\n");
    WRITES(3, weir__resp_set(out, 3), "~3\r\n");
    WRITES(2, weir__resp_verbatim(out, "hi", 2), "$2\r\nhi\r\n");
    WRITES(3, weir__resp_verbatim(out, "hi", 2), "=6\r\ntxt:hi\r\n");
    WRITES(2, weir__resp_named_number(out, "n", 5), "$1\r\nn\r\n:5\r\n");
    WRITES(2, weir__resp_named_text(out, "n", "v"), "$1\r\nn\r\n$1\r\nv\r\n");
    WRITES(2, weir__resp_five(out, five), "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    static const int64_t edges[5] = {9, 10, 99, 100, 101};
    WRITES(2, weir__resp_five(out, edges), "*5\r\n:9\r\n:10\r\n:99\r\n:100\r\n:101\r\n");
    WRITES(3, weir__resp_five(out, wide), "*5\r\n:1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n:10\r\n:9\r\n");
}

TEST(error_is_one_line)
{
    WRITES(2, weir__resp_error(out, "ERR a\r\nb\x01\x7f", 10), "-ERR a  b  \r\n");
    char long_one[600], room[700];
    memset(long_one, 'x', sizeof long_one);
    struct weir__resp_out out = {.at = room, .end = room + sizeof room, .version = 2};
    weir__resp_error(&out, long_one, sizeof long_one);
    CHECK_EQ(out.at - room, 512 + 3);
}

TEST_MAIN
