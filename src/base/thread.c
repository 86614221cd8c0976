/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "base/float_traps.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int lc__thread_create(pthread_t *thread, void *(*run)(void *), void *arg)
{
    LC__WITHOUT_TRAPS(); /* a thread begins with those of its creator */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

lc_status lc__thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *purpose, ...)
{
    int error = lc__thread_create(thread, run, arg);
    if (!error) return LC_OK;
    char what[200];
    va_list args;
    va_start(args, purpose);
    vsnprintf(what, sizeof what, purpose, args);
    va_end(args);
    return lc_fail(LC_ERR_MEMORY, "cannot start a thread for %s: %s", what, strerror(error));
}
