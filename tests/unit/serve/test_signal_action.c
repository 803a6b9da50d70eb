/* weir agent: what is sent to it before it has read its file does not end it. */
#include "serve/serve.h"

#include "../../test.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int told;

/* While the file is being read. Left alone, each of these would end the process. */
static void send_all(void *context, const weir_diagnostic *what)
{
    (void)context;
    (void)what;
    static const int sent[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        CHECK_EQ(raise(sent[i]), 0);
    told++;
}

TEST(signals_that_come_while_the_file_is_read)
{
    char path[] = "/tmp/weir-agent-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, "worker: 1\n", 10) == 10);
    close(file);
    CHECK_EQ(weir__agent(path, false, send_all, NULL), 1);
    CHECK(told > 0);

    sigset_t waiting;
    CHECK_EQ(sigpending(&waiting), 0);
    CHECK(sigismember(&waiting, SIGHUP) == 1 && sigismember(&waiting, SIGTERM) == 1);
    unlink(path);
}

TEST_MAIN
