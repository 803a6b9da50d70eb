/* weir top: the list of hosts. See top.h. */
#include "stats/top.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MORE 58 /* width of the other columns */
#define NAME_MIN     10
#define RULES_DIGITS 7

static double value_of(const struct weir__host_status *host, enum weir__top_sort sort)
{
    return sort == WEIR__BY_LEVEL  ? host->heartbeat.level
           : sort == WEIR__BY_SEEN ? (double)host->ago_ms
                                   : weir__top_value(&host->heartbeat.rates, sort);
}

struct order {
    const struct weir__host_status *hosts;
    enum weir__top_sort sort;
};

static int by_sort(const void *a, const void *b, void *context)
{
    const struct order *order = context;
    const struct weir__host_status *left = &order->hosts[*(const size_t *)a],
                                   *right = &order->hosts[*(const size_t *)b];
    int names = weir__top_compare(value_of(left, order->sort), value_of(right, order->sort), left->heartbeat.name,
                                  right->heartbeat.name);
    return names ? names : strcmp(left->heartbeat.id, right->heartbeat.id);
}

/* "0s", "45s", "3m": four columns. */
static const char *ago(int64_t ms, char buffer[8])
{
    int64_t seconds = ms / 1000;
    if (seconds < 100)
        snprintf(buffer, 8, "%ds", (int)seconds);
    else
        snprintf(buffer, 8, "%dm", (int)(seconds / 60 < 999 ? seconds / 60 : 999));
    return buffer;
}

static const char *store_word(enum weir__host_store store)
{
    return store == WEIR__HOST_STORE_UNKNOWN       ? "?"
           : store == WEIR__HOST_STORE_UNAVAILABLE ? "DOWN"
                                                   : weir__host_store_name(store);
}

static void draw_host(struct weir__top *top, const struct weir__host_status *host, bool chosen, int wide)
{
    const struct weir__heartbeat *heartbeat = &host->heartbeat;
    const struct weir__rates *rates = &heartbeat->rates;
    char name[96], version[32], received[8], level[8] = "-", rules[WEIR__HOST_ID + 2] = "-", text[80];
    char a[16], b[16], c[16], d[16];
    bool here = host->via == WEIR__HOST_SELF;
    weir__printable((weir_text){heartbeat->name, strlen(heartbeat->name)}, text, (size_t)wide + 1 - (here ? 2 : 0));
    snprintf(name, sizeof name, "%s%s", text, here ? " *" : "");
    weir__printable((weir_text){heartbeat->version, strlen(heartbeat->version)}, version, sizeof version);
    if (heartbeat->level >= 0)
        snprintf(level, sizeof level, "%.0f", heartbeat->level);
    if (heartbeat->rules)
        snprintf(rules, sizeof rules, "%0*" PRIx64 "%s", RULES_DIGITS, heartbeat->rules >> (64 - 4 * RULES_DIGITS),
                 host->differs ? "!" : "");
    bool bad = host->silent || heartbeat->store == WEIR__HOST_STORE_UNAVAILABLE;
    bool odd = host->differs || weir__top_value(rates, WEIR__BY_SHARE) > 0.1;
    const char *style = chosen ? "7" : bad ? "31" : odd ? "33" : "";
    weir__top_line(top, style, "%-*s %4s %6s %6s %6s %6s %3s %5s %-8s %s", wide, name, ago(host->ago_ms, received),
                   rates->known ? weir__top_number(rates->allowed, a) : "-",
                   rates->known ? weir__top_number(rates->denied, b) : "-",
                   rates->known ? weir__top_number(rates->shed, c) : "-",
                   rates->known ? weir__top_number(rates->delayed, d) : "-", level,
                   host->silent ? "GONE?" : store_word(heartbeat->store), rules, version);
}

void weir__top_hosts(struct weir__top *top, size_t space)
{
    const struct weir__membership *membership = top->membership;
    int wide = top->screen->width - COLUMNS_MORE;
    wide = wide < NAME_MIN ? NAME_MIN : wide > WEIR__HEARTBEAT_NAME_MAX ? WEIR__HEARTBEAT_NAME_MAX : wide;
    struct order order = {membership->hosts, top->sort};
    size_t *at = calloc(membership->count + 1, sizeof *at);
    weir__top_line(top, "1", "%-*s %4s %6s %6s %6s %6s %3s %5s %-8s %s", wide, "HOST", "SEEN", "ALLOW", "DENY", "SHED",
                   "DELAY", "LVL", "STORE", "RULES", "WEIR");
    for (size_t i = 0; i < membership->count && at; i++)
        at[i] = i;
    if (at && membership->count)
        qsort_r(at, membership->count, sizeof *at, by_sort, &order);
    top->hosts = membership->count;
    if (top->host >= top->hosts)
        top->host = top->hosts ? top->hosts - 1 : 0;
    size_t show = space ? space : membership->count, first = space && top->host >= space ? top->host - space + 1 : 0;
    for (size_t i = first; at && i < membership->count && i < first + show; i++)
        draw_host(top, &membership->hosts[at[i]], !top->screen->plain && i == top->host, wide);
    int64_t more =
        (int64_t)(first + show < membership->count ? membership->count - first - show : 0) + membership->left_out;
    if (more)
        weir__top_line(top, "2", "... %" PRId64 " more", more);
    free(at);
}

void weir__top_membership(struct weir__top *top)
{
    const struct weir__membership *membership = top->membership;
    char why[WEIR__HOSTS_WHY], silent[32] = "", differ[48] = "";
    bool unavailable = membership->store == WEIR__HOST_STORE_UNAVAILABLE;
    if (membership->count + (size_t)membership->left_out < 2 && !unavailable)
        return;
    if (membership->silent)
        snprintf(silent, sizeof silent, ", %zu SILENT", membership->silent);
    if (membership->differ)
        snprintf(differ, sizeof differ, ", other rules on %zu", membership->differ);
    weir__printable((weir_text){membership->why, strlen(membership->why)}, why, sizeof why);
    weir__top_line(top,
                   unavailable || membership->silent ? "31"
                   : membership->differ              ? "33"
                                                     : "",
                   "hosts    %zu running%s%s%s%s", membership->count - membership->silent, silent, differ,
                   unavailable ? "; the store is DOWN: " : "", unavailable ? why : "");
}
