/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks: real processes of tests/programs/rank_program.c, which do what their options say, under a supervisor
 * that is a process too (lightc launch, or the program itself). How they end: test_launch_ends.c; on several hosts:
 * test_launch_hosts.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "launched.h"

#include <lightc/strategy.h>
#include <limits.h>

#include "launch/launch.h"

/* ---- a rank's environment ---- */

TEST(ranks_find_their_place)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 4 -H local:2,local:2 %s", lightc, program), 0);
    for (int i = 0; i < 4; i++) {
        char want[256];
        snprintf(want, sizeof want,
                 "LIGHTC_RANK=%d LIGHTC_WORLD_SIZE=4 LIGHTC_LOCAL_RANK=%d LIGHTC_LOCAL_SIZE=2 LIGHTC_NODE_RANK=%d "
                 "LIGHTC_NUM_NODES=2 ",
                 i, i % 2, i / 2);
        CHECK_CONTAINS(report(&r, i), want);
        CHECK_CONTAINS(report(&r, i), "MASTER_ADDR=127.0.0.1 ");
        CHECK_CONTAINS(report(&r, i), " secret=32");
    }
    CHECK_STR(r.out, "rank 0 speaks\n"); /* and no other rank does */
    CHECK_STR(r.err, "");
    check_clean(&r, 4);
}

/* Two ranks never share a core if there are two. */
TEST(cores_are_shared_out)
{
    run r;
    lc__cores cores;
    CHECK_OK(lc__cores_find(&cores));
    int n = cores.n_cores >= 2 ? cores.n_cores : cores.n >= 2 ? cores.n : 0;
    int granted = cores.granted < n ? cores.granted : n;
    lc__cores_release(&cores);
    CHECK_EQ(launch(&r, "%s launch -np 2 %s", lightc, program), 0);
    if (granted < 2) {
        CHECK_CONTAINS(report(&r, 0), "OMP_NUM_THREADS=1 ");
        return;
    }
    int first[2] = {-1, -1}, threads = 0;
    for (int i = 0; i < 2; i++) {
        char want[64];
        const char *at = strstr(report(&r, i), " first="), *t = strstr(report(&r, i), "OMP_NUM_THREADS=");
        CHECK(at && t);
        first[i] = atoi(at + 7);
        threads += atoi(t + 16);
        snprintf(want, sizeof want, " cores=%d ", n);
        CHECK(!strstr(report(&r, i), want)); /* not all of them */
    }
    CHECK(first[0] != first[1]);
    CHECK_EQ(threads, granted);
}

static lc__cores machine(struct lc__core *cpus, int packages, int cores, int threads)
{
    int n = 0;
    for (int p = 0; p < packages; p++)
        for (int c = 0; c < cores; c++)
            for (int t = 0; t < threads; t++)
                /* Numbered as on Linux: first the first threads of all cores, then the second ones. */
                cpus[n++] = (struct lc__core){p, p * cores + c, (t * packages + p) * cores + c};
    return (lc__cores){n, packages * cores, n, cpus};
}

TEST(shares_are_whole_neighboring_cores)
{
    struct lc__core cpus[64];
    cpu_set_t set, seen;
    lc__cores two_sockets = machine(cpus, 2, 4, 2); /* 16 processors, 8 cores */
    static const struct {
        int ranks, threads[8], cpus;
    } cases[] = {
        {1, {8}, 16}, {2, {4, 4}, 8}, {3, {2, 3, 3}, 0}, {4, {2, 2, 2, 2}, 4}, {8, {1, 1, 1, 1, 1, 1, 1, 1}, 2}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        CPU_ZERO(&seen);
        for (int i = 0; i < cases[k].ranks; i++) {
            CHECK_EQ(lc__cores_share(&two_sockets, i, cases[k].ranks, &set), cases[k].threads[i]);
            CHECK_EQ(CPU_COUNT(&set), 2 * cases[k].threads[i]); /* with both threads of each */
            if (cases[k].cpus) CHECK_EQ(CPU_COUNT(&set), cases[k].cpus);
            CPU_XOR(&seen, &seen, &set);
        }
        CHECK_EQ(CPU_COUNT(&seen), 16); /* all of them, and each once */
    }
    CHECK_EQ(lc__cores_share(&two_sockets, 1, 2, &set), 4);
    CHECK(CPU_ISSET(4, &set) && CPU_ISSET(12, &set) && !CPU_ISSET(0, &set) &&
          !CPU_ISSET(8, &set));                               /* the second socket */
    CHECK_EQ(lc__cores_share(&two_sockets, 15, 16, &set), 1); /* more ranks than cores share hyperthreads */
    CHECK_EQ(CPU_COUNT(&set), 1);
    CHECK_EQ(lc__cores_share(&two_sockets, 0, 17, &set), 0);
}

/* A container that may use the time of five processors still sees all of them. */
TEST(shares_have_no_more_threads_than_are_granted)
{
    struct lc__core cpus[64];
    cpu_set_t set;
    lc__cores c = machine(cpus, 2, 4, 2);
    static const int threads[3] = {1, 2, 2};
    c.granted = 5;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(lc__cores_share(&c, i, 3, &set), threads[i]);
        CHECK_EQ(CPU_COUNT(&set), i ? 6 : 4); /* a third of the machine */
    }
    CHECK_EQ(lc__cores_share(&c, 0, 1, &set), 5);
    CHECK_EQ(lc__cores_share(&c, 0, 6, &set), 0); /* the ranks take turns */
    c.granted = 12;
    CHECK_EQ(lc__cores_share(&c, 0, 1, &set), 8); /* one per core */
}

/* mpirun binds each rank to a socket, or two to each; the container's quota is for all of them. */
TEST(a_quota_is_for_all_ranks_of_a_machine)
{
    static const int of_four[3] = {1, 1, 2};
    CHECK_EQ(lc__cores_of_quota(32, 4, 0, 2), 2);
    CHECK_EQ(lc__cores_of_quota(32, 4, 1, 2), 2);
    CHECK_EQ(lc__cores_of_quota(1, 4, 0, 2), 1); /* bound to a core */
    CHECK_EQ(lc__cores_of_quota(32, INT_MAX, 1, 2), 32);
    CHECK_EQ(lc__cores_of_quota(32, 4, 5, 8), 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(lc__cores_of_quota(32, 4, i, 3), of_four[i]);
}

TEST(settings_of_the_user_are_kept)
{
    run r;
    setenv("OMP_NUM_THREADS", "7", 1);
    int status = launch(&r, "%s launch -np 2 %s", lightc, program);
    unsetenv("OMP_NUM_THREADS");
    CHECK_EQ(status, 0);
    CHECK_CONTAINS(report(&r, 1), "OMP_NUM_THREADS=7 ");
}

/* ---- starting again ---- */

TEST(ranks_start_again)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 --max_restarts 1 %s --act once --on 1", lightc, program), 0);
    CHECK_CONTAINS(r.err, "rank 1 of 2");
    CHECK_CONTAINS(r.err, "restarting from the last checkpoint with 1 of 2 ranks (1 of 1)");
    CHECK_CONTAINS(report(&r, 0), "LIGHTC_RANK=0 LIGHTC_WORLD_SIZE=1 ");
    CHECK_STR(r.out, "rank 0 speaks\nrank 0 speaks\n");
    check_clean(&r, 2);
    /* The remaining rank becomes rank 0, and the last one restarts by itself. */
    CHECK_EQ(launch(&r, "%s launch -np 2 --max_restarts 2 %s --act kill --on 0", lightc, program), 137);
    CHECK_CONTAINS(r.err, "with 1 of 2 ranks (1 of 2)");
    CHECK_CONTAINS(r.err, "restarting from the last checkpoint (2 of 2)");
    check_clean(&r, 2);
}

/* Only the launcher can: what a program asks of it comes too late. */
TEST(restarts_are_asked_of_the_launcher)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --max_restarts 1 --act once --on 1", lightc, program), 1);
    CHECK_CONTAINS(r.err, "max_restarts=1: the launcher of these ranks restarts them up to 0 times");
    CHECK_CONTAINS(r.err, "of `lightc launch` before the name of the program");
    CHECK_EQ(launch(&r, "%s launch -np 2 --max_restarts 2 %s --max_restarts 1 --act end", lightc, program), 0);
}

/* The numbers are those of an undisturbed run; older runs in the same place are not continued. */
TEST(training_goes_on_from_the_last_checkpoint)
{
    run r;
    char undisturbed[256], result[256];
    CHECK_EQ(launch(&r, "%s --act train", program), 0);
    file_text(r.dir, "result", undisturbed, sizeof undisturbed);
    CHECK_CONTAINS(undisturbed, "batches=16 steps=16 w=");
    start(&r, "%s --act train --on 0 --max_restarts 1", program);
    CHECK_EQ(finish(&r), 0);
    file_text(r.dir, "result", result, sizeof result);
    CHECK_CONTAINS(r.err, "killed by signal 9");
    CHECK_CONTAINS(result, "batches=8 "); /* from the third epoch on */
    CHECK_STR(strstr(result, "steps="), strstr(undisturbed, "steps="));
    /* In the place of that run, which has a checkpoint at the end: a run without checkpoints of its own starts from
     * scratch. */
    again(&r, "%s --act train --on 0 --max_restarts 1 --enable_checkpointing false", program);
    CHECK_EQ(finish(&r), 0);
    file_text(r.dir, "result", result, sizeof result);
    CHECK_STR(result, undisturbed);
    check_clean(&r, 0);
}

/* Either of two ranks is lost: training continues from parts that both have written, and from what SIGUSR1 has
 * saved. */
TEST(training_goes_on_from_sharded_checkpoints)
{
    static const char *const options = "--devices 2 --strategy ddp --state_dict_type sharded "
                                       "--use_distributed_sampler false"; /* each rank has its own loader */
    run r;
    char undisturbed[256], result[256];
    CHECK_EQ(launch(&r, "%s --act train %s", program, options), 0);
    file_text(r.dir, "result", undisturbed, sizeof undisturbed);
    const char *numbers = strstr(undisturbed, "steps=");
    CHECK(numbers);
    for (int rank = 0; rank < 2; rank++) {
        start(&r, "%s --act train --on %d --max_restarts 1 %s", program, rank, options);
        CHECK_EQ(finish(&r), 0);
        CHECK_CONTAINS(r.err, "killed by signal 9");
        file_text(r.dir, "result", result, sizeof result);
        CHECK_STR(strstr(result, "steps="), numbers);
        CHECK(atoi(result + strlen("batches=")) * 2 == atoi(undisturbed + strlen("batches=")));
        check_clean(&r, 0);
    }
    start(&r, "%s --act usr1 --on 1 %s", program, options);
    CHECK_EQ(finish(&r), 0);
    file_text(r.dir, "result", result, sizeof result);
    CHECK_STR(result, undisturbed);
    char part[400];
    snprintf(part, sizeof part, "%s/hpc_ckpt_1.ckpt/tensors-00002-of-00002.safetensors", r.dir);
    CHECK(!access(part, F_OK));
    again(&r, "%s --act train %s --ckpt_path hpc", program, options);
    CHECK_EQ(finish(&r), 0);
    file_text(r.dir, "result", result, sizeof result);
    CHECK_STR(strstr(result, "steps="), numbers);
    CHECK(atoi(result + strlen("batches=")) < atoi(undisturbed + strlen("batches=")) / 2 + 1);
}

/* ---- memory ---- */

/* Memory of a rank's process for a model of 151 MB with gradients and Adam's state, of which this rank has a share;
 * without the memory that its steps need, which the planner knows. */
TEST(memory_of_ranks_follows_the_formula)
{
    static const struct {
        const char *ranks, *strategy;
        double share; /* of the state, for each of two ranks */
        bool stays;   /* in slices from the setup to the end, so its peak is no higher */
    } cases[] = {
        {"-np 2", "ddp", 1, false},
        {"-np 2", "sharded_1", 3.0 / 4, false},
        {"-np 2", "sharded_2", 5.0 / 8, false},
        {"-np 2", "sharded_3", 1.0 / 2, false},
        {"-np 2", "sharded_3", 1.0 / 2, true},
        {"-np 4", "sharded_3", 1.0 / 4, true},
        {"-H local:2,local:2", "sharded_hybrid", 1.0 / 2, true},
    };
#ifdef SANITIZED
    SKIP("a sanitizer takes memory of its own");
#endif
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        int ranks = 0;
        CHECK_EQ(launch(&r, "%s launch %s %s --act hold --threads 1 --strategy %s --gather_parameters %s", lightc,
                        cases[k].ranks, program, cases[k].strategy, cases[k].stays ? "false" : "true"),
                 0);
        for (int rank = 0; rank == 0 || rank < ranks; rank++) {
            char text[256], name[32];
            double states, own, steps, peak, set_up;
            snprintf(name, sizeof name, "memory-%d", rank);
            file_text(r.dir, name, text, sizeof text);
            CHECK(sscanf(text, "ranks=%d states=%lf own=%lf steps=%lf peak=%lf set_up=%lf", &ranks, &states, &own,
                         &steps, &peak, &set_up) == 6);
            if (own < 0) SKIP("this kernel has no /proc/self/smaps_rollup with Pss_Anon");
            if (cases[k].stays && peak < 0) SKIP("this kernel has no /proc/self/clear_refs");
            double want = cases[k].share * states + steps;
            if (!cases[k].stays && !(fabs(own - want) <= 0.05 * want))
                TEST_FAIL("%s, rank %d: %.2f MB of memory, not %.2f", cases[k].strategy, rank, 1e-6 * own, 1e-6 * want);
            if (cases[k].stays && !(peak <= 1.1 * want))
                TEST_FAIL("%s, rank %d: %.2f MB of memory at most, not %.2f", cases[k].strategy, rank, 1e-6 * peak,
                          1e-6 * want);
            /* Only for parameters, gradients and two moments; the later allocations would hide that values were whole
             * before. */
            if (cases[k].stays && !(set_up < states / 4))
                TEST_FAIL("%s, rank %d: %.2f MB of memory before the first step, and the whole model has %.2f",
                          cases[k].strategy, rank, 1e-6 * set_up, 1e-6 * states / 4);
        }
        CHECK_EQ(ranks, k < 5 ? 2 : 4);
    }
}

/* ---- errors ---- */

TEST(mistakes_are_answered)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 0 %s", lightc, program), 2);
    CHECK_CONTAINS(r.err, "-np is \"0\"; it must be a number of ranks, at least 1");
    CHECK_EQ(launch(&r, "%s launch --grace_period=0s %s", lightc, program), 2);
    CHECK_CONTAINS(r.err, "--grace_period is \"0s\"; it must be a number of seconds");
    CHECK_CONTAINS(r.err, "usage: lightc launch ");
    CHECK_EQ(launch(&r, "%s launch", lightc), 2);
    CHECK_EQ(launch(&r, "%s launch --help", lightc), 0);
    CHECK_STR(r.err, "");
    CHECK_CONTAINS(r.out, "usage: lightc launch ");
    CHECK_EQ(launch(&r, "%s launch -np=2 --hosts=local:1,local:1 %s", lightc, program), 0);
    CHECK_CONTAINS(report(&r, 1), "LIGHTC_WORLD_SIZE=2 ");
    CHECK_EQ(launch(&r, "%s launch -np 2 /nowhere/program", lightc), 127);
    CHECK_CONTAINS(r.err, "/nowhere/program");
    CHECK_EQ(launch(&r, "%s launch -np 2 no-program-of-this-name", lightc), 127);
    CHECK_CONTAINS(r.err, "cannot start \"no-program-of-this-name\": it is in neither PATH nor this directory");
    CHECK_EQ(launch(&r, "%s launch -np 2 /dev", lightc), 126);
    CHECK_CONTAINS(r.err, "cannot start \"/dev\": it is a directory");
    CHECK_EQ(launch(&r, "%s launch -np 2 /dev/null", lightc), 126);
    CHECK_CONTAINS(r.err, "cannot start \"/dev/null\": it is not executable");
    CHECK_EQ(launch(&r, "%s launch -np 5 -H local:2,local:2 %s", lightc, program), 1);
    CHECK_CONTAINS(r.err, "has room for 4");
    CHECK_EQ(launch(&r, "%s launch -H local:x %s", lightc, program), 1);
    CHECK_CONTAINS(r.err, "a:4,b:4");
    CHECK_EQ(launch(&r, "%s launch -H local:2,b:2 %s", lightc, program), 1);
    CHECK_CONTAINS(r.err, "use this machine's name");
}

/* As mpirun does. */
TEST(a_program_is_found_in_the_current_directory)
{
    run r;
    char path[400];
    start(&r, "/bin/true");
    CHECK_EQ(finish(&r), 0);
    snprintf(path, sizeof path, "%s/a-program-of-here", r.dir);
    CHECK(!symlink(program, path));
    again(&r, "%s launch -np 2 a-program-of-here", lightc);
    CHECK_EQ(finish(&r), 0);
    CHECK_STR(r.out, "rank 0 speaks\n");
}

/* ---- a program that starts itself ---- */

TEST(one_rank_starts_itself_to_be_started_again)
{
    run r;
    CHECK_EQ(launch(&r, "%s --max_restarts 1 --act once", program), 0);
    CHECK_CONTAINS(report(&r, 0), "LIGHTC_WORLD_SIZE=1 ");
    CHECK_CONTAINS(r.err, "rank 0 of 1");
    check_clean(&r, 1);
    CHECK_EQ(launch(&r, "%s --max_restarts 1 --act exit", program), 1); /* main returns 1 */
    CHECK_CONTAINS(r.err, "error: rank 0 of 1");
}

/* A file can set the option, too. lc_options_parse only parses, and starts nothing. */
TEST(a_file_of_options_starts_a_rank)
{
    run r;
    char path[400];
    snprintf(path, sizeof path, "%s/once.json", scratch_root);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("{\"max_restarts\": 1}", f) >= 0 && fclose(f) == 0);
    CHECK_EQ(launch(&r, "%s --config %s --act once", program, path), 0);
    CHECK_CONTAINS(report(&r, 0), "LIGHTC_WORLD_SIZE=1 ");
    CHECK_CONTAINS(r.err, "rank 0 of 1");
    check_clean(&r, 1);

    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc_option_set trainer = {"options of the trainer", NULL, 0, &o};
    char *argv[] = {(char *)"program", (char *)"--config", path};
    trainer.options = lc_trainer_option_table(&trainer.n);
    CHECK_OK(lc_options_parse(&trainer, 1, "LIGHTC_", 3, argv, &o.storage));
    CHECK_EQ(o.max_restarts, 1);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    lc_trainer_options_release(&o);
}

TEST(a_program_that_does_not_parse_starts_itself)
{
    run r;
    CHECK_EQ(launch(&r, "%s silent", program), 0);
    CHECK_STR(r.out, "rank 0 speaks\nrank_program\n"); /* printed once, and not by the supervisor */
    CHECK_CONTAINS(r.err, "rank 0 of 1 (host ");
    CHECK_CONTAINS(r.err, "killed by signal 9");
}

/* Whatever has started the rank. */
TEST(a_rank_starts_nothing)
{
    run r;
    static const char *const launchers[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                               {"PMI_RANK", "PMI_SIZE"},
                                               {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                               {"RANK", "WORLD_SIZE"}};
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "9", 1);
    for (size_t k = 0; k < sizeof launchers / sizeof *launchers; k++) {
        setenv(launchers[k][0], "0", 1);
        setenv(launchers[k][1], "2", 1);
        setenv("SLURM_STEP_ID", "0", 1);
        int many = launch(&r, "%s --devices 2", program);
        char out[4096];
        snprintf(out, sizeof out, "%s", r.out);
        CHECK_EQ(launch(&r, "%s --max_restarts 1", program), 1); /* nor can it restart them */
        CHECK_CONTAINS(r.err, "max_restarts=1: these ranks were started by");
        setenv(launchers[k][1], "1", 1); /* a single rank can */
        int alone = launch(&r, "%s --max_restarts 1", program);
        unsetenv(launchers[k][0]);
        unsetenv(launchers[k][1]);
        CHECK(many == 0 && alone == 0);
        CHECK_STR(out, "rank - speaks\n");
        CHECK_STR(r.out, "rank 0 speaks\n");
    }
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv("SLURM_STEP_ID");
}

TEST(one_process_stays_one)
{
    run r;
    CHECK_EQ(launch(&r, "%s --devices 1 --strategy single_device", program), 0);
    CHECK_STR(r.out, "rank - speaks\n");
    CHECK_EQ(launch(&r, "%s --devices 2 --strategy single_device", program), 0); /* later refused by the strategy */
    CHECK_STR(r.out, "rank - speaks\n");
    CHECK_EQ(launch(&r, "%s --gpus 2", program), 1);
    CHECK_CONTAINS(r.err, "--accelerator cpu");
    CHECK_EQ(launch(&r, "%s --node_rank 0", program), 0); /* as in the config.json of a run */
    CHECK_STR(r.out, "rank - speaks\n");
    CHECK_EQ(launch(&r, "%s --node_rank 1", program), 1);
    CHECK_CONTAINS(r.err, "--num_nodes");
    CHECK_EQ(launch(&r, "%s --nodes_file hosts --num_nodes 1", program), 1);
    CHECK_CONTAINS(r.err, "--num_nodes");
}

TEST(a_program_starts_its_own_ranks)
{
    run r;
    const lc_strategy_ops *ddp;
    if (lc_strategy_find("ddp", &ddp) < 0 || !ddp->launches) SKIP("there is no strategy ddp");
    static const char *const ways[] = {"--devices 2 --strategy ddp", "--devices 2", "--accelerator cpu --gpus 2",
                                       "--gpus 2 --accelerator cpu", "--num_processes=2"};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        CHECK_EQ(launch(&r, "%s %s", program, ways[k]), 0);
        CHECK_CONTAINS(report(&r, 1), "LIGHTC_RANK=1 LIGHTC_WORLD_SIZE=2 ");
        CHECK_STR(r.out, "rank 0 speaks\n");
        CHECK_STR(r.err, "");
        check_clean(&r, 2);
    }
    CHECK_EQ(launch(&r, "%s --devices 2 --strategy ddp --act exit --on 1", program), 1);
    CHECK_CONTAINS(r.err, "error: rank 1 of 2 (host ");
    CHECK_EQ(launch(&r, "%s --devices many --strategy ddp", program), 1);
    CHECK_CONTAINS(r.err, "devices is \"many\"");
    CHECK_EQ(launch(&r, "%s --num_nodes 2 --strategy ddp", program), 1);
    static const char *const said[] = {"mpirun", "srun", "torchrun", "--nodes_file", "--node_rank", "MASTER_ADDR"};
    for (size_t k = 0; k < sizeof said / sizeof *said; k++) CHECK_CONTAINS(r.err, said[k]);
    CHECK_EQ(launch(&r, "%s --nodes 2 --nr 2 --strategy ddp", program), 1);
    CHECK_CONTAINS(r.err, "node_rank is 2");
    CHECK_EQ(launch(&r, "%s --nodes 2 --nr 1 --strategy ddp", program), 1);
    CHECK_CONTAINS(r.err, "MASTER_PORT");
}

TEST(hosts_of_a_file)
{
    run r;
    char hosts[400];
    snprintf(hosts, sizeof hosts, "%s/hosts", scratch_root);
    FILE *f = fopen(hosts, "w");
    CHECK(f && fputs("# all\nb:4\r\n\nb slots=2", f) >= 0 && fclose(f) == 0);
    CHECK_EQ(launch(&r, "%s --nodes 2 --nodes_file %s", program, hosts), 1);
    CHECK_CONTAINS(r.err, "hosts names 1 host, but num_nodes is 2");
    CHECK_EQ(launch(&r, "%s --nodes 2 --nodes_file .", program), 1);
    CHECK_CONTAINS(r.err, "nodes_file: \".\" is not a file: it is a folder");
}

TEST(devices_are_those_that_were_started)
{
    static const struct {
        const char *start, *options, *said;
    } cases[] = {
        {"-np 2", "--devices 2", NULL},
        {"-np 2", "--devices 3", "devices=3, but lightc started 2 on node 0"},
        {"-np 2", "--devices 1", "devices=1, but lightc started 2 on node 0"},
        {"-np 2", "--devices two", "devices is \"two\"; on CPUs it must be auto or a number"},
        {"-np 2", "--devices 2x", "devices is \"2x\"; on CPUs it must be auto or a number"},
        {"-np 2", "--num_nodes 2", NULL}, /* one rank on each */
        {"-np 2", "--devices 2 --num_nodes 2", "num_nodes=2, but"},
        {"-np 1", "--devices 2 --strategy ddp", "devices=2, but lightc started 1 on node 0"},
        {"-H local:2,local:2", "--devices 2", NULL},
        {"-H local:2,local:2", "--devices 2 --num_nodes 2", NULL},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        int status = launch(&r, "%s launch %s %s --act train --use_distributed_sampler false %s", lightc,
                            cases[k].start, program, cases[k].options);
        CHECK_EQ(status, cases[k].said != NULL);
        if (cases[k].said) CHECK_CONTAINS(r.err, cases[k].said);
        /* without a trainer */
        status = launch(&r, "%s launch %s %s --act share %s", lightc, cases[k].start, program, cases[k].options);
        CHECK_EQ(status, cases[k].said != NULL);
        if (cases[k].said) CHECK_CONTAINS(r.err, cases[k].said);
    }
}

TEST_MAIN
