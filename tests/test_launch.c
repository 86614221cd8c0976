/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks: real processes of tests/rank_program.c, which do as they are told, under a supervisor that is a
 * process too (lightc launch, or the program itself). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "launched.h"

#include <lightc/strategy.h>

#include "launch/launch.h"

static char talking[PATH_MAX + 32]; /* last_calls_program: ranks that have a communicator */

__attribute__((constructor)) static void find_talking(void)
{
    snprintf(talking, sizeof talking, "%.*s/last_calls_program", (int)(strrchr(program, '/') - program), program);
}

/* ---- what a rank finds ---- */

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
    CHECK_STR(r.out, "rank 0 speaks\n"); /* and nobody else */
    CHECK_STR(r.err, "");
    check_clean(&r, 4);
}

/* Two ranks never share a core where there are two. */
TEST(cores_are_shared_out)
{
    run r;
    lc__cores cores;
    CHECK_OK(lc__cores_find(&cores));
    int n = cores.n_cores >= 2 ? cores.n_cores : cores.n >= 2 ? cores.n : 0;
    lc__cores_release(&cores);
    CHECK_EQ(launch(&r, "%s launch -np 2 %s", lightc, program), 0);
    if (!n) {
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
    CHECK_EQ(threads, n);
}

static lc__cores machine(struct lc__core *cpus, int packages, int cores, int threads)
{
    int n = 0;
    for (int p = 0; p < packages; p++)
        for (int c = 0; c < cores; c++)
            for (int t = 0; t < threads; t++)
                /* As Linux numbers them: first threads of all cores, then the second ones. */
                cpus[n++] = (struct lc__core){p, p * cores + c, (t * packages + p) * cores + c};
    return (lc__cores){n, packages * cores, cpus};
}

TEST(shares_are_whole_neighbouring_cores)
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
        CHECK_EQ(CPU_COUNT(&seen), 16); /* all, and none twice */
    }
    CHECK_EQ(lc__cores_share(&two_sockets, 1, 2, &set), 4);
    CHECK(CPU_ISSET(4, &set) && CPU_ISSET(12, &set) && !CPU_ISSET(0, &set) &&
          !CPU_ISSET(8, &set));                               /* the second socket */
    CHECK_EQ(lc__cores_share(&two_sockets, 15, 16, &set), 1); /* more ranks than cores: hyperthreads */
    CHECK_EQ(CPU_COUNT(&set), 1);
    CHECK_EQ(lc__cores_share(&two_sockets, 0, 17, &set), 0);
}

TEST(what_the_user_has_set_stays)
{
    run r;
    setenv("OMP_NUM_THREADS", "7", 1);
    int status = launch(&r, "%s launch -np 2 %s", lightc, program);
    unsetenv("OMP_NUM_THREADS");
    CHECK_EQ(status, 0);
    CHECK_CONTAINS(report(&r, 1), "OMP_NUM_THREADS=7 ");
}

/* ---- ends ---- */

TEST(a_status_is_the_run_s)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act exit --on 0", lightc, program), 3);
    CHECK_CONTAINS(r.err, "rank 0 of 2 (host ");
    CHECK_CONTAINS(r.err, "ended with status 3");
    check_clean(&r, 2);
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act exit --on 1", lightc, program), 3);
    CHECK_CONTAINS(r.err, "rank 1 of 2 (host ");
    check_clean(&r, 2);
}

TEST(a_rank_that_is_killed_ends_all)
{
    run r;
    for (int victim = 0; victim < 3; victim++) {
        char want[64];
        start(&r, "%s launch -np 3 %s --act hang", lightc, program);
        for (int i = 0; i < 3; i++) pid_of(&r, i);
        pause_ms(50); /* until it ignores SIGTERM */
        double killed = seconds();
        CHECK(!kill(pid_of(&r, victim), SIGKILL));
        CHECK_EQ(finish(&r), 137);
        CHECK(seconds() - killed < patience(3));
        snprintf(want, sizeof want, "rank %d of 3 (host ", victim);
        CHECK_CONTAINS(r.err, want);
        CHECK_CONTAINS(r.err, "killed by signal 9 (");
        check_clean(&r, 3);
    }
}

/* Ranks that have met know why they end, at once. */
TEST(ranks_hear_of_a_loss)
{
    run r;
    double killed;
    char want[64];
    for (int victim = 0; victim < 2; victim++) {
        start(&r, "%s launch -np 3 %s --act meet", lightc, program);
        wait_for(&r, "out", "rank 0 has met 3\n");
        killed = seconds();
        CHECK(!kill(pid_of(&r, victim), SIGKILL));
        CHECK_EQ(finish(&r), 137);
        CHECK(seconds() - killed < patience(1.5));
        snprintf(want, sizeof want, "rank %d (host ", victim);
        CHECK_CONTAINS(r.err, want);
        CHECK_CONTAINS(r.err, ", step 7, the middle: killed by signal 9 (");
        if (victim) CHECK_CONTAINS(r.err, "rank 0 hears: rank 1 (host ");
        check_clean(&r, 3);
    }
    start(&r, "%s launch -np 3 --silence_timeout %g %s --act meet", lightc, patience(1), program);
    wait_for(&r, "out", "rank 0 has met 3\n");
    killed = seconds();
    CHECK(!kill(pid_of(&r, 2), SIGSTOP));
    CHECK(finish(&r) != 0);
    CHECK(seconds() - killed < patience(1 + 3));
    CHECK_CONTAINS(r.err, "error: rank 2 (host ");
    CHECK_CONTAINS(r.err, "nothing was heard");
    check_clean(&r, 3);
}

/* A rank that is stopped has no use for a grace period, and none that could heed the end need be left. */
TEST(stopped_ranks_are_not_waited_for)
{
    for (int all = 0; all < 2; all++) {
        run r;
        start(&r, "%s launch -np 2 --silence_timeout %g --grace_period %g %s --act meet", lightc, patience(1),
              all ? 1 : 10 * patience(1), program);
        wait_for(&r, "out", "rank 0 has met 2\n");
        double stopped = seconds();
        for (int i = !all; i < 2; i++) CHECK(!kill(pid_of(&r, i), SIGSTOP));
        CHECK(finish(&r) != 0);
        CHECK(seconds() - stopped < patience(1 + 3));
        CHECK_CONTAINS(r.err, all ? "error: rank " : "error: rank 1 (host ");
        CHECK_CONTAINS(r.err, "nothing was heard");
        check_clean(&r, 2);
    }
}

static char state_of(pid_t pid)
{
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    if (f) fclose(f);
    return state;
}

/* Longer than silence is suffered. */
TEST(ranks_stop_and_go_on_with_their_supervisor)
{
    run r;
    start(&r, "%s launch -np 2 --silence_timeout 2 %s --act meet", lightc, program);
    wait_for(&r, "out", "rank 0 has met 2\n");
    CHECK(!kill(r.pid, SIGTSTP));
    bool all = false;
    for (int ms = 0; ms < patience(2000) && !all; ms += 10) {
        all = state_of(r.pid) == 'T' && state_of(pid_of(&r, 0)) == 'T' && state_of(pid_of(&r, 1)) == 'T';
        pause_ms(10);
    }
    CHECK(all);
    pause_ms(4000);
    CHECK(!kill(r.pid, SIGCONT));
    pause_ms(3000);
    CHECK(!is_gone(pid_of(&r, 0)) && !is_gone(pid_of(&r, 1)) && state_of(pid_of(&r, 1)) != 'T');
    CHECK(!kill(pid_of(&r, 1), SIGKILL));
    CHECK_EQ(finish(&r), 137);
    CHECK_CONTAINS(r.err, "killed by signal 9");
    check_clean(&r, 2);
}

TEST(a_rank_that_never_comes_is_named)
{
    run r;
    CHECK(launch(&r, "%s launch -np 3 --start_timeout 1 %s --act late --on 2", lightc, program) != 0);
    CHECK_CONTAINS(r.err, "error: rank 2 of 3 did not come within 1 s");
    check_clean(&r, 3);
}

TEST(output_is_kept_and_shown)
{
    run r;
    char all[8192];
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act print --on 1", lightc, program), 1);
    CHECK_CONTAINS(r.err, "line 60 of the output\n");
    CHECK_CONTAINS(r.err, "line 41 of the output\n");
    CHECK(!strstr(r.err, "line 40 of the output"));
    CHECK_CONTAINS(r.err, "rank-1.log");
    read_file(&r, "rank-1.log", all, sizeof all);
    CHECK_CONTAINS(all, "rank 1 speaks\nline 1 of the output\n");
    CHECK_CONTAINS(all, "line 60 of the output\n");
    check_clean(&r, 2);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

/* Whatever happens to however many ranks: one message, which says it. */
TEST(a_failure_is_told_once)
{
    static const struct {
        const char *options, *said;
    } cases[] = {{"--fault error --phase forward --on 0 --at 3", "the sensor of rank 0 is unplugged"},
                 {"--fault error --phase forward --on 1 --at 3", "the sensor of rank 1 is unplugged"},
                 {"--fault kill --phase forward --on 0 --at 12", "killed by signal 9"},
                 {"--fault kill --phase forward --on 1 --at 12", "killed by signal 9"},
                 {"--memory_limit 1000", "memory_limit"},
                 {"--ckpt_path /nowhere/at.ckpt", "/nowhere/at.ckpt"},
                 {"--max_epocs 3", "max_epochs"}};
    char disturbed[PATH_MAX + 32];
    snprintf(disturbed, sizeof disturbed, "%.*s/fault_program", (int)(strrchr(program, '/') - program), program);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        CHECK_EQ(launch(&r, "%s --devices 2 --strategy ddp %s", disturbed, cases[k].options), 1);
        if (count(r.err, "error: ") != 1 || count(r.err, cases[k].said) != 1)
            TEST_FAIL("%s: %s", cases[k].options, r.err);
    }
    /* Ranks that end alike before they meet: what rank 0 said is on the screen, and nobody else's is shown. */
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act print", lightc, program), 1);
    CHECK_EQ(count(r.err, "line 60 of the output\n"), 1);
    CHECK_EQ(count(r.err, "error: "), 1);
    CHECK_CONTAINS(r.err, "error: rank 0 of 3 (host ");
}

TEST(the_end_of_an_output)
{
    int fd;
    bool more;
    lc__str text = {0};
    CHECK_OK(lc__output_open(scratch_root, &fd));
    lc__output_tail(fd, 3, &text, &more);
    CHECK(text.n == 0 && !more);
    dprintf(fd, "a\nb\nc\n");
    lc__output_tail(fd, 3, &text, &more);
    CHECK_STR(text.s, "a\nb\nc\n");
    CHECK(!more);
    lc__str_clear(&text);
    dprintf(fd, "\nd");
    lc__output_tail(fd, 3, &text, &more);
    CHECK_STR(text.s, "c\n\nd\n");
    CHECK(more);
    lc__str_clear(&text);
    for (int i = 0; i < 100000; i++) CHECK(write(fd, "x", 1) == 1); /* one line, longer than what is searched */
    lc__output_tail(fd, 3, &text, &more);
    CHECK(text.n > 60000 && text.n < 100000 && more);
    lc__str_free(&text);
    close(fd);
}

TEST(signals_are_passed_on)
{
    run r;
    start(&r, "%s launch -np 2 %s --act term", lightc, program);
    for (int i = 0; i < 2; i++) pid_of(&r, i);
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 0); /* they had their time, and ended well */
    CHECK_STR(r.err, "rank 0 was told to end\n");
    check_clean(&r, 2);

    start(&r, "%s launch -np 2 %s --act exit --on 7", lightc, program);
    for (int i = 0; i < 2; i++) pid_of(&r, i);
    pause_ms(50); /* until SIGTERM is let through */
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 128 + SIGTERM);
    CHECK_CONTAINS(r.err, "stopped by signal 15");
    check_clean(&r, 2);
}

/* As Ctrl-C does, and as a batch system does: ranks save, and the status says why the run ended. */
TEST(an_interrupted_training_says_so)
{
    static const struct {
        int signal;
        const char *said;
    } cases[] = {{SIGINT, "stopped by SIGINT after step "}, {SIGTERM, "stopped by SIGTERM after step "}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        start(&r, "%s --act slow --devices 2 --use_distributed_sampler false", program);
        wait_for(&r, "out", "a step\n");
        CHECK(!kill(r.pid, cases[k].signal));
        CHECK_EQ(finish(&r), 128 + cases[k].signal);
        CHECK_CONTAINS(r.err, cases[k].said);
        CHECK_CONTAINS(r.err, "continue with --ckpt_path ");
        check_clean(&r, 2);
    }
}

TEST(ranks_do_not_outlive_their_supervisor)
{
    run r;
    start(&r, "%s launch -np 3 %s --act hang", lightc, program);
    for (int i = 0; i < 3; i++) pid_of(&r, i);
    CHECK(!kill(r.pid, SIGKILL));
    CHECK_EQ(finish(&r), 137);
    CHECK(all_gone(&r, 3, (int)patience(2000)));
    check_clean(&r, 3);
}

TEST(ranks_start_again)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 --max_restarts 1 %s --act once --on 1", lightc, program), 0);
    CHECK_CONTAINS(r.err, "rank 1 of 2");
    CHECK_CONTAINS(r.err, "starting again from the last checkpoint with 1 of 2 ranks (1 of 1)");
    CHECK_CONTAINS(report(&r, 0), "LIGHTC_RANK=0 LIGHTC_WORLD_SIZE=1 ");
    CHECK_STR(r.out, "rank 0 speaks\nrank 0 speaks\n");
    check_clean(&r, 2);
    /* Whoever is left is rank 0, and the last one starts again alone. */
    CHECK_EQ(launch(&r, "%s launch -np 2 --max_restarts 2 %s --act kill --on 0", lightc, program), 137);
    CHECK_CONTAINS(r.err, "with 1 of 2 ranks (1 of 2)");
    CHECK_CONTAINS(r.err, "starting again from the last checkpoint (2 of 2)");
    check_clean(&r, 2);
}

/* The numbers are those of a run that nobody has disturbed; older runs in the same place are not gone on from. */
TEST(training_goes_on_from_the_last_checkpoint)
{
    run r;
    char undisturbed[256], result[256];
    CHECK_EQ(launch(&r, "%s --act train", program), 0);
    read_file(&r, "result", undisturbed, sizeof undisturbed);
    CHECK_CONTAINS(undisturbed, "batches=16 steps=16 w=");
    start(&r, "%s --act train --on 0 --max_restarts 1", program);
    CHECK_EQ(finish(&r), 0);
    read_file(&r, "result", result, sizeof result);
    CHECK_CONTAINS(r.err, "killed by signal 9");
    CHECK_CONTAINS(result, "batches=8 "); /* of the third epoch on */
    CHECK_STR(strstr(result, "steps="), strstr(undisturbed, "steps="));
    /* In the place of that run, whose checkpoint is at the end: a run without checkpoints of its own starts anew. */
    again(&r, "%s --act train --on 0 --max_restarts 1 --enable_checkpointing false", program);
    CHECK_EQ(finish(&r), 0);
    read_file(&r, "result", result, sizeof result);
    CHECK_STR(result, undisturbed);
    check_clean(&r, 0);
}

/* A rank of two is lost, whichever: from parts that both have written. And from what SIGUSR1 left on the way. */
TEST(training_goes_on_from_sharded_checkpoints)
{
    static const char *const options = "--devices 2 --strategy ddp --state_dict_type sharded "
                                       "--use_distributed_sampler false"; /* its loader is its own */
    run r;
    char undisturbed[256], result[256];
    CHECK_EQ(launch(&r, "%s --act train %s", program, options), 0);
    read_file(&r, "result", undisturbed, sizeof undisturbed);
    const char *numbers = strstr(undisturbed, "steps=");
    CHECK(numbers);
    for (int rank = 0; rank < 2; rank++) {
        start(&r, "%s --act train --on %d --max_restarts 1 %s", program, rank, options);
        CHECK_EQ(finish(&r), 0);
        CHECK_CONTAINS(r.err, "killed by signal 9");
        read_file(&r, "result", result, sizeof result);
        CHECK_STR(strstr(result, "steps="), numbers);
        CHECK(atoi(result + strlen("batches=")) * 2 == atoi(undisturbed + strlen("batches=")));
        check_clean(&r, 0);
    }
    start(&r, "%s --act usr1 --on 1 %s", program, options);
    CHECK_EQ(finish(&r), 0);
    read_file(&r, "result", result, sizeof result);
    CHECK_STR(result, undisturbed);
    char part[400];
    snprintf(part, sizeof part, "%s/hpc_ckpt_1.ckpt/tensors-00002-of-00002.safetensors", r.dir);
    CHECK(!access(part, F_OK));
    again(&r, "%s --act train %s --ckpt_path hpc", program, options);
    CHECK_EQ(finish(&r), 0);
    read_file(&r, "result", result, sizeof result);
    CHECK_STR(strstr(result, "steps="), numbers);
    CHECK(atoi(result + strlen("batches=")) < atoi(undisturbed + strlen("batches=")) / 2 + 1);
}

/* ---- memory ---- */

/* What a rank's process takes for a model of 133 MB with gradients and Adam's state, of which a share lies on this
 * rank; beside what its steps need, which the planner knows. */
TEST(ranks_take_what_the_formula_says)
{
    static const struct {
        const char *ranks, *strategy;
        double share; /* of the state, on one of two ranks */
    } cases[] = {
        {"-np 2", "ddp", 1},
        {"-np 2", "sharded_1", 3.0 / 4},
        {"-np 2", "sharded_2", 5.0 / 8},
        {"-np 2", "sharded_3", 1.0 / 2},
        {"-H local:2,local:2", "sharded_hybrid", 1.0 / 2},
    };
#ifdef SANITIZED
    SKIP("a sanitizer takes memory of its own");
#endif
    if (access("/proc/self/status", R_OK) != 0) SKIP("there is no /proc/self/status");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        int ranks = 0;
        CHECK_EQ(launch(&r, "%s launch %s %s --act hold --threads 1 --strategy %s", lightc, cases[k].ranks, program,
                        cases[k].strategy),
                 0);
        for (int rank = 0; rank == 0 || rank < ranks; rank++) {
            char text[256], name[32];
            double states, anonymous, steps;
            snprintf(name, sizeof name, "memory-%d", rank);
            read_file(&r, name, text, sizeof text);
            CHECK(sscanf(text, "ranks=%d states=%lf anonymous=%lf steps=%lf", &ranks, &states, &anonymous, &steps) ==
                  4);
            if (anonymous < 0) SKIP("this kernel does not tell RssAnon");
            double want = cases[k].share * states + steps;
            if (!(fabs(anonymous - want) <= 0.05 * want))
                TEST_FAIL("%s, rank %d: %.2f MB of memory, not %.2f", cases[k].strategy, rank, 1e-6 * anonymous,
                          1e-6 * want);
        }
        CHECK_EQ(ranks, k == 4 ? 4 : 2);
    }
}

/* ---- several machines ---- */

/* Two supervisors, as on two machines. */
TEST(nodes_that_are_started_by_hand)
{
    static const char *const acts[] = {"end", "meet"};
    char dir[300];
    int port = 0;
    lc__coordinator *c;
    for (int k = 0; k < 2; k++) {
        run r = {0};
        snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
        snprintf(dir, sizeof dir, "%s", r.dir);
        /* A port that is free. */
        CHECK_OK(lc__coordinator_start(NULL, &port, 1, "0123456789abcdef", NULL, &c));
        lc__coordinator_stop(c);
        pid_t nodes[2];
        double begun = seconds();
        fflush(stdout);
        for (int node = 0; node < 2; node++) {
            nodes[node] = fork();
            if (nodes[node]) continue;
            char *argv[] = {program, (char *)"--dir", dir, (char *)"--act", (char *)(uintptr_t)acts[k], NULL};
            char name[400];
            int status;
            snprintf(name, sizeof name, "%s/err-%d", dir, node);
            dup2(open(name, O_WRONLY | O_CREAT, 0666), 2);
            snprintf(name, sizeof name, "%s/out-%d", dir, node);
            dup2(open(name, O_WRONLY | O_CREAT, 0666), 1);
            lc__run_plan plan = {.file = program,
                                 .argv = argv,
                                 .nodes = (int[]){2, 1},
                                 .num_nodes = 2,
                                 .node = node,
                                 .address = "127.0.0.1",
                                 .port = port,
                                 .secret = "0123456789abcdef",
                                 .root_dir = dir};
            if (lc__supervise(&plan, &status) < 0) dprintf(2, "error: %s\n", lc_error_message());
            _exit(status);
        }
        CHECK_CONTAINS(report(&r, 0), "LIGHTC_WORLD_SIZE=3 LIGHTC_LOCAL_RANK=0 LIGHTC_LOCAL_SIZE=2 LIGHTC_NODE_RANK=0");
        CHECK_CONTAINS(report(&r, 2), "LIGHTC_WORLD_SIZE=3 LIGHTC_LOCAL_RANK=0 LIGHTC_LOCAL_SIZE=1 LIGHTC_NODE_RANK=1");
        if (k == 1) {
            wait_for(&r, "out-0", "rank 0 has met 3\n");
            begun = seconds();
            CHECK(!kill(pid_of(&r, 2), SIGKILL)); /* on the machine that has no coordinator */
        }
        int status;
        for (int node = 0; node < 2; node++) {
            CHECK(waitpid(nodes[node], &status, 0) == nodes[node] && WIFEXITED(status));
            CHECK_EQ(WEXITSTATUS(status), k == 0 ? 0 : node == 0 ? 1 : 137);
        }
        CHECK(seconds() - begun < patience(3));
        CHECK(all_gone(&r, 3, 0));
        read_file(&r, "err-0", r.err, sizeof r.err);
        if (k == 1) CHECK_CONTAINS(r.err, "error: rank 2 (host ");
    }
}

static bool has_mpirun(void)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    return system("command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'") == 0;
}

/* This host under its own name, through mpirun. */
TEST(other_hosts_go_through_mpirun)
{
    run r;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    CHECK_EQ(launch(&r, "%s launch -H %s:2 %s", lightc, host, program), 0);
    CHECK_STR(r.out, "rank - speaks\nrank - speaks\n");
    CHECK_CONTAINS(report(&r, -1), " secret=32 port=1");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    int status = launch(&r, "%s launch -H %s:2 %s", lightc, host, program);
    setenv("PATH", path, 1);
    CHECK_EQ(status, 1);
    CHECK_CONTAINS(r.err, "mpirun");
    CHECK_CONTAINS(r.err, "--node_rank");
}

static pid_t mpirun_of(pid_t parent)
{
    char path[64], name[32];
    int pid = 0, found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    while (f && !found && fscanf(f, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        FILE *of = fopen(path, "r");
        if (of && fscanf(of, "%31s", name) == 1 && !strcmp(name, "mpirun")) found = pid;
        if (of) fclose(of);
    }
    if (f) fclose(f);
    return found;
}

/* It does, now and then, when ranks have ended behind its back: here it is stopped. The rank that is stopped with it is
 * nobody else's to end. */
TEST(mpirun_is_not_waited_for)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    for (int stopped = 0; stopped < 2; stopped++) {
        run r;
        start(&r, "%s launch -H %s:2 --grace_period 1 --silence_timeout 2 %s --act %s --on 1", lightc, host, talking,
              stopped ? "stop" : "kill");
        for (int i = 0; i < 2; i++) pid_of(&r, i);
        pid_t mpirun = mpirun_of(r.pid);
        CHECK(mpirun > 1 && !kill(mpirun, SIGSTOP));
        CHECK_EQ(finish(&r), 1);
        CHECK(r.took < patience(10));
        CHECK_CONTAINS(r.err, "error: rank 1 (host ");
        CHECK(is_gone(mpirun) && all_gone(&r, 2, 0)); /* Open MPI leaves a directory when it is killed */
    }
}

/* ---- what is not possible ---- */

TEST(mistakes_are_answered)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 0 %s", lightc, program), 2);
    CHECK_EQ(launch(&r, "%s launch", lightc), 2);
    CHECK_EQ(launch(&r, "%s launch -np 2 /nowhere/program", lightc), 1);
    CHECK_CONTAINS(r.err, "/nowhere/program");
    CHECK_EQ(launch(&r, "%s launch -np 5 -H local:2,local:2 %s", lightc, program), 1);
    CHECK_CONTAINS(r.err, "has room for 4");
    CHECK_EQ(launch(&r, "%s launch -H local:x %s", lightc, program), 1);
    CHECK_CONTAINS(r.err, "a:4,b:4");
    CHECK_EQ(launch(&r, "%s launch -H local:2,b:2 %s", lightc, program), 1);
    CHECK_CONTAINS(r.err, "by its name");
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

TEST(a_program_that_does_not_parse_starts_itself)
{
    run r;
    CHECK_EQ(launch(&r, "%s silent", program), 0);
    CHECK_STR(r.out, "rank 0 speaks\nrank_program\n"); /* once, and nothing by the supervisor */
    CHECK_CONTAINS(r.err, "rank 0 of 1 (host ");
    CHECK_CONTAINS(r.err, "killed by signal 9");
}

/* Whatever has started it. */
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
        CHECK_EQ(launch(&r, "%s --max_restarts 1", program), 1); /* nor can it start them again */
        CHECK_CONTAINS(r.err, "max_restarts=1: these ranks were started by");
        setenv(launchers[k][1], "1", 1); /* one alone may */
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
    CHECK_EQ(launch(&r, "%s --devices 2 --strategy single_device", program), 0); /* refused by the strategy, later */
    CHECK_STR(r.out, "rank - speaks\n");
    CHECK_EQ(launch(&r, "%s --gpus 2", program), 1);
    CHECK_CONTAINS(r.err, "--accelerator cpu");
    CHECK_EQ(launch(&r, "%s --node_rank 0", program), 0); /* as in the config.json of a run */
    CHECK_STR(r.out, "rank - speaks\n");
    CHECK_EQ(launch(&r, "%s --node_rank 1", program), 1);
    CHECK_CONTAINS(r.err, "--num_nodes");
    CHECK_EQ(launch(&r, "%s --nodes_file hosts", program), 1);
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

TEST_MAIN
