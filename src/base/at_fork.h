/* SPDX-License-Identifier: Apache-2.0 */
/* What a child of this process is to let go of: connections that must end with this process, and locks that a thread
 * held which the child does not have. */
#ifndef LC_BASE_AT_FORK_H
#define LC_BASE_AT_FORK_H

typedef struct lc__at_fork {
    void (*in_child)(void *self); /* in the child; may call what a signal handler may, and initialise locks */
    void *self;
    struct lc__at_fork *next;
} lc__at_fork;

/* Until it is removed, by the same object. */
void lc__at_fork_add(lc__at_fork *f);
void lc__at_fork_remove(lc__at_fork *f); /* one that was never added is fine */

#endif
