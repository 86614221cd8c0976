/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc launch -np 4 PROGRAM`: starts the ranks of any program, and supervises them. */
#include "tools.h"

#include <lightc/lightc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: lightc launch [OPTION VALUE | OPTION=VALUE]... PROGRAM [ARGUMENT]...\n\n"
                           "  -np, -n N               ranks; default: those --hosts has room for, else 1\n"
                           "  -H, --hosts HOST:N,...  N ranks on each host, with mpirun;\n"
                           "                          local:2,local:2 simulates two hosts on this one\n"
                           "  --max_restarts N        when ranks are lost, restart the remaining ones,\n"
                           "                          up to N times; default: 0\n"
                           "  --start_timeout S       seconds within which all ranks must join; default: 300\n"
                           "  --silence_timeout S     seconds without a heartbeat, after which a rank is\n"
                           "                          lost; default: 10\n"
                           "  --progress_timeout S    seconds without a step (-1: any time); default:\n"
                           "                          20 times the longest step so far, at least 1800\n"
                           "  --grace_period S        seconds from the end of a failed run until its ranks\n"
                           "                          are killed; default: 2\n"
                           "  -h, --help\n";

static int usage(const char *wrong)
{
    char shown[512];
    fprintf(stderr, "error: %s\n%s", lc_printable(wrong, false, shown, sizeof shown), help);
    return 2;
}

/* Parses a number of at least `least`. */
static bool number(const char *text, int least, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    *out = (int)value;
    return end != text && !*end && value >= least && value < 1000000;
}

static bool amount(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out > 0 && *out < 1e9;
}

/* Sets an option; *ok: whether the value is valid. Returns what the value must be; NULL: unknown option. */
static const char *take(lc_launch_args *args, const char *name, const char *value, bool *ok)
{
    static const char seconds[] = "a number of seconds above 0";
    *ok = true;
    if (!strcmp(name, "-np") || !strcmp(name, "-n"))
        return *ok = number(value, 1, &args->ranks), "a number of ranks, at least 1";
    if (!strcmp(name, "-H") || !strcmp(name, "--hosts")) return args->hosts = value, "like a:4,b:4";
    if (!strcmp(name, "--max_restarts")) return *ok = number(value, 0, &args->max_restarts), "a number, at least 0";
    if (!strcmp(name, "--start_timeout")) return *ok = amount(value, &args->start_timeout), seconds;
    if (!strcmp(name, "--silence_timeout")) return *ok = amount(value, &args->silence_timeout), seconds;
    if (!strcmp(name, "--progress_timeout"))
        return *ok =
                   !strcmp(value, "-1") ? (args->progress_timeout = -1, true) : amount(value, &args->progress_timeout),
               "a number of seconds above 0, or -1: unlimited";
    if (!strcmp(name, "--grace_period")) return *ok = amount(value, &args->grace_period), seconds;
    return NULL;
}

int tool_launch(int argc, char **argv)
{
    static const char *const options[] = {
        "--hosts",        "--max_restarts", "--start_timeout", "--silence_timeout", "--progress_timeout",
        "--grace_period", "--help"};
    lc_launch_args args = lc_launch_defaults();
    char wrong[300], name[64];
    int i = 1, exit_status;
    while (i < argc && argv[i][0] == '-') {
        const char *option = argv[i++], *equals = strchr(option, '=');
        if (!strcmp(option, "--")) break;
        int length = equals ? (int)(equals - option) : (int)strlen(option);
        bool ok;
        if (is_help(option)) {
            fputs(help, stdout);
            return 0;
        }
        snprintf(name, sizeof name, "%.*s", length, option);
        const char *value = equals ? equals + 1 : i < argc ? argv[i++] : "";
        const char *must_be = take(&args, name, value, &ok);
        if (must_be && ok && *value) continue;
        const char *meant = must_be ? NULL : nearest_word(name, options, (int)(sizeof options / sizeof *options));
        if (meant) {
            fprintf(stderr, "error: unknown option \"%s\"; did you mean \"%s\"?\n",
                    lc_printable(name, false, wrong, sizeof wrong), meant);
            return 2;
        }
        if (!must_be)
            snprintf(wrong, sizeof wrong, "unknown option %.100s", option);
        else
            snprintf(wrong, sizeof wrong, "%s is \"%.100s\"; it must be %s", name, value, must_be);
        return usage(wrong);
    }
    if (i >= argc) return usage("no program to start was given");
    args.argv = argv + i;
    if (lc_launch_with(&exit_status, &args) < 0 && !lc_error_is_reported())
        fprintf(stderr, "error: %s\n", lc_error_message());
    return exit_status;
}
