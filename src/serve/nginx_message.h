/* What nginx says, in words that fit weir.yaml. */
#ifndef WEIR_SERVE_NGINX_MESSAGE_H
#define WEIR_SERVE_NGINX_MESSAGE_H

#include "base/log.h"

enum weir__nginx_level {
    WEIR__NGINX_OTHER,  /* no message of nginx's: a line of a log */
    WEIR__NGINX_NOTICE, /* and less */
    WEIR__NGINX_WARNING,
    WEIR__NGINX_ERROR,
    WEIR__NGINX_FATAL /* emerg: it does not start, or does not take a new configuration */
};

struct weir__nginx_message {
    enum weir__nginx_level level;
    weir_text message; /* without time, process and connection; a piece of the line */
};

struct weir__nginx_message weir__nginx_message_parse(weir_text line);

/* The message as a sentence for the author of weir.yaml; `conf` is the text of nginx's configuration. */
void weir__nginx_message_format(weir_text message, const char *conf, char *buffer, size_t size);

#endif
