/* What weir.yaml says of the store, as one URL: see store_url.h. */
#include "config/store_url.h"

#include <stdio.h>

#define PASSWORD_MAX 512

/* Appends what has to be escaped in a query escaped. False: no room. */
static bool add(char *to, size_t size, const char *text, bool escape)
{
    size_t len = strlen(to);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = !escape || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-_.~/", c) != NULL;
        if (len + 4 > size)
            return false;
        len += (size_t)snprintf(to + len, size - len, plain ? "%c" : "%%%02X", c);
    }
    return true;
}

static bool password_read(const char *path, char *to, char *why, size_t why_size)
{
    FILE *file = fopen(path, "re");
    bool good = file && fgets(to, PASSWORD_MAX, file);
    /* A password that is cut would be a wrong one. */
    int next = good && !strpbrk(to, "\r\n") ? fgetc(file) : EOF;
    bool cut = next != EOF && next != '\n' && next != '\r';
    if (file)
        fclose(file);
    if (good)
        to[strcspn(to, "\r\n")] = 0;
    if (!good)
        snprintf(why, why_size, "password_file %s cannot be read, or is empty", path);
    else if (cut)
        snprintf(why, why_size, "password_file %s: the password is longer than %d bytes", path, PASSWORD_MAX - 1);
    return good && !cut;
}

enum weir_consistency weir__store_consistency(const struct weir__store *store)
{
    for (size_t i = 0; i < store->setting_count; i++)
        if (strcmp(store->settings[i].name, "consistency") == 0)
            return strcmp(store->settings[i].value, "strict") == 0     ? WEIR_STRICT
                   : strcmp(store->settings[i].value, "eventual") == 0 ? WEIR_EVENTUAL
                                                                       : WEIR_LOCAL;
    return WEIR_LOCAL;
}

bool weir__store_url(const struct weir__store *store, char *to, size_t size, char *why, size_t why_size)
{
    char password[PASSWORD_MAX];
    *to = 0;
    bool good = add(to, size, store->url, false);
    for (size_t i = 0; i < store->setting_count && good; i++) {
        const char *name = store->settings[i].name, *value = store->settings[i].value;
        if (strcmp(name, "consistency") == 0)
            continue;
        if (strcmp(name, "password_file") == 0) {
            if (!password_read(value, password, why, why_size))
                return false;
            name = "password";
            value = password;
        }
        good = add(to, size, strchr(to, '?') ? "&" : "?", false) && add(to, size, name, false) &&
               add(to, size, "=", false) && add(to, size, value, true);
    }
    if (!good)
        snprintf(why, why_size, "its URL and settings are too long");
    return good;
}
