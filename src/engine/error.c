#include <weir/weir.h>

const char *weir_strerror(int error)
{
    switch (error) {
    case 0:
        return "success";
#define WEIR_ERROR_TEXT(name, number, text)                                                                            \
    case WEIR_##name:                                                                                                  \
        return text;
        WEIR_ERRORS(WEIR_ERROR_TEXT)
#undef WEIR_ERROR_TEXT
    default:
        return "unknown error";
    }
}

const char *weir_error_name(int error)
{
    switch (error) {
    case 0:
        return "WEIR_OK";
#define WEIR_ERROR_NAME(name, number, text)                                                                            \
    case WEIR_##name:                                                                                                  \
        return "WEIR_" #name;
        WEIR_ERRORS(WEIR_ERROR_NAME)
#undef WEIR_ERROR_NAME
    default:
        return "WEIR_E???";
    }
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}
