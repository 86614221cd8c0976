/* SPDX-License-Identifier: Apache-2.0 */
/* The sub-commands of the program `lightc`. They use only the installed headers and the shared library. */
#ifndef LC_TOOLS_TOOLS_H
#define LC_TOOLS_TOOLS_H

#include <lightc/status.h>
#include <stdbool.h>
#include <string.h>

/* Makes text from a file or another host printable, as an argument of printf. */
#define SHOWN(name) lc_printable(name, false, (char[1024]){0}, 1024)

/* argv[0] is the sub-command's name. Returns the program's exit status: 0, 1 for errors, 2 for wrong usage. */
int tool_run(int argc, char **argv);
int tool_launch(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_ckpt(int argc, char **argv);
int tool_data(int argc, char **argv);
int tool_doctor(int argc, char **argv);

/* Prints what this machine has for training, and which precision is fastest on it. */
lc_status machine_show(void) LC_MUST_USE;

/* "2 NVIDIA, 1 AMD": the GPUs in the lists of the kernel below `root`, which is "" except in tests; "" if there is
 * none. size: at least 1. */
void gpus_list(const char *root, char *text, size_t size);

/* The nearest of n words to `word`, at most two letters away; NULL: none. */
const char *nearest_word(const char *word, const char *const *words, int n);

typedef int tool_usage(bool asked); /* prints it, for --help or after wrong usage; returns the exit status */

/* Reports a word that is none of n `words` and suggests the nearest; without one, prints the usage. A word that is
 * empty or one of them only has the usage printed. Returns the exit status. */
int unknown_word(const char *kind, const char *word, const char *const *words, int n, tool_usage *usage);

static inline bool is_help(const char *argument)
{
    return !strcmp(argument, "--help") || !strcmp(argument, "-h");
}

#endif
