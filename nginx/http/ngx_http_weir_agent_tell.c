/*
 * What is told in the metrics of deferred requests, and of how many hosts there are. The agent knows, and writes it
 * down as lines of the metrics every second or two, in files beside the segment; the worker that is asked passes them
 * on.
 */
#include "ngx_http_weir.h"
#include "engine/mapped_file.h"

#define FIGURES_MAX (1024 * 1024)
#define QUEUE_STALE 5  /* seconds: an agent that has not written for so long delivers nothing */
#define HOSTS_STALE 15 /* and hears of nobody */

/* A file that another user put there is none: its lines would be taken for ours. */
static ngx_fd_t ngx_http_weir_lines_open(const ngx_http_weir_main_conf_t *mcf, const char *ending)
{
    char path[NGX_MAX_PATH];
    if (mcf->segment == NULL || mcf->segment_path.len + ngx_strlen(ending) + 1 > sizeof(path))
        return NGX_INVALID_FILE;
    (void)ngx_sprintf((u_char *)path, "%V%s%Z", &mcf->segment_path, ending);
    ngx_fd_t file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file == NGX_INVALID_FILE || weir__file_is_trusted(file, path, weir__segment_owner(mcf->segment)))
        return file;
    (void)ngx_close_file(file);
    return NGX_INVALID_FILE;
}

/* Passes the lines of a file on; of one that is too old `instead`. */
static void ngx_http_weir_lines(ngx_http_weir_text_t *text, const ngx_http_weir_main_conf_t *mcf, const char *ending,
                                time_t stale_s, const char *instead)
{
    u_char part[1000]; /* what can be added at once */
    ngx_file_info_t info;
    ssize_t len;
    ngx_fd_t file = ngx_http_weir_lines_open(mcf, ending);
    if (file == NGX_INVALID_FILE)
        return;
    if (ngx_fd_info(file, &info) == 0 && ngx_is_file(&info) && ngx_file_size(&info) <= FIGURES_MAX) {
        if (ngx_time() - ngx_file_mtime(&info) > stale_s)
            ngx_http_weir_text_add(text, "%s", instead);
        else
            while ((len = read(file, part, sizeof(part))) > 0)
                ngx_http_weir_text_add(text, "%*s", (size_t)len, part);
    }
    (void)ngx_close_file(file);
}

void ngx_http_weir_agent_metrics(ngx_http_weir_text_t *text, const ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_lines(text, mcf, ".queue", QUEUE_STALE,
                        "# HELP weir_queue_dispatching 1: the agent delivers; 0: it does not.\n"
                        "# TYPE weir_queue_dispatching gauge\nweir_queue_dispatching 0\n");
    ngx_http_weir_lines(text, mcf, ".hosts.lines", HOSTS_STALE, "");
}
