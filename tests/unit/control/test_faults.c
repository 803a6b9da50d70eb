/* Faults: the database locked, read-only, full, gone, restarted in mid-write; the process killed in mid-publish. */
#include "service.h"

#include "../../awake.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <time.h>

static void publish_first(struct service *s)
{
    CHECK_EQ(ask(s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(ask(s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
}

TEST(the_database_is_locked)
{
    struct service s = {0};
    sqlite3 *other = NULL;
    service_open(&s, false);
    publish_first(&s);
    CHECK_EQ(sqlite3_open(s.url + strlen("sqlite:"), &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(ask(&s, "POST /v1/rules", rule_text("b", 1)), 503);
    CHECK_WORD(&s, "error.code", "database_busy");
    CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 200); /* reading does not wait */
    CHECK_EQ(ask(&s, "GET /v1/rules/published", NULL), 200);
    CHECK_EQ(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(ask(&s, "POST /v1/rules", rule_text("b", 1)), 201);
    sqlite3_close(other);
    service_close(&s);
}

TEST(the_file_is_gone)
{
    struct service s = {0};
    char before[256];
    service_open(&s, false);
    publish_first(&s);
    CHECK_EQ(unlink(s.url + strlen("sqlite:")), 0);
    CHECK_EQ(ask(&s, "POST /v1/rules", rule_text("b", 1)), 503); /* not written into nowhere */
    CHECK_WORD(&s, "error.code", "database_gone");
    s.control->tried_ms = 0;
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 503); /* and no empty one in its place */
    snprintf(before, sizeof before, "%.*s", 250, file_text(s.path));
    CHECK(strstr(before, "name: a") != NULL);
    service_shut(&s);
    service_open_again(&s);
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 503);
    CHECK_EQ(ask(&s, "GET /healthz", NULL), 200);
    CHECK_EQ(number(&s, "revision"), 1);
    CHECK(json_is_false(at(&s, "database")));
    service_close(&s);
}

TEST(the_file_is_no_database)
{
    struct service s = {0};
    service_open(&s, false);
    service_shut(&s);
    FILE *file = fopen(s.url + strlen("sqlite:"), "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is no database\n", file);
    fclose(file);
    service_open_again(&s);
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "database_broken");
    service_shut(&s);
    /* One of a later version. */
    CHECK_EQ(unlink(s.url + strlen("sqlite:")), 0);
    service_open_again(&s);
    CHECK_EQ(weir__db_run(s.control->db, "INSERT INTO migrations (number) VALUES (999)", NULL, 0, NULL, NULL), 0);
    service_shut(&s);
    service_open_again(&s);
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "database_newer");
    service_close(&s);
    struct weir__control_options options = {.url = "mysql://x"};
    struct weir__control *control = NULL;
    CHECK_EQ(weir__control_open(&options, &control), WEIR__DB_URL);
}

/* In a child without root's rights, for which nothing is read-only. */
TEST(the_file_is_read_only)
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
        CHECK_EQ(ask(&s, "POST /v1/rules", rule_text("b", 1)), 503);
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

/* A small file system: the database and the file for the workers are on it. */
TEST(the_disk_is_full)
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
        int status = ask(&s, "POST /v1/rules", rule_text(name, 1));
        created += status == 201;
        full = status == 503;
        CHECK(full || status == 201);
    }
    CHECK(full);
    CHECK(strncmp(word(&s, "error.code"), "database_", 9) == 0);
    CHECK(strstr(file_text(s.path), "name: a") != NULL);
    /* What was acknowledged is there, and all goes on when there is room. */
    unlink(fill);
    service_shut(&s);
    service_open_again(&s);
    CHECK_EQ(ask(&s, "GET /v1/rules?limit=1000", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), created + 1);
    CHECK_EQ(ask(&s, "POST /v1/rules", rule_text("z", 1)), 201);
    CHECK_EQ(ask(&s, "POST /v1/rules/z/publish", "{\"stage\":\"enforced\"}"), 200);
    service_shut(&s);
    CHECK_EQ(umount(s.folder), 0);
    service_close(&s); /* and what was below the mount */
}

/* Published, but the workers' file cannot be written: said, and done later. */
TEST(the_workers_file_cannot_be_written)
{
    struct service s = {0};
    char blocker[160];
    service_open(&s, false);
    publish_first(&s);
    snprintf(blocker, sizeof blocker, "%s.new", s.path);
    CHECK_EQ(mkdir(blocker, 0700), 0);
    CHECK_EQ(ask_if(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200);
    CHECK_EQ(ask(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK(json_is_false(at(&s, "written")));
    CHECK(strstr(file_text(s.path), "limit: 1\n") != NULL);
    CHECK_EQ(rmdir(blocker), 0);
    CHECK_EQ(weir__control_tick(s.control), 0);
    CHECK(strstr(file_text(s.path), "limit: 2\n") != NULL);
    service_close(&s);
}

/* ---- PostgreSQL ---- */

/*
 * As one does who is told to come again. Where the machine stood still while it tried to connect, the service has
 * waited in vain, and tries again only after a pause.
 */
static int ask_in_time(struct service *s, const char *what, const char *if_match, const char *body)
{
    int status = 503;
    for (double begin = awake_seconds(); awake_seconds() < begin + 10;) {
        status = if_match ? ask_if(s, what, if_match, body) : ask(s, what, body);
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
        CHECK_EQ(ask(&s, "POST /v1/rules", rule_text("b", 1)), 503);
        CHECK_WORD(&s, "error.code", "database_gone");
        CHECK(strstr(file_text(s.path), "name: a") != NULL);
        CHECK_EQ(postgres("start"), 0);
        CHECK_EQ(ask_in_time(&s, "GET /v1/rules", NULL, NULL), 200); /* by itself */
        CHECK_EQ(json_array_size(at(&s, "items")), 1);
        CHECK_EQ(postgres("stop"), 0);
        CHECK_EQ(postgres("start"), 0);
        CHECK_EQ(ask_in_time(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200); /* also when writing is the first */
    }
    /* Within a transaction: that one fails, as a whole. */
    CHECK_EQ(weir__db_begin(s.control->db), 0);
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE documents SET author = 'half'", NULL, 0, NULL, NULL), 0);
    CHECK_EQ(postgres("crash"), 0);
    CHECK_EQ(postgres("start"), 0);
    CHECK(weir__db_run(s.control->db, "UPDATE documents SET author = 'whole'", NULL, 0, NULL, NULL) != 0);
    CHECK(weir__db_end(s.control->db, 0) != 0);
    CHECK_EQ(ask_in_time(&s, "GET /v1/rules", NULL, NULL), 200);
    CHECK_WORD(&s, "items[0].author", "tester");
    service_close(&s);
}

static volatile bool restarting;
static int acknowledged;

/* Each time after something was written, however slow the disk is. */
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

TEST(postgres_is_restarted_in_mid_write)
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
        int status = ask(&s, "POST /v1/rules", rule_text(name, 1));
        bool not_known = status == 503 && strcmp(word(&s, "error.code"), "outcome_unknown") == 0;
        created[i] = status == 201;
        __atomic_fetch_add(&acknowledged, status == 201, __ATOMIC_RELAXED);
        unknown += not_known;
        failed += status == 503;
        CHECK(status == 201 || status == 503);
        if (status == 503)
            nanosleep(&(struct timespec){0, 1000000}, NULL); /* there are only so many names */
        if (status == 201) {
            char what[64];
            snprintf(what, sizeof what, "POST /v1/rules/%s/publish", name);
            status = ask(&s, what, "{\"stage\":\"enforced\"}");
            CHECK(status == 200 || status == 503);
        }
    }
    pthread_join(thread, NULL);
    CHECK(acknowledged > 0 && failed > 0);
    for (int k = 0; k < i; k++) {
        char what[64];
        snprintf(what, sizeof what, "GET /v1/rules/n%d", k);
        if (created[k])
            CHECK_EQ(ask_in_time(&s, what, NULL, NULL), 200);
    }
    CHECK_EQ(weir__control_tick(s.control), 0);
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_load(s.path, NULL, NULL, &rules), 0);
    weir_rules_free(rules);
    printf("  %d acknowledged, %d refused, %d of them unknown\n", acknowledged, failed, unknown);
    service_close(&s);
}

/* The server's processes, each of which is told to stop or to go on. */
static void postgres_signal(const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "p=$(head -n 1 %s/data/postmaster.pid); kill -%s $p $(cat /proc/$p/task/$p/children)", postgres_folder,
             name);
    CHECK_EQ(system(command), 0);
}

/* It takes what it is sent, and does not answer: everybody is told so after a bounded time. */
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
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE documents SET author = 'late'", NULL, 0, NULL, NULL), WEIR__DB_GONE);
    CHECK(awake_seconds() - begin < 12);
    CHECK_EQ(weir__db_end(s.control->db, 0), WEIR__DB_GONE); /* it was never asked to commit: nothing is unknown */
    begin = awake_seconds();
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 503);
    CHECK_WORD(&s, "error.code", "database_gone");
    CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
    CHECK(awake_seconds() - begin < 3); /* it did not answer a moment ago: nobody waits again for that */
    CHECK_EQ(ask(&s, "GET /healthz", NULL), 200);
    CHECK(json_is_false(at(&s, "database")));
    postgres_signal("CONT");
    struct timespec wait = {2, 100000000};
    nanosleep(&wait, NULL);
    CHECK_EQ(ask_in_time(&s, "GET /v1/rules", NULL, NULL), 200);
    CHECK_WORD(&s, "items[0].author", "tester");
    /* A commit that is not answered may have happened. */
    CHECK_EQ(weir__db_begin(s.control->db), 0);
    CHECK_EQ(weir__db_run(s.control->db, "UPDATE documents SET author = 'perhaps'", NULL, 0, NULL, NULL), 0);
    postgres_signal("STOP");
    CHECK_EQ(weir__db_end(s.control->db, 0), WEIR__DB_UNKNOWN);
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

/* Somebody else has the database for as long as it takes: told, instead of everybody waiting. */
TEST(a_request_waits_only_so_long)
{
    struct service s = {0};
    pthread_t thread;
    service_open(&s, false);
    publish_first(&s);
    for (int known = 0; known < 2; known++) { /* that the database is away */
        struct holder holder = {.control = s.control};
        weir__control_note(s.control, !known);
        pthread_barrier_init(&holder.begun, NULL, 2);
        pthread_barrier_init(&holder.over, NULL, 2);
        CHECK_EQ(pthread_create(&thread, NULL, hold, &holder), 0);
        pthread_barrier_wait(&holder.begun);
        double begin = awake_seconds();
        CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 503);
        CHECK_WORD(&s, "error.code", known ? "database_gone" : "busy");
        CHECK(weir__rest_header(&s.reply, "Retry-After") != NULL);
        CHECK_EQ(ask(&s, "GET /healthz", NULL), 200); /* does not wait at all */
        CHECK(awake_seconds() - begin < (known ? 1 : 4.5));
        pthread_barrier_wait(&holder.over);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        pthread_barrier_destroy(&holder.begun);
        pthread_barrier_destroy(&holder.over);
    }
    CHECK_EQ(weir__control_tick(s.control), 0);
    CHECK_EQ(ask(&s, "GET /v1/rules", NULL), 200);
    service_close(&s);
}

/* ---- Killed ---- */

/* Changes and publishes without end, and says what was acknowledged through a pipe. */
static void work(struct service *s, int out)
{
    service_open_again(s);
    CHECK_EQ(ask(s, "GET /v1/rules/a", NULL), 200);
    for (int64_t version = number(s, "version"); version > 0;) {
        char tag[32];
        snprintf(tag, sizeof tag, "\"v%d\"", (int)version);
        if (ask_if(s, "PUT /v1/rules/a", tag, rule_text("a", (int)version + 1)) != 200)
            _exit(1);
        version = number(s, "version");
        if (ask(s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}") != 200)
            _exit(2);
        int64_t told[2] = {version, number(s, "revision")};
        if (write(out, told, sizeof told) != sizeof told)
            _exit(3);
    }
    _exit(4);
}

/* What a dead client has sent is carried out to its end: until then nobody knows what is in the database. */
static void wait_for_the_dead(const struct service *s)
{
    struct weir__db *db = NULL;
    struct timespec wait = {0, 5000000};
    int64_t left = 1;
    if (strncmp(s->url, "sqlite:", 7) == 0)
        return;
    CHECK_EQ(weir__db_open(s->url, false, &db, NULL), 0);
    for (int i = 0; i < 2000 && left; i++) {
        CHECK_EQ(weir__db_number(db,
                                 "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
                                 " pid <> pg_backend_pid()",
                                 NULL, 0, 1, &left),
                 0);
        nanosleep(&wait, NULL);
    }
    CHECK_EQ(left, 0);
    weir__db_close(db);
}

/* Kills a writer at some moment; then what it was told must be there, whole. False: the test has failed. */
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
    int64_t told[2];
    while (read(pipes[0], told, sizeof told) == sizeof told)
        last[0] = last[2] = told[0], last[1] = told[1];
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    /* The workers' file is whole before anybody repairs anything. */
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_load(s->path, NULL, NULL, &rules), 0);
    weir_rules_free(rules);
    wait_for_the_dead(s);
    service_open_again(s);
    CHECK_EQ(ask(s, "GET /v1/rules/a", NULL), 200);
    int64_t version = number(s, "version"), enforced = number(s, "enforced_version");
    CHECK(version >= last[0] && version <= last[0] + 1);
    CHECK(enforced >= last[2] && enforced <= version);
    CHECK_EQ(ask(s, "GET /healthz", NULL), 200);
    int64_t revision = number(s, "revision");
    CHECK(revision >= last[1] && revision <= last[1] + 1);
    /* Version N has limit N: the file says what the database says is enforced. */
    char line[32];
    snprintf(line, sizeof line, "limit: %d\n", (int)enforced);
    CHECK(strstr(file_text(s->path), line) != NULL);
    service_shut(s);
    last[0] = version; /* what was committed without being acknowledged is there from now on, too */
    last[1] = revision;
    last[2] = enforced;
    return test_failures == 0;
}

BOTH(killed_in_mid_publish)
{
    struct service s = {0};
    unsigned seed = 7;
    int64_t last[3] = {1, 1, 1}; /* version, revision, enforced version */
    int rounds = (int)test_scaled(25, 4);
    service_open(&s, on_postgres);
    publish_first(&s);
    service_shut(&s);
    /* On a busy machine none may come to anything in its time for a while. */
    for (int i = 0; (i < rounds || (last[1] <= 1 && i < 50 * rounds)) && kill_once(&s, &seed, last); i++)
        ;
    printf("  %d rounds, %d publications\n", rounds, (int)last[1]);
    CHECK(last[1] > 1);
    service_close(&s);
}

TEST_MAIN
