/* The agent's heartbeat sender. See membership.h. */
#include "base/clock.h"
#include "base/sidecar.h"
#include "stats/membership.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_US INT64_C(500000)
#define READ_EACH_MS                                                                                                   \
    20 /* per host: n hosts read the list every 20 n ms, so that the total load grows with n, not with its square */

struct weir__heartbeat_sender {
    const struct weir__config *config;
    const struct weir__logger *log;
    char path[4096], lines[4096];
    struct weir__store_options options;
    struct weir__heartbeat_store *link; /* NULL: no store */
    struct weir__host_list received;    /* the store's list, as of the last read */
    struct weir__host_list list;        /* written to the .hosts file */
    int64_t due_ms;                     /* next read of the store's list */
    int error;                          /* of the last exchange */
    bool refused;                       /* it was logged that the store refuses heartbeats */
    char id[WEIR__HOST_ID + 1];
};

bool weir__heartbeat_sender_wanted(const struct weir__config *config)
{
    return config->store.url || config->admin.listener;
}

static bool link_open(struct weir__heartbeat_sender *sender)
{
    char url[8192], why[256] = "";
    if (!sender->config->store.url)
        return true;
    if (!weir__store_url(&sender->config->store, url, sizeof url, why, sizeof why) ||
        weir__store_parse(url, &sender->options, why, sizeof why) != 0) {
        weir__logf(sender->log, WEIR__LOG_ERROR, "store: %s", why);
        return false;
    }
    sender->link = weir__heartbeat_store_new(&sender->options, PATIENCE_US);
    return sender->link != NULL;
}

struct weir__heartbeat_sender *weir__heartbeat_sender_new(const struct weir__config *config,
                                                          const struct weir__logger *log)
{
    struct weir__heartbeat_sender *sender = calloc(1, sizeof *sender);
    if (!sender)
        return NULL;
    *sender = (struct weir__heartbeat_sender){.config = config, .log = log};
    sender->received.hosts = calloc(WEIR__HOSTS_MAX, sizeof *sender->received.hosts);
    sender->list.hosts = calloc(WEIR__HOSTS_MAX, sizeof *sender->list.hosts);
    snprintf(sender->path, sizeof sender->path, "%s.hosts", config->segment_path);
    snprintf(sender->lines, sizeof sender->lines, "%s.hosts.lines", config->segment_path);
    if (sender->received.hosts && sender->list.hosts && link_open(sender))
        return sender;
    weir__heartbeat_sender_free(sender);
    return NULL;
}

void weir__heartbeat_sender_free(struct weir__heartbeat_sender *sender)
{
    if (!sender)
        return;
    if (sender->link && *sender->id && !sender->error)
        weir__heartbeat_store_leave(sender->link, sender->id);
    weir__heartbeat_store_free(sender->link);
    weir__host_list_free(&sender->received);
    weir__host_list_free(&sender->list);
    free(sender);
}

/* ---- The store ---- */

/* Logs, once, that the store refuses heartbeats, and that it accepts them again. The sync exchange already logs that a
 * store is unavailable. */
static void log_refusal(struct weir__heartbeat_sender *sender, int error, const char *why)
{
    bool refused = error == WEIR_ESTOREAUTH || error == WEIR_ESTOREERROR || error == WEIR_ESTOREWRONGTYPE;
    if (refused && !sender->refused)
        weir__logf(sender->log, WEIR__LOG_WARNING, "the store refuses heartbeats: %s", why);
    if (!error && sender->refused)
        weir__logf(sender->log, WEIR__LOG_INFO, "the store accepts heartbeats again");
    sender->refused = error ? refused || sender->refused : false;
}

static void exchange_with_store(struct weir__heartbeat_sender *sender, struct weir__heartbeat *self, int64_t now_ms)
{
    int64_t count = 0;
    bool reads = now_ms >= sender->due_ms;
    enum weir__host_store seen = self->store; /* as the sync exchange sees it; UNKNOWN: there is none */
    if (seen != WEIR__HOST_STORE_UNAVAILABLE)
        self->store = WEIR__HOST_STORE_UP; /* the store can only receive this if it is up */
    sender->list.why[0] = 0;
    int error =
        weir__heartbeat_store_exchange(sender->link, self, reads ? &sender->received : NULL, &count, sender->list.why);
    log_refusal(sender, error, sender->list.why);
    sender->error = error;
    sender->list.store = error ? WEIR__HOST_STORE_UNAVAILABLE : WEIR__HOST_STORE_UP;
    if (error && seen == WEIR__HOST_STORE_UNKNOWN)
        self->store = WEIR__HOST_STORE_UNAVAILABLE;
    else if (error)
        self->store = seen;
    if (error)
        return;
    if (reads)
        sender->due_ms = now_ms + (count < WEIR__HOSTS_MAX ? count : WEIR__HOSTS_MAX) * READ_EACH_MS;
    sender->received.left_out = count > WEIR__HOSTS_MAX ? count - WEIR__HOSTS_MAX : 0;
}

/* ---- The .hosts file ---- */

static void add_received(struct weir__heartbeat_sender *sender, const char *self, int64_t now_ms)
{
    struct weir__host_list *list = &sender->list;
    /* Between two reads of the list, its ages stay as they were read. */
    int64_t late_ms = now_ms > sender->due_ms ? now_ms - sender->due_ms : 0;
    for (size_t i = 0; i < sender->received.count; i++) {
        struct weir__host_status *received = &sender->received.hosts[i];
        int64_t ago_ms = received->ago_ms + late_ms;
        if (strcmp(received->heartbeat.id, self) == 0 || ago_ms > WEIR__HOSTS_FORGET_MS)
            continue;
        if (list->count == WEIR__HOSTS_MAX) {
            list->left_out++;
            continue;
        }
        list->hosts[list->count] = *received;
        list->hosts[list->count++].ago_ms = ago_ms;
    }
}

static void write_lines(const struct weir__heartbeat_sender *sender)
{
    char text[512];
    int64_t silent = 0, all = (int64_t)sender->list.count + sender->list.left_out;
    for (size_t i = 0; i < sender->list.count; i++)
        silent += sender->list.hosts[i].ago_ms > weir__heartbeat_timeout_ms(&sender->list.hosts[i].heartbeat);
    int len =
        snprintf(text, sizeof text,
                 "# HELP weir_hosts Hosts that this one has heard of in the last five minutes, itself among them.\n"
                 "# TYPE weir_hosts gauge\n"
                 "weir_hosts{state=\"running\"} %" PRId64 "\nweir_hosts{state=\"silent\"} %" PRId64 "\n",
                 all - silent, silent);
    (void)weir__sidecar_write(sender->lines, text, (size_t)len);
}

void weir__heartbeat_sender_run(struct weir__heartbeat_sender *sender, struct weir__heartbeat *self,
                                struct weir__subscribers *subscribers)
{
    struct weir__host_list *list = &sender->list;
    size_t len = 0;
    memcpy(sender->id, self->id, sizeof sender->id);
    if (sender->link)
        exchange_with_store(sender, self, (int64_t)weir__coarse_ms());
    int64_t now_ms = (int64_t)weir__coarse_ms(); /* the exchange may have blocked */
    list->left_out = sender->received.left_out;
    list->written_ms = now_ms;
    list->count = 1;
    list->hosts[0] = (struct weir__host_status){*self, 0, .via = WEIR__HOST_SELF};
    add_received(sender, self->id, now_ms);
    weir__subscribers_append(subscribers, list, now_ms);
    char *text = weir__host_list_format(list, &len);
    if (text)
        (void)weir__sidecar_write(sender->path, text, len);
    free(text);
    write_lines(sender);
}
