/* Where the store is and how patient a host is with it: an URL and what goes with it, checked. */
#ifndef WEIR_REMOTE_OPTIONS_H
#define WEIR_REMOTE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weir__store_kind { WEIR__SINGLE, WEIR__SENTINEL, WEIR__CLUSTER };

#define WEIR__STORE_SEEDS 16

struct weir__store_options {
    enum weir__store_kind kind;
    bool tls;
    bool unix_socket; /* redis+unix:///path */
    struct weir__store_host {
        char name[256]; /* or an address without brackets, or a path */
        uint16_t port;
    } seeds[WEIR__STORE_SEEDS]; /* the server; the sentinels; some nodes of the cluster */
    size_t seed_count;
    char master[128]; /* Sentinel: what the master is called */
    char user[128], password[512];
    char sentinel_user[128], sentinel_password[512];
    int database;
    char prefix[65];
    bool hash_keys;
    /* TLS: files; empty: the system's authorities, no certificate of our own. */
    char ca[512], certificate[512], key[512], server_name[256];
    bool no_verify;

    int64_t deadline_us;                /* 20 ms: how long a request waits */
    int64_t connect_us;                 /* 1 s: how long a connection may take, handshake and all */
    int64_t sync_interval_us;           /* 50 ms */
    unsigned breaker_failures;          /* 5 in a row, and the store is taken for away */
    int64_t retry_min_us, retry_max_us; /* 50 ms to 1 s, with jitter: between looks whether it is back */
};

/*
 * redis://[user:password@]host[:port][/database][?name=value&…], rediss://, redis+unix:///path[?…],
 * redis+sentinel://host[:port],host…/master[/database], rediss+sentinel://, redis+cluster://host,host…,
 * rediss+cluster://, and valkey… for redis… Names: those of weir__store_option. Everything not named gets its default.
 * 0, or WEIR_ESTOREURL and a sentence about what is wrong, without the password, in `why`.
 */
int weir__store_parse(const char *url, struct weir__store_options *options, char *why, size_t why_size);
/*
 * One option by its name (deadline, connect_timeout, sync_interval, prefix, hash_keys, ca, certificate, key,
 * server_name, verify, user, password, sentinel_user, sentinel_password, breaker_failures, retry_min, retry_max) as
 * text: durations as "20ms", "1s". The same errors.
 */
int weir__store_option(struct weir__store_options *options, const char *name, const char *value, char *why,
                       size_t why_size);
/* Do they go together? weir__store_parse ops that of the URL; who sets options after it ops again. The same errors.
 */
int weir__store_fits(const struct weir__store_options *options, char *why, size_t why_size);
/* The URL as it may be shown: without secrets. */
void weir__store_shown(const struct weir__store_options *options, char *to, size_t size);

#endif
