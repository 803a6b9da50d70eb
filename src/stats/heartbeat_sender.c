/* The agent's part of the fleet. See heartbeat_sender.h. */
#include "stats/heartbeat_sender.h"
#include "base/clock.h"
#include "base/sidecar.h"
#include "stats/membership_internal.h"
#include "stats/subscribers.h"
#include "config/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_US  INT64_C(500000)
#define READ_EACH_MS 20 /* and host: what all hosts together read grows with them, and not with their square */

struct weir__fleet_teller {
    const struct weir__config *config;
    const struct weir__logger *log;
    struct weir__host *host;
    char path[4096], lines[4096];
    struct weir__store_options options;
    struct weir__fleet_link *link; /* NULL: no store */
    struct weir__fleet_list heard; /* from the store, when it was last read */
    struct weir__fleet_list list;  /* that is written down */
    int64_t due_ms;                /* when it is read again */
    int error;                     /* of the last turn */
    char id[WEIR__FLEET_ID + 1];
};

bool weir__fleet_wanted(const struct weir__config *config)
{
    return config->store.url || config->admin.listener;
}

static bool link_open(struct weir__fleet_teller *teller)
{
    char url[8192], why[256] = "";
    if (!teller->config->store.url)
        return true;
    if (!weir__store_url(&teller->config->store, url, sizeof url, why, sizeof why) ||
        weir__store_parse(url, &teller->options, why, sizeof why) != 0) {
        weir__logf(teller->log, WEIR__LOG_ERROR, "store: %s", why);
        return false;
    }
    teller->link = weir__fleet_link_new(&teller->options, PATIENCE_US);
    return teller->link != NULL;
}

struct weir__fleet_teller *weir__fleet_teller_new(const struct weir__config *config, struct weir__host *host,
                                                  const struct weir__logger *log)
{
    struct weir__fleet_teller *teller = calloc(1, sizeof *teller);
    if (!teller)
        return NULL;
    *teller = (struct weir__fleet_teller){.config = config, .log = log, .host = host};
    teller->heard.hosts = calloc(WEIR__FLEET_MAX, sizeof *teller->heard.hosts);
    teller->list.hosts = calloc(WEIR__FLEET_MAX, sizeof *teller->list.hosts);
    snprintf(teller->path, sizeof teller->path, "%s.hosts", config->segment_path);
    snprintf(teller->lines, sizeof teller->lines, "%s.hosts.lines", config->segment_path);
    if (teller->heard.hosts && teller->list.hosts && link_open(teller))
        return teller;
    weir__fleet_teller_free(teller);
    return NULL;
}

void weir__fleet_teller_free(struct weir__fleet_teller *teller)
{
    if (!teller)
        return;
    if (teller->link && *teller->id && !teller->error)
        weir__fleet_link_leave(teller->link, teller->id);
    weir__fleet_link_free(teller->link);
    weir__fleet_list_free(&teller->heard);
    weir__fleet_list_free(&teller->list);
    free(teller);
}

/* ---- The store ---- */

/* That the store is away is told by who exchanges with it; that it refuses this alone is told here, once. */
static void complain(struct weir__fleet_teller *teller, int error, const char *why)
{
    bool refused = error == WEIR_ESTOREAUTH || error == WEIR_ESTOREERROR || error == WEIR_ESTOREWRONGTYPE;
    if (refused && error != teller->error)
        weir__logf(teller->log, WEIR__LOG_WARNING, "the store does not say which hosts there are: %s", why);
}

static void ask_store(struct weir__fleet_teller *teller, struct weir__told *self, int64_t now_ms)
{
    int64_t count = 0;
    bool reads = now_ms >= teller->due_ms;
    enum weir__fleet_store seen = self->store; /* by the exchange; UNKNOWN: there is none */
    if (seen != WEIR__FLEET_STORE_AWAY)
        self->store = WEIR__FLEET_STORE_UP; /* or nobody hears it */
    teller->list.why[0] = 0;
    int error = weir__fleet_link_tell(teller->link, self, reads ? &teller->heard : NULL, &count, teller->list.why);
    complain(teller, error, teller->list.why);
    teller->error = error;
    teller->list.store = error ? WEIR__FLEET_STORE_AWAY : WEIR__FLEET_STORE_UP;
    if (error && seen == WEIR__FLEET_STORE_UNKNOWN)
        self->store = WEIR__FLEET_STORE_AWAY;
    else if (error)
        self->store = seen;
    if (error)
        return;
    if (reads)
        teller->due_ms = now_ms + (count < WEIR__FLEET_MAX ? count : WEIR__FLEET_MAX) * READ_EACH_MS;
    teller->heard.left_out = count > WEIR__FLEET_MAX ? count - WEIR__FLEET_MAX : 0;
}

/* ---- Writing down ---- */

static void add_heard(struct weir__fleet_teller *teller, const char *self, int64_t now_ms)
{
    struct weir__fleet_list *list = &teller->list;
    /* Until the next time to read, what was read counts as it was. */
    int64_t late_ms = now_ms > teller->due_ms ? now_ms - teller->due_ms : 0;
    for (size_t i = 0; i < teller->heard.count; i++) {
        struct weir__heard *heard = &teller->heard.hosts[i];
        int64_t ago_ms = heard->ago_ms + late_ms;
        if (strcmp(heard->told.id, self) == 0 || ago_ms > WEIR__FLEET_FORGET_MS)
            continue;
        if (list->count == WEIR__FLEET_MAX) {
            list->left_out++;
            continue;
        }
        list->hosts[list->count] = *heard;
        list->hosts[list->count++].ago_ms = ago_ms;
    }
}

static void write_lines(const struct weir__fleet_teller *teller)
{
    char text[512];
    int64_t silent = 0, all = (int64_t)teller->list.count + teller->list.left_out;
    for (size_t i = 0; i < teller->list.count; i++)
        silent += teller->list.hosts[i].ago_ms > weir__told_patience_ms(&teller->list.hosts[i].told);
    int len =
        snprintf(text, sizeof text,
                 "# HELP weir_hosts Hosts that this one has heard of in the last five minutes, itself among them.\n"
                 "# TYPE weir_hosts gauge\n"
                 "weir_hosts{state=\"running\"} %" PRId64 "\nweir_hosts{state=\"silent\"} %" PRId64 "\n",
                 all - silent, silent);
    (void)weir__sidecar_write(teller->lines, text, (size_t)len);
}

void weir__fleet_teller_turn(struct weir__fleet_teller *teller)
{
    struct weir__fleet_list *list = &teller->list;
    struct weir__told self;
    size_t len = 0;
    weir__host_tell(teller->host, &self);
    memcpy(teller->id, self.id, sizeof teller->id);
    if (teller->link)
        ask_store(teller, &self, (int64_t)weir__coarse_ms());
    int64_t now_ms = (int64_t)weir__coarse_ms(); /* it may have taken a while */
    list->left_out = teller->heard.left_out;
    list->written_ms = now_ms;
    list->count = 1;
    list->hosts[0] = (struct weir__heard){self, 0, WEIR__FLEET_HERE};
    add_heard(teller, self.id, now_ms);
    weir__followers_add(weir__host_followers(teller->host), list, now_ms);
    char *text = weir__fleet_text(list, &len);
    if (text)
        (void)weir__sidecar_write(teller->path, text, len);
    free(text);
    write_lines(teller);
}
