/* SPDX-License-Identifier: Apache-2.0 */
/* Shell commands that a run talks to while it goes on. */
#ifndef LC_CORE_SPAWN_H
#define LC_CORE_SPAWN_H

#include <lightc/status.h>
#include <sys/types.h>

/* Starts `sh -c COMMAND`, with the signals of a fresh program and in a process group of its own: Ctrl-C in a terminal
 * ends the training and not what is told of it, and all of it can be killed. `environment` NULL: this program's. With
 * `silent` what it prints is dropped. *in is the end of its standard input to write to; it does not block. Whoever
 * writes blocks SIGPIPE (threads of lc__thread_create do) and waits for *child. */
lc_status lc__spawn_shell(const char *command, char *const *environment, bool silent, pid_t *child,
                          int *in) LC_MUST_USE;

#endif
