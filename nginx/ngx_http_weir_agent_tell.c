/*
 * What is told of deferred requests in the metrics. The agent knows, and writes it down as lines of the metrics every
 * second, in a file beside the segment; the worker that is asked passes them on.
 */
#include "ngx_http_weir.h"

#define FIGURES_MAX   (1024 * 1024)
#define STALE_SECONDS 5 /* an agent that has not written for so long delivers nothing */

static ngx_fd_t ngx_http_weir_queue_open(const ngx_str_t *segment)
{
    u_char path[NGX_MAX_PATH];
    if (segment->data == NULL || segment->len + sizeof(".queue") > sizeof(path))
        return NGX_INVALID_FILE;
    (void)ngx_sprintf(path, "%V.queue%Z", segment);
    return open((const char *)path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

void ngx_http_weir_queue_metrics(ngx_http_weir_text_t *text, const ngx_str_t *segment)
{
    u_char part[1000]; /* what can be added at once */
    ngx_file_info_t info;
    ssize_t len;
    ngx_fd_t file = ngx_http_weir_queue_open(segment);
    if (file == NGX_INVALID_FILE)
        return;
    if (ngx_fd_info(file, &info) == 0 && ngx_is_file(&info) && ngx_file_size(&info) <= FIGURES_MAX) {
        if (ngx_time() - ngx_file_mtime(&info) > STALE_SECONDS)
            ngx_http_weir_text_add(text, "# HELP weir_queue_drains 1: the agent delivers; 0: it does not.\n"
                                         "# TYPE weir_queue_drains gauge\nweir_queue_drains 0\n");
        else
            while ((len = read(file, part, sizeof(part))) > 0)
                ngx_http_weir_text_add(text, "%*s", (size_t)len, part);
    }
    (void)ngx_close_file(file);
}
