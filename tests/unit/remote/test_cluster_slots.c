/* The slots of a cluster: known values, and replies to CLUSTER SLOTS, valid and invalid. */
#include "../../test.h"
#include "remote/client_internal.h"

#include <hiredis/hiredis.h>

static struct weir__slot_map map;

TEST(slots_of_known_names)
{
    /* The check value of CRC-16/XMODEM, and results of CLUSTER KEYSLOT of Redis 7. */
    CHECK_EQ(weir__slot("123456789", 9), 0x31c3);
    CHECK_EQ(weir__slot("foo", 3), 12182);
    CHECK_EQ(weir__slot("", 0), 0);
    CHECK_EQ(weir__slot("{foo}bar", 8), 12182);
    CHECK_EQ(weir__slot("a{foo}bar{x}", 12), 12182);
    CHECK(weir__slot("foo{}bar", 8) != weir__slot("", 0));
    CHECK(weir__slot("{foo", 4) != 12182);
    CHECK(weir__slot("foo{bar", 7) != weir__slot("bar", 3));
}

/* Bit by bit, by the definition. */
static unsigned naive(const unsigned char *data, size_t len)
{
    unsigned crc = 0;
    for (size_t i = 0; i < len; i++)
        for (int bit = 7; bit >= 0; bit--) {
            unsigned top = crc >> 15 & 1;
            crc = (crc << 1 & 0xffff) ^ ((top ^ (data[i] >> bit & 1u)) ? 0x1021u : 0);
        }
    return crc % WEIR__CLUSTER_SLOTS;
}

TEST(slots_of_random_names)
{
    uint64_t random = 1;
    for (int64_t n = test_scaled(20000, 100); n > 0; n--) {
        unsigned char name[40];
        size_t len = test_random(&random) % sizeof(name);
        for (size_t i = 0; i < len; i++)
            name[i] = (unsigned char)test_random(&random) & 0x3f;
        CHECK_EQ(weir__slot((char *)name, len), naive(name, len));
    }
}

static bool read_text(const char *text)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    redisReaderFeed(reader, text, strlen(text));
    bool good = redisReaderGetReply(reader, &reply) == REDIS_OK && reply && weir__slots_read(reply, "asked", &map);
    if (reply)
        freeReplyObject(reply);
    redisReaderFree(reader);
    return good;
}

TEST(slot_map_is_parsed)
{
    CHECK(read_text("*3\r\n"
                    "*4\r\n:0\r\n:99\r\n*3\r\n$1\r\na\r\n:7000\r\n$2\r\nid\r\n*2\r\n$1\r\nr\r\n:7003\r\n"
                    "*3\r\n:100\r\n:100\r\n*4\r\n$0\r\n\r\n:7001\r\n$2\r\nid\r\n*0\r\n"
                    "*3\r\n:200\r\n:16383\r\n*2\r\n$1\r\na\r\n:7000\r\n"));
    CHECK_EQ(map.count, 2);
    CHECK(strcmp(map.nodes[0].name, "a") == 0 && map.nodes[0].port == 7000);
    CHECK(strcmp(map.nodes[1].name, "asked") == 0 && map.nodes[1].port == 7001);
    CHECK_EQ(map.owner[0], 0);
    CHECK_EQ(map.owner[99], 0);
    CHECK_EQ(map.owner[100], 1);
    CHECK_EQ(map.owner[101], WEIR__SLOT_NOBODY);
    CHECK_EQ(map.owner[16383], 0);
    CHECK(read_text("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n"));
    CHECK(strcmp(map.nodes[0].name, "asked") == 0);
}

TEST(invalid_slot_map_is_refused)
{
    static const char *const bad[] = {"*0\r\n",
                                      "+OK\r\n",
                                      "*1\r\n:1\r\n",
                                      "*1\r\n*2\r\n:0\r\n:1\r\n",
                                      "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
                                      "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
                                      "*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
                                      "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:0\r\n",
                                      "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n",
                                      "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\n?\r\n:1\r\n",
                                      "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:3\r\n:1\r\n",
                                      "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n",
                                      "*1\r\n*3\r\n:0\r\n:1\r\n*-1\r\n",
                                      "*1\r\n*3\r\n$1\r\n0\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CHECK(!read_text(bad[i]));
}

TEST(redirections_are_parsed)
{
    struct weir__store_host to;
    unsigned slot = 0;
    CHECK(weir__slots_redirect("3999 127.0.0.1:6381", "asked", &slot, &to));
    CHECK_EQ(slot, 3999);
    CHECK(strcmp(to.name, "127.0.0.1") == 0 && to.port == 6381);
    CHECK(weir__slots_redirect("1 ::1:6381", "asked", &slot, &to));
    CHECK(strcmp(to.name, "::1") == 0);
    CHECK(weir__slots_redirect("1 :6381", "asked", &slot, &to));
    CHECK(strcmp(to.name, "asked") == 0);
    static const char *const bad[] = {"",          "x",         "1",      "1 ",     "1 a",     "1 a:",     "1 a:0",
                                      "1 a:65536", "16384 a:1", "-1 a:1", "1 a:1x", "1 a b:1", "1 /path:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CHECK(!weir__slots_redirect(bad[i], "asked", &slot, &to));
    char text[400] = "1 ";
    memset(text + 2, 'h', 300);
    strcpy(text + 302, ":1");
    CHECK(!weir__slots_redirect(text, "asked", &slot, &to));
}

TEST_MAIN
