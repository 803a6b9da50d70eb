/* Capabilities, system call filter, users. See privilege.h. */
#include "serve/privilege.h"
#include "engine/mapped_file.h"
#include "serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <malloc.h>
#include <pwd.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROUPS_MAX 64
#define NICE_ROOM  30 /* RLIMIT_NICE: the thread that samples the load may be as urgent as nice -10 */

/* ---- Capabilities ---- */

static int capabilities_set(uint64_t keep)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)keep, .permitted = (uint32_t)keep},
        {.effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32)}};
    return (int)syscall(SYS_capset, &head, data);
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    return syscall(SYS_capget, &head, data) != 0 || data[0].permitted || data[1].permitted || data[0].inheritable ||
           data[1].inheritable;
}

/* Removes all but `keep` from the bounding set. */
static bool bounding_set_reduce(uint64_t keep)
{
    for (unsigned long which = 0; which < 64; which++) {
        int present = prctl(PR_CAPBSET_READ, which);
        if (present < 0)
            return which > 0; /* beyond the kernel's last capability */
        if (present && !(keep >> which & 1) && prctl(PR_CAPBSET_DROP, which) != 0)
            return false;
    }
    return true;
}

void weir__privilege_limit(const struct weir__logger *log)
{
    static const int needed[] = {
        CAP_CHOWN,           /* files that the agent and the workers use */
        CAP_DAC_OVERRIDE,    /* logs and folders of other users; nginx's temporary files */
        CAP_DAC_READ_SEARCH, /* keys and passwords */
        CAP_FOWNER,          /* modes of files that were handed over */
        CAP_KILL,            /* signals to the agent and to nginx's workers */
        CAP_SETGID,
        CAP_SETUID,           /* agent and workers become other users */
        CAP_SETPCAP,          /* the agent empties its bounding set */
        CAP_NET_BIND_SERVICE, /* ports below 1024 */
        CAP_SYS_RESOURCE      /* limits on open files and on priority */
    };
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct present[2] = {{0}, {0}};
    uint64_t keep = 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        keep |= UINT64_C(1) << needed[i];
    bool good = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    if (geteuid() == 0)
        good = good && syscall(SYS_capget, &head, present) == 0 &&
               prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 && bounding_set_reduce(keep) &&
               capabilities_set(keep & (present[0].permitted | (uint64_t)present[1].permitted << 32)) == 0;
    if (!good)
        weir__logf(log, WEIR__LOG_WARNING, "cannot drop capabilities that are not needed: %s", strerror(errno));
}

/* ---- System calls ---- */

/* Installs the filter: system calls that the agent never makes fail with EPERM. Returns 0 or an errno. */
static int filter_calls(void)
{
    static const char never[] =
        /* other programs and processes */
        "execve execveat ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp "
        /* mounts and namespaces */
        "mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr setns "
        "unshare "
        /* interfaces with a history of holes in the kernel */
        "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key "
        /* the machine: modules, boot, swap, clocks, names, hardware */
        "init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl "
        "settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname syslog iopl ioperm modify_ldt "
        "personality vhangup "
        /* files past their permissions, and devices */
        "name_to_handle_at open_by_handle_at mknod mknodat "
        /* users, groups and capabilities */
        "setuid setreuid setresuid setgid setregid setresgid setgroups capset";
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int error = filter ? 0 : -ENOMEM, len;
    char name[32];
    for (const char *at = never; !error && sscanf(at, " %31s%n", name, &len) == 1; at += len)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), seccomp_syscall_resolve_name(name), 0);
    /* Threads, but no user namespaces. A filter cannot see clone3's flags: libc falls back to clone on ENOSYS. */
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
    if (!error)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    /* No input into a terminal, and no controlling terminal. The kernel ignores the upper half of the argument. */
    static const unsigned terminal[] = {TIOCSTI, TIOCLINUX, TIOCSCTTY};
    for (size_t i = 0; i < sizeof terminal / sizeof *terminal && !error; i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                                 SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, terminal[i]));
    if (!error)
        error = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
    return -error;
}

/* ---- Secrets in freed memory ---- */

void weir__wipe_freed_memory(void)
{
#ifdef M_PERTURB
    if (geteuid() == 0)
        mallopt(M_PERTURB, 0x55);
#endif
}

/* M_PERTURB does not cover the thread cache, which holds up to 7 chunks of each size. */
void weir__wipe_inherited_memory(void)
{
#ifdef M_PERTURB
    enum { CACHED = 7, SIZE_STEP = 16, SIZE_MAX_CACHED = 1032 };
    for (size_t size = 24; size <= SIZE_MAX_CACHED; size += SIZE_STEP) {
        void *chunks[CACHED];
        for (int i = 0; i < CACHED; i++)
            if ((chunks[i] = malloc(size)))
                explicit_bzero(chunks[i], size);
        for (int i = 0; i < CACHED; i++)
            free(chunks[i]);
    }
    mallopt(M_PERTURB, 0);
#endif
}

/* ---- Owners of files ---- */

const char *weir__database_path(const char *url)
{
    static const char scheme[] = "sqlite:";
    return url && strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1 : NULL;
}

struct weir__file_owner weir__database_owner(const char *url)
{
    const char *path = weir__database_path(url);
    return path ? weir__file_owner(path) : (struct weir__file_owner){0, 0};
}

bool weir__segment_file_owner(const struct weir__config *config, bool published, struct weir__file_owner *owner,
                              char *why, size_t size)
{
    struct weir__agent_user agent;
    struct stat at, yaml;
    *owner = (struct weir__file_owner){0, 0};
    if (geteuid() != 0)
        return true;
    bool known = weir__agent_user_find(config, &agent, why, size);
    int file = open(config->segment_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool others = file >= 0 && fstat(file, &at) == 0 && at.st_uid != 0;
    bool trusted =
        others && ((known && at.st_uid == agent.user) || (stat(config->file, &yaml) == 0 && at.st_uid == yaml.st_uid) ||
                   weir__file_is_trusted(file, config->segment_path, 0));
    if (file >= 0)
        close(file);
    if (trusted)
        *owner = (struct weir__file_owner){at.st_uid, at.st_gid};
    else if (!others && published && known)
        *owner = (struct weir__file_owner){agent.user, agent.group};
    return others || !published || known;
}

/* ---- Dropping ---- */

/* False: `step` failed, errno has the reason. */
static bool become(const struct weir__agent_user *user, const char **step)
{
    gid_t groups[GROUPS_MAX + 1];
    int count = GROUPS_MAX;
    struct rlimit nice = {NICE_ROOM, NICE_ROOM};
    *step = "its groups";
    if (getgrouplist(user->name, user->group, groups, &count) < 0) {
        errno = E2BIG;
        return false;
    }
    groups[count++] = user->workers;
    (void)setrlimit(RLIMIT_NICE, &nice); /* best effort: otherwise the load is sampled at normal priority */
    *step = "the bounding set of capabilities";
    if (!bounding_set_reduce(0))
        return false;
    *step = "setgroups, setresgid and setresuid";
    if (setgroups((size_t)count, groups) != 0 || setresgid(user->group, user->group, user->group) != 0 ||
        setresuid(user->user, user->user, user->user) != 0)
        return false;
    *step = "its capabilities";
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 || capabilities_set(0) != 0)
        return false;
    *step = "a check that root cannot be regained";
    errno = EPERM;
    return !has_capabilities() && setresuid((uid_t)-1, 0, (uid_t)-1) != 0 && setuid(0) != 0 &&
           geteuid() == user->user && getuid() == user->user && getegid() == user->group;
}

bool weir__become_unprivileged(void)
{
    const struct passwd *found = getpwnam("nobody");
    struct weir__agent_user user = {.user = found ? found->pw_uid : 0, .name = "nobody"};
    const char *step;
    user.group = user.workers = found ? found->pw_gid : 0;
    return (geteuid() != 0 || (user.user && become(&user, &step))) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool weir__privilege_drop(const struct weir__agent_user *user, const struct weir__logger *log)
{
    const char *step = "";
    const struct rlimit none = {0, 0};
    if (user->drops && !become(user, &step)) {
        weir__logf(log, WEIR__LOG_ERROR, "agent failed to start: cannot become user %s (%s: %s)", user->name, step,
                   strerror(errno));
        return false;
    }
    /* The agent holds keys and passwords: no core dumps, and no ptrace by other processes of its user. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        (user->drops && (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0))) {
        weir__logf(log, WEIR__LOG_ERROR, "agent failed to start: no_new_privs: %s", strerror(errno));
        return false;
    }
    int error = filter_calls();
    if (error)
        weir__logf(log, WEIR__LOG_WARNING, "agent runs without a system call filter: %s", strerror(error));
    return true;
}
