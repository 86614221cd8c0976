/* SPDX-License-Identifier: Apache-2.0 */
/* lc_launch, which `lightc launch` calls. */
#include "launch/launch.h"

#include "base/args.h"
#include "base/io.h"
#include "comm/world/prints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NODES = 4096 };

static bool is_local(const char *host, size_t n)
{
    return (n == 5 && !strncmp(host, "local", n)) || (n == 9 && !strncmp(host, "localhost", n));
}

/* "a:2,b" */
static lc_status read_hosts(const char *text, lc__hosts *hosts, int *nodes, int *num_nodes, int *ranks, bool *elsewhere)
{
    int locals = 0;
    *num_nodes = *ranks = 0;
    for (const char *at = text; *at; at += *at == ',') {
        size_t n = strcspn(at, ":,");
        const char *host = at;
        char *end = (char *)(uintptr_t)(at + n);
        long slots = *end == ':' ? strtol(end + 1, &end, 10) : 1;
        if (!n || slots < 1 || slots > LC_MAX_LOCAL_RANKS || (*end && *end != ',') || *num_nodes == MAX_NODES)
            return lc_fail(LC_ERR_ARGUMENT,
                           "hosts \"%.100s\": it must look like a:4,b:4 (hosts and their numbers of ranks)", text);
        locals += is_local(host, n);
        LC_TRY(lc__hosts_add(hosts, host, n));
        nodes[(*num_nodes)++] = (int)slots;
        *ranks += (int)slots;
        at = end;
    }
    if (!*num_nodes) return lc_fail(LC_ERR_ARGUMENT, "the list of hosts is empty");
    *elsewhere = locals < *num_nodes;
    if (locals && *elsewhere)
        return lc_fail(LC_ERR_ARGUMENT,
                       "hosts \"%.100s\": \"local\" simulates hosts on this machine and cannot be combined with "
                       "others; use this machine's name",
                       text);
    return LC_OK;
}

/* Whether this process is `lightc`, and its path. For ranks that mpirun starts, `lightc launch` forwards the output, so
 * that all output of ranks other than 0 is kept, whatever the program is. */
static bool is_tool(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    path[n > 0 ? n : 0] = 0;
    const char *name = strrchr(path, '/');
    return name && !strcmp(name, "/lightc");
}

static lc_status become(char *const *argv, int *exit_status)
{
    lc__prints_forward();
    int error = lc__exec(argv);
    *exit_status = lc__exec_status(error);
    return lc__exec_fail(error, argv[0]);
}

static lc_status launch(const lc_launch_args *args, lc__hosts *hosts, int *exit_status)
{
    int nodes[MAX_NODES] = {0}, num_nodes = 1, slots = 0;
    bool elsewhere = false;
    char path[4200];
    const char *rank = getenv("LIGHTC_RANK");
    if (!args->argv || !args->argv[0]) return lc_fail(LC_ERR_ARGUMENT, "no program to launch was given");
    if (!rank && getenv("LIGHTC_KEEP") && getenv("LIGHTC_COORDINATED")) return become(args->argv, exit_status);
    if (rank || getenv("LIGHTC_COORDINATED")) /* a program that launches itself would do so without end */
        return lc_fail(LC_ERR_CONFIG,
                       "this is rank %s of a launched run, and a rank cannot launch others; to start an independent "
                       "run from a rank, unset LIGHTC_RANK and LIGHTC_COORDINATED in its environment",
                       rank ? rank : "(of mpirun)");
    if (args->ranks < 0 || args->max_restarts < 0)
        return lc_fail(LC_ERR_ARGUMENT, "ranks is %d and max_restarts is %d; neither may be negative", args->ranks,
                       args->max_restarts);
    if (!(args->start_timeout > 0 && args->silence_timeout > 0 && args->grace_period > 0))
        return lc_fail(LC_ERR_ARGUMENT,
                       "start_timeout is %g, silence_timeout %g and grace_period %g; all must be positive",
                       args->start_timeout, args->silence_timeout, args->grace_period);
    if (args->hosts) LC_TRY(read_hosts(args->hosts, hosts, nodes, &num_nodes, &slots, &elsewhere));
    int ranks = args->ranks ? args->ranks : slots ? slots : 1;
    if (!args->hosts) nodes[0] = ranks;
    if (args->hosts && ranks > slots)
        return lc_fail(LC_ERR_ARGUMENT, "%d ranks, but \"%.100s\" has room for %d", ranks, args->hosts, slots);
    for (int node = num_nodes - 1; args->hosts && slots > ranks; node--) { /* the last hosts get fewer */
        int drop = slots - ranks < nodes[node] ? slots - ranks : nodes[node];
        nodes[node] -= drop;
        slots -= drop;
        if (!nodes[node]) num_nodes--;
    }
    lc__run_plan plan = {
        .file = args->argv[0],
        .argv = args->argv,
        .nodes = nodes,
        .num_nodes = num_nodes,
        .node = -1,
        .max_restarts = args->max_restarts,
        .root_dir = lc__dir_or_here(args->root_dir),
        .starter = is_tool(path, sizeof path) ? path : NULL,
        .times = {.start = args->start_timeout,
                  .silence = args->silence_timeout,
                  .progress = args->progress_timeout,
                  .grace = args->grace_period},
    };
    return elsewhere ? lc__launch_mpirun(&plan, hosts, exit_status) : lc__supervise(&plan, exit_status);
}

lc_status lc_launch_with(int *exit_status, const lc_launch_args *args)
{
    LC__TAKE(a, lc_launch, lc_launch_args, args, LC_ERR_ARGUMENT);
    int unused;
    lc__hosts hosts = {0};
    if (!exit_status) exit_status = &unused;
    *exit_status = 1;
    lc_status s = launch(&a, &hosts, exit_status);
    lc__hosts_release(&hosts);
    return s;
}
