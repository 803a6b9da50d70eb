#include <weir/weir.h>

static const struct error {
    int number;
    const char *name, *text;
} errors[] = {{0, "WEIR_OK", "success"},
#define ERROR(name, number, text) {WEIR_##name, "WEIR_" #name, text},
              WEIR_ERRORS(ERROR)
#undef ERROR
};

static const struct error *find(int number)
{
    static const struct error unknown = {0, "WEIR_E???", "unknown error"};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == number)
            return &errors[i];
    return &unknown;
}

const char *weir_strerror(int error)
{
    return find(error)->text;
}

const char *weir_error_name(int error)
{
    return find(error)->name;
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}
