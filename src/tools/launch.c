/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc launch -np 4 PROGRAM`: starts the ranks of any program, and is their supervisor. */
#include "tools.h"

#include <lightc/lightc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(const char *wrong)
{
    fprintf(stderr, "error: %s\n", wrong);
    fprintf(stderr, "usage: lightc launch [-np N] [-H HOST:N,HOST:N,...] [--max_restarts N] [--start_timeout S]\n"
                    "       [--silence_timeout S] [--progress_timeout S] [--grace_period S] PROGRAM [ARGUMENT]...\n"
                    "       -H local:2,local:2 simulates two hosts on this one\n");
    return 2;
}

/* At least `least`. */
static bool number(const char *text, int least, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    *out = (int)value;
    return end != text && !*end && value >= least && value < 1000000;
}

/* Seconds. */
static bool amount(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out > 0 && *out < 1e9;
}

int tool_launch(int argc, char **argv)
{
    lc_launch_args args = {0};
    char wrong[256];
    int i = 1, exit_status;
    for (; i < argc && argv[i][0] == '-'; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool ok = value != NULL, known = true;
        if (!strcmp(name, "-np") || !strcmp(name, "-n"))
            ok = ok && number(value, 1, &args.ranks);
        else if (!strcmp(name, "-H") || !strcmp(name, "--hosts"))
            args.hosts = value;
        else if (!strcmp(name, "--max_restarts"))
            ok = ok && number(value, 0, &args.max_restarts);
        else if (!strcmp(name, "--start_timeout"))
            ok = ok && amount(value, &args.start_timeout);
        else if (!strcmp(name, "--silence_timeout"))
            ok = ok && amount(value, &args.silence_timeout);
        else if (!strcmp(name, "--progress_timeout"))
            ok = ok && amount(value, &args.progress_timeout);
        else if (!strcmp(name, "--grace_period"))
            ok = ok && amount(value, &args.grace_period);
        else
            known = false;
        if (known && ok) continue;
        if (!known)
            snprintf(wrong, sizeof wrong, "there is no option %.100s (values stand behind a blank)", name);
        else
            snprintf(wrong, sizeof wrong, "%.40s: \"%.100s\" is no value for it", name, value ? value : "");
        return usage(wrong);
    }
    if (i >= argc) return usage("there is no program to start");
    args.argv = argv + i;
    if (lc_launch(&args, &exit_status) < 0 && !lc_error_is_told()) fprintf(stderr, "error: %s\n", lc_error_message());
    return exit_status;
}
