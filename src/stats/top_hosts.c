/* The hosts of weir top. See top_internal.h. */
#define _GNU_SOURCE /* qsort_r */
#include "stats/top_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MORE 58 /* besides the name */
#define NAME_MIN     10
#define RULES_DIGITS 7

static double share_of(const struct weir__rates *rates)
{
    double all = rates->allowed + rates->denied + rates->delayed;
    return all > 0 ? rates->denied / all : 0;
}

static double value_of(const struct weir__fleet_host *host, enum weir__top_sort sort)
{
    const struct weir__rates *rates = &host->told.rates;
    switch (sort) {
    case WEIR__BY_ALLOWED:
        return rates->allowed;
    case WEIR__BY_DENIED:
        return rates->denied;
    case WEIR__BY_DELAYED:
        return rates->delayed;
    case WEIR__BY_SHED:
        return rates->shed;
    case WEIR__BY_SHARE:
        return share_of(rates);
    case WEIR__BY_LEVEL:
        return host->told.level;
    case WEIR__BY_HEARD:
        return (double)host->heard_ms;
    default:
        return 0;
    }
}

struct order {
    const struct weir__fleet_host *hosts;
    enum weir__top_sort sort;
};

static int by_sort(const void *a, const void *b, void *context)
{
    const struct order *order = context;
    const struct weir__fleet_host *left = &order->hosts[*(const size_t *)a], *right = &order->hosts[*(const size_t *)b];
    double l = value_of(left, order->sort), r = value_of(right, order->sort);
    if (l < r || l > r)
        return l < r ? 1 : -1;
    int names = strcmp(left->told.name, right->told.name);
    return names ? names : strcmp(left->told.id, right->told.id);
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

static const char *store_word(enum weir__fleet_store store)
{
    return store == WEIR__FLEET_STORE_UNKNOWN ? "?"
           : store == WEIR__FLEET_STORE_AWAY  ? "AWAY"
                                              : weir__fleet_store_name(store);
}

static void draw_host(struct weir__canvas *canvas, const struct weir__fleet_host *host, bool chosen, int wide)
{
    const struct weir__told *told = &host->told;
    const struct weir__rates *rates = &told->rates;
    char name[96], version[32], heard[8], level[8] = "-", rules[WEIR__FLEET_ID + 2] = "-", text[80];
    char a[16], b[16], c[16], d[16];
    bool here = host->via == WEIR__FLEET_HERE;
    weir__printable((weir_text){told->name, strlen(told->name)}, text, (size_t)wide + 1 - (here ? 2 : 0));
    snprintf(name, sizeof name, "%s%s", text, here ? " *" : "");
    weir__printable((weir_text){told->version, strlen(told->version)}, version, sizeof version);
    if (told->level >= 0)
        snprintf(level, sizeof level, "%.0f", told->level);
    if (told->rules)
        snprintf(rules, sizeof rules, "%0*" PRIx64 "%s", RULES_DIGITS, told->rules >> (64 - 4 * RULES_DIGITS),
                 host->differs ? "!" : "");
    const char *style = chosen                                   ? "7"
                        : host->silent                           ? "31"
                        : told->store == WEIR__FLEET_STORE_AWAY  ? "31"
                        : host->differs || share_of(rates) > 0.1 ? "33"
                                                                 : "";
    weir__top_line(
        canvas, style, "%-*s %4s %6s %6s %6s %6s %3s %5s %-8s %s", wide, name, ago(host->heard_ms, heard),
        rates->known ? weir__top_brief(rates->allowed, a) : "-", rates->known ? weir__top_brief(rates->denied, b) : "-",
        rates->known ? weir__top_brief(rates->shed, c) : "-", rates->known ? weir__top_brief(rates->delayed, d) : "-",
        level, host->silent ? "GONE?" : store_word(told->store), rules, version);
}

void weir__top_hosts(struct weir__top *top, struct weir__canvas *canvas, size_t space)
{
    const struct weir__fleet *fleet = top->fleet;
    int wide = canvas->screen->width - COLUMNS_MORE;
    wide = wide < NAME_MIN ? NAME_MIN : wide > WEIR__FLEET_NAME_MAX ? WEIR__FLEET_NAME_MAX : wide;
    struct order order = {fleet->hosts, top->sort};
    size_t *at = calloc(fleet->count + 1, sizeof *at);
    weir__top_line(canvas, "1", "%-*s %4s %6s %6s %6s %6s %3s %5s %-8s %s", wide, "HOST", "SEEN", "ALLOW", "DENY",
                   "SHED", "DELAY", "LVL", "STORE", "RULES", "WEIR");
    for (size_t i = 0; i < fleet->count && at; i++)
        at[i] = i;
    if (at && fleet->count)
        qsort_r(at, fleet->count, sizeof *at, by_sort, &order);
    top->hosts = fleet->count;
    if (top->host >= top->hosts)
        top->host = top->hosts ? top->hosts - 1 : 0;
    size_t show = space ? space : fleet->count, first = space && top->host >= space ? top->host - space + 1 : 0;
    for (size_t i = first; at && i < fleet->count && i < first + show; i++)
        draw_host(canvas, &fleet->hosts[at[i]], !canvas->screen->plain && i == top->host, wide);
    int64_t more = (int64_t)(first + show < fleet->count ? fleet->count - first - show : 0) + fleet->left_out;
    if (more)
        weir__top_line(canvas, "2", "... %" PRId64 " more", more);
    free(at);
}

void weir__top_fleet(const struct weir__top *top, struct weir__canvas *canvas)
{
    const struct weir__fleet *fleet = top->fleet;
    char why[WEIR__FLEET_WHY], silent[32] = "", differ[48] = "";
    bool away = fleet->store == WEIR__FLEET_STORE_AWAY;
    if (fleet->count + (size_t)fleet->left_out < 2 && !away)
        return;
    if (fleet->silent)
        snprintf(silent, sizeof silent, ", %zu SILENT", fleet->silent);
    if (fleet->differ)
        snprintf(differ, sizeof differ, ", other rules on %zu", fleet->differ);
    weir__printable((weir_text){fleet->why, strlen(fleet->why)}, why, sizeof why);
    weir__top_line(canvas,
                   away || fleet->silent ? "31"
                   : fleet->differ       ? "33"
                                         : "",
                   "hosts    %zu running%s%s%s%s", fleet->count - fleet->silent, silent, differ,
                   away ? "; the store is AWAY: " : "", away ? why : "");
}
