/* weir.yaml as a struct: parsed and validated, without access to what it names (serve/preflight.c does that), but for
 * one look whether the state folder has published rules. */
#ifndef WEIR_CONFIG_CONFIG_H
#define WEIR_CONFIG_CONFIG_H

#include "engine/rule_files.h"
#include "rules/yaml.h"
#include "table/load_page.h"

/* All texts live in the configuration's arena and end with a zero byte. Paths are absolute. NULL: not given. */

struct weir__tls {
    const char *certificate, *key;
    const char *client_ca; /* the CA of client certificates; NULL: clients need none */
    struct weir__place certificate_place, key_place, client_ca_place;
};

/* The protocol of a listener. */
enum weir__listener_kind { WEIR__GATEWAY, WEIR__GRPC, WEIR__HTTP_API, WEIR__RESP };

#define WEIR__LISTENERS_MAX 64

struct weir__listener {
    enum weir__listener_kind kind;
    const char *address;     /* as in nginx's listen: "127.0.0.1:8080", "[::]:8080", "8080" */
    const char *host, *port; /* host without brackets; NULL: all of IPv4 */
    struct weir__place place;
    struct weir__tls tls;
    bool http2;
};

struct weir__server {
    const char *address; /* "host:port" or "unix:/path" */
    const char *host;    /* NULL: a socket's path */
    bool https;
    struct weir__place place;
};

enum weir__route_kind { WEIR__ROUTE_ALL, WEIR__ROUTE_PREFIX, WEIR__ROUTE_EXACT };

/* The upstream servers of a path. */
struct weir__route {
    enum weir__route_kind kind;
    const char *path; /* of a prefix: ends in '/' */
    struct weir__server *servers;
    size_t server_count;
    struct weir__place place;
};

enum { WEIR__LOG_OFF, WEIR__LOG_TEXT, WEIR__LOG_JSON };

/* Endpoints of an HTTP listener that access control distinguishes: /v1/, /v1/auth with /v1/auth/403, and /json. */
enum { WEIR__ENDPOINT_API, WEIR__ENDPOINT_AUTH, WEIR__ENDPOINT_JSON, WEIR__ENDPOINTS };

/* Credentials of the service. Secrets are printable and without spaces. */
struct weir__access {
    const char *token[32];
    bool token_operator[32];
    size_t token_count;
    const char *password, *operator_password; /* of RESP's AUTH */
    bool open_operator;                       /* without tokens: operators' calls are open, too */
    bool open[WEIR__ENDPOINTS];               /* with tokens: only operators need one here */
};

/* /v1/auth: proxies that have each request decided before they forward it. */
extern const char *const weir__auth_headers[]; /* names of the headers that describe a request */
struct weir__forward_auth {
    int headers;           /* 1 and the index of weir__auth_headers; 0: either, but not both */
    const char *proxy[64]; /* networks of the proxies that may send requests */
    size_t proxy_count;    /* 0: this host, and peers that authenticate */
    bool trusts_everybody; /* one of the networks is all of IPv4 or IPv6 */
};

#define WEIR__STORE_SETTINGS_MAX 24

/* The store: a URL and the settings that nginx's weir_store takes. */
struct weir__store {
    const char *url;   /* NULL: none */
    const char *shown; /* the same without secrets */
    struct weir__place place;
    struct weir__store_setting {
        const char *name, *value;
        struct weir__place place;
    } settings[WEIR__STORE_SETTINGS_MAX];
    size_t setting_count;
    enum weir_consistency consistency; /* of rules that set none */
    int64_t sync_interval_us;          /* of eventual rules */
};

/* Is a setting of this name a file's path? */
bool weir__store_is_file(const char *name);
/* One URL with all settings, secrets included. False: it is too long, or password_file cannot be read; `why` has the
 * reason. */
bool weir__store_url(const struct weir__store *store, char *to, size_t size, char *why, size_t why_size);
struct weir__config;
/* Reads the store's password, certificate and key, for a process that becomes another user, who may not read them. What
 * cannot be read stays a path; its user reports that. */
void weir__store_take_files(struct weir__config *config);

/* Another host's rules service that this host takes its rules from. */
struct weir__origin {
    const char *url;        /* NULL: the rules are this host's own */
    const char *shown;      /* for logs: the URL without user, password and query */
    const char *token;      /* or: */
    const char *token_file; /* read at every poll, so that it may change */
    const char *ca;         /* NULL: the system's authorities */
    int64_t poll_ms;
    struct weir__place place;
};

/* The receiver of warnings. */
struct weir__notify_config {
    const char *url;         /* NULL: none */
    const char *shown;       /* for logs: scheme, host and port, as a path may be a secret, too */
    const char *secret_file; /* read for every message, so that it may change; NULL: not signed, or: */
    const char *secret;      /* read by root for an agent of another user (serve/handover.c) */
    const char *ca;          /* NULL: the system's authorities */
    struct weir__place place;
};

#define WEIR__KEPT_HEADERS_MAX 64

/* Deferred requests (on_limit: queue). */
struct weir__queue_config {
    bool wanted; /* weir.yaml has such a section */
    struct weir__place place;
    bool sync_second;                   /* SQLite commits to disk once a second, not before each response */
    int64_t max, max_bytes, max_age_ms; /* of all rules together */
    int64_t body_bytes;                 /* a request with a longer body is rejected, not deferred */
    const char *const *headers;         /* names of the headers that are kept, in lower case; one may end in '*' */
    size_t header_count;
    int64_t retries;        /* failed deliveries before a request is dead-lettered */
    const char *deliver_to; /* "http://host:port", "https://…" or "unix:/path"; NULL: the gateway itself, through: */
    const char *gateway;    /* path of the gateway's delivery socket; set when nginx.conf is written */
    const char *database;   /* "sqlite:STATE/queue.db"; NULL: the store */
    const char *socket;     /* STATE/queue.sock: the agent's listener for requests from nginx */
    int listener;           /* a Unix socket that all agents of a supervisor share, and the first binds; 0: none */
};

/* Where the rules of a host with a rules service are: admin.rules. */
enum weir__rules_in {
    WEIR__RULES_UNSTATED, /* files if `rules` names some, unless the database has published rules */
    WEIR__RULES_IN_FILES,
    WEIR__RULES_IN_DATABASE
};

#define WEIR__RULES_UNDECIDED                                                                                          \
    "the rules service has published rules in its database, and those decide, not these; state which: admin: { "       \
    "rules: database }, and remove rules here, or admin: { rules: files }"

/* First bytes of a file with the published rules of a database. */
#define WEIR__PUBLISHED_HEAD "# weir: published revision "

/* The rules service. */
struct weir__admin_config {
    const struct weir__listener *listener; /* NULL: none */
    const char *database;                  /* "sqlite:PATH" or "postgresql://…" */
    int rules;                             /* enum weir__rules_in, as stated */
    int64_t session_ms;
    int key_texts; /* the least role that sees the texts of keys: 1 viewer, 2 editor, 3 operator */
    /* Read and bound by root for an agent of another user (serve/handover.c). */
    const char *certificate, *key; /* contents; NULL: read the files */
    int socket;                    /* bound to the listener's address; 0: none, -1: that failed */
};

/* Overload control: signals, their targets, and the reaction. */
struct weir__load_config {
    bool on;                      /* weir.yaml has such a section */
    double target[WEIR__SIGNALS]; /* the value that means 100 %: a share, tasks per processor, a multiple of the
                                     baseline, requests; 0: the signal is off */
    int64_t smooth_ms;
    int64_t adapt_to;   /* per cent */
    int64_t shed_above; /* the same; 0: nothing is shed */
    struct weir__place place;
};

struct weir__config {
    struct weir__arena arena;
    struct weir__sources sources; /* the file's text */
    const char *file, *folder;
    const char *host_name; /* NULL: the system's */

    const char *segment_path;
    struct weir__place segment_place;
    bool segment_is_ours; /* the path is the default, in a folder that all users may write to */
    int64_t segment_bytes;
    int64_t hot_bytes; /* size of the sidecar file of hot keys; 0: none */
    bool hot_hash;     /* hashes in place of key texts */
    struct weir__place hot_place;
    int64_t denial_bytes; /* size of the sidecar file of recent denials; 0: none */
    bool denial_hash;
    struct weir__place denial_place;
    struct weir__load_config load;
    int64_t workers;  /* 0: one per processor */
    const char *user; /* of the workers, when root starts them */
    const char *agent_user;
    struct weir__place user_place, agent_user_place;
    bool dropped; /* this process is an agent that has changed its user (serve/privilege.h) */

    struct weir__listener *listeners; /* of gateway and service; WEIR__LISTENERS_MAX elements */
    size_t listener_count;
    struct weir__access access;
    struct weir__forward_auth auth;
    struct weir__store store;
    bool rls_headers, rls_metadata, rls_count_denied;
    struct weir__route *routes;
    size_t route_count;
    int64_t keepalive, max_fails, fail_ms;
    int64_t connect_ms, read_ms, send_ms;
    int64_t body_bytes; /* 0: unlimited */
    bool upstream_verify;
    const char *upstream_ca, *upstream_name;
    struct weir__place upstream_ca_place;
    const struct weir__listener *metrics;

    const char *log_path; /* NULL: standard error, for all three */
    bool log_json;
    int access_log; /* WEIR__LOG_… */
    const char *access_path;
    bool denied_log, denied_hash;
    const char *denied_path;
    int64_t denied_rate;
    struct weir__place log_place, access_place, denied_place;

    const char *state_path; /* the state folder: the last good rules, databases */
    struct weir__place state_place;
    struct weir__admin_config admin;
    struct weir__origin origin;
    struct weir__queue_config queue;
    struct weir__notify_config notify;
    /*
     * The rules come from an origin or from the database of the rules service: the agent writes the active ones to a
     * file in the state folder, which rules_path is then. `rules` of weir.yaml, if given, is: */
    bool published;
    const char *import_path; /* or NULL, and: */
    weir_text import_text;   /* empty: nothing */

    const char *rules_path; /* or NULL, and the rules are in the file: */
    weir_text rules_text;   /* weir.yaml with all but the rules blanked out, so that line numbers stay */
    struct weir__place rules_place;

    char *nginx_conf;            /* NULL, or nginx.conf for it, which has secrets; not freed with it */
    struct weir__config *before; /* that was read before it, and is not freed */
};

/* Reads and validates the file: 0, or an error after a report. The caller frees `config` with weir__config_free in any
 * case. */
int weir__config_load(struct weir__config *config, const char *file, weir_diagnose *diagnose, void *context);
void weir__config_free(struct weir__config *config);
/* Reports an error of the file as a whole. Returns false. */
bool weir__config_report(const char *file, const char *message, weir_diagnose *diagnose, void *context);
/* What warnings about the rules depend on. */
struct weir__rules_host weir__config_host(const struct weir__config *config);
/* True if there is a listener of this kind. WEIR__RESP needs both stream modules. */
bool weir__has_listener(const struct weir__config *config, enum weir__listener_kind kind);
/*
 * In a child process: overwrites secrets that only weir serve and nginx need, of all configurations that its parent has
 * read and not freed: the texts of the files, the service's tokens and passwords, nginx.conf.
 */
void weir__secrets_wipe(void);

/* The user that nginx's workers run as when root starts weir serve. */
struct weir__workers {
    const char *name; /* the user that was looked up */
    char user[64], group[64];
    unsigned group_id;
};

/* False: there is no such user, or it has no group. */
bool weir__workers_of(const struct weir__config *config, struct weir__workers *workers);

/* ---- For the parts of the reader: readers of fields, with the configuration as the context of their tables ---- */

#define WEIR__CONFIG(member)       WEIR__IN(struct weir__config, member)
#define WEIR__CONFIG_PLACE(member) .place = offsetof(struct weir__config, member)

/* Sets `node` to a member of a map. False: there is none. */
#define WEIR__GIVEN(node, map, name) ((node) = weir__node_get((map), (name)))

const char *weir__config_text(struct weir__config *config, weir_text text);
/* True for a scalar with this text. */
bool weir__config_is(const struct weir__node *node, const char *word);
/* True without characters up to ' ', which end a word in nginx.conf, DEL and those of `others`; nor is it empty. */
bool weir__config_is_word(weir_text text, const char *others);
/* A path to a const char *, made absolute: relative ones begin at the folder of the file. */
bool weir__config_path(void *config, const struct weir__node *node, const char *what, void *path);
/* Milliseconds to an int64_t, at most a day. */
bool weir__config_ms(void *config, const struct weir__node *node, const char *what, void *ms);
/* An address to listen on to a struct weir__listener. */
bool weir__config_listener(void *config, const struct weir__node *node, const char *what, void *listener);
/* True for an address or name, without brackets, that only this host can reach. NULL: all addresses. */
bool weir__config_is_loopback(const char *host);
/* "http://host:port", "https://…" or "unix:/path". */
bool weir__config_server(struct weir__config *config, const struct weir__node *node, struct weir__server *server);

/* Adds a listener, given as an address or as a map with one. */
void weir__config_listen(struct weir__config *config, const struct weir__node *node, const char *what,
                         enum weir__listener_kind kind, const struct weir__tls *common);
/* False after an error. */
bool weir__config_tls(struct weir__config *config, const struct weir__node *node, struct weir__tls *tls);

/* Sections. `to` is the configuration, too. */
bool weir__config_gateway(void *config, const struct weir__node *gateway, const char *what, void *to);
bool weir__config_service(void *config, const struct weir__node *service, const char *what, void *to);
bool weir__config_store(void *config, const struct weir__node *store, const char *what, void *to);
bool weir__config_load_level(void *config, const struct weir__node *load, const char *what, void *to);
bool weir__config_notify(void *config, const struct weir__node *notify, const char *what, void *to);
void weir__config_rules(struct weir__config *config, const struct weir__node *root);
/* `queue`. To be called after weir__config_control. */
void weir__config_queue(struct weir__config *config, const struct weir__node *root);
/* `before` and the path of `name` in the state folder. NULL: it is too long. */
const char *weir__config_in_state(struct weir__config *config, const char *name, const char *before);
/* `admin`, `rules_db`, `state`, and `rules` that name another host. */
void weir__config_control(struct weir__config *config, const struct weir__node *root);
/*
 * Decides whether the rules are published ones, and sets their path then. To be called after weir__config_rules; again
 * after the database was read, as published rules in it decide if admin.rules is not stated. True: they are published
 * ones from now on.
 */
bool weir__config_publish(struct weir__config *config);
/* True if `rules` names another host: "https://…", or a map with such a url. */
bool weir__config_is_origin(const struct weir__node *rules);

#endif
