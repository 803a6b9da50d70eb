/* The description of the service, as it is served: openapi.json, put in by the assembler. */
#include "control/call.h"

__asm__(".pushsection .rodata\n"
        ".globl weir__control_openapi\n"
        ".hidden weir__control_openapi\n"
        "weir__control_openapi:\n"
        ".incbin \"src/control/openapi.json\"\n"
        ".globl weir__control_openapi_end\n"
        ".hidden weir__control_openapi_end\n"
        "weir__control_openapi_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const char weir__control_openapi_end[];

size_t weir__control_openapi_len(void)
{
    return (size_t)(weir__control_openapi_end - weir__control_openapi);
}
