/* The description of the API, as it is served: openapi.json, put in by the assembler. */
#include "services/http/api.h"

__asm__(".pushsection .rodata\n"
        ".globl weir__openapi\n"
        ".hidden weir__openapi\n"
        "weir__openapi:\n"
        ".incbin \"src/services/http/openapi.json\"\n"
        ".globl weir__openapi_end\n"
        ".hidden weir__openapi_end\n"
        "weir__openapi_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const char weir__openapi_end[];

size_t weir__openapi_len(void)
{
    return (size_t)(weir__openapi_end - weir__openapi);
}
