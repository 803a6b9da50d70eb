/* The socket that nginx brings requests to: see ingest_socket.h. */
#include "queue/ingest_socket.h"
#include "control/publish_file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, FILES = 8192 };

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path); /* its length was checked with the configuration */
    return at;
}

static bool is_listened_on(const char *path)
{
    struct sockaddr_un at = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool somebody = connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EAGAIN;
    close(fd);
    return somebody;
}

/* Before anybody can connect: nobody listens yet. */
static bool admit(const struct weir__config *config, const char *path)
{
    struct weir__workers workers;
    if (geteuid() != 0 && !config->dropped)
        return chmod(path, 0600) == 0;
    if (!weir__workers_of(config, &workers)) {
        errno = ENOENT;
        return false;
    }
    return chown(path, (uid_t)-1, (gid_t)workers.group_id) == 0 && chmod(path, 0660) == 0;
}

/* As many connections as nginx's workers may keep open. */
static void allow_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= FILES)
        return;
    files.rlim_cur = files.rlim_max < FILES ? files.rlim_max : FILES;
    (void)!setrlimit(RLIMIT_NOFILE, &files);
}

int weir__ingest_listen(const struct weir__config *config, char *why, size_t why_size)
{
    const char *path = config->queue.socket;
    char temporary[sizeof((struct sockaddr_un *)NULL)->sun_path];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    if (is_listened_on(path)) {
        snprintf(why, why_size, "another agent listens on %s already", path);
        return -1;
    }
    struct sockaddr_un at = address_of(temporary);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(temporary);
    if (fd >= 0 && weir__publish_folder(path) && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
        admit(config, temporary) && listen(fd, BACKLOG) == 0 && rename(temporary, path) == 0) {
        allow_files();
        return fd;
    }
    snprintf(why, why_size, "cannot listen on %s: %s", path, strerror(errno));
    unlink(temporary);
    if (fd >= 0)
        close(fd);
    return -1;
}
