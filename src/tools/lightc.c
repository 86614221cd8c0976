/* SPDX-License-Identifier: Apache-2.0 */
/* The program `lightc`. To add a sub-command: a file next to this one, its name in CMakeLists.txt, its function in
 * tools.h, a line in the table, and a paragraph in lightc.1. */
#include "tools.h"

#include <lightc/lightc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *usage, *what;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "CONFIG.json|MODULE.so [--OPTION VALUE]...", "train or evaluate a module in a shared object", tool_run},
    {"launch", "[-np N] [-H HOST:N,...] PROGRAM [ARGUMENT]...", "start the ranks of a program", tool_launch},
    {"ckpt", "inspect|diff|consolidate CHECKPOINT...", "inspect a checkpoint, compare two, consolidate a sharded one",
     tool_ckpt},
    {"data", "pack|index|show PATH...", "pack folders of pictures into shards, index shards, and show them", tool_data},
    {"doctor", "[comm [--seconds S]]", "show what this machine trains with; comm: how ranks reach each other",
     tool_doctor},
    {"bench", "comm [--OPTION VALUE]...", "measure the collectives on this machine", tool_bench},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int usage(bool asked)
{
    FILE *f = asked ? stdout : stderr;
    fprintf(f, "usage: lightc COMMAND [ARGUMENT]...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(f, "  %s %s\n      %s\n", commands[i].name, commands[i].usage, commands[i].what);
    fprintf(f, "  --version, --help\n");
    return asked ? 0 : 2;
}

static int command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        printf("lightc %s\n", lc_version());
        return 0;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) return usage(true);
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    return unknown_word("command", name, names, COMMANDS, usage);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a write past the limit on file sizes is an error that names the file */
    int status = command(argc, argv);
    if (status == 0) LC_MAIN_TRY(lc_stdout_flush());
    return status;
}
