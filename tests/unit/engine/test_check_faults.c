/*
 * weir_open, weir_reload and weir_rules_load with the Nth call of everything that can fail failing: an error, no leak,
 * no partial state, the previous rules active, and the new ones active as soon as the fault is over.
 */
#include "nth_call.h"
#include "rules_folder.h"

#include "engine/fast_result.h"

#include <time.h>

/* ---- Calls that fail on demand ---- */

enum call { MALLOC, CALLOC, REALLOC, STRDUP, TSEARCH, ALIGNED, OPEN, READ, STAT, FSTAT, SCANDIR, CALLS };
static const char *const call_names[CALLS] = {"malloc", "calloc", "realloc", "strdup", "tsearch", "aligned_alloc",
                                              "open",   "read",   "stat",    "fstat",  "scandir"};
static bool of_zone; /* the failed call was about time zones */

static bool open_fails(const char *path)
{
    bool failed = fails(OPEN);
    of_zone |= failed && strstr(path, "/Own/");
    return failed;
}

FAILING_MALLOC(fails(MALLOC))
FAILING_CALLOC(fails(CALLOC))
FAILING_REALLOC(fails(REALLOC))
FAILING_STRDUP(fails(STRDUP))
FAILING(void *, tsearch, (const void *key, void **root, int (*compare)(const void *, const void *)),
        (key, root, compare), NULL, fails(TSEARCH))
FAILING(void *, aligned_alloc, (size_t align, size_t size), (align, size), NULL, fails(ALIGNED))
FAILING_OPEN(open_fails(path))
FAILING(ssize_t, read, (int file, void *to, size_t size), (file, to, size), -1, fails(READ))
/* The function that read becomes with _FORTIFY_SOURCE and a buffer of known size. */
FAILING(ssize_t, __read_chk, (int file, void *to, size_t size, size_t room), (file, to, size, room), -1, fails(READ))
FAILING(int, stat, (const char *path, struct stat *at), (path, at), -1, fails(STAT))
FAILING_FSTAT(fails(FSTAT))
FAILING(int, scandir,
        (const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
         int (*compare)(const struct dirent **, const struct dirent **)),
        (path, names, filter, compare), -1, fails(SCANDIR))

/* Does not wait for a process that is writing the file. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)time;
    (void)left;
    return 0;
}

static const struct {
    enum call call;
    int number;
} faults[] = {
    {MALLOC, ENOMEM},  {MALLOC, ENOMEM},  {CALLOC, ENOMEM},  {REALLOC, ENOMEM}, {STRDUP, ENOMEM},
    {TSEARCH, ENOMEM}, {ALIGNED, ENOMEM}, {OPEN, EMFILE},    {OPEN, EACCES},    {OPEN, ENOENT},
    {READ, EIO},       {READ, EINTR},     {STAT, EIO},       {STAT, ENOENT},    {FSTAT, EIO},
    {FSTAT, ENOMEM},   {SCANDIR, EMFILE}, {SCANDIR, ENOMEM}, {SCANDIR, EIO},
};

enum { FAULTS = sizeof faults / sizeof *faults };

static void arm(int which, int nth)
{
    of_zone = false;
    fault_set(faults[which].call, nth, faults[which].number);
    fault.lasting = which == 0; /* the set's memory is requested again, in smaller pieces */
    fault.armed = true;
}

static void print_place(int failures, const char *what)
{
    if (test_failures != failures)
        printf("  in %s, %s number %d failing with %s\n", what, call_names[fault.call], fault.nth,
               strerror(fault.number));
}

static int open_files(void)
{
    return entries_in("/proc/self/fd");
}

/* ---- Rules that need everything: two files, an expression, a zone, tiers, descriptors ---- */

#define OWN(limit)                                                                                                     \
    "identity: { user_id: header:X-User-Id }\n"                                                                        \
    "rules:\n"                                                                                                         \
    "  - { name: a, key: 'u:${user_id}', on_missing_key: share, limit: " #limit ", window: 1h }\n"                     \
    "  - { name: b, match: { path: { regex: '^/v[0-9]+/x*$' } }, limit: { pro: 9, default: 5 }, window: 1h }\n"        \
    "  - { name: c, match: { path: [/x/*, /y] }, limit: 5, window: 1d, algorithm: fixed_window, timezone: Own/Zone "   \
    "}\n"
#define DESCRIPTORS                                                                                                    \
    "domain: d\ndescriptors:\n  - { key: k, value: 'v*', rate_limit: { unit: day, requests_per_unit: 5 } }\n"

static void write_rules(bool second)
{
    put("a.yaml", second ? OWN(6) : OWN(5));
    put("b.yml", DESCRIPTORS);
}

static void begin(void)
{
    /* A private zone, an hour east, so that no database need be installed. */
    unsigned char bytes[44 + 6 + 4] = "TZif";
    bytes[20 + 4 * 4 + 3] = 1;
    bytes[20 + 5 * 4 + 3] = 4;
    bytes[44 + 2] = 3600 >> 8;
    bytes[44 + 3] = 3600 & 255;
    memcpy(bytes + 50, "ONE", 4);
    start();
    mkdir(path_of("Own"), 0700);
    FILE *file = fopen(path_of("Own/Zone"), "w");
    CHECK(file && fwrite(bytes, sizeof bytes, 1, file) == 1);
    if (file)
        fclose(file);
    setenv("TZDIR", folder, 1);
    write_rules(false);
}

static void end(void)
{
    unsetenv("TZDIR");
    unlink(path_of("Own/Zone"));
    rmdir(path_of("Own"));
    finish();
}

/*
 * The errors that a failing call may cause. Lack of memory (and what zones need) is distinguished: it is not an error
 * of the rules, and may be over later.
 */
static bool is_expected(int error)
{
    bool memory = fault.call <= ALIGNED || fault.number == ENOMEM || fault.number == EMFILE || fault.number == EIO;
    return error == WEIR_ENOMEM   ? memory
           : error == WEIR_ERULES ? of_zone && !memory /* there is no such zone */
                                  : error == WEIR_ERULESPATH || error == WEIR_ERULESBUSY || error == WEIR_ESYS;
}

TEST(weir_rules_load_with_the_nth_call_failing)
{
    int hits[CALLS] = {0};
    begin();
    for (int i = 0; i < FAULTS; i++) {
        for (int nth = 1; nth < 2000; nth++) {
            int failures = test_failures, files = open_files();
            struct reported reported = {0};
            weir_rules *rules = NULL;
            arm(i, nth);
            int error = weir_rules_load(folder, collect_diagnostic, &reported, &rules);
            fault.armed = false;
            CHECK(error == 0 || (fault.hit && is_expected(error)));
            CHECK_EQ(error == 0, rules != NULL);
            CHECK(error == 0 || error == WEIR_ENOMEM || reported.count > 0); /* an error comes with a diagnostic */
            if (!error)
                CHECK_EQ(weir_rules_count(rules), 4); /* never a partial set */
            weir_rules_free(rules);
            CHECK_EQ(open_files(), files);
            print_place(failures, "weir_rules_load");
            if (!fault.hit)
                break;
            hits[faults[i].call]++;
        }
    }
    for (int call = 0; call < CALLS; call++)
        CHECK(hits[call] > 0 || call == ALIGNED || call == REALLOC); /* loading calls neither */
    end();
}

TEST(files_of_maps_with_the_nth_call_failing)
{
    start();
    put("a.yaml",
        "identity: { api_key: host, tier: { from: api_key, file: p.csv }, t: { from: tier, file: .p.yaml } }\n"
        "rules: [ { name: a, limit: { pro: 2, default: 1 }, window: 1h } ]\n");
    put("p.csv", "a,pro\nb,free\n");
    put(".p.yaml", "pro: x\n");
    for (int i = 0; i < FAULTS; i++) {
        for (int nth = 1; nth < 2000; nth++) {
            int failures = test_failures, files = open_files();
            struct reported reported = {0};
            weir_rules *rules = NULL;
            arm(i, nth);
            int error = weir_rules_load(folder, collect_diagnostic, &reported, &rules);
            fault.armed = false;
            CHECK(error == 0 || (fault.hit && (error == WEIR_ERULES || is_expected(error))));
            CHECK_EQ(error == 0, rules != NULL);
            CHECK(error == 0 || error == WEIR_ENOMEM || reported.count > 0);
            weir_rules_free(rules);
            CHECK_EQ(open_files(), files);
            print_place(failures, "weir_rules_load");
            if (!fault.hit)
                break;
        }
    }
    unlink(path_of("p.csv"));
    unlink(path_of(".p.yaml"));
    finish();
}

/* Checks under a rule for the fast path. */
static bool takes_fast_path(weir *w)
{
    static char text[WEIR__FAST_RESULT_BYTES];
    struct weir__second reset = {0};
    struct weir__fast_result fast = {.reset = &reset, .text = text};
    struct test_request r;
    weir_result checked;
    test_request(&r, "GET / @x-user-id=7");
    CHECK_EQ(weir__check_fast(w, &r.query, &checked, &fast), 0);
    CHECK_EQ(fast.limit, 5);
    return fast.filled;
}

TEST(weir_open_with_the_nth_call_failing)
{
    begin();
    for (int i = 0; i < FAULTS; i++) {
        for (int nth = 1; nth < 2000; nth++) {
            int failures = test_failures, files = open_files();
            struct reported reported = {0};
            weir *w = NULL;
            weir_options how = {.segment = {.size = 256 << 10},
                                .rules_path = folder,
                                .diagnose = collect_diagnostic,
                                .diagnose_context = &reported,
                                .flags = WEIR_NO_WATCH};
            arm(i, nth);
            int error = weir_open(&how, &w);
            fault.armed = false;
            CHECK(error == 0 || (fault.hit && is_expected(error)));
            CHECK_EQ(error == 0, w != NULL);
            if (!error) {
                CHECK_EQ(test_check(w, "GET /v1/x", 0).matched, 2);
                CHECK(takes_fast_path(w));
            }
            weir_close(w);
            CHECK_EQ(open_files(), files);
            print_place(failures, "weir_open");
            if (!fault.hit)
                break;
        }
    }
    end();
}

static int64_t limit_of(weir *w)
{
    return test_check(w, "GET /", 0).decision.limit;
}

/* One reload from the first rules to the second. True if the fault was hit. */
static bool reload_once(int which, int nth)
{
    int failures = test_failures;
    struct reported reported = {0};
    write_rules(false);
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    int files = open_files();
    write_rules(true);
    arm(which, nth);
    int result = weir_reload(w);
    fault.armed = false;
    CHECK(result == 1 || (fault.hit && is_expected(result)));
    CHECK_EQ(limit_of(w), result == 1 ? 6 : 5);
    CHECK_EQ(test_check(w, "GET /v1/x", 0).matched, 2);
    /* The fault is over: the rules on disk become active, although the files have not changed since. */
    bool author = result == WEIR_ERULES || (result == WEIR_ERULESPATH && fault.number == EACCES);
    if (result != 1 && !author) {
        CHECK_EQ(weir_reload(w), 1);
        CHECK_EQ(limit_of(w), 6);
    }
    CHECK_EQ(weir_reload(w), 0);
    CHECK_EQ(open_files(), files);
    weir_close(w);
    print_place(failures, "weir_reload");
    return fault.hit;
}

TEST(weir_reload_with_the_nth_call_failing)
{
    begin();
    for (int i = 0; i < FAULTS; i++)
        for (int nth = 1; nth < 2000 && reload_once(i, nth); nth++)
            ;
    end();
}

TEST_MAIN
