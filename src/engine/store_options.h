/* Options of the store: parsed and checked from a URL and from named options. */
#ifndef WEIR_ENGINE_STORE_OPTIONS_H
#define WEIR_ENGINE_STORE_OPTIONS_H

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
        char name[256]; /* host name, address without brackets, or path */
        uint16_t port;
    } seeds[WEIR__STORE_SEEDS]; /* the server; sentinels; some nodes of the cluster */
    size_t seed_count;
    char master[128]; /* Sentinel: name of the master */
    char user[128], password[512];
    char sentinel_user[128], sentinel_password[512];
    int database;
    char prefix[65];
    bool hash_keys;
    /* TLS files; empty: the system's CAs, no client certificate. */
    char ca[512], certificate[512], key[512], server_name[256];
    bool no_verify;

    int64_t deadline_us;                /* of a request (20 ms) */
    int64_t connect_us;                 /* for connecting, with handshake (1 s) */
    int64_t sync_interval_us;           /* between two sync rounds (50 ms) */
    unsigned breaker_failures;          /* in a row, that open the circuit breaker (5) */
    int64_t retry_min_us, retry_max_us; /* interval of probes (50 ms to 1 s, with jitter) */
    int64_t heartbeat_us;               /* without a reply for so long, a driver's timer checks the server (5 s) */
};

/*
 * redis://[user:password@]host[:port][/database][?name=value&…], rediss://, redis+unix:///path[?…],
 * redis+sentinel://host[:port],host…/master[/database], rediss+sentinel://, redis+cluster://host,host…,
 * rediss+cluster://, and valkey… for redis… Names: those of weir__store_option; options that are not named get their
 * defaults. 0, or WEIR_ESTOREURL and a message, without the password, in `why`.
 */
int weir__store_parse(const char *url, struct weir__store_options *options, char *why, size_t why_size);
/*
 * Sets one option by name (deadline, connect_timeout, sync_interval, prefix, hash_keys, ca, certificate, key,
 * server_name, verify, user, password, sentinel_user, sentinel_password, breaker_failures, retry_min, retry_max,
 * heartbeat) from text; durations as "20ms", "1s". Returns as weir__store_parse.
 */
int weir__store_option(struct weir__store_options *options, const char *name, const char *value, char *why,
                       size_t why_size);
/* Checks that the options are consistent. weir__store_parse does so; needed again after weir__store_option. */
int weir__store_fits(const struct weir__store_options *options, char *why, size_t why_size);
/* The URL without secrets, for display. */
void weir__store_shown(const struct weir__store_options *options, char *to, size_t size);

#endif
