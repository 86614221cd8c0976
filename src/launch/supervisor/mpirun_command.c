/* SPDX-License-Identifier: Apache-2.0 */
/* The command with which mpirun starts the ranks of several hosts. */
#include "launch/supervisor/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "a:4,b:3": hosts without ranks are left out. */
static int add_hosts(const lc__run_plan *plan, const int *nodes, lc__str *out)
{
    int ranks = 0;
    for (int i = 0; i < plan->num_nodes; i++) {
        if (nodes[i]) lc__str_add(out, "%s%s:%d", ranks ? "," : "", plan->hosts->names[i], nodes[i]);
        ranks += nodes[i];
    }
    return ranks;
}

/* Whether mpirun passes the variable on to ranks; on other hosts they get nothing else of this environment. */
static bool goes_along(const char *variable)
{
    static const char *const kinds[] = {"LIGHTC_", "MASTER_", "OMP_", "GOMP_", "KMP_", "CUDA_", "NCCL_"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(variable, kinds[i], strlen(kinds[i]))) return true;
    return false;
}

/* Adds "-x NAME" for each. Returns the number of arguments added. */
static int add_variables(char *const *environment, lc__mpirun *out, const char **argv)
{
    int n = 0;
    for (; *environment; environment++)
        if (goes_along(*environment)) lc__str_add(&out->names, "%.*s\n", (int)strcspn(*environment, "="), *environment);
    for (char *name = out->names.s, *end; name && (end = strchr(name, '\n')); name = end + 1) {
        *end = 0;
        argv[n++] = "-x";
        argv[n++] = name;
    }
    return n;
}

lc_status lc__mpirun_make(const lc__run_plan *plan, const int *nodes, char *const *environment, lc__mpirun *out)
{
    int n = 0, args = 0, variables = 0;
    while (plan->argv[args]) args++;
    while (environment[variables]) variables++;
    out->argv = calloc((size_t)args + 2 * (size_t)variables + 16, sizeof *out->argv);
    snprintf(out->number, sizeof out->number, "%d", add_hosts(plan, nodes, &out->list));
    if (!out->argv) return lc_fail(LC_ERR_MEMORY, "out of memory: the arguments of mpirun");
    out->argv[n++] = "mpirun", out->argv[n++] = "-np", out->argv[n++] = out->number;
    out->argv[n++] = "-H", out->argv[n++] = out->list.s;
    out->argv[n++] = "--bind-to", out->argv[n++] = "none"; /* ranks divide the cores of a host when they meet */
    n += add_variables(environment, out, out->argv + n);
    if (out->list.failed || out->names.failed) return lc_fail(LC_ERR_MEMORY, "out of memory: the arguments of mpirun");
    if (plan->starter) {
        out->argv[n++] = "sh", out->argv[n++] = "-c";
        /* Like mpirun, the shell must search the current directory too. */
        out->argv[n++] = "[ -x \"$0\" ] && exec \"$0\" launch \"$@\"; "
                         "command -v \"$1\" >/dev/null || [ ! -x \"./$1\" ] || exec \"./$@\"; exec \"$@\"";
        out->argv[n++] = plan->starter;
    }
    out->argv[n++] = plan->file;
    for (int i = 1; i < args; i++) out->argv[n++] = plan->argv[i];
    return LC_OK;
}

void lc__mpirun_release(lc__mpirun *m)
{
    lc__str_free(&m->list);
    lc__str_free(&m->names);
    free(m->argv);
    m->argv = NULL;
}
