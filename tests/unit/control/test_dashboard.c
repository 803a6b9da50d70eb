/* The embedded files of the dashboard can be served as they are. */
#include "../../test.h"

#include "control/dashboard.h"

#include <string.h>

static const char *text_of(const struct weir__dashboard_file *file)
{
    static char text[1 << 16];
    CHECK(file->size < sizeof text);
    memcpy(text, file->bytes, file->size);
    text[file->size] = '\0';
    return text;
}

TEST(embedded_files_are_complete)
{
    CHECK(weir__dashboard_count > 0);
    for (size_t i = 0; i < weir__dashboard_count; i++) {
        const struct weir__dashboard_file *file = &weir__dashboard_files[i];
        CHECK(file->path[0] == '/');
        CHECK(strchr(file->type, '/') != NULL);
        CHECK(file->size > 0);
        CHECK(file->etag[0] == '"' && file->etag[strlen(file->etag) - 1] == '"' && strlen(file->etag) > 10);
        if (file->packed) {
            CHECK(file->packed_size < file->size);
            CHECK(file->packed[0] == 0x1f && file->packed[1] == 0x8b);
        }
    }
}

TEST(files_are_found_by_exact_path_only)
{
    for (size_t i = 0; i < weir__dashboard_count; i++)
        CHECK(weir__dashboard_find(weir__dashboard_files[i].path) == &weir__dashboard_files[i]);
    const char *none[] = {"", "//", "/index.html", "/assets", "/assets/", "/../etc/passwd", "/%2e%2e/", "/assets/../"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(weir__dashboard_find(none[i]) == NULL);
}

/* A page that references a missing file would stay blank. */
TEST(page_references_only_existing_files)
{
    const struct weir__dashboard_file *page = weir__dashboard_find("/");
    CHECK(page != NULL && !page->forever);
    const char *at = text_of(page);
    size_t named = 0;
    while ((at = strstr(at, "\"/assets/")) != NULL) {
        char path[128] = "";
        size_t len = strcspn(at + 1, "\"");
        CHECK(len < sizeof path);
        memcpy(path, at + 1, len);
        const struct weir__dashboard_file *asset = weir__dashboard_find(path);
        CHECK(asset != NULL && asset->forever);
        named++;
        at += len;
    }
    CHECK_EQ(named + 1, weir__dashboard_count);
}

/* Inline scripts and styles, which the content security policy refuses, are not in the page. */
TEST(page_has_no_inline_script_or_style)
{
    const char *text = text_of(weir__dashboard_find("/"));
    CHECK(strstr(text, "<style") == NULL && strstr(text, "style=") == NULL && strstr(text, "://") == NULL);
    CHECK(strstr(WEIR__DASHBOARD_POLICY, "unsafe") == NULL &&
          strstr(WEIR__DASHBOARD_POLICY, "default-src 'none'") != NULL);
}

TEST_MAIN
