/* SPDX-License-Identifier: Apache-2.0 */
/* A program that starts its own ranks: `--devices 2 --strategy ddp`.
 *
 * Options are the first that is known, so this happens there: the first process runs itself again, N times, waits, and
 * returns to main with LC_STOP. Ranks come the same way, find who they are in their environment, and go on. */
#include "launch/launch.h"

#include <lightc/strategy.h>

#include "comm/world/prints.h"
#include "comm/net/socket.h"
#include "comm/world/world.h"
#include "base/io.h"
#include "core/options/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static bool is_auto(const char *text)
{
    return !text || !strcmp(text, "auto");
}

/* Ranks are started through /proc/self/exe, which is this program even if its file has been replaced meanwhile; only
 * the kernel names them after that path, in top and ps. */
static void take_name(void)
{
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "exe")) prctl(PR_SET_NAME, program_invocation_short_name);
}

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
    FILE *f = fopen("/proc/self/cmdline", "re"); /* its size is only known when it has been read */
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

/* ---- by hand, on each machine ---- */

/* Where nobody has chosen a secret, all machines must come to the same one. */
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
                       "num_nodes=%lld, node_rank=%lld: the environment must say where the machines meet: "
                       "MASTER_ADDR=ADDRESS and MASTER_PORT=PORT, an address and a free port of node 0, on all of them",
                       (long long)o->num_nodes, (long long)o->node_rank);
    long number = strtol(port, &end, 10);
    if (*end || number < 1 || number > 65535)
        return lc_fail(LC_ERR_CONFIG, "MASTER_PORT is \"%.60s\"; it must be 1 to 65535", port);
    if (given) LC_TRY(lc__control_check_secret(given));
    if (o->max_restarts > 0)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "max_restarts=%lld: ranks that are started by hand on several machines cannot start again "
                       "together; leave it out, and start them again with --ckpt_path last",
                       (long long)o->max_restarts);
    if (!given) {
        bool alone = lc__socket_is_loopback(address) || !strcmp(address, "localhost"); /* all are on this machine */
        secret_of(address, (int)number, secret);
        if (!alone)
            lc__show_line(2, "warning: LIGHTC_SECRET is not set: whoever reaches MASTER_PORT can disturb this run; set "
                             "it to the same 16 characters or more on all machines");
    }
    plan->secret = given ? given : secret;
    plan->node = (int)o->node_rank;
    plan->address = address;
    plan->port = (int)number;
    return LC_OK;
}

static lc_status launch(const lc_trainer_options *o, int local)
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
                         .root_dir = o->default_root_dir ? o->default_root_dir : ".",
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

/* Who has started the ranks starts them again. */
static lc_status check_restarts(const lc_trainer_options *o, const lc__world *here)
{
    if (o->max_restarts <= 0 || !strcmp(here->launcher, "lightc") || getenv("LIGHTC_RESTARTED")) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "max_restarts=%lld: these ranks were started by %s, and lightc cannot start them again; leave it "
                   "out (torchrun has --max-restarts; a Slurm job is queued again by SIGUSR1, or continued with "
                   "--ckpt_path last), or start the program by `lightc launch` or with --nodes_file",
                   (long long)o->max_restarts, here->launcher);
}

lc_status lc__launch_trainer(const lc_trainer_options *o)
{
    const lc_strategy_ops *strategy;
    lc__world here;
    int local = 1;
    if (o->comm) return LC_OK; /* the program has brought its ranks */
    lc__prints_forward();
    LC_TRY(lc__world_find(&here));
    if (here.size > 1 || !strcmp(here.launcher, "lightc")) { /* this is a rank */
        take_name();
        return check_restarts(o, &here);
    }
    if (o->num_nodes == 1 && o->nodes_file)
        return lc_fail(LC_ERR_CONFIG,
                       "nodes_file=%.200s lists machines, and num_nodes is 1, which is this one: give --num_nodes 2 or "
                       "more, the first of the list; or leave nodes_file out",
                       o->nodes_file);
    if (o->num_nodes == 1 && o->node_rank > 0)
        return lc_fail(LC_ERR_CONFIG, "node_rank is %lld, and num_nodes is 1: say with --num_nodes how many there are",
                       (long long)o->node_rank);
    bool many = o->num_nodes > 1 || (!is_auto(o->devices) && strcmp(o->devices, "1") != 0);
    if (!many && o->max_restarts <= 0) return LC_OK;
    LC_TRY(lc__accelerator_check(o->accelerator));
    if (many) {
        LC_TRY(lc_strategy_find(is_auto(o->strategy) ? "ddp" : o->strategy, &strategy));
        if (!strategy->launches) return LC_OK; /* it says itself what it can do */
        LC_TRY(lc__devices_parse(o->devices, LC_MAX_LOCAL_RANKS, "processes of this machine", &local));
        if (!local) local = 1; /* with all cores */
        if (o->num_nodes > 1 && !o->nodes_file && o->node_rank == LC_UNSET)
            return lc_fail(LC_ERR_CONFIG,
                           "num_nodes=%lld: nothing says how the ranks of the other machines are started. Start this "
                           "program with mpirun, srun or torchrun; or give --nodes_file FILE, which lists the machines "
                           "for mpirun; or start it on each of them with --node_rank 0 to %lld, and MASTER_ADDR and "
                           "MASTER_PORT (an address and a free port of node 0) in the environment",
                           (long long)o->num_nodes, (long long)o->num_nodes - 1);
    }
    return launch(o, local);
}
