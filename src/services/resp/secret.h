/* Comparing what a client says with what it should know. */
#ifndef WEIR_SERVICES_RESP_SECRET_H
#define WEIR_SERVICES_RESP_SECRET_H

#include <weir/weir.h>

/* Takes as long for any secret and however much of it is right: the time depends on what was given alone. */
bool weir__secret_is(weir_text given, weir_text secret);

#endif
