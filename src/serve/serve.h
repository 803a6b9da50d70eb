/*
 * The gateway in one command: weir.yaml becomes an nginx configuration, nginx runs with it, and somebody looks after
 * it. docs/serve.md describes it from outside. In reading order:
 *
 *   config      weir.yaml, read and checked: text in, struct weir__config out
 *   inspect     what weir.yaml speaks of: rules, certificates, the segment, free ports
 *   nginx_conf  from a configuration to nginx's
 *   nginx       finding nginx, testing a configuration, starting it
 *   nginx_line  what nginx says, in words that fit weir.yaml
 *   private     the folder that nginx's files are in
 *   log     what weir serve itself says
 *   plan        a configuration through all of these, ready to run
 *   signals     what somebody who sends one wants
 *   supervise   the loop that looks after nginx
 *   serve       all of it together
 *   init        the starter weir.yaml
 *   file_rules  where its rules and counters are, for commands that look at them
 *
 * And the agent, a process that weir serve runs beside nginx and weir agent alone:
 *
 *   sync        what was let pass is told to the store, what others let pass is applied; sync_entry for one counter,
 *               sync_lost for what a failover forgot
 *   exchange    that, every interval; store_url makes one URL of what weir.yaml says of the store
 *   threads      the slow part, in threads: the rules service, rules of another host, figures
 *   admin       HTTP around src/control; dashboard: the files of web/; database: where a weir.yaml keeps its rules
 *   host        what the rules service may ask about this host; queue_desk: about its deferred requests
 *   accept      requests that nginx brings for the queue are kept, all that wait in one transaction; answers for
 *               tickets
 *   drain       delivers deferred requests; queue_open opens where they are kept
 *   retrieve    the rules that another host publishes; publish: a file of rules, replaced as a whole
 *   sensor      the load level: reads signals and writes the load page; procfs: what the kernel says; senses: from
 *               that to signals; law: from signals to the level, the throttle and what is shed
 *   privilege   what each process may do: users, capabilities, system calls
 *   handover    what the agent, as another user, gets from root: files, secrets, the admin listener's port
 *   process     exchange and threads together
 *   companion   that process under weir serve
 *   agent       weir agent
 *   observe     what the agent writes for others to see: the history; and the ageing of hot keys
 *   fleet       which hosts there are: membership.h lists its files; followers: those that take their rules from this
 * one beside      small files beside the segment, replaced again and again sight       all that can be seen of a host;
 * looker opens it for a command figures     that as JSON advise      what it says about the rules; advise_rule writes
 * the changed rule top         weir top; top_view, top_hosts and top_lines draw
 */
#ifndef WEIR_SERVE_SERVE_H
#define WEIR_SERVE_SERVE_H

#include <weir/weir.h>

enum weir__serve_mode {
    WEIR__SERVE_RUN,
    WEIR__SERVE_CHECK, /* says whether it would run; changes nothing */
    WEIR__SERVE_PRINT  /* the nginx configuration on standard output */
};

/* Returns the exit code. What is wrong with the file or its rules is told to `diagnose` while nothing runs yet. */
int weir__serve(const char *file, enum weir__serve_mode mode, weir_diagnose *diagnose, void *context);

/*
 * weir agent: exchanges with the store what eventual rules let pass, until it is told to end, or once; until then it is
 * the rules service as well, if the file has one. Returns the exit code. What is wrong with the file is told to
 * `diagnose` while nothing runs yet.
 */
int weir__agent(const char *file, bool once, weir_diagnose *diagnose, void *context);

struct weir__top_options {
    const char *what;  /* a weir.yaml or a segment */
    const char *rules; /* a path; NULL: those of weir.yaml */
    bool once, json;
    int64_t interval_ms;
    int64_t keys; /* of each rule, in JSON */
};

/* weir top: what a host does, live or once. Returns the exit code. */
int weir__top_run(const struct weir__top_options *options, weir_diagnose *diagnose, void *context);

/* weir advise: what the figures say about the rules. `rule` NULL: all. Returns the exit code. */
struct weir__advise_options {
    const char *what, *rules, *rule;
    bool json;
};
int weir__advise_run(const struct weir__advise_options *options, weir_diagnose *diagnose, void *context);

/* Writes the starter file. Returns the exit code. */
int weir__init(const char *file, bool force);

/* The queue of a weir.yaml, for commands that open it themselves. NULL: what is wrong was told to `diagnose`. */
struct weir__file_queue;
struct weir__control_queue;
struct weir__file_queue *weir__file_queue_open(const char *file, weir_diagnose *diagnose, void *context);
const struct weir__control_queue *weir__file_queue_calls(const struct weir__file_queue *queue);
/* NULL is allowed. */
void weir__file_queue_close(struct weir__file_queue *queue);

/* The rules service's database that the file names, or NULL: it has no such service. */
const char *weir__file_queue_rules(const struct weir__file_queue *queue);

/*
 * Where the rules of a weir.yaml are and where its counters: the rules in force if a rules service has them, and before
 * the first were published those that the file names.
 */
struct weir__file_rules {
    const char *path; /* of a file or a directory; or NULL, and they are: */
    const char *text; /* the file with everything else blanked out */
    size_t len;
    const char *segment;
};
/* True for a file that has what only a weir.yaml has; a rule file, and one that cannot be read, is none. */
bool weir__is_weir_yaml(const char *path);
/* NULL: what is wrong was told to `diagnose`. */
struct weir__file_rules *weir__file_rules_open(const char *file, weir_diagnose *diagnose, void *context);
/* NULL is allowed. */
void weir__file_rules_close(struct weir__file_rules *rules);

/* The address of the database that a weir.yaml's rules service has. False: what is wrong was told to `diagnose`. */
bool weir__rules_database(const char *file, weir_diagnose *diagnose, void *context, char *url, size_t size);

#endif
