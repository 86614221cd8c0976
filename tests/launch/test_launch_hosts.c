/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several hosts: supervisors that are started by hand on each host (here all on one), and mpirun. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "free_port.h"
#include "launched.h"
#include "open_mpi.h"

#include "comm/net/socket.h"
#include "launch/launch.h"

#include <sys/stat.h>

/* Node 0 with two ranks, or node 1 with one, in a process of its own; its output goes to out-NODE and err-NODE. */
static pid_t start_node(const run *r, int node, const char *address, int port, const char *act)
{
    char *argv[] = {program,
                    (char *)"--dir",
                    (char *)(uintptr_t)r->dir,
                    (char *)"--act",
                    (char *)(uintptr_t)act,
                    (char *)"--on",
                    (char *)"2",
                    NULL};
    char name[400];
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    snprintf(name, sizeof name, "%s/err-%d", r->dir, node);
    dup2(open(name, O_WRONLY | O_CREAT, 0666), 2);
    snprintf(name, sizeof name, "%s/out-%d", r->dir, node);
    dup2(open(name, O_WRONLY | O_CREAT, 0666), 1);
    lc__run_plan plan = {.file = program,
                         .argv = argv,
                         .nodes = (int[]){2, 1},
                         .num_nodes = 2,
                         .node = node,
                         .address = address,
                         .port = port,
                         .secret = "0123456789abcdef",
                         .root_dir = r->dir};
    if (lc__supervise(&plan, &status) < 0) dprintf(2, "error: %s\n", lc_error_message());
    _exit(status);
}

TEST(nodes_that_are_started_by_hand)
{
    enum { END, KILLED, FAILS, CASES };
    static const char *const acts[CASES] = {"await", "meet", "fail"};
    static const int status_of[CASES][2] = {{0, 0}, {1, 137}, {1, 1}};
    for (int k = 0; k < CASES; k++) {
        run r = {0};
        snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
        int port = free_port();
        pid_t nodes[2];
        double begun = seconds();
        for (int node = 0; node < 2; node++) {
            if (node == 1) (void)report(&r, 0); /* so the coordinator exists */
            nodes[node] = start_node(&r, node, "127.0.0.1", port, acts[k]);
        }
        CHECK_CONTAINS(report(&r, 0), "LIGHTC_WORLD_SIZE=3 LIGHTC_LOCAL_RANK=0 LIGHTC_LOCAL_SIZE=2 LIGHTC_NODE_RANK=0");
        CHECK_CONTAINS(report(&r, 2), "LIGHTC_WORLD_SIZE=3 LIGHTC_LOCAL_RANK=0 LIGHTC_LOCAL_SIZE=1 LIGHTC_NODE_RANK=1");
        if (k == KILLED) {
            wait_for(&r, "out-0", "rank 0 has met 3\n");
            begun = seconds();
            CHECK(!kill(pid_of(&r, 2), SIGKILL)); /* on the host without the coordinator, which is notified */
        }
        int status;
        for (int node = 0; node < 2; node++) {
            CHECK(waitpid(nodes[node], &status, 0) == nodes[node] && WIFEXITED(status));
            CHECK_EQ(WEXITSTATUS(status), status_of[k][node]);
        }
        CHECK(seconds() - begun < patience(3));
        CHECK(all_gone(&r, 3, 0));
        file_text(r.dir, "err-0", r.err, sizeof r.err);
        if (k == FAILS) CHECK_CONTAINS(r.err, "): the disk of a rank is gone\n"); /* the rank could report it */
        if (k == KILLED) CHECK_CONTAINS(r.err, "error: rank 2 (host ");
        if (k == KILLED) CHECK_CONTAINS(r.err, "), step 7, the middle: killed by signal 9 (Killed)\n");
    }
}

/* Its ranks' output is kept, so the supervisor reports it; and Ctrl-C works. */
TEST(a_node_says_that_it_waits_for_node_0)
{
    run r = {0};
    int status;
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
    pid_t node = start_node(&r, 1, "127.0.0.1", free_port(), "end");
    wait_for(&r, "err-1", "node 1 waits for the coordinator of the run: cannot connect to 127.0.0.1:");
    CHECK(!kill(node, SIGINT));
    CHECK(waitpid(node, &status, 0) == node && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

/* As in most distributions: a host's own name is a loopback address there, and its real address on other hosts. */
TEST(a_host_name_that_is_loopback_leads_others_to_node_0)
{
    char name[256] = "", here[64], address[64];
    run r = {0};
    gethostname(name, sizeof name - 1);
    CHECK_STR(lc__socket_listen_as("127.0.0.1"), "127.0.0.1");
    CHECK_STR(lc__socket_listen_as("localhost"), "localhost");
    lc__socket_route(name, here, sizeof here);
    lc__socket_route("192.0.2.99", address, sizeof address);
    if (!lc__socket_is_loopback(here) || !*address) SKIP("this host's name is not loopback here, or all it has");
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
    int port = free_port(), status;
    pid_t nodes[2];
    nodes[0] = start_node(&r, 0, name, port, "meet");
    (void)report(&r, 0);
    nodes[1] = start_node(&r, 1, address, port, "meet");
    wait_for(&r, "out-0", "rank 0 has met 3\n");
    for (int node = 0; node < 2; node++) {
        kill(nodes[node], SIGTERM);
        CHECK(waitpid(nodes[node], &status, 0) == nodes[node]);
    }
    CHECK(all_gone(&r, 3, 0));
}

/* ---- cores ---- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Two ranks, on one host or two, started as by other launchers than lightc; threads[i]: OMP_NUM_THREADS of rank i. */
static void run_by_hand(run r[2], int hosts, const char *const threads[2])
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT",      "WORLD_SIZE", "RANK",
                                        "LOCAL_WORLD_SIZE",    "LOCAL_RANK",  "GROUP_WORLD_SIZE", "GROUP_RANK"};
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", free_port());
    set_number("WORLD_SIZE", 2);
    set_number("LOCAL_WORLD_SIZE", 2 / hosts);
    set_number("GROUP_WORLD_SIZE", hosts);
    for (int i = 0; i < 2; i++) {
        set_number("RANK", i);
        set_number("LOCAL_RANK", i % (2 / hosts));
        set_number("GROUP_RANK", i / (2 / hosts));
        if (threads[i]) setenv("OMP_NUM_THREADS", threads[i], 1);
        if (i == 0)
            start(&r[0], "%s --act share", program);
        else
            r[1] = r[0], again(&r[1], "%s --act share", program);
        unsetenv("OMP_NUM_THREADS");
    }
    for (int i = 0; i < 2; i++) CHECK_EQ(finish(&r[i]), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void share_by_hand(char shares[2][128], const char *const threads[2])
{
    run r[2];
    run_by_hand(r, 1, threads);
    file_text(r[0].dir, "share-0", shares[0], 128);
    file_text(r[0].dir, "share-1", shares[1], 128);
    CHECK_STR(r[1].err, ""); /* both nodes print there */
}

TEST(a_secret_that_others_may_know_is_warned_of)
{
    run r[2];
    static const char *const none[2] = {NULL};
    run_by_hand(r, 2, none);
    CHECK_CONTAINS(r[1].err, "warning: LIGHTC_SECRET is not set");
    setenv("LIGHTC_SECRET", "0123456789abcdef", 1);
    run_by_hand(r, 2, none);
    unsetenv("LIGHTC_SECRET");
    CHECK_STR(r[1].err, "");
}

TEST(ranks_that_others_start_share_the_cores)
{
    char shares[2][128];
    cpu_set_t before, two, all;
    unsetenv("OMP_NUM_THREADS");
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    if (CPU_COUNT(&before) < 2) SKIP("one processor");
    CPU_ZERO(&two);
    for (int i = 0; CPU_COUNT(&two) < 2; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &two);
    CHECK(sched_setaffinity(0, sizeof two, &two) == 0);
    share_by_hand(shares, (const char *const[2]){NULL, NULL});
    CPU_ZERO(&all);
    for (int i = 0; i < 2; i++) {
        int core;
        char end[2] = "";
        CHECK_EQ(sscanf(shares[i], "threads=1 cores=%d%1s", &core, end), 2); /* one core */
        CPU_SET(core, &all);
    }
    CHECK(CPU_EQUAL(&all, &two));
    share_by_hand(shares, (const char *const[2]){NULL, "2"}); /* they have been shared out already */
    for (int i = 0; i < 2; i++) CHECK_CONTAINS(shares[i], "threads=0 ");
    for (int i = 0; i < 2; i++) CHECK(strchr(shares[i], ',') != strrchr(shares[i], ','));
    run r[2]; /* as `OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK` without the latter, on which libgomp prints a line */
    run_by_hand(r, 1, (const char *const[2]){"", ""});
    file_text(r[0].dir, "share-1", shares[1], 128);
    CHECK_CONTAINS(shares[1], "threads=1 ");
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* ---- mpirun ---- */

/* Other hosts get nothing of this environment except what mpirun is asked to export; and mpirun must not bind ranks to
 * cores. */
TEST(mpirun_exports_the_environment)
{
    char *names[] = {(char *)"here"};
    char *argv[] = {(char *)"program", (char *)"--lr", NULL};
    char *environment[] = {(char *)"HOME=/x",
                           (char *)"LIGHTC_MAX_EPOCHS=3",
                           (char *)"MASTER_PORT=7",
                           (char *)"LIGHTC_BATCHES=",
                           (char *)"OMP_PROC_BIND=true",
                           (char *)"CUDA_VISIBLE_DEVICES=1",
                           (char *)"LIGHT=1",
                           NULL};
    static const char want[] = "mpirun -np 2 -H here:2 --bind-to none -x LIGHTC_MAX_EPOCHS -x MASTER_PORT "
                               "-x LIGHTC_BATCHES -x OMP_PROC_BIND -x CUDA_VISIBLE_DEVICES /bin/program --lr ";
    char line[1024] = "";
    lc__hosts hosts = {.n = 1, .names = names};
    lc__run_plan plan = {.file = "/bin/program", .argv = argv, .num_nodes = 1, .hosts = &hosts};
    lc__mpirun m = {0};
    CHECK_OK(lc__mpirun_make(&plan, (int[]){2}, environment, &m));
    for (int i = 0; m.argv[i]; i++) snprintf(line + strlen(line), sizeof line - strlen(line), "%s ", m.argv[i]);
    CHECK_STR(line, want);
    lc__mpirun_release(&m);
}

/* This host under its own name, through mpirun. */
TEST(other_hosts_go_through_mpirun)
{
    run r;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    CHECK_EQ(launch(&r, "%s launch -H %s:2 %s", lightc, host, program), 0);
    CHECK_STR(r.out, "rank - speaks\n"); /* rank 0's output; the other's is kept */
    CHECK_CONTAINS(report(&r, -1), " secret=32 port=1");
    char path[PATH_MAX];
    CHECK(launch(&r, "%s launch -H %s:1,nohost.invalid:1 %s", lightc, host, program) != 0);
    CHECK_CONTAINS(r.err, "nohost.invalid has no known address here");
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    int status = launch(&r, "%s launch -H %s:2 %s", lightc, host, program);
    setenv("PATH", path, 1);
    CHECK_EQ(status, 1);
    CHECK_CONTAINS(r.err, "mpirun");
    CHECK_CONTAINS(r.err, "--node_rank");
}

static long printed(const run *r)
{
    char path[400];
    struct stat s;
    snprintf(path, sizeof path, "%s/out", r->dir);
    return stat(path, &s) == 0 ? (long)s.st_size : -1;
}

/* Its ranks also stop and continue with the supervisor. */
TEST(ctrl_z_goes_through_mpirun)
{
    run r;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    double silence = patience(1);
    start(&r, "%s launch -H %s:2 --silence_timeout %g %s --act slow --use_distributed_sampler false", lightc, host,
          silence, program);
    wait_for(&r, "out", "a step\n");
    CHECK(!kill(r.pid, SIGTSTP));
    pid_t rank = pid_of(&r, -1); /* of the one that has reported last */
    for (int ms = 0; ms < patience(3000) && state_of(rank) != 'T'; ms += 10) pause_ms(10);
    CHECK_EQ(state_of(rank), 'T');
    pause_ms((int)(750 * silence)); /* for mpirun to pass on what was printed before */
    long before = printed(&r);
    pause_ms((int)(750 * silence));
    CHECK_EQ(printed(&r), before);
    CHECK_EQ(state_of(rank), 'T');
    CHECK(!kill(r.pid, SIGCONT));
    for (int ms = 0; ms < patience(3000) && before == printed(&r); ms += 10) pause_ms(10);
    CHECK(printed(&r) > before);
    pause_ms((int)(1500 * silence));
    CHECK(!is_gone(r.pid));
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 143);
}

/* It arrives more than once, which mpirun would take for a second request. */
TEST(a_hangup_through_mpirun_saves)
{
    run r;
    char host[256] = "", path[600];
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    start(&r, "%s launch -H %s:2 %s --act slow --use_distributed_sampler false", lightc, host, program);
    wait_for(&r, "out", "a step\n");
    for (int i = 0; i < 2; i++) {
        CHECK(!kill(r.pid, SIGHUP));
        pause_ms(5);
    }
    CHECK_EQ(finish(&r), 128 + SIGHUP);
    snprintf(path, sizeof path, "%s/lightning_logs/version_0/checkpoints/interrupted.ckpt", r.dir);
    CHECK(access(path, F_OK) == 0);
}

/* A signal to a rank or to mpirun: all stop, no rank is blamed, and nothing is restarted. */
TEST(a_run_that_is_stopped_on_another_host_stays_stopped)
{
    char host[256] = "", path[600];
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    for (int whole = 0; whole < 2; whole++) {
        run r;
        start(&r, "%s launch -H %s:2 --max_restarts 1 %s --act slow --use_distributed_sampler false", lightc, host,
              program);
        wait_for(&r, "out", "a step\n");
        pid_t ended = whole ? child_named(r.pid, "mpirun") : pid_of(&r, -1);
        CHECK(ended > 1 && !kill(ended, SIGTERM));
        CHECK_EQ(finish(&r), 128 + SIGTERM);
        CHECK_CONTAINS(r.err, "error: stopped by signal 15 (");
        if (strstr(r.err, "error: rank") || strstr(r.err, "restarting")) TEST_FAIL("%s", r.err);
        snprintf(path, sizeof path, "%s/lightning_logs/version_0/checkpoints/interrupted.ckpt", r.dir);
        CHECK(access(path, F_OK) == 0);
    }
}

/* At once, together with its ranks. */
TEST(a_second_signal_ends_mpirun_and_its_ranks)
{
    run r;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    start(&r, "%s launch -H %s:2 %s --act stuck --use_distributed_sampler false", lightc, host, program);
    wait_for(&r, "out", "a step\n");
    pid_t rank = pid_of(&r, -1);
    CHECK(!kill(r.pid, SIGTERM));
    pause_ms(300);
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 128 + SIGTERM);
    CHECK(r.took < 60 && is_gone(rank));
}

/* mpirun sometimes hangs after its ranks have ended: here it is stopped instead. The rank that is stopped together with
 * it must be killed too. */
TEST(mpirun_is_not_waited_for)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    for (int stopped = 0; stopped < 2; stopped++) {
        run r;
        start(&r, "%s launch -H %s:2 --grace_period 1 --silence_timeout %g %s --act %s --on 1", lightc, host,
              patience(1), next_to("last_calls_program"), stopped ? "stop" : "kill");
        for (int i = 0; i < 2; i++) pid_of(&r, i);
        pid_t mpirun = child_named(r.pid, "mpirun");
        CHECK(mpirun > 1 && !kill(mpirun, SIGSTOP));
        CHECK_EQ(finish(&r), 1);
        CHECK(r.took < patience(10));
        CHECK_CONTAINS(r.err, "error: rank 1 (host ");
        CHECK(is_gone(mpirun) && all_gone(&r, 2, 0)); /* Open MPI leaves a directory if it is killed */
    }
}

/* Its ranks continue without it, and their output would not be shown. */
TEST(an_mpirun_that_is_stopped_is_ended)
{
    char host[256] = "";
    run r;
    gethostname(host, sizeof host - 1);
    if (!has_mpirun()) SKIP("no Open MPI");
    start(&r, "%s launch -H %s:2 --silence_timeout %g %s --act hang", lightc, host, patience(0.5), program);
    pid_t rank = pid_of(&r, -1), mpirun = child_named(r.pid, "mpirun");
    CHECK(mpirun > 1 && !kill(mpirun, SIGSTOP));
    CHECK_EQ(finish(&r), 1);
    CHECK_CONTAINS(r.err, "error: mpirun: its process was stopped for ");
    CHECK(is_gone(mpirun) && is_gone(rank));
}

/* ---- ranks with a communicator of the program's ---- */

TEST(ranks_of_a_given_communicator_are_watched)
{
    static const struct {
        int signal;
        const char *said;
    } ends[] = {{SIGKILL, "the connection is closed"}, {SIGSTOP, "no heartbeat from it"}};
    char plugin[PATH_MAX + 64];
    snprintf(plugin, sizeof plugin, "%.*s/../lib/liblightc_mpi.so", (int)(strrchr(program, '/') - program), program);
    if (!has_mpirun() || access(plugin, R_OK) != 0) SKIP("no Open MPI");
    setenv("LIGHTC_MPI_PLUGIN", plugin, 1);
    setenv("OMPI_MCA_btl", "vader,self", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* for leaks of MPI */
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        run r;
        start(&r, "/usr/bin/env mpirun -np 2 %s --act given --use_distributed_sampler false --silence_timeout %g",
              program, patience(1));
        wait_for(&r, "out", "a step\n");
        pause_ms(1000); /* until a heartbeat has carried the step */
        CHECK(!kill(pid_of(&r, -1), ends[k].signal));
        CHECK(finish(&r) != 0);
        CHECK(r.took < patience(20));
        CHECK_CONTAINS(r.err, ends[k].said);
        CHECK_CONTAINS(r.err, "error: rank ");
    }
}

TEST_MAIN
