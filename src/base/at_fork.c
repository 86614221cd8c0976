/* SPDX-License-Identifier: Apache-2.0 */
/* A fork without exec leaves close-on-exec descriptors open: what should end with a process then lives as long as the
 * last of its children. */
#include "base/at_fork.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static struct {
    pthread_mutex_t lock;
    bool registered;
    lc__at_fork *first;
} of_children = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hold(void)
{
    pthread_mutex_lock(&of_children.lock);
}

static void release(void)
{
    pthread_mutex_unlock(&of_children.lock);
}

static void in_child(void)
{
    for (lc__at_fork *f = of_children.first; f; f = f->next) f->in_child(f->self);
    release();
}

void lc__at_fork_add(lc__at_fork *f)
{
    hold();
    if (!of_children.registered) of_children.registered = pthread_atfork(hold, release, in_child) == 0;
    f->next = of_children.first;
    of_children.first = f;
    release();
}

void lc__at_fork_remove(lc__at_fork *f)
{
    hold();
    for (lc__at_fork **at = &of_children.first; *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    release();
}
