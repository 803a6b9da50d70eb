/* weir.yaml: what it says, checked as far as that goes without looking at anything else. */
#ifndef WEIR_CONFIG_CONFIG_H
#define WEIR_CONFIG_CONFIG_H

#include "engine/rule_files.h"
#include "rules/yaml.h"
#include "table/load_page.h"

/* All texts live in the configuration's arena and end with a zero byte. Paths are absolute. NULL: not given. */

struct weir__tls {
    const char *certificate, *key;
    const char *client_ca; /* whose certificates clients must have; NULL: they need none */
    struct weir__place certificate_place, key_place, client_ca_place;
};

/* What a listener speaks. */
enum weir__listener_kind { WEIR__GATEWAY, WEIR__GRPC, WEIR__HTTP_API, WEIR__RESP };

#define WEIR__LISTENERS_MAX 64

struct weir__listener {
    enum weir__listener_kind kind;
    const char *address;     /* as nginx and people write it: "127.0.0.1:8080", "[::]:8080", "8080" */
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

/* Which servers the requests of a path go to. */
struct weir__route {
    enum weir__route_kind kind;
    const char *path; /* of a prefix: ends in '/' */
    struct weir__server *servers;
    size_t server_count;
    struct weir__place place;
};

enum { WEIR__LOG_OFF, WEIR__LOG_TEXT, WEIR__LOG_JSON };

/* What counts on a listener for HTTP: /v1/, /v1/auth with /v1/auth/403, and /json. */
enum { WEIR__ENDPOINT_API, WEIR__ENDPOINT_AUTH, WEIR__ENDPOINT_JSON, WEIR__ENDPOINTS };

/* Who may use the service. Secrets are printable and without spaces. */
struct weir__access {
    const char *token[32];
    bool token_operator[32];
    size_t token_count;
    const char *password, *operator_password; /* of RESP's AUTH */
    bool open_operator;                       /* operators need no token, where nobody does */
    bool open[WEIR__ENDPOINTS];               /* with tokens: only operators need one here */
};

/* The proxies that ask before they serve. */
struct weir__forward_auth {
    const char
        *headers; /* "forwarded" or "original": the family that describes a request; NULL: either, but not both */
    const char *proxy[64]; /* the peers that may ask: networks */
    size_t proxy_count;    /* 0: this host, and peers that authenticate */
    bool trusts_everybody; /* one of the networks is all of IPv4 or IPv6 */
};

#define WEIR__STORE_SETTINGS_MAX 24

/* The store, as nginx's weir_store has it. */
struct weir__store {
    const char *url;   /* NULL: none */
    const char *shown; /* the same without secrets */
    struct weir__place place;
    struct weir__store_setting {
        const char *name, *value;
        struct weir__place place;
    } settings[WEIR__STORE_SETTINGS_MAX];
    size_t setting_count;
};

/* Is a setting of this name a file's path? */
bool weir__store_is_file(const char *name);

/* Where another host publishes its rules. */
struct weir__origin {
    const char *url;        /* NULL: the rules are this host's own */
    const char *token;      /* or: */
    const char *token_file; /* read at every look, so that it may change */
    const char *ca;         /* NULL: the system's authorities */
    int64_t poll_ms;
    struct weir__place place;
};

#define WEIR__KEPT_HEADERS_MAX 64

/* Requests that are kept for later (on_limit: queue). */
struct weir__queue_config {
    bool wanted; /* there is such a section */
    struct weir__place place;
    bool sync_second;                   /* SQLite need not be on the disk before the answer */
    int64_t max, max_bytes, max_age_ms; /* of all rules together */
    int64_t body_bytes;                 /* a request with more is denied as usual */
    const char *const *headers;         /* names of those that are kept, in lower case; one may end in '*' */
    size_t header_count;
    int64_t retries;        /* failed attempts, then it is dead */
    const char *deliver_to; /* "http://host:port", "https://…" or "unix:/path"; NULL: the gateway itself, through: */
    const char *gateway;    /* the path of its socket for that, under weir serve; set when nginx's files are written */
    const char *database;   /* "sqlite:STATE/queue.db"; NULL: the store */
    const char *socket;     /* STATE/queue.sock: where nginx brings requests */
};

/* The rules service. */
struct weir__admin_config {
    const struct weir__listener *listener; /* NULL: none */
    const char *database;                  /* "sqlite:PATH" or "postgresql://…" */
    struct weir__place database_place;
    int64_t session_ms;
    int key_texts; /* the least role that sees the texts of keys: 1 viewer, 2 editor, 3 operator */
    /* What root read and bound for an agent of another user (handover.h). */
    const char *certificate, *key; /* their texts; NULL: read the files */
    int socket;                    /* bound to the listener's address; 0: none, -1: that failed */
};

/* How loaded the host is: what tells it, and what is done about it. */
struct weir__load_config {
    bool on;                      /* the file has such a section */
    double target[WEIR__SIGNALS]; /* what counts as full: shares, tasks a processor, times the baseline, requests; 0:
                                     the signal is off */
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
    bool segment_is_ours; /* the path is the default */
    int64_t segment_bytes;
    int64_t hot_bytes; /* of the file of hot keys beside the segment; 0: none */
    bool hot_hash;     /* without texts of keys */
    struct weir__place hot_place;
    struct weir__load_config load;
    int64_t workers;  /* 0: as many as processors */
    const char *user; /* of the workers, when root starts them */
    const char *agent_user;
    struct weir__place user_place, agent_user_place;
    bool dropped; /* of an agent that root started: it is another user now (privilege.h) */

    struct weir__listener *listeners; /* of the gateway and of the service; room for WEIR__LISTENERS_MAX */
    size_t listener_count;
    struct weir__access access;
    struct weir__forward_auth auth;
    struct weir__store store;
    bool rls_headers, rls_metadata, rls_count_denied;
    struct weir__route *routes;
    size_t route_count;
    int64_t keepalive, max_fails, fail_ms;
    int64_t connect_ms, read_ms, send_ms;
    int64_t body_bytes; /* 0: any */
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

    const char *state_path; /* the folder for what must outlive a restart: the last good rules, the database */
    struct weir__place state_place;
    struct weir__admin_config admin;
    struct weir__origin origin;
    struct weir__queue_config queue;
    /*
     * With an origin or a rules service the rules in force are a file that the agent writes, in the state folder: then
     * rules_path is that one, and what `rules` names is what the database begins with.
     */
    bool published;
    const char *import_path; /* or NULL, and: */
    weir_text import_text;   /* empty: nothing */

    const char *rules_path; /* or NULL, and the rules are in the file: */
    weir_text rules_text;   /* the file with everything else blanked out, so that places stay as they are */
    struct weir__place rules_place;
};

/*
 * Reads the file. 0; or WEIR_ERULES, WEIR_ERULESPATH after it was told to `diagnose`, or WEIR_ENOMEM. Free it with
 * weir__config_free in any case.
 */
int weir__config_load(struct weir__config *config, const char *file, weir_diagnose *diagnose, void *context);
void weir__config_free(struct weir__config *config);
/* Overwrites what only weir serve and nginx need: the text of the file, and the service's tokens and passwords. */
void weir__config_wipe(struct weir__config *config);

/* ---- For the parts of the reader ---- */

struct weir__reader {
    struct weir__config *config;
    struct weir__report *report;
};

const char *weir__config_text(struct weir__reader *reader, weir_text text);
/* A path, made absolute: relative ones begin at the folder of the file. NULL after a report. */
const char *weir__config_path(struct weir__reader *reader, const struct weir__node *node, const char *what);
/* "64MiB", "512KiB", "1GiB", or bytes. */
bool weir__config_size(struct weir__reader *reader, const struct weir__node *node, const char *what, int64_t min,
                       int64_t *bytes);
/* A time in milliseconds, at most a day. */
bool weir__config_ms(struct weir__reader *reader, const struct weir__node *node, const char *what, int64_t *ms);
/* Where to listen. */
bool weir__config_listener(struct weir__reader *reader, const struct weir__node *node, const char *what,
                           struct weir__listener *listener);
/* Nobody but this machine can reach it. */
bool weir__config_is_loopback(const struct weir__listener *listener);
/* "http://host:port", "https://…" or "unix:/path". */
bool weir__config_server(struct weir__reader *reader, const struct weir__node *node, struct weir__server *server);

/* A listener as an address, or as a map with one; added to the configuration's. */
void weir__config_listen(struct weir__reader *reader, const struct weir__node *node, const char *what,
                         enum weir__listener_kind kind, const struct weir__tls *common);
/* False after a report. */
bool weir__config_tls(struct weir__reader *reader, const struct weir__node *node, struct weir__tls *tls);

void weir__config_gateway(struct weir__reader *reader, const struct weir__node *gateway);
void weir__config_service(struct weir__reader *reader, const struct weir__node *service);
void weir__config_store(struct weir__reader *reader, const struct weir__node *store);
void weir__config_load_level(struct weir__reader *reader, const struct weir__node *load);
void weir__config_rules(struct weir__reader *reader, const struct weir__node *root);
/* After weir__config_control: `queue`. */
void weir__config_queue(struct weir__reader *reader, const struct weir__node *root);
/* A path in the state folder, behind `before`. NULL: it is too long. */
const char *weir__config_in_state(struct weir__reader *reader, const char *name, const char *before);
/* `admin`, `rules_db` and `state`; and rules that come from another host. */
void weir__config_control(struct weir__reader *reader, const struct weir__node *root);
/* After weir__config_rules: where the rules in force are, if they are published. */
void weir__config_publish(struct weir__reader *reader);
/* True if `rules` names another host's: "https://…", or a map with such a url. */
bool weir__config_is_origin(const struct weir__node *rules);

#endif
