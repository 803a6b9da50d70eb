/*
 * weir serve and weir agent: one weir.yaml becomes a running gateway. docs/reference/serve.md describes it from
 * outside.
 *
 * Processes of weir serve, when root starts it (started by another user, all of them are that user):
 *
 * Supervisor: root with ten capabilities (privilege.c). Reads weir.yaml, checks it (preflight.c), writes nginx.conf
 * (deployment.c, nginx_conf.c, nginx.conf.in) into the runtime directory (runtime_dir.c), starts the others and
 * restarts the agent, reloads when a file changes, writes the log. Serves no network, parses nothing that the agent or
 * a client wrote. Main loop: supervisor.c, started by serve.c.
 *
 * nginx master: root, as the supervisor; binds the listeners. Started by nginx_process.c.
 *
 * nginx workers: the workers' user. Decide and forward requests (nginx/). Started by nginx's master.
 *
 * Agent: a user of its own, no capabilities, filtered system calls, no execve. Started and restarted by
 * agent_process.c. One thread exchanges deltas with the store (src/sync); the others (agent_threads.c) run the rules
 * service and its listener, poll another host's rules, write the history, sample the load, send heartbeats, and accept
 * and dispatch deferred requests.
 *
 * Helpers: short-lived children with a deadline (helper_process.c) for work as the agent's or the workers' user, and
 * for root's work on files that the agent can write.
 *
 * The supervisor binds all listeners (listening.c), and replaces nginx's master, the agent and itself (takeover.c)
 * without closing one; systemd keeps them while it restarts (systemd.c).
 *
 * The supervisor gives the agent what only root can read or bind (handover.c): secrets, files, the admin port. Two
 * descriptors connect them: a socket for requests to write sidecar files (base/sidecar.h), and a pipe for log lines.
 * weir agent is a supervisor with an agent and without nginx, beside an nginx or an application that something else
 * runs (agent.c).
 *
 * Also here: nginx_message.c translates nginx's error messages to places in weir.yaml; admin_host.c answers the rules
 * service's requests about this host; weir_yaml.c finds rules, database and queue of a weir.yaml for commands.
 */
#ifndef WEIR_SERVE_SERVE_H
#define WEIR_SERVE_SERVE_H

#include "base/file.h"

#include <weir/weir.h>

struct weir__control_queue;
struct weir__source;

enum weir__serve_mode {
    WEIR__SERVE_RUN,
    WEIR__SERVE_CHECK, /* reports whether it would run; changes nothing */
    WEIR__SERVE_PRINT  /* prints nginx.conf */
};

/* The format in which a weir serve hands over to another version of itself (takeover.h). The new one states that it
 * knows the format, before it is executed: weir serve --check --takeover FORMAT. */
#define WEIR__TAKEOVER_FORMAT "1"

/* weir serve. Returns the exit code. Until nginx runs, errors in weir.yaml and its rules go to `diagnose`. */
int weir__serve(const char *file, enum weir__serve_mode mode, weir_diagnose *diagnose, void *context);

/*
 * weir agent: runs the agent until a signal stops it; with `once` it only exchanges deltas with the store, one time.
 * Returns the exit code. Until the agent runs, errors in weir.yaml go to `diagnose`.
 */
int weir__agent(const char *file, bool once, weir_diagnose *diagnose, void *context);

/*
 * weir doctor: looks at what weir serve needs of this host, and reports each thing that it finds: what is wrong and how
 * to correct it. Changes nothing but, for a moment, a key of its own in the store. `unknown`: this user cannot look.
 */
enum weir__doctor_level { WEIR__DOCTOR_OK, WEIR__DOCTOR_UNKNOWN, WEIR__DOCTOR_WARNING, WEIR__DOCTOR_WRONG };
typedef void weir__doctor_found(void *context, enum weir__doctor_level level, const char *check, const char *message);
void weir__doctor(const char *file, weir__doctor_found *found, void *context);
extern const char weir__doctor_script[]; /* lua/doctor.lua */
extern const char weir__doctor_script_sha[41];

/* True if the file has members that only a weir.yaml has. False for a rule file and an unreadable one. */
bool weir__is_weir_yaml(const char *path);

/* A weir.yaml that a command has opened. */
struct weir__file {
    /* FILE_RULES, FILE_COUNTERS: the active ones: those that the file names, or published ones of a database or another
     * host. FILE_DATABASE: those that the file names, if any. */
    const char *rules_path;              /* of a file or directory; NULL: the rules are rules_text */
    weir_text rules_text;                /* weir.yaml with everything else blanked out */
    struct weir__file_owner rules_owner; /* of published ones: root loads them as this user */
    const char *segment;
    int64_t segment_bytes;             /* its size */
    bool store;                        /* it names one */
    const char *store_url;             /* FILE_COUNTERS: with its password; NULL: none */
    enum weir_consistency consistency; /* with a store: of rules that set none */
    int64_t sync_interval_us;          /* with a store: of eventual rules */
    const char *database;              /* URL of the rules service's; NULL: the file has no rules service */
    bool rules_in_files;               /* FILE_DATABASE: the rules are not in it */
    int64_t session_ms;                /* FILE_DATABASE: how long a session lasts */
    const char *dashboard;             /* FILE_DATABASE: its URL, if only this host can reach it; else NULL */
    struct weir__control_queue *queue; /* FILE_QUEUE */
    const char *queue_database;        /* URL of its own; NULL: the queue is in the store */
    struct weir__control_host *keys;   /* FILE_KEYS: the functions for keys, on its segment */
};
enum weir__file_part { WEIR__FILE_RULES, WEIR__FILE_COUNTERS, WEIR__FILE_DATABASE, WEIR__FILE_QUEUE, WEIR__FILE_KEYS };
/* NULL after a report to `diagnose`, also if the file does not have the part that is needed. */
struct weir__file *weir__file_open(const char *path, enum weir__file_part needed, weir_diagnose *diagnose,
                                   void *context);
/* NULL is allowed. */
void weir__file_close(struct weir__file *file);
/*
 * Loads the rules at `path`, or those in `text`, as weir_rules_load and weir_rules_parse do, with all warnings that
 * depend on the host: that of `file`, or NULL for one with a segment of the default size.
 */
int weir__file_load(const struct weir__file *file, const char *path, const struct weir__source *text,
                    weir_diagnose *diagnose, void *context, weir_rules **rules);

/* The owner of a database; `url` may be NULL. */
struct weir__file_owner weir__database_owner(const char *url);

/* Run by root: becomes the user "nobody", without capabilities; clears the parent-death signal. Sets no_new_privs.
 * False: the process must exit. */
bool weir__become_unprivileged(void);

/* Removes a folder and what is in it, without following symbolic links; keeps what is nested deeper than six levels. */
void weir__remove_tree(const char *path);

#endif
