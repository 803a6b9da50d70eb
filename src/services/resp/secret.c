/* Comparison in constant time. */
#include "services/resp/secret.h"

bool weir__secret_is(weir_text given, weir_text secret)
{
    static const char nothing[1] = {0};
    const char *with = secret.len ? secret.data : nothing;
    size_t len = secret.len ? secret.len : 1, at = 0;
    volatile size_t differ = given.len ^ secret.len;
    for (size_t i = 0; i < given.len; i++) {
        differ |= (unsigned char)(given.data[i] ^ with[at]);
        at = (at + 1) % len;
    }
    return differ == 0;
}
