/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that a run starts: those it writes to while it goes on, and those whose output it waits for. */
#ifndef LC_BASE_SPAWN_H
#define LC_BASE_SPAWN_H

#include <lightc/status.h>
#include <sys/types.h>

/* Starts `sh -c COMMAND`, with the signals of a fresh program and in a process group of its own: Ctrl-C in a terminal
 * ends the training but not the command that reports it, and the whole group can be killed. `environment` NULL: this
 * program's. With `silent` its output is dropped. *in is the writing end of its standard input; it does not block. The
 * caller blocks SIGPIPE (threads of lc__thread_create do) and waits for *child. */
lc_status lc__spawn_shell(const char *command, char *const *environment, bool silent, pid_t *child,
                          int *in) LC_MUST_USE;

/* Runs a program (searched for in PATH), with the signals of a fresh one and in this process's group; stores the
 * beginning of its output in `text`. Fails if it does not exit with status 0; it is killed after `seconds`. */
lc_status lc__spawn_ask(char *const argv[], double seconds, char *text, size_t size) LC_MUST_USE;

#endif
