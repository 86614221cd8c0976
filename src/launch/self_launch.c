/* SPDX-License-Identifier: Apache-2.0 */
/* Runs this program again as its own ranks. */
#include "launch/launch.h"

#include "comm/world/prints.h"
#include "comm/net/socket.h"
#include "base/io.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what this process was started with ---- */

typedef struct command {
    lc__str text;
    char **argv, exe[PATH_MAX];
} command;

static void command_release(command *c)
{
    lc__str_free(&c->text);
    free(c->argv);
}

/* Not main's arguments, which a program may have changed, or may not have passed on. */
static lc_status command_find(command *c)
{
    size_t count = 0;
    char block[4096];
    ssize_t n = readlink("/proc/self/exe", c->exe, sizeof c->exe - 1);
    if (n < 0) return lc__io_fail(errno, "read", "/proc/self/exe");
    c->exe[n] = 0;
    FILE *f = fopen("/proc/self/cmdline", "re"); /* its size is known only after reading it */
    if (!f) return lc__io_fail(errno, "read", "/proc/self/cmdline");
    while ((n = (ssize_t)fread(block, 1, sizeof block, f)) > 0) lc__str_add_bytes(&c->text, block, (size_t)n);
    fclose(f);
    for (size_t i = 0; i < c->text.n; i++) count += !c->text.s[i];
    c->argv = calloc(count + 2, sizeof *c->argv);
    if (!c->argv || !c->text.n) return lc_fail(LC_ERR_MEMORY, "out of memory: the program's arguments");
    count = 0;
    for (size_t i = 0; i < c->text.n; i += strlen(c->text.s + i) + 1) c->argv[count++] = c->text.s + i;
    return LC_OK;
}

/* ---- started by hand on each machine ---- */

/* If no secret is set, all machines must derive the same one. */
static void secret_of(const char *address, int port, char secret[LC__SECRET_SIZE])
{
    char text[600];
    uint64_t h[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u}; /* FNV-1a, from two starts */
    snprintf(text, sizeof text, "lightc %s %d", address, port);
    for (const char *c = text; *c; c++)
        for (int i = 0; i < 2; i++) h[i] = (h[i] ^ (unsigned char)*c) * 0x100000001b3u;
    snprintf(secret, LC__SECRET_SIZE, "%016llx%016llx", (unsigned long long)h[0], (unsigned long long)h[1]);
}

static lc_status by_hand(const lc_trainer_options *o, lc__run_plan *plan, char secret[LC__SECRET_SIZE])
{
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"), *given = getenv("LIGHTC_SECRET");
    char *end;
    if (o->node_rank < 0 || o->node_rank >= o->num_nodes)
        return lc_fail(LC_ERR_CONFIG, "node_rank is %lld; with num_nodes=%lld it must be 0 to %lld",
                       (long long)o->node_rank, (long long)o->num_nodes, (long long)o->num_nodes - 1);
    if (!address || !*address || !port || !*port)
        return lc_fail(LC_ERR_CONFIG,
                       "num_nodes=%lld, node_rank=%lld: the environment must say where the machines meet with "
                       "MASTER_ADDR=ADDRESS and MASTER_PORT=PORT, an address and a free port of node 0, on all of them",
                       (long long)o->num_nodes, (long long)o->node_rank);
    long number = strtol(port, &end, 10);
    if (*end || number < 1 || number > 65535)
        return lc_fail(LC_ERR_CONFIG, "MASTER_PORT is \"%.60s\"; it must be 1 to 65535", port);
    if (given) LC_TRY(lc__control_check_secret(given));
    if (o->max_restarts > 0)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "max_restarts=%lld: ranks started by hand on several machines cannot be restarted together; "
                       "drop it, and start them again with --ckpt_path last",
                       (long long)o->max_restarts);
    if (!given) {
        bool alone = lc__socket_is_loopback(address) || !strcmp(address, "localhost"); /* all are on this host */
        secret_of(address, (int)number, secret);
        if (!alone)
            lc__show_line(2, "warning: LIGHTC_SECRET is not set: anyone who can reach MASTER_PORT can disturb this "
                             "run; set it to the same 16 or more characters on all machines");
    }
    plan->secret = given ? given : secret;
    plan->node = (int)o->node_rank;
    plan->address = address;
    plan->port = (int)number;
    return LC_OK;
}

lc_status lc__launch_self(const lc_trainer_options *o, int local)
{
    lc_status status = LC_OK;
    command c = {0};
    lc__hosts hosts = {0};
    char secret[LC__SECRET_SIZE];
    int exit_status, *nodes = calloc((size_t)o->num_nodes, sizeof *nodes);
    if (!nodes) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld nodes", (long long)o->num_nodes);
    for (int64_t i = 0; i < o->num_nodes; i++) nodes[i] = local;
    LC_TRY_GOTO(status, done, command_find(&c));
    lc__run_plan plan = {.file = "/proc/self/exe",
                         .argv = c.argv,
                         .nodes = nodes,
                         .num_nodes = (int)o->num_nodes,
                         .node = -1,
                         .max_restarts = (int)o->max_restarts,
                         .terms = (o->use_distributed_sampler ? 0 : LC__OWN_DATA) |
                                  (o->deterministic ? LC__POWER_OF_TWO : 0),
                         .root_dir = lc__dir_or_here(o->default_root_dir),
                         .times = {.start = o->start_timeout,
                                   .silence = o->silence_timeout,
                                   .progress = o->progress_timeout,
                                   .grace = o->grace_period}};
    if (o->nodes_file) {
        plan.file = c.exe;
        LC_TRY_GOTO(status, done, lc__hosts_of_file(o->nodes_file, plan.num_nodes, &hosts));
        status = lc__launch_mpirun(&plan, &hosts, &exit_status);
        goto done;
    }
    if (o->num_nodes > 1) LC_TRY_GOTO(status, done, by_hand(o, &plan, secret));
    status = lc__supervise(&plan, &exit_status);
done:
    command_release(&c);
    lc__hosts_release(&hosts);
    free(nodes);
    return status == LC_OK ? LC_STOP : status;
}
