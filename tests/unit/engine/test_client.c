/* How the client's address is determined. */
#include "../../engine.h"

static const char rules[] = "identity:\n"
                            "  client_ip: { trusted_proxies: [10.0.0.0/8, 'fd00::/8'], ipv6_prefix: 48 }\n"
                            "rules:\n"
                            "  - { name: r, key: 'u:${user_id}', limit: 1, window: 1d }\n";

/* The address as text. */
static const char *client(weir *engine, const char *line)
{
    static char text[64];
    struct test_request r;
    uint8_t address[16];
    test_request(&r, line);
    int len = weir_client(engine, &r.query, address), used = snprintf(text, sizeof text, "%d:", len);
    for (int i = 0; i < len; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%02x", address[i]);
    return text;
}

#define CLIENT(line, expected) CHECK(strcmp(client(engine, (line)), (expected)) == 0)

TEST(client_is_the_peer_or_a_forwarded_address)
{
    weir *engine = test_engine(rules);
    CLIENT("GET / ip=192.0.2.7", "4:c0000207");
    CLIENT("GET / ip=192.0.2.7 @x-forwarded-for=203.0.113.9", "4:c0000207");
    CLIENT("GET / ip=10.0.0.1 @x-forwarded-for=203.0.113.9", "4:cb007109");
    CLIENT("GET / ip=10.0.0.1 @x-forwarded-for=198.51.100.1,203.0.113.9,10.9.9.9", "4:cb007109");
    CLIENT("GET / ip=10.0.0.1 @x-forwarded-for=::ffff:203.0.113.9", "4:cb007109");
    CLIENT("GET / ip=fd00::1 @x-forwarded-for=2001:db8:1:2:3:4:5:6", "16:20010db8000100020003000400050006");
    CLIENT("GET / ip=10.0.0.1 @x-forwarded-for=nonsense", "4:0a000001");
    CLIENT("GET /", "0:");
    CLIENT("GET / ip=nonsense", "0:");
    weir_close(engine);
}

TEST(bytes_of_the_peer)
{
    weir *engine = test_engine(rules);
    uint8_t peer[4] = {192, 0, 2, 7}, address[16];
    weir_query query = {.peer = peer, .peer_len = 4};
    CHECK_EQ(weir_client(engine, &query, address), 4);
    CHECK(memcmp(address, peer, 4) == 0);
    query.peer_len = 5;
    CHECK_EQ(weir_client(engine, &query, address), WEIR_EINVAL);
    CHECK_EQ(weir_client(NULL, &query, address), WEIR_EINVAL);
    CHECK_EQ(weir_client(engine, NULL, address), WEIR_EINVAL);
    CHECK_EQ(weir_client(engine, &query, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_client(engine, &(weir_query){.attribute_count = 1}, address), WEIR_EINVAL);
    weir_close(engine);
}

TEST_MAIN
