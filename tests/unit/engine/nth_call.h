/*
 * The Nth call of one kind fails, once or from then on. The test defines CALLS kinds, and which calls belong to them.
 */
#ifndef WEIR_TESTS_NTH_CALL_H
#define WEIR_TESTS_NTH_CALL_H

#include "../../failing.h"
#include "../../test.h"

#include <dirent.h>
#include <errno.h>

static struct {
    bool armed;
    unsigned call;
    int nth, number; /* which call of it fails, and with which errno */
    bool lasting;    /* and so do all after it */
    int calls;       /* so far */
    bool hit;
} fault;

static bool fails(unsigned call)
{
    if (!fault.armed || fault.call != call)
        return false;
    fault.calls++;
    if (fault.lasting ? fault.calls < fault.nth : fault.calls != fault.nth)
        return false;
    fault.hit = true;
    errno = fault.number;
    return true;
}

/* Not active yet: the test may have something to prepare. */
static inline void fault_set(unsigned call, int nth, int number)
{
    memset(&fault, 0, sizeof fault);
    fault.call = call;
    fault.nth = nth;
    fault.number = number;
}

/* Number of entries of a directory: of files that a test leaves, or of descriptors in /proc/self/fd. */
static inline int entries_in(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

#endif
