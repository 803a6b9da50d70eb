/* Log lines as text and as JSON. */
#include "base/log.h"
#include "../../test.h"

#include <unistd.h>

static const char *logged(struct weir__logger log, const char *message)
{
    static char line[512];
    int ends[2];
    CHECK(pipe(ends) == 0);
    log.file = ends[1];
    weir__logf(&log, WEIR__LOG_WARNING, "%s", message);
    ssize_t len = read(ends[0], line, sizeof line - 1);
    line[len > 0 ? len : 0] = 0;
    close(ends[0]);
    close(ends[1]);
    return line;
}

TEST(line_is_one_printable_line)
{
    CHECK(strcmp(logged((struct weir__logger){.plain = true}, "a\nb\x1b"), "weir: warning: a\\nb\\x1b\n") == 0);
}

TEST(json_line_is_an_object)
{
    const char *line = logged((struct weir__logger){.json = true}, "say \"x\"");
    CHECK(strncmp(line, "{\"time\":\"2", 10) == 0);
    CHECK(strstr(line, "Z\",\"level\":\"warning\",\"message\":\"say \\\"x\\\"\"}\n"));
}

TEST_MAIN
