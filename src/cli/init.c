/* weir init: writes a starter weir.yaml. */
#include "base/file.h"
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
    int error = to < 0 ? errno : weir__write_fully(to, starter, strlen(starter));
    if (to >= 0 && close(to) != 0)
        error = errno;
    if (error) {
        fprintf(stderr, "weir init: %s: %s\n", file, strerror(error));
        return 1;
    }
    printf("%s is written; edit it, then: weir serve %s\n(weir lint %s shows its rules, weir check --rules %s GET "
           "/path plays a request)\n",
           file, file, file, file);
    return 0;
}
