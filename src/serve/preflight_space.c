/* Whether the segment and the files beside it fit onto their file system, before any of them is made. */
#include "serve/preflight.h"
#include "serve/agent_threads.h"
#include "stats/history_writer.h"
#include "services/http/reservations.h"
#include "engine/ledger.h"
#include "engine/hot_key_sampler.h"

#include <stdio.h>
#include <sys/stat.h>

/* A file that is made at the start unless it is there. */
struct wanted {
    const char *ending;
    const char *field; /* of weir.yaml: what makes the file smaller */
    uint64_t bytes;    /* 0: it is not needed */
};

static bool has_http(const struct weir__config *config)
{
    for (size_t i = 0; i < config->listener_count; i++)
        if (config->listeners[i].kind == WEIR__HTTP_API)
            return true;
    return false;
}

void weir__preflight_space(const struct weir__config *config, const struct weir__facts *facts,
                           struct weir__report *report)
{
    const uint64_t segment = (uint64_t)config->segment_bytes;
    const struct wanted files[] = {
        {"", "segment", segment},
        {".hot", "hot_keys", (uint64_t)config->hot_bytes},
        {".load", "load", config->load.on ? sizeof(struct weir__load_page) : 0},
        {".ledger", "segment", config->store.url ? weir__delta_ledger_bytes(segment) : 0},
        {".reservations", "service", has_http(config) ? weir__reservations_bytes(WEIR__RESERVATIONS_DEFAULT) : 0},
        {".history", "rules", weir__agent_needed(config) ? weir__observer_bytes(facts->rules) : 0},
    };
    char path[4200], folder[4096];
    uint64_t left;
    if (!weir__free_bytes(config->segment_path, &left))
        return;
    weir__folder_of(config->segment_path, folder, sizeof folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct stat at;
        uint64_t bytes = files[i].bytes;
        snprintf(path, sizeof path, "%s%s", config->segment_path, files[i].ending);
        if (!bytes || lstat(path, &at) == 0)
            continue;
        if (bytes > left) {
            weir__report_error(
                report, config->segment_place,
                "%s does not fit: it needs %llu KiB, and %s has %llu KiB left for it; free %llu KiB, make "
                "%s smaller, or choose another folder",
                path, (unsigned long long)(bytes + 1023) >> 10, folder, (unsigned long long)left >> 10,
                (unsigned long long)(bytes - left + 1023) >> 10, files[i].field);
            return;
        }
        left -= bytes;
    }
}
