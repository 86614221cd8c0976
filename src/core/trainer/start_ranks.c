/* SPDX-License-Identifier: Apache-2.0 */
/* A program that starts its own ranks: `--devices 2 --strategy ddp`.
 *
 * This happens when options are parsed, the earliest point at which they are known: the first process runs itself again
 * N times, waits, and returns to main with LC_STOP. The ranks take the same path, find their rank in the environment,
 * and continue.
 *
 * `--devices auto` starts no ranks: the program is one process with all cores, or one of the ranks that others have
 * started. */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "core/trainer/start_ranks.h"
#include "base/handle.h"

#include "comm/world/prints.h"
#include "comm/world/world.h"
#include "core/options/options.h"
#include "launch/launch.h"

#include <lightc/strategy.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- whether this program is to start its own ranks ---- */

static bool is_auto(const char *text)
{
    return !text || !strcmp(text, "auto");
}

/* Ranks are started through /proc/self/exe, which is this program even if its file has been replaced. The kernel would
 * name them "exe" in top and ps, so restore the name. */
static void take_name(void)
{
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "exe")) prctl(PR_SET_NAME, program_invocation_short_name);
}

/* Only the process that started the ranks can restart them. */
static lc_status check_restarts(const lc_trainer_options *o, const lc__world *here)
{
    const char *restarted = getenv("LIGHTC_RESTARTED"), *restarts = getenv("LIGHTC_RESTARTS");
    if (o->max_restarts <= 0 || (restarted && *restarted)) return LC_OK;
    if (restarts && atoll(restarts) >= o->max_restarts) return LC_OK;
    if (restarts)
        return lc_fail(LC_ERR_CONFIG,
                       "max_restarts=%lld: the launcher of these ranks restarts them up to %s times; pass it on the "
                       "command line, of `lightc launch` before the name of the program",
                       (long long)o->max_restarts, restarts);
    return lc_fail(LC_ERR_CONFIG,
                   "max_restarts=%lld: these ranks were started by %s, and lightc cannot restart them; drop it "
                   "(torchrun has --max-restarts; a Slurm job is queued again by SIGUSR1, or continued with "
                   "--ckpt_path last), or start the program by `lightc launch` or with --nodes_file",
                   (long long)o->max_restarts, here->launcher);
}

/* This process is a rank. */
static lc_status continue_as_rank(const lc_trainer_options *o, const lc__world *here)
{
    const lc_strategy_ops *strategy;
    int devices = 0;
    take_name();
    bool known = lc_strategy_find(is_auto(o->strategy) ? "ddp" : o->strategy, &strategy) >= 0; /* or added later */
    bool counts = known && strategy->launches;
    if (counts) LC_TRY(lc__devices_parse(o->devices, LC_MAX_LOCAL_RANKS, "processes on a machine", &devices));
    lc__world_set_options(&(lc__control_times){.start = o->start_timeout,
                                               .silence = o->silence_timeout,
                                               .progress = o->progress_timeout,
                                               .grace = o->grace_period},
                          devices, counts ? o->num_nodes : 0);
    return check_restarts(o, here);
}

static lc_status check_nodes(const lc_trainer_options *o)
{
    if (o->num_nodes != 1) return LC_OK;
    if (o->nodes_file)
        return lc_fail(LC_ERR_CONFIG,
                       "nodes_file=%.200s lists machines, but num_nodes is 1, this machine: pass --num_nodes N to use "
                       "the first N of the list, or drop nodes_file",
                       o->nodes_file);
    if (o->node_rank > 0)
        return lc_fail(LC_ERR_CONFIG,
                       "node_rank is %lld, but num_nodes is 1: pass the number of machines with --num_nodes",
                       (long long)o->node_rank);
    return LC_OK;
}

lc_status lc__launch_trainer(const lc_trainer_options *o)
{
    const lc_strategy_ops *strategy;
    lc__world here;
    int local = 1;
    if (o->comm) return LC_OK; /* the program supplies its ranks */
    lc__prints_forward();
    LC_TRY(lc__world_find(&here));
    if (here.size > 1 || !strcmp(here.launcher, "lightc")) return continue_as_rank(o, &here);
    LC_TRY(check_nodes(o));
    bool many = o->num_nodes > 1 || (!is_auto(o->devices) && strcmp(o->devices, "1") != 0);
    if (!many && o->max_restarts <= 0) return LC_OK;
    LC_TRY(lc__accelerator_check(o->accelerator));
    if (many) {
        LC_TRY(lc_strategy_find(is_auto(o->strategy) ? "ddp" : o->strategy, &strategy));
        if (!strategy->launches) return LC_OK; /* the strategy itself reports what it cannot do */
        LC_TRY(lc__devices_parse(o->devices, LC_MAX_LOCAL_RANKS, "processes on this machine", &local));
        if (!local) local = 1; /* with all cores */
        if (o->num_nodes > 1 && !o->nodes_file && o->node_rank == LC_UNSET)
            return lc_fail(LC_ERR_CONFIG,
                           "num_nodes=%lld: this process cannot start ranks on the other machines. Start this "
                           "program with mpirun, srun or torchrun; or give --nodes_file FILE, which lists the machines "
                           "for mpirun; or start it on each of them with --node_rank 0 to %lld, and MASTER_ADDR and "
                           "MASTER_PORT (an address and a free port of node 0) in the environment",
                           (long long)o->num_nodes, (long long)o->num_nodes - 1);
    }
    return lc__launch_self(o, local);
}

/* ---- the command line ---- */

/* trainer: the trainer's options, or some of them; they come last. */
static lc_status parse_options(lc_trainer_options *opt, const lc_option_set *own, int n_own,
                               const lc_option_set *trainer, int argc, char **argv)
{
    enum { MAX_SETS = 8 };
    lc_option_set sets[MAX_SETS];
    lc__str config = {0};
    if (!opt || opt->size == 0)
        return lc_fail(LC_ERR_ARGUMENT, "initialize the options with lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT");
    if (n_own < 0 || n_own >= MAX_SETS)
        return lc_fail(LC_ERR_ARGUMENT, "%d structs of options were given; at most %d can be parsed", n_own,
                       MAX_SETS - 1);
    lc__prints_forward();
    if (opt->storage == &lc__texts_taken) opt->storage = NULL;
    for (int i = 0; i < n_own; i++) sets[i] = own[i];
    sets[n_own] = *trainer;
    lc_status status = lc_options_parse(sets, n_own + 1, "LIGHTC_", argc, argv, &opt->storage);
    if (status != LC_OK) return status;
    if (n_own) lc__options_json(own, n_own, &config);
    status = config.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: options") : LC_OK;
    if (status >= 0 && config.n) status = lc__options_keep(&opt->storage, config.s, &opt->own_config);
    lc__str_free(&config);
    if (status < 0) return status;
    status = lc__launch_trainer(opt);
    if (status != LC_OK) { /* main returns now and does not need the options any more */
        lc_trainer_options_release(opt);
        opt->own_config = NULL;
    }
    return status;
}

lc_status lc_trainer_options_parse_sets(lc_trainer_options *opt, const lc_option_set *own, int n_own, int argc,
                                        char **argv)
{
    LC__NEEDS(opt, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("own", n_own, own));
    if (argc > 1) LC__NEEDS(argv, LC_ERR_ARGUMENT);
    lc_option_set trainer = {"options of the trainer", NULL, 0, opt};
    trainer.options = lc_trainer_option_table(&trainer.n);
    return parse_options(opt, own, n_own, &trainer, argc, argv);
}

lc_status lc_trainer_options_parse_used(lc_trainer_options *opt, const char *used, const lc_option *options, int n,
                                        void *target, int argc, char **argv)
{
    LC_TRY(lc__list_check("options", n, options));
    if (n > 0) LC__NEEDS(target, LC_ERR_ARGUMENT);
    if (argc > 1) LC__NEEDS(argv, LC_ERR_ARGUMENT);
    lc_option few[LC__TRAINER_OPTIONS];
    lc_option_set own = {"options of this program", options, n, target};
    lc_option_set trainer = {"the machine, and how to run", few, 0, opt};
    LC_TRY(lc__trainer_options_used(used, few, &trainer.n));
    return parse_options(opt, &own, n > 0, &trainer, argc, argv);
}

lc_status lc_trainer_options_parse_with(lc_trainer_options *opt, const lc_option *options, int n, void *target,
                                        int argc, char **argv)
{
    LC__NEEDS(opt, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("options", n, options));
    if (n > 0) LC__NEEDS(target, LC_ERR_ARGUMENT);
    if (argc > 1) LC__NEEDS(argv, LC_ERR_ARGUMENT);
    lc_option_set own = {"options of this program", options, n, target};
    return lc_trainer_options_parse_sets(opt, &own, n > 0, argc, argv);
}

lc_status lc_trainer_options_parse(lc_trainer_options *opt, int argc, char **argv)
{
    LC__NEEDS(opt, LC_ERR_ARGUMENT);
    if (argc > 1) LC__NEEDS(argv, LC_ERR_ARGUMENT);
    return lc_trainer_options_parse_sets(opt, NULL, 0, argc, argv);
}
