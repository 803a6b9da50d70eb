/* Faults: the database locked, read-only, full, gone, restarted during a write; the process killed while publishing. */
#include "service.h"

#include "../../awake.h"
#include "../../failing.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <time.h>

static bool no_memory; /* for a column's text */
FAILING(const unsigned char *, sqlite3_column_text, (sqlite3_stmt * statement, int column), (statement, column), NULL,
        no_memory)

static void publish_first(struct service *s)
{
    CHECK_EQ(rest(s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
}

TEST(database_is_locked)
{
    struct service s = {0};
    sqlite3 *other = NULL;
    service_open(&s, false);
    publish_first(&s);
    CHECK_EQ(sqlite3_open(s.url + strlen("sqlite:"), &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 503);
    CHECK_WORD(&s, "error.code", "database_busy");
    CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200); /* reading does not wait */
    CHECK_EQ(rest(&s, "GET /v1/rules/published", NULL), 200);
    CHECK_EQ(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 201);
    sqlite3_close(other);
    service_close(&s);
}

/* A column without memory for its text is not read as NULL. */
TEST(no_memory_for_a_column)
{
    struct service s = {0};
    service_open(&s, false);
    publish_first(&s);
    no_memory = true;
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "no_memory");
    no_memory = false;
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 1);
    service_close(&s);
}

TEST(database_file_is_deleted)
{
    struct service s = {0};
    char before[256];
    service_open(&s, false);
    publish_first(&s);
    CHECK_EQ(unlink(s.url + strlen("sqlite:")), 0);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 503); /* not written to the deleted file */
    CHECK_WORD(&s, "error.code", "database_gone");
    s.control->tried_ms = 0;
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503); /* and no new empty file is created */
    snprintf(before, sizeof before, "%.*s", 250, file_text(s.path));
    CHECK(strstr(before, "name: a") != NULL);
    service_shut(&s);
    service_open_again(&s);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503);
    CHECK_EQ(rest(&s, "GET /healthz", NULL), 200);
    CHECK_EQ(number(&s, "revision"), 1);
    CHECK(json_is_false(at(&s, "database")));
    service_close(&s);
}

TEST(file_is_not_a_database)
{
    struct service s = {0};
    service_open(&s, false);
    service_shut(&s);
    FILE *file = fopen(s.url + strlen("sqlite:"), "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is no database\n", file);
    fclose(file);
    service_open_again(&s);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "database_broken");
    service_shut(&s);
    /* A database of a later version. */
    CHECK_EQ(unlink(s.url + strlen("sqlite:")), 0);
    service_open_again(&s);
    CHECK_EQ(weir__db_run_with(s.control->db, "INSERT INTO migrations (number) VALUES (999)", NULL, 0), 0);
    service_shut(&s);
    service_open_again(&s);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "database_newer");
    service_close(&s);
    struct weir__control_options options = {.url = "mysql://x"};
    struct weir__control *control = NULL;
    CHECK_EQ(weir__control_open(&options, &control), WEIR__DB_URL);
}

/* In a child process without root privileges, as root may write read-only files. */
TEST(database_file_is_read_only)
{
    struct service s = {0};
    char command[512];
    service_open(&s, false);
    publish_first(&s);
    service_shut(&s);
    snprintf(command, sizeof command, "chmod 444 %s/rules.db && chmod 555 %s && chmod 444 %s", s.folder, s.folder,
             s.path);
    CHECK_EQ(system(command), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int before = test_failures;
        if (getuid() == 0 && setuid(65534) != 0)
            _exit(9);
        service_open_again(&s);
        CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 503);
        CHECK(strncmp(word(&s, "error.code"), "database_", 9) == 0);
        CHECK(strstr(file_text(s.path), "name: a") != NULL);
        fflush(stdout);
        _exit(test_failures != before);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    snprintf(command, sizeof command, "chmod 755 %s", s.folder);
    CHECK_EQ(system(command), 0);
    service_close(&s);
}

/* A small file system: the database and the workers' rules file are on it. */
TEST(disk_is_full)
{
    struct service s = {0};
    char fill[128], block[4096] = {1};
    service_open(&s, false);
    service_shut(&s);
    if (mount("weir-test", s.folder, "tmpfs", 0, "size=1m") != 0) {
        printf("SKIP full disk: no right to mount\n");
        service_close(&s);
        return;
    }
    service_open_again(&s);
    publish_first(&s);
    snprintf(fill, sizeof fill, "%s/fill", s.folder);
    int file = open(fill, O_WRONLY | O_CREAT, 0600);
    while (write(file, block, sizeof block) > 0)
        ;
    close(file);
    int full = 0, created = 0;
    char name[16];
    for (int i = 0; i < 400 && !full; i++) {
        snprintf(name, sizeof name, "n%d", i);
        int status = rest(&s, "POST /v1/rules", rule_text(name, 1));
        created += status == 201;
        full = status == 503;
        CHECK(full || status == 201);
    }
    CHECK(full);
    CHECK(strncmp(word(&s, "error.code"), "database_", 9) == 0);
    CHECK(strstr(file_text(s.path), "name: a") != NULL);
    /* Acknowledged changes are there, and work continues once there is room. */
    unlink(fill);
    service_shut(&s);
    service_open_again(&s);
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=1000", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), created + 1);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("z", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/z/publish", "{\"stage\":\"enforced\"}"), 200);
    service_shut(&s);
    CHECK_EQ(umount(s.folder), 0);
    service_close(&s); /* and the directory below the mount */
}

/* Published, but the workers' file cannot be written: reported, and written later. */
TEST(workers_file_cannot_be_written)
{
    struct service s = {0};
    char blocker[160];
    service_open(&s, false);
    publish_first(&s);
    snprintf(blocker, sizeof blocker, "%s.new", s.path);
    CHECK_EQ(mkdir(blocker, 0700), 0);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK(json_is_false(at(&s, "written")));
    CHECK(strstr(file_text(s.path), "limit: 1\n") != NULL);
    CHECK_EQ(rmdir(blocker), 0);
    CHECK_EQ(weir__control_tick(s.control), 0);
    CHECK(strstr(file_text(s.path), "limit: 2\n") != NULL);
    service_close(&s);
}

static int logged[WEIR__LOG_ERROR + 1]; /* lines, by level */
static char last_line[256];

static void log_line(void *context, enum weir__log_level level, const char *message)
{
    (void)context;
    logged[level]++;
    snprintf(last_line, sizeof last_line, "%s", message);
}

static void tick_often(struct service *s)
{
    for (int i = 0; i < 3; i++) {
        s->control->tried_ms = 0;
        (void)weir__control_tick(s->control);
        (void)rest(s, "GET /v1/rules", NULL);
    }
}

/* A fault is logged once while it lasts, and its end is no warning. */
TEST(faults_and_their_ends_are_logged_once)
{
    static const struct weir__control_host host = {.log = log_line};
    struct service a = {.host = &host}, b;
    sqlite3 *other = NULL;
    char blocker[160], moved[160];
    service_open(&a, false);
    publish_first(&a);
    snprintf(blocker, sizeof blocker, "%s.new", a.path);
    CHECK_EQ(mkdir(blocker, 0700), 0);
    CHECK_EQ(rest_if_match(&a, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200);
    CHECK_EQ(rest(&a, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    tick_often(&a);
    CHECK_EQ(logged[WEIR__LOG_WARNING], 1);
    CHECK_EQ(rmdir(blocker), 0);
    tick_often(&a);
    snprintf(moved, sizeof moved, "%s/moved", a.folder);
    CHECK_EQ(rename(a.url + strlen("sqlite:"), moved), 0);
    tick_often(&a);
    CHECK_EQ(logged[WEIR__LOG_WARNING], 2);
    CHECK_EQ(logged[WEIR__LOG_INFO], 0);
    CHECK_EQ(rename(moved, a.url + strlen("sqlite:")), 0);
    tick_often(&a);
    CHECK_EQ(logged[WEIR__LOG_WARNING], 2);
    CHECK_EQ(logged[WEIR__LOG_INFO], 1);
    CHECK(strcmp(last_line, "the rules database is available again") == 0);
    /* A revision of another host: `published` logs it, and it is no warning. One that is damaged is one, once. */
    b = a;
    b.reply = (struct weir__rest_reply){0};
    b.json = NULL;
    snprintf(b.path, sizeof b.path, "%s/other.yaml", a.folder);
    service_open_again(&b);
    CHECK_EQ(rest_if_match(&b, "PUT /v1/rules/a", "*", rule_text("a", 3)), 200);
    CHECK_EQ(rest(&b, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    tick_often(&a);
    CHECK(strstr(file_text(a.path), "limit: 3\n") != NULL);
    CHECK_EQ(logged[WEIR__LOG_WARNING], 2);
    CHECK_EQ(rest_if_match(&b, "PUT /v1/rules/a", "*", rule_text("a", 4)), 200);
    CHECK_EQ(rest(&b, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(sqlite3_open(a.url + strlen("sqlite:"), &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other,
                          "DROP TRIGGER versions_no_update; UPDATE versions SET text = 'name: a' WHERE version = 4",
                          NULL, NULL, NULL),
             SQLITE_OK);
    sqlite3_close(other);
    tick_often(&a);
    CHECK_EQ(logged[WEIR__LOG_WARNING], 3);
    CHECK(strstr(last_line, "cannot be used; the old rules stay active") != NULL);
    service_shut(&b);
    service_close(&a);
}

/* ---- PostgreSQL ---- */

/*
 * Retries as a client does that gets 503 with Retry-After. If the machine stalled during a connection attempt, the
 * attempt timed out, and the service tries again only after a pause.
 */
static int rest_retrying(struct service *s, const char *what, const char *if_match, const char *body)
{
    int status = 503;
    for (double begin = awake_seconds(); awake_seconds() < begin + 10;) {
        status = if_match ? rest_if_match(s, what, if_match, body) : rest(s, what, body);
        if (status != 503 || strcmp(word(s, "error.code"), "database_gone") != 0)
            break;
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    return status;
}

TEST(postgres_is_restarted)
{
    struct service s = {0};
    if (!postgres_begin())
        return;
    service_open(&s, true);
    publish_first(&s);
    for (int way = 0; way < 2; way++) {
        CHECK_EQ(postgres(way ? "crash" : "stop"), 0);
        CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 503);
        CHECK_WORD(&s, "error.code", "database_gone");
        CHECK(strstr(file_text(s.path), "name: a") != NULL);
        CHECK_EQ(postgres("start"), 0);
        CHECK_EQ(rest_retrying(&s, "GET /v1/rules", NULL, NULL), 200); /* reconnects by itself */
        CHECK_EQ(json_array_size(at(&s, "items")), 1);
        CHECK_EQ(postgres("stop"), 0);
        CHECK_EQ(postgres("start"), 0);
        CHECK_EQ(rest_retrying(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)),
                 200); /* also if the first request is a write */
    }
    /* Within a transaction: the transaction fails as a whole. */
    CHECK_EQ(weir__db_begin(s.control->db), 0);
    CHECK_EQ(weir__db_run_with(s.control->db, "UPDATE documents SET author = 'half'", NULL, 0), 0);
    CHECK_EQ(postgres("crash"), 0);
    CHECK_EQ(postgres("start"), 0);
    CHECK(weir__db_run_with(s.control->db, "UPDATE documents SET author = 'whole'", NULL, 0) != 0);
    CHECK(weir__db_end(s.control->db, true) != 0);
    CHECK_EQ(rest_retrying(&s, "GET /v1/rules", NULL, NULL), 200);
    CHECK_WORD(&s, "items[0].author", "tester");
    service_close(&s);
}

static volatile bool restarting;
static int acknowledged;

/* Each restart follows a write, however slow the disk is. */
static void *restart_often(void *count)
{
    for (int i = 0; i < *(int *)count; i++) {
        int before = __atomic_load_n(&acknowledged, __ATOMIC_RELAXED);
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        for (int k = 0; k < 3000 && __atomic_load_n(&acknowledged, __ATOMIC_RELAXED) == before; k++)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
        postgres(i % 2 ? "crash" : "stop");
        postgres("start");
    }
    restarting = false;
    return NULL;
}

TEST(postgres_is_restarted_during_writes)
{
    struct service s = {0};
    pthread_t thread;
    int count = (int)test_scaled(6, 2), unknown = 0, failed = 0;
    char name[16];
    static bool created[100000];
    if (!postgres_begin())
        return;
    service_open(&s, true);
    restarting = true;
    CHECK_EQ(pthread_create(&thread, NULL, restart_often, &count), 0);
    int i = 0;
    for (; restarting && i < 100000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        int status = rest(&s, "POST /v1/rules", rule_text(name, 1));
        bool not_known = status == 503 && strcmp(word(&s, "error.code"), "outcome_unknown") == 0;
        created[i] = status == 201;
        __atomic_fetch_add(&acknowledged, status == 201, __ATOMIC_RELAXED);
        unknown += not_known;
        failed += status == 503;
        CHECK(status == 201 || status == 503);
        if (status == 503)
            nanosleep(&(struct timespec){0, 1000000}, NULL); /* the number of names is limited */
        if (status == 201) {
            char what[64];
            snprintf(what, sizeof what, "POST /v1/rules/%s/publish", name);
            status = rest(&s, what, "{\"stage\":\"enforced\"}");
            CHECK(status == 200 || status == 503);
        }
    }
    pthread_join(thread, NULL);
    CHECK(acknowledged > 0 && failed > 0);
    for (int k = 0; k < i; k++) {
        char what[64];
        snprintf(what, sizeof what, "GET /v1/rules/n%d", k);
        if (created[k])
            CHECK_EQ(rest_retrying(&s, what, NULL, NULL), 200);
    }
    CHECK_EQ(weir__control_tick(s.control), 0);
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_load(s.path, NULL, NULL, &rules), 0);
    weir_rules_free(rules);
    printf("  %d acknowledged, %d refused, %d of them unknown\n", acknowledged, failed, unknown);
    service_close(&s);
}

/* Sends a signal (STOP, CONT) to all processes of the server. */
static void postgres_signal(const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "p=$(head -n 1 %s/data/postmaster.pid); kill -%s $p $(cat /proc/$p/task/$p/children)", postgres_folder,
             name);
    CHECK_EQ(system(command), 0);
}

/* The server accepts data but does not reply: every request fails after a bounded time. */
TEST(postgres_hangs)
{
    struct service s = {0};
    if (!postgres_begin())
        return;
    service_open(&s, true);
    publish_first(&s);
    CHECK_EQ(weir__db_begin(s.control->db), 0); /* also in the middle of a transaction */
    postgres_signal("STOP");
    double begin = awake_seconds();
    CHECK_EQ(weir__db_run_with(s.control->db, "UPDATE documents SET author = 'late'", NULL, 0), WEIR__DB_GONE);
    CHECK(awake_seconds() - begin < 12);
    CHECK_EQ(weir__db_end(s.control->db, true), WEIR__DB_GONE); /* COMMIT was never sent: the outcome is known */
    begin = awake_seconds();
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "database_gone");
    CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
    CHECK(awake_seconds() - begin < 3); /* the server was unresponsive a moment ago: no request waits for it again */
    CHECK_EQ(rest(&s, "GET /healthz", NULL), 200);
    CHECK(json_is_false(at(&s, "database")));
    postgres_signal("CONT");
    struct timespec wait = {2, 100000000};
    nanosleep(&wait, NULL);
    CHECK_EQ(rest_retrying(&s, "GET /v1/rules", NULL, NULL), 200);
    CHECK_WORD(&s, "items[0].author", "tester");
    /* A COMMIT without a reply may have happened. */
    CHECK_EQ(weir__db_begin(s.control->db), 0);
    CHECK_EQ(weir__db_run_with(s.control->db, "UPDATE documents SET author = 'perhaps'", NULL, 0), 0);
    postgres_signal("STOP");
    CHECK_EQ(weir__db_end(s.control->db, true), WEIR__DB_UNKNOWN);
    postgres_signal("CONT");
    service_close(&s);
}

struct holder {
    struct weir__control *control;
    pthread_barrier_t begun, over;
};

static void *hold(void *context)
{
    struct holder *holder = context;
    weir__fair_lock_acquire(&holder->control->database_lock);
    pthread_barrier_wait(&holder->begun);
    pthread_barrier_wait(&holder->over);
    weir__fair_lock_release(&holder->control->database_lock);
    return NULL;
}

/* Another client holds the database for a long time: requests fail instead of queueing up. */
TEST(request_waits_a_bounded_time)
{
    struct service s = {0};
    pthread_t thread;
    service_open(&s, false);
    publish_first(&s);
    for (int known = 0; known < 2; known++) { /* whether the database is known to be unavailable */
        struct holder holder = {.control = s.control};
        weir__control_note(s.control, !known);
        pthread_barrier_init(&holder.begun, NULL, 2);
        pthread_barrier_init(&holder.over, NULL, 2);
        CHECK_EQ(pthread_create(&thread, NULL, hold, &holder), 0);
        pthread_barrier_wait(&holder.begun);
        double begin = awake_seconds();
        CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 503);
        CHECK_WORD(&s, "error.code", known ? "database_gone" : "busy");
        CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
        CHECK_EQ(rest(&s, "GET /healthz", NULL), 200); /* does not wait at all */
        CHECK(awake_seconds() - begin < (known ? 1 : 4.5));
        pthread_barrier_wait(&holder.over);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        pthread_barrier_destroy(&holder.begun);
        pthread_barrier_destroy(&holder.over);
    }
    CHECK_EQ(weir__control_tick(s.control), 0);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    service_close(&s);
}

/* ---- Killed ---- */

/* Changes and publishes in an endless loop, and writes what was acknowledged to a pipe. */
static void work(struct service *s, int out)
{
    service_open_again(s);
    CHECK_EQ(rest(s, "GET /v1/rules/a", NULL), 200);
    for (int64_t version = number(s, "version"); version > 0;) {
        char tag[32];
        snprintf(tag, sizeof tag, "\"v%d\"", (int)version);
        if (rest_if_match(s, "PUT /v1/rules/a", tag, rule_text("a", (int)version + 1)) != 200)
            _exit(1);
        version = number(s, "version");
        if (rest(s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}") != 200)
            _exit(2);
        int64_t acked[2] = {version, number(s, "revision")};
        if (write(out, acked, sizeof acked) != sizeof acked)
            _exit(3);
    }
    _exit(4);
}

/* PostgreSQL completes statements of a dead client: the database's contents are settled only after that. */
static void wait_for_orphaned_statements(const struct service *s)
{
    struct weir__db *db = NULL;
    struct timespec wait = {0, 5000000};
    int64_t left = 1;
    if (strncmp(s->url, "sqlite:", 7) == 0)
        return;
    CHECK_EQ(weir__db_open(s->url, false, &db, NULL), 0);
    for (int i = 0; i < 2000 && left; i++) {
        left = weir__db_count(db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
                                  " pid <> pg_backend_pid()");
        CHECK_EQ(db->error, 0);
        nanosleep(&wait, NULL);
    }
    CHECK_EQ(left, 0);
    weir__db_close(db);
}

/* Kills a writer at a random moment; then everything acknowledged must be there, completely. False: the test has
 * failed. */
static bool kill_once(struct service *s, unsigned *seed, int64_t last[3])
{
    int pipes[2];
    CHECK_EQ(pipe(pipes), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        work(s, pipes[1]);
    }
    close(pipes[1]);
    struct timespec wait = {0, 1000000 * (20 + (long)(rand_r(seed) % 100))};
    nanosleep(&wait, NULL);
    kill(child, SIGKILL);
    int64_t acked[2];
    while (read(pipes[0], acked, sizeof acked) == sizeof acked)
        last[0] = last[2] = acked[0], last[1] = acked[1];
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    /* The workers' file is complete even before anything is repaired. */
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_load(s->path, NULL, NULL, &rules), 0);
    weir_rules_free(rules);
    wait_for_orphaned_statements(s);
    service_open_again(s);
    CHECK_EQ(rest(s, "GET /v1/rules/a", NULL), 200);
    int64_t version = number(s, "version"), enforced = number(s, "enforced_version");
    CHECK(version >= last[0] && version <= last[0] + 1);
    CHECK(enforced >= last[2] && enforced <= version);
    CHECK_EQ(rest(s, "GET /healthz", NULL), 200);
    int64_t revision = number(s, "revision");
    CHECK(revision >= last[1] && revision <= last[1] + 1);
    /* Version N has limit N: the file has the version that the database lists as enforced. */
    char line[32];
    snprintf(line, sizeof line, "limit: %d\n", (int)enforced);
    CHECK(strstr(file_text(s->path), line) != NULL);
    service_shut(s);
    last[0] = version; /* changes that were committed without being acknowledged persist, too */
    last[1] = revision;
    last[2] = enforced;
    return test_failures == 0;
}

BOTH(killed_while_publishing)
{
    struct service s = {0};
    unsigned seed = 7;
    int64_t last[3] = {1, 1, 1}; /* version, revision, enforced version */
    int rounds = (int)test_scaled(25, 4);
    service_open(&s, on_postgres);
    publish_first(&s);
    service_shut(&s);
    /* On a busy machine, publications may fail to finish in time for a while. */
    for (int i = 0; (i < rounds || (last[1] <= 1 && i < 50 * rounds)) && kill_once(&s, &seed, last); i++)
        ;
    printf("  %d rounds, %d publications\n", rounds, (int)last[1]);
    CHECK(last[1] > 1);
    service_close(&s);
}

TEST_MAIN
