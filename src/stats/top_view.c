/* weir top: draws head, rules, keys and hosts. See top.h. */
#include "stats/top.h"
#include "stats/host_queries.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS_ONCE    5
#define HEAD_LINES   9
#define COLUMNS_MORE 58 /* width of the other columns */
#define NAME_MIN     10
#define RULES_DIGITS 7

/* ---- Lines ---- */

/* Prints as many characters of a printable UTF-8 line as fit. */
static void put_cut(FILE *to, const char *line, int width)
{
    int columns = 0;
    for (const char *c = line; *c; c++) {
        columns += ((unsigned char)*c & 0xc0) != 0x80;
        if (columns > width)
            break;
        fputc(*c, to);
    }
}

/* Prints one line, cut at the width; `style` is an SGR sequence or "". Lines below the screen are left out. */
__attribute__((format(printf, 3, 4))) static void draw_line(struct weir__top *top, const char *style,
                                                            const char *format, ...)
{
    char text[1024];
    va_list args;
    if (top->height && top->line >= top->height)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool styled = *style && !top->plain;
    if (top->line++ && !top->plain)
        fputs("\r\n", top->to);
    if (styled)
        fprintf(top->to, "\033[%sm", style);
    put_cut(top->to, text, top->width);
    if (styled)
        fputs("\033[0m", top->to);
    fputs(top->plain ? "\n" : "\033[K", top->to);
}

/* "12345", "1.23M": at most six columns. */
static const char *short_number(double value, char buffer[16])
{
    static const char units[] = " kMGT";
    int unit = 0;
    while (value >= 99999.5 && unit < 4) {
        value /= 1000;
        unit++;
    }
    if (unit)
        snprintf(buffer, 16, "%.*f%c", value < 999.5 ? 1 : 0, value, units[unit]);
    else
        snprintf(buffer, 16, "%.*f", value > 0 && value < 99.95 ? 1 : 0, value);
    return buffer;
}

/* The number by which rates are sorted; 0 for other orders. */
static double rate_value(const struct weir__rates *rates, enum weir__top_sort sort)
{
    double all = rates->allowed + rates->denied + rates->delayed;
    if (sort <= WEIR__BY_SHED)
        return rates->of[sort];
    return sort == WEIR__BY_SHARE && all > 0 ? rates->denied / all : 0;
}

/* Orders by value, largest first, then by name. */
static int compare(double left, double right, const char *left_name, const char *right_name)
{
    if (left < right || left > right)
        return left < right ? 1 : -1;
    return strcmp(left_name, right_name);
}

/* ---- Values of the statistics, which have their form: members of a kind exist, or are null ---- */

static double number_in(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static bool is_set(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

static const char *text_in(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static struct weir__rates rates_in(const json_t *object)
{
    struct weir__rates rates = {.known = json_is_object(object)};
    for (int i = 0; i < 4; i++)
        rates.of[i] = number_in(object, weir__rate_names[i]);
    return rates;
}

struct weir__top_row {
    const char *name;
    bool shadow;
    struct weir__rates rates; /* totals if they are not known */
    const json_t *hot;        /* NULL: its hot keys are not sampled */
};

/* ---- The rules ---- */

static void gather(struct weir__top *top)
{
    const json_t *rules = json_object_get(top->stats, "rules"), *rule;
    size_t i;
    top->rules = 0;
    top->rows = calloc(json_array_size(rules) + 1, sizeof *top->rows);
    json_array_foreach(rules, i, rule)
    {
        const json_t *hot = json_object_get(rule, "hot"), *totals = json_object_get(rule, "totals");
        if (!top->rows)
            return;
        struct weir__top_row *row = &top->rows[top->rules++];
        *row = (struct weir__top_row){.name = text_in(rule, "name"),
                                      .shadow = is_set(rule, "shadow"),
                                      .rates = rates_in(json_object_get(json_object_get(rule, "rates"), "10s")),
                                      .hot = json_is_object(hot) ? hot : NULL};
        if (!row->rates.known) {
            row->rates = rates_in(totals);
            row->rates.known = false;
        }
        top->sheds |= number_in(totals, "shed") > 0;
    }
}

static int rules_order(const void *a, const void *b, void *context)
{
    const struct weir__top_row *left = a, *right = b;
    enum weir__top_sort sort = *(const enum weir__top_sort *)context;
    int names = compare(rate_value(&left->rates, sort), rate_value(&right->rates, sort), left->name, right->name);
    return names ? names : left->shadow - right->shadow;
}

/* Keeps the selected rule selected when the order changes. */
static void keep_chosen(struct weir__top *top)
{
    for (size_t i = 0; i < top->rules && *top->chosen_name; i++)
        if (top->rows[i].shadow == top->chosen_shadow && strcmp(top->rows[i].name, top->chosen_name) == 0)
            top->chosen = i;
    if (top->chosen >= top->rules)
        top->chosen = top->rules ? top->rules - 1 : 0;
    if (top->rules) {
        snprintf(top->chosen_name, sizeof top->chosen_name, "%s", top->rows[top->chosen].name);
        top->chosen_shadow = top->rows[top->chosen].shadow;
    }
}

/* The SHED column exists only where there is a load level. */
static int name_width(const struct weir__top *top)
{
    int wide = top->width - (top->sheds ? 58 : 50);
    return wide < 16 ? 16 : wide > 60 ? 60 : wide;
}

static void draw_rule(struct weir__top *top, const struct weir__top_row *row, bool chosen)
{
    char name[64], shown[WEIR_NAME_MAX + 16], shed[24] = "", a[16], b[16], c[16], d[16], e[16];
    int wide = name_width(top);
    snprintf(shown, sizeof shown, "%s%s", row->name, row->shadow ? " (shadow)" : "");
    weir__printable((weir_text){shown, strlen(shown)}, name,
                    (size_t)wide + 1 < sizeof name ? (size_t)wide + 1 : sizeof name);
    const char *style = chosen ? "7" : row->shadow ? "2" : rate_value(&row->rates, WEIR__BY_SHARE) > 0.1 ? "33" : "";
    if (top->sheds)
        snprintf(shed, sizeof shed, " %7s", short_number(row->rates.shed, a));
    draw_line(top, style, "%-*s %7s %7s%s %7s %6.1f%% %7s %6s", wide, name, short_number(row->rates.allowed, a),
              short_number(row->rates.denied, b), shed, short_number(row->rates.delayed, c),
              100 * rate_value(&row->rates, WEIR__BY_SHARE),
              row->hot ? short_number(number_in(json_object_get(row->hot, "uses"), "keys"), d) : "-",
              row->hot ? short_number(number_in(row->hot, "near_keys"), e) : "-");
}

static void draw_rules(struct weir__top *top)
{
    bool known = top->rules && top->rows[0].rates.known;
    draw_line(top, "1", "%-*s %7s %7s%s %7s %7s %7s %6s", name_width(top), "RULE", known ? "ALLOW/s" : "ALLOWED",
              known ? "DENY/s" : "DENIED",
              !top->sheds ? ""
              : known     ? "  SHED/s"
                          : "    SHED",
              known ? "DELAY/s" : "DELAYED", "DENIED", "KEYS", "NEAR");
    /* Keys get a third of the screen; the selected rule is always visible. */
    size_t space =
        top->height ? (size_t)(top->height > HEAD_LINES + 9 ? (top->height - HEAD_LINES) * 2 / 3 : 3) : top->rules;
    size_t first = top->chosen >= space ? top->chosen - space + 1 : 0;
    for (size_t i = first; i < top->rules && i < first + space; i++)
        draw_rule(top, &top->rows[i], !top->plain && i == top->chosen);
    if (first + space < top->rules)
        draw_line(top, "2", "... %zu more", top->rules - first - space);
}

/* ---- Keys ---- */

static int key_width(const struct weir__top *top)
{
    int wide = top->width - 24;
    return wide < 20 ? 20 : wide > 100 ? 100 : wide;
}

static void draw_key(struct weir__top *top, const json_t *key, double seconds)
{
    char text[WEIR__HOT_TEXT_MAX + 8], shown[128], a[16], b[16];
    double per = seconds > 0 ? seconds : 1; /* totals if the time that they cover is unknown */
    int wide = key_width(top);
    snprintf(text, sizeof text, "%.*s%s", WEIR__HOT_TEXT_MAX, text_in(key, "key"), is_set(key, "cut") ? "..." : "");
    weir__printable((weir_text){text, strlen(text)}, shown, (size_t)wide + 1);
    if (top->list == WEIR__KEYS_NEAR)
        draw_line(top, "", "  %-*s %8.1f%%", wide, shown, 100 * number_in(key, "used"));
    else
        draw_line(top, "", "  %-*s %9s %9s", wide, shown, short_number(number_in(key, "count") / per, a),
                  short_number(number_in(key, "error") / per, b));
}

static void draw_keys(struct weir__top *top, const struct weir__top_row *row, size_t max)
{
    static const char *const titles[] = {"most denied", "most admitted", "near their limit"};
    static const char *const lists[] = {"denied", "admitted", "near"};
    char name[64], title[128];
    int wide = key_width(top);
    double seconds = number_in(top->stats, "hot_seconds");
    const json_t *keys = json_object_get(row->hot, lists[top->list]), *key;
    size_t i;
    snprintf(title, sizeof title, "KEYS of %s, %s", weir__printable(weir__text_of(row->name), name, 32),
             titles[top->list]);
    draw_line(top, "1", "%-*s %s", wide + 2, title,
              top->list == WEIR__KEYS_NEAR ? "     USED"
              : seconds > 0                ? "   COST/s        +-"
                                           : "     COST        +-");
    if (!row->hot) {
        draw_line(top, "2", "  %s",
                  is_set(top->stats, "hot") ? "there is no room for this rule: make hot_keys larger"
                                            : "they are not noted; hot_keys in weir.yaml");
        return;
    }
    json_array_foreach(keys, i, key)
    {
        if (i < max && i < WEIR__TOP_KEYS)
            draw_key(top, key, seconds);
    }
    if (!json_array_size(keys))
        draw_line(top, "2", "  none");
}

/* ---- The hosts ---- */

static double host_value(const struct weir__host_status *host, enum weir__top_sort sort)
{
    return sort == WEIR__BY_LEVEL  ? host->heartbeat.level
           : sort == WEIR__BY_SEEN ? (double)host->ago_ms
                                   : rate_value(&host->heartbeat.rates, sort);
}

static int hosts_order(const void *a, const void *b, void *context)
{
    const struct weir__host_status *left = *(const struct weir__host_status *const *)a;
    const struct weir__host_status *right = *(const struct weir__host_status *const *)b;
    enum weir__top_sort sort = *(const enum weir__top_sort *)context;
    int names = compare(host_value(left, sort), host_value(right, sort), left->heartbeat.name, right->heartbeat.name);
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
                                                   : weir__host_store_names[store];
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
    bool odd = host->differs || rate_value(rates, WEIR__BY_SHARE) > 0.1;
    const char *style = chosen ? "7" : bad ? "31" : odd ? "33" : "";
    draw_line(top, style, "%-*s %4s %6s %6s %6s %6s %3s %5s %-8s %s", wide, name, ago(host->ago_ms, received),
              rates->known ? short_number(rates->allowed, a) : "-", rates->known ? short_number(rates->denied, b) : "-",
              rates->known ? short_number(rates->shed, c) : "-", rates->known ? short_number(rates->delayed, d) : "-",
              level, host->silent ? "GONE?" : store_word(heartbeat->store), rules, version);
}

/* Draws the list of hosts in `space` lines; 0: all of them. */
static void draw_hosts(struct weir__top *top, size_t space)
{
    const struct weir__membership *membership = top->membership;
    int wide = top->width - COLUMNS_MORE;
    wide = wide < NAME_MIN ? NAME_MIN : wide > WEIR__HEARTBEAT_NAME_MAX ? WEIR__HEARTBEAT_NAME_MAX : wide;
    const struct weir__host_status **hosts = calloc(membership->count + 1, sizeof(void *));
    draw_line(top, "1", "%-*s %4s %6s %6s %6s %6s %3s %5s %-8s %s", wide, "HOST", "SEEN", "ALLOW", "DENY", "SHED",
              "DELAY", "LVL", "STORE", "RULES", "WEIR");
    top->hosts = hosts ? membership->count : 0;
    for (size_t i = 0; i < top->hosts; i++)
        hosts[i] = &membership->hosts[i];
    if (top->hosts)
        qsort_r(hosts, top->hosts, sizeof(void *), hosts_order, &top->sort);
    if (top->host >= top->hosts)
        top->host = top->hosts ? top->hosts - 1 : 0;
    size_t show = space ? space : membership->count, first = space && top->host >= space ? top->host - space + 1 : 0;
    for (size_t i = first; i < top->hosts && i < first + show; i++)
        draw_host(top, hosts[i], !top->plain && i == top->host, wide);
    int64_t more =
        (int64_t)(first + show < membership->count ? membership->count - first - show : 0) + membership->left_out;
    if (more)
        draw_line(top, "2", "... %" PRId64 " more", more);
    free(hosts);
}

/* Draws one line about all hosts; nothing if this host is alone. */
static void draw_membership(struct weir__top *top)
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
    draw_line(top,
              unavailable || membership->silent ? "31"
              : membership->differ              ? "33"
                                                : "",
              "hosts    %zu running%s%s%s%s", membership->count - membership->silent, silent, differ,
              unavailable ? "; the store is DOWN: " : "", unavailable ? why : "");
}

/* ---- The head ---- */

static void draw_store(struct weir__top *top)
{
    const json_t *store = json_object_get(top->stats, "store");
    const char *state = text_in(store, "state");
    if (!json_is_object(store)) { /* no rule is eventual or leased */
        enum weir__host_store seen = top->membership->store;
        draw_line(top, seen == WEIR__HOST_STORE_UNAVAILABLE ? "31" : "", "store    %s; history: %s",
                  seen == WEIR__HOST_STORE_NONE          ? "none"
                  : seen == WEIR__HOST_STORE_UP          ? "up"
                  : seen == WEIR__HOST_STORE_UNAVAILABLE ? "DOWN"
                                                         : "not seen: no agent runs",
                  is_set(top->stats, "history") ? "by the agent" : "none, so rates are from two looks");
        return;
    }
    bool down = strcmp(state, "down") == 0;
    draw_line(top, down || !is_set(store, "agent") ? "31" : "",
              "store    %s, agent %s, lag %.2f s, %.0f requests, %.0f failed, %.0f keys",
              down                       ? "DOWN"
              : strcmp(state, "up") == 0 ? "up"
                                         : "not seen yet",
              is_set(store, "agent") ? "running" : "GONE", number_in(store, "lag_s"), number_in(store, "requests"),
              number_in(store, "failures"), number_in(store, "keys"));
}

/* A total of the store's: without decimals if it is short. */
static const char *total_in(const json_t *store, const char *name, char buffer[16])
{
    double value = number_in(store, name);
    if (value >= 99999.5)
        return short_number(value, buffer);
    snprintf(buffer, 16, "%.0f", value);
    return buffer;
}

/* Leased units since the ledger was made; no line before the first lease. */
static void draw_leases(struct weir__top *top)
{
    const json_t *store = json_object_get(top->stats, "store");
    char granted[16], spent[16], returned[16], expired[16], waits[16];
    if (number_in(store, "units_leased") > 0 || number_in(store, "lease_waits") > 0)
        draw_line(top, "", "leases   %s granted, %s spent, %s returned, %s expired; %s waits",
                  total_in(store, "units_leased", granted), total_in(store, "units_spent", spent),
                  total_in(store, "units_returned", returned), total_in(store, "units_expired", expired),
                  total_in(store, "lease_waits", waits));
}

/* One line of at most 80 columns; none without a load level. */
static void draw_load(struct weir__top *top)
{
    const json_t *load = json_object_get(top->stats, "load"), *classes = json_object_get(load, "shed");
    json_t *signals = json_object_get(load, "signals"), *value;
    char text[64] = "", shed[24] = "", name_text[16];
    const char *shown[2] = {"", ""}, *name;
    size_t len = 0;
    if (!json_is_object(load))
        return;
    if (!is_set(load, "known")) {
        draw_line(top, "31", "level    the agent says nothing: limits are as they are written");
        return;
    }
    /* The two highest signals explain the level. */
    for (int rank = 0; rank < 2; rank++) {
        const char *highest = NULL;
        json_object_foreach(signals, name, value)
        {
            if (strcmp(name, shown[0]) != 0 && (!highest || json_number_value(value) > number_in(signals, highest)))
                highest = name;
        }
        if (!highest || len >= sizeof text)
            break;
        shown[rank] = highest;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s %.0f", rank ? ", " : "",
                                weir__printable(weir__text_of(highest), name_text, sizeof name_text),
                                floor(fmax(number_in(signals, highest), 0)));
    }
    const char *sheds = number_in(classes, "high") > 0     ? "high"
                        : number_in(classes, "normal") > 0 ? "normal"
                        : number_in(classes, "low") > 0    ? "low"
                                                           : "";
    if (*sheds)
        snprintf(shed, sizeof shed, ", sheds %s", sheds);
    draw_line(top, number_in(load, "throttle") < 100 || *sheds ? "33" : "",
              "level    %.0f of 100 (%s), limits %.0f %%, %.0f in flight%s", floor(number_in(load, "level")), text,
              floor(number_in(load, "throttle")), number_in(load, "in_flight"), shed);
}

/* Draws which hosts the figures are of; nothing if this host is alone, or was chosen. */
static void draw_coverage(struct weir__top *top)
{
    char text[1024];
    const json_t *coverage = json_object_get(top->stats, "coverage");
    bool lacks = json_array_size(json_object_get(coverage, "missing")) > 0 || *text_in(coverage, "why");
    if (top->stale)
        draw_line(top, "31", "sums     OLD: the host did not reply");
    else if (lacks || json_array_size(json_object_get(coverage, "hosts")) > 1)
        draw_line(top, lacks ? "31" : "", "sums     of %s", weir__coverage_text(top->stats, text, sizeof text));
}

static void draw_head(struct weir__top *top)
{
    const json_t *segment = json_object_get(top->stats, "segment"), *on = json_object_get(top->stats, "host");
    const json_t *loads = json_object_get(on, "load");
    char host[48] = "", version[32], clock[16] = "", shed[32] = "", a[16], b[16], c[16], d[16];
    double load[3];
    struct weir__rates all = {0};
    time_t now = (time_t)number_in(top->stats, "at");
    struct tm local;
    weir__printable(weir__text_of(text_in(on, "name")), host, sizeof host);
    weir__printable(weir__text_of(text_in(top->stats, "version")), version, sizeof version);
    for (size_t i = 0; i < 3; i++)
        load[i] = json_number_value(json_array_get(loads, i));
    if (localtime_r(&now, &local))
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    for (size_t i = 0; i < top->rules; i++)
        if (!top->rows[i].shadow)
            weir__rates_add(&all, &top->rows[i].rates);
    draw_line(top, "1", "weir %s on %s   %s   load %.2f %.2f %.2f%s", version, host, clock, load[0], load[1], load[2],
              top->paused ? "   PAUSED" : "");
    if (top->sheds)
        snprintf(shed, sizeof shed, ", shed %s", short_number(all.shed, d));
    draw_line(top, "", "under rules%s: allowed %s, denied %s (%.1f %%)%s, delayed %s",
              all.known ? " a second" : " so far", short_number(all.allowed, a), short_number(all.denied, b),
              100 * rate_value(&all, WEIR__BY_SHARE), shed, short_number(all.delayed, c));
    draw_coverage(top);
    draw_line(top, number_in(segment, "evicted_live") > 0 ? "33" : "",
              "segment  %.1f MiB, %.1f %% full, %.0f keys evicted too early%s", number_in(segment, "bytes") / (1 << 20),
              100 * number_in(segment, "fill"), number_in(segment, "evicted_live"),
              is_set(segment, "lost") ? ", FILE LOST" : "");
    draw_store(top);
    draw_leases(top);
    draw_load(top);
    draw_membership(top);
    draw_line(top, "", "%s", "");
}

static void draw_rules_and_keys(struct weir__top *top)
{
    draw_rules(top);
    if (!top->rules)
        return;
    int left = top->height - top->line - 3;
    draw_line(top, "", "%s", "");
    draw_keys(top, &top->rows[top->chosen], left > 1 ? (size_t)left - 1 : 1);
}

/* --once: everything, one section below the other. */
static void draw_plain(struct weir__top *top)
{
    draw_rules(top);
    for (size_t i = 0; i < top->rules; i++)
        if (top->rows[i].hot && number_in(json_object_get(top->rows[i].hot, "uses"), "keys") > 0) {
            draw_line(top, "", "%s", "");
            draw_keys(top, &top->rows[i], KEYS_ONCE);
        }
    draw_line(top, "", "%s", "");
    draw_hosts(top, 0);
}

static void draw_page(struct weir__top *top)
{
    bool hosts = top->page == WEIR__TOP_HOSTS;
    int left = top->height - top->line - 3;
    if (hosts)
        draw_hosts(top, left > 1 ? (size_t)left : 1);
    else
        draw_rules_and_keys(top);
    fputs("\033[J", top->to);
    fprintf(top->to, "\033[%d;1H\033[7m", top->height);
    put_cut(top->to,
            hosts ? "q quit o rules j/k host  sort: n name a allow d deny e shed y delay l lvl t seen"
                  : "q quit o hosts j/k rule h keys  sort: n name a allow d deny e shed y delay s %",
            top->width);
    fputs("\033[0m\033[K", top->to);
}

void weir__top_draw(struct weir__top *top)
{
    top->line = 0;
    top->sheds = json_is_object(json_object_get(top->stats, "load"));
    gather(top);
    if (top->rules)
        qsort_r(top->rows, top->rules, sizeof *top->rows, rules_order, &top->sort);
    keep_chosen(top);
    if (!top->plain)
        fputs("\033[H", top->to);
    draw_head(top);
    if (top->plain)
        draw_plain(top);
    else
        draw_page(top);
    free(top->rows);
    top->rows = NULL;
}
