/* The load level of an engine: opening its file, reading it, and workers. */
#include "../../frozen_clock.h"
#include "../../test.h"

#include "engine/engine.h"

#include <sys/stat.h>
#include <unistd.h>
#include <weir/load.h>

static char folder[64], path[96];
static int warnings;

static void collect_diagnostic(void *context, const weir_diagnostic *diagnostic)
{
    (void)context;
    warnings +=
        diagnostic->severity == WEIR_IS_WARNING && strstr(diagnostic->message, "the load level is not known") != NULL;
}

static weir *opened(const char *load)
{
    weir *engine = NULL;
    weir_options how = {.segment = {.size = 1 << 20, .flags = WEIR_OPEN_CREATE},
                        .rules_text = "rules: [{ name: a, limit: 1, window: 1s }]\n",
                        .diagnose = collect_diagnostic,
                        .load = load};
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

static const char *file(void)
{
    strcpy(folder, "/tmp/weir-test-XXXXXX");
    if (!mkdtemp(folder))
        exit(1);
    snprintf(path, sizeof path, "%s/segment.load", folder);
    return path;
}

static void clean(void)
{
    unlink(path);
    rmdir(folder);
}

static void publish(weir *engine, uint32_t level)
{
    struct weir__load_view view = weir__load_view_neutral();
    view.level = level;
    view.shed[3] = 500;
    view.signal[WEIR__SIGNAL_LATENCY] = 123;
    weir__load_page_write(engine->load, weir_clock(engine->segment).mono_ns, &view);
}

TEST(engine_without_a_load_page)
{
    weir *engine = opened(NULL);
    weir_load load;
    weir_load_worker worker;
    CHECK_EQ(weir_load_read(engine, &load), WEIR_ENOENT);
    CHECK_EQ(weir_load_read(NULL, &load), WEIR_EINVAL);
    CHECK_EQ(weir_load_read(engine, NULL), WEIR_EINVAL);
    weir_load_join(engine, &worker);
    weir_load_heartbeat(engine, &worker);
    weir_load_begin(engine, &worker);
    weir_load_upstream(engine, &worker, 1, true);
    weir_load_end(engine, &worker);
    weir_load_leave(engine, &worker);
    weir_close(engine);
}

TEST(two_engines_share_a_load_page)
{
    weir *one = opened(file()), *other = opened(path);
    weir_load load;
    CHECK_EQ(weir_load_read(other, &load), 0);
    CHECK(!load.known && load.level == 0 && load.throttle == 1000 && load.signal[0] == -1);
    publish(one, 700);
    CHECK_EQ(weir_load_read(other, &load), 0);
    CHECK(load.known && load.level == 700 && load.shed[3] == 500 && load.shed[0] == 0);
    CHECK(load.signal[WEIR__SIGNAL_LATENCY] == 123 && load.signal[WEIR__SIGNAL_CPU] == -1);
    weir_close(one);
    weir_close(other);
    clean();
}

TEST(damaged_file_is_replaced)
{
    FILE *to = fopen(file(), "w");
    for (size_t i = 0; to && i < sizeof(struct weir__load_page); i++)
        fputc('x', to);
    CHECK(to && fclose(to) == 0);
    weir *engine = opened(path);
    CHECK(engine->load != NULL);
    publish(engine, 5);
    weir_close(engine);
    struct stat is;
    CHECK(stat(path, &is) == 0 && is.st_size == sizeof(struct weir__load_page));
    clean();
}

TEST(file_that_cannot_be_opened_is_reported)
{
    weir_load load;
    warnings = 0;
    weir *engine = opened("/nowhere/at/all.load");
    CHECK_EQ(warnings, 1);
    CHECK_EQ(weir_load_read(engine, &load), WEIR_ENOENT);
    weir_close(engine);
}

TEST(workers_count_requests_in_flight)
{
    weir *engine = opened("");
    weir_load_worker a, b;
    weir_load load;
    weir_load_join(engine, &a);
    weir_load_join(engine, &b);
    weir_load_begin(engine, &a);
    weir_load_begin(engine, &a);
    weir_load_begin(engine, &b);
    weir_load_end(engine, &a);
    CHECK(weir_load_read(engine, &load) == 0 && load.in_flight == 2 && load.workers == 2);
    /* Whatever happens to its shard, the next heartbeat corrects it. */
    engine->load->shard[a.shard].in_flight = 77;
    engine->load->shard[b.shard].owner = 5; /* as a worker that takes it over does */
    engine->load->shard[b.shard].in_flight = 0;
    weir_load_heartbeat(engine, &a);
    weir_load_heartbeat(engine, &b);
    CHECK(weir_load_read(engine, &load) == 0 && load.in_flight == 2 && b.shard != a.shard);
    weir_load_leave(engine, &a);
    CHECK(weir_load_read(engine, &load) == 0 && load.in_flight == 1);
    weir_load_leave(engine, &b);
    weir_close(engine);
}

/* A read-only engine maps its page read-only: it publishes nothing, and does not crash. */
TEST(read_only_engine_publishes_nothing)
{
    char segment[sizeof path + 8];
    weir_options how = {.rules_text = "rules: []\n", .load = file()};
    weir *engine = NULL;
    weir_load_worker worker;
    weir_load load;
    snprintf(segment, sizeof segment, "%s/segment", folder);
    how.segment = (weir_segment_options){.path = segment, .size = 1 << 20, .flags = WEIR_OPEN_CREATE};
    CHECK_EQ(weir_open(&how, &engine), 0);
    weir_close(engine);
    how.segment.flags = WEIR_OPEN_READONLY;
    CHECK_EQ(weir_open(&how, &engine), 0);
    CHECK(engine->load != NULL);
    weir_load_join(engine, &worker);
    weir_load_begin(engine, &worker);
    weir_load_upstream(engine, &worker, 1000, true);
    weir_load_heartbeat(engine, &worker);
    weir_load_end(engine, &worker);
    weir_load_leave(engine, &worker);
    CHECK(weir_load_read(engine, &load) == 0 && load.workers == 0);
    weir_close(engine);
    unlink(segment);
    clean();
}

TEST(names_of_signals)
{
    CHECK(strcmp(weir_load_signal_name(0), "cpu") == 0 && strcmp(weir_load_signal_name(5), "in_flight") == 0);
    CHECK(!weir_load_signal_name(6) && !weir_load_signal_name(-1));
    CHECK(strcmp(weir_load_class_name(0), "critical") == 0 && strcmp(weir_load_class_name(3), "low") == 0);
    CHECK(!weir_load_class_name(4) && !weir_load_class_name(-1));
}

TEST_MAIN
