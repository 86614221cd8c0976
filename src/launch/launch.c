/* SPDX-License-Identifier: Apache-2.0 */
/* lc_launch, behind `lightc launch`; and ranks on several hosts, which mpirun starts. */
#include "launch/launch.h"

#include "comm/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAX_NODES = 4096 };

lc_status lc__secret_make(char secret[LC__SECRET_SIZE])
{
    unsigned char bytes[(LC__SECRET_SIZE - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return lc_fail(LC_ERR_IO, "cannot make a secret for the run: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
    return LC_OK;
}

/* ---- mpirun ---- */

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4200];
    for (const char *dir = path, *end; dir; dir = *end ? end + 1 : NULL) {
        end = strchrnul(dir, ':');
        int n = snprintf(file, sizeof file, "%.*s/%s", (int)(end - dir), dir, program);
        if (n > 0 && (size_t)n < sizeof file && access(file, X_OK) == 0) return true;
    }
    return false;
}

/* The address of this machine from which it reaches a host, for the hosts to reach it; one that leads elsewhere goes
 * before loopback. mpirun's own connections come back in the same way. */
static void try_host(const char *host, char *address, size_t size)
{
    char route[64];
    lc__socket_route(host, route, sizeof route);
    if (*route && (!*address || lc__socket_is_loopback(address))) snprintf(address, size, "%s", route);
}

static lc_status find_address(const char *hosts, const char *hostfile, char *address, size_t size)
{
    char line[512];
    int n = 0;
    FILE *f = hosts ? NULL : fopen(hostfile, "re");
    *address = 0;
    if (!hosts && !f) return lc_fail(LC_ERR_NOT_FOUND, "nodes_file: cannot open %s: %s", hostfile, strerror(errno));
    for (const char *at = hosts; at && *at; at += strcspn(at, ","), at += *at == ',', n++) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, ",:"), at);
        try_host(line, address, size);
    }
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \t\r\n:#")] = 0;
        if (!*line) continue;
        try_host(line, address, size);
        n++;
    }
    if (f) fclose(f);
    if (!n) return lc_fail(LC_ERR_CONFIG, "%s names no host", hosts ? hosts : hostfile);
    if (!*address)
        return lc_fail(LC_ERR_CONFIG, "no host of %s can be reached from here: %s", hosts ? hosts : hostfile,
                       lc_error_message());
    return LC_OK;
}

lc_status lc__launch_mpirun(const lc__run_plan *plan, int ranks, const char *hosts, const char *hostfile, int per_node,
                            int *exit_status)
{
    const char *names[] = {"LIGHTC_SECRET", "LIGHTC_COORDINATED", "LIGHTC_RESTARTED", "MASTER_ADDR", "MASTER_PORT"};
    char address[256], number[32], each[32];
    const char *name;
    int n = 0, args = 0;
    if (!in_path("mpirun"))
        return lc_fail(
            LC_ERR_UNSUPPORTED,
            "ranks on other hosts are started by mpirun, which is not in PATH; install Open MPI, or start the "
            "program by hand on each host with --num_nodes N --node_rank I and MASTER_ADDR and MASTER_PORT");
    LC_TRY(find_address(hosts, hostfile, address, sizeof address));
    while (plan->argv[args]) args++;
    const char **argv = calloc((size_t)args + 32, sizeof *argv);
    if (!argv) return lc_fail(LC_ERR_MEMORY, "out of memory: the arguments of mpirun");
    snprintf(number, sizeof number, "%d", ranks);
    snprintf(each, sizeof each, "%d", per_node);
    argv[n++] = "mpirun", argv[n++] = "-np", argv[n++] = number;
    if (hosts) argv[n++] = "-H", argv[n++] = hosts;
    if (!hosts) argv[n++] = "--hostfile", argv[n++] = hostfile, argv[n++] = "-N", argv[n++] = each;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) argv[n++] = "-x", argv[n++] = names[i];
    for (int i = 0; i < LC__TIMES; i++)
        if (lc__time_variable(plan, i, &name) > 0) argv[n++] = "-x", argv[n++] = name;
    argv[n++] = plan->file;
    for (int i = 1; i < args; i++) argv[n++] = plan->argv[i];
    lc__run_plan starter = *plan;
    starter.file = "mpirun";
    starter.argv = (char *const *)(uintptr_t)argv;
    starter.nodes = &ranks;
    starter.num_nodes = 1;
    starter.node = -1;
    starter.address = address;
    starter.starter = true;
    lc_status status = lc__supervise(&starter, exit_status);
    free(argv);
    return status;
}

/* ---- lc_launch ---- */

static bool is_local(const char *host, size_t n)
{
    return (n == 5 && !strncmp(host, "local", n)) || (n == 9 && !strncmp(host, "localhost", n));
}

/* "a:2,b" */
static lc_status read_hosts(const char *text, int *nodes, int *num_nodes, int *ranks, bool *elsewhere)
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
                           "hosts \"%.100s\": it must be like a:4,b:4 (a host, and its number of ranks)", text);
        locals += is_local(host, n);
        nodes[(*num_nodes)++] = (int)slots;
        *ranks += (int)slots;
        at = end;
    }
    if (!*num_nodes) return lc_fail(LC_ERR_ARGUMENT, "there is no host in the list of hosts");
    *elsewhere = locals < *num_nodes;
    if (locals && *elsewhere)
        return lc_fail(LC_ERR_ARGUMENT,
                       "hosts \"%.100s\": \"local\" simulates hosts on this machine, and cannot stand beside others; "
                       "call this machine by its name",
                       text);
    return LC_OK;
}

lc_status lc_launch(const lc_launch_args *args, int *exit_status)
{
    int unused, nodes[MAX_NODES] = {0}, num_nodes = 1, slots = 0;
    bool elsewhere = false;
    if (!exit_status) exit_status = &unused;
    *exit_status = 1;
    if (!args || !args->argv || !args->argv[0]) return lc_fail(LC_ERR_ARGUMENT, "there is no program to launch");
    if (args->ranks < 0 || args->max_restarts < 0)
        return lc_fail(LC_ERR_ARGUMENT, "ranks is %d and max_restarts %d; neither may be negative", args->ranks,
                       args->max_restarts);
    if (args->hosts) LC_TRY(read_hosts(args->hosts, nodes, &num_nodes, &slots, &elsewhere));
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
        .root_dir = args->root_dir ? args->root_dir : ".",
        .times = {.start = args->start_timeout,
                  .silence = args->silence_timeout,
                  .progress = args->progress_timeout,
                  .grace = args->grace_period},
    };
    return elsewhere ? lc__launch_mpirun(&plan, ranks, args->hosts, NULL, 0, exit_status)
                     : lc__supervise(&plan, exit_status);
}
