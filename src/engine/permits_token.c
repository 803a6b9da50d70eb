/*
 * Permits as a text, for services whose clients release them later. The text has a message authentication code: without
 * it a client could release the permits of others. Permits in the store need none, as their identity of 104 random bits
 * cannot be guessed: any host accepts them, and takes everything else in the text from its own rules. Bytes are in the
 * machine's order: a segment does not leave its host, and all supported machines have the same order.
 */
#include "engine/permits.h"
#include "base/sha256.h"
#include "base/text.h"

#define FORMAT    1
#define MAC_BYTES 16 /* of HMAC-SHA256's 32 */
#define HEAD      2  /* the format, and the number of leases */
#define BYTES_MAX (HEAD + WEIR_PERMITS_MAX * sizeof(weir_lease) + WEIR_PERMITS_NAMES_MAX + MAC_BYTES)

_Static_assert(WEIR__BASE64URL_MAX(BYTES_MAX) <= WEIR_PERMITS_TEXT_MAX,
               "the public constant promises that everything fits");
_Static_assert(sizeof(weir_lease) == 48, "no padding");

static bool mac_of(const weir *engine, const uint8_t *bytes, size_t len, uint8_t mac[MAC_BYTES])
{
    uint8_t key[WEIR_SECRET_BYTES], complete[WEIR__SHA256_BYTES];
    if (weir_segment_secret(engine->segment, "slots of requests in flight", key) != 0)
        return false;
    weir__hmac_sha256(key, sizeof key, bytes, len, complete);
    memcpy(mac, complete, MAC_BYTES);
    return true;
}

size_t weir_permits_to_text(weir *engine, const weir_permits *permits, char text[WEIR_PERMITS_TEXT_MAX + 1])
{
    uint8_t bytes[BYTES_MAX];
    if (!engine || !permits || !text || !permits->count || permits->count > WEIR_PERMITS_MAX ||
        permits->names_len > WEIR_PERMITS_NAMES_MAX)
        return 0;
    size_t leases = permits->count * sizeof(weir_lease), len = HEAD + leases + permits->names_len;
    bytes[0] = FORMAT;
    bytes[1] = (uint8_t)permits->count;
    memcpy(bytes + HEAD, permits->lease, leases);
    memcpy(bytes + HEAD + leases, permits->names, permits->names_len);
    if (!mac_of(engine, bytes, len, bytes + len))
        return 0;
    return weir__write_base64url(text, bytes, len + MAC_BYTES);
}

/* Reads the leases that this engine may release. `ours`: the code is that of this host. */
static void read_slots(weir *engine, const uint8_t *bytes, uint32_t count, bool ours, weir_permits *permits)
{
    for (uint32_t i = 0; i < count; i++) {
        weir_lease lease;
        memcpy(&lease, bytes + i * sizeof lease, sizeof lease);
        if (weir__is_remote_permit(&lease) ? weir__remote_permit_accept(engine, permits, &lease) : ours)
            weir__permits_add(permits, &lease);
    }
}

int weir_permits_from_text(weir *engine, weir_text text, weir_permits *permits)
{
    uint8_t bytes[BYTES_MAX] = {0}, mac[MAC_BYTES];
    if (!engine || !permits || (!text.data && text.len))
        return WEIR_EINVAL;
    size_t len = weir__read_base64url(text, bytes, sizeof bytes);
    uint32_t count = len > HEAD ? bytes[1] : 0;
    size_t around = HEAD + count * sizeof(weir_lease) + MAC_BYTES;
    if (!count || count > WEIR_PERMITS_MAX || bytes[0] != FORMAT || len < around ||
        len - around > WEIR_PERMITS_NAMES_MAX || !mac_of(engine, bytes, len - MAC_BYTES, mac))
        return WEIR_ELEASE;
    weir_permits read;
    read.count = 0;
    read.names_len = (uint32_t)(len - around);
    memcpy(read.names, bytes + HEAD + count * sizeof(weir_lease), read.names_len);
    read_slots(engine, bytes + HEAD, count, weir__equal_secrets(mac, bytes + len - MAC_BYTES, MAC_BYTES), &read);
    if (!read.count)
        return WEIR_ELEASE;
    memcpy(permits, &read, weir_permits_size(&read));
    return 0;
}
