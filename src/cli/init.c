/* weir init: writes a starter weir.yaml. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

WEIR__EMBED(starter, "src/cli/starter.yaml");

int weir__cmd_init(struct weir__given *given)
{
    const char *file = weir__argument(given, "weir.yaml");
    /* 0600: it will have passwords and tokens. */
    int to = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | (weir__option(given, "force") ? O_TRUNC : O_EXCL), 0600);
    if (to < 0 && errno == EEXIST) {
        fprintf(stderr, "weir init: %s exists; --force replaces it\n", file);
        return 1;
    }
    struct stat at;
    if (to >= 0 && fstat(to, &at) == 0 && S_ISREG(at.st_mode) && (at.st_mode & 07))
        (void)!fchmod(to, at.st_mode & 0770); /* of a file that exists; fails for another user's */
    bool good = to >= 0 && write(to, starter, strlen(starter)) == (ssize_t)strlen(starter);
    if (to >= 0)
        good &= close(to) == 0;
    if (!good) {
        fprintf(stderr, "weir init: %s: %s\n", file, strerror(errno));
        return 1;
    }
    printf("%s is written; edit it, then: weir serve %s\n(weir lint %s shows its rules, weir check --rules %s GET "
           "/path plays a request)\n",
           file, file, file, file);
    return 0;
}
