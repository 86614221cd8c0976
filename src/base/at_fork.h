/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that run in a forked child, to drop what it must not keep: connections that must end with the parent, and
 * locks held by threads that the child does not have. */
#ifndef LC_BASE_AT_FORK_H
#define LC_BASE_AT_FORK_H

typedef struct lc__at_fork {
    void (*in_child)(void *self); /* in the child; may call what a signal handler may, and initialize locks */
    void *self;
    struct lc__at_fork *next;
} lc__at_fork;

/* It stays registered until it is removed with the same object. */
void lc__at_fork_add(lc__at_fork *f);
void lc__at_fork_remove(lc__at_fork *f); /* one that was never added is fine */

#endif
