/* nginx.conf: the secrets in it stay in no freed memory, which the agent would inherit. */
#include "serve/deployment.h"

#include "../config/configs.h"
#include "../../test.h"

#include <jansson.h>
#include <malloc.h>

/* Larger blocks are overwritten when they are freed (M_PERTURB); smaller ones are kept as they are, for reuse. */
#define CACHED_MAX 1032

static const char *const secrets[] = {"token-of-an-app-0001", "token-of-an-operator", "password-of-the-apps"};
static bool watching;
static int freed, left;

/* Counts blocks that are freed with a secret in them. */
static void look(const void *block)
{
    size_t size = block && watching ? malloc_usable_size((void *)(uintptr_t)block) : 0;
    freed += size > 0;
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets && size && size <= CACHED_MAX; i++)
        left += memmem(block, size, secrets[i], strlen(secrets[i])) != NULL;
}

/* The linker replaces weir's own calls of free; jansson, which is another library, is given this function. */
void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    look(block);
    __real_free(block);
}

TEST(secrets_do_not_stay_in_freed_memory)
{
    static const char yaml[] = RULES "service:\n"
                                     "  http: 127.0.0.1:8081\n"
                                     "  resp: 127.0.0.1:6390\n"
                                     "  access:\n"
                                     "    tokens: [token-of-an-app-0001]\n"
                                     "    operator_tokens: [token-of-an-operator]\n"
                                     "    password: password-of-the-apps\n";
    static const struct weir__nginx nginx = {.program = "nginx", .version = 1022001};
    static const struct weir__facts facts = {0};
    struct weir__nginx_setting setting = {.nginx = &nginx, .rules_file = "rules.yaml", .open_files = 1024};
    json_set_alloc_funcs(malloc, __wrap_free);
    write_file(yaml, sizeof yaml - 1);
    CHECK_EQ(load_path(file), 0);
    watching = true;
    char *conf = weir__nginx_conf(&config, &facts, &setting);
    watching = false;
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        CHECK(conf && strstr(conf, secrets[i]));
    CHECK(freed > 100);
    CHECK_EQ(left, 0);
    free(conf);
    weir__config_free(&config);
    diags_end(&diags);
    unlink(file);
    rmdir(folder);
}

TEST_MAIN
