/* weir init: writes a starter weir.yaml. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] = "usage: weir init [--force] [FILE]\n"
                            "Writes a starter FILE (default: weir.yaml) with comments, for weir serve.\n"
                            "\n"
                            "  --force   replace an existing file\n";

static const char starter[] =
    "# weir.yaml: a gateway with limits in front of your API. Start it with: weir serve weir.yaml\n"
    "# Changes to this file are taken up within a second or two; a broken file is reported and changes nothing.\n"
    "# docs/serve.md describes all members of this file, docs/rules.md the rules.\n"
    "\n"
    "gateway:\n"
    "  listen: 127.0.0.1:8080                # 8080 for all addresses; or a list\n"
    "  upstreams: [http://127.0.0.1:9000]    # your servers; several share the load\n"
    "  # upstreams:                          # or by path:\n"
    "  #   - { path: /api/*, servers: [http://10.0.0.1:9000, http://10.0.0.2:9000] }\n"
    "  #   - { path: \"*\", servers: [http://10.0.0.3:8000] }\n"
    "  # tls: { certificate: cert.pem, key: key.pem }\n"
    "  # timeouts: { connect: 5s, read: 60s }\n"
    "  # max_body: 10MiB\n"
    "\n"
    "metrics: 127.0.0.1:9090                 # /metrics for Prometheus, /weir/status for people\n"
    "# admin: 127.0.0.1:9091                 # dashboard and rules service, which then has the rules: docs/control.md\n"
    "\n"
    "# segment: { path: /dev/shm/weir, size: 64MiB }    # the counters: about 3 million keys\n"
    "# store: redis://10.0.0.5:6379          # limits for several hosts together; rules then say consistency: strict\n"
    "# load: on                              # limits may follow how loaded this host is: docs/overload.md\n"
    "# workers: auto\n"
    "# log: { format: json }\n"
    "# denied_log: stderr                    # one line of JSON for each denied request\n"
    "\n"
    "# Who is who. Values that clients set themselves count only if something before weir checks them.\n"
    "identity:\n"
    "  user_id: header:X-User-Id\n"
    "  # client_ip: { trusted_proxies: [10.0.0.0/8] }   # behind a load balancer\n"
    "\n"
    "# All rules that match apply. Or name a file or a directory: rules: rules.d/\n"
    "rules:\n"
    "  - name: everyone                      # each address: 20 requests a second, 40 at once\n"
    "    key: ip:${client_ip}\n"
    "    limit: 20\n"
    "    window: 1s\n"
    "    burst: 40\n"
    "\n"
    "  - name: login                         # passwords are not to be guessed\n"
    "    match: { path: /login, method: POST }\n"
    "    key: ip:${client_ip}\n"
    "    limit: 5\n"
    "    window: 1m\n"
    "    algorithm: sliding_window_log\n"
    "\n"
    "  - name: user                          # each user: 1000 an hour; only counted until shadow is removed\n"
    "    match: { path: /api/* }\n"
    "    key: user:${user_id}\n"
    "    limit: 1000\n"
    "    window: 1h\n"
    "    shadow: true\n";

static int starter_write(const char *file, bool replace)
{
    /* 0600: it will have passwords and tokens. */
    int to = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL), 0600);
    if (to < 0 && errno == EEXIST) {
        fprintf(stderr, "weir init: %s exists; --force replaces it\n", file);
        return 1;
    }
    struct stat at;
    if (to >= 0 && fstat(to, &at) == 0 && S_ISREG(at.st_mode) && (at.st_mode & 07))
        (void)!fchmod(to, at.st_mode & 0770); /* of a file that exists; fails for another user's */
    bool good = to >= 0 && write(to, starter, sizeof starter - 1) == (ssize_t)sizeof starter - 1;
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

int weir__cmd_init(int argc, char **argv)
{
    bool overwrite = false;
    const struct weir__option options[] = {{"force", 'f', .flag = &overwrite}};
    const char *file = "weir.yaml";
    int code = weir__args_read_word("init", usage, options, 1, &file, argc, argv);
    return code >= 0 ? code : starter_write(file, overwrite);
}
