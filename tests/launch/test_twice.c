/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a run that is started a second time while the first one is running: it is rejected with a message, and the
 * run goes on whatever happens to it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "free_port.h"
#include "launched.h"
#include "rank_ended.h"

#include "comm/control/control.h"
#include "launch/launch.h"

#include <pthread.h>

#define SECRET "0123456789abcdef"

/* The output of a child goes to out-NUMBER and err-NUMBER. */
static void print_into(const run *r, int number)
{
    char name[400];
    snprintf(name, sizeof name, "%s/err-%d", r->dir, number);
    dup2(open(name, O_WRONLY | O_CREAT, 0666), 2);
    snprintf(name, sizeof name, "%s/out-%d", r->dir, number);
    dup2(open(name, O_WRONLY | O_CREAT, 0666), 1);
}

/* A node of two, with one rank, in a process of its own. */
static pid_t start_node(const run *r, int node, int number, int port, const char *act)
{
    char *argv[] = {program, (char *)"--dir", (char *)(uintptr_t)r->dir, (char *)"--act", (char *)(uintptr_t)act, NULL};
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    print_into(r, number);
    lc__run_plan plan = {.file = program,
                         .argv = argv,
                         .nodes = (int[]){1, 1},
                         .num_nodes = 2,
                         .node = node,
                         .address = "127.0.0.1",
                         .port = port,
                         .secret = SECRET,
                         .root_dir = r->dir};
    if (lc__supervise(&plan, &status) < 0) dprintf(2, "error: %s\n", lc_error_message());
    _exit(status);
}

/* One of two ranks, without a launcher. */
static pid_t start_rank(const run *r, int rank, int number, int port)
{
    char text[16];
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    print_into(r, number);
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1), setenv("WORLD_SIZE", "2", 1), setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1), setenv("LIGHTC_SECRET", SECRET, 1);
    execl(program, program, "--dir", r->dir, "--default_root_dir", r->dir, "--act", "slow", "--use_distributed_sampler",
          "false", (char *)NULL);
    _exit(126);
}

/* For a process that exits by itself: its status, and its output. */
static int end_of(run *r, pid_t pid, int number)
{
    char name[32];
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    snprintf(name, sizeof name, "err-%d", number);
    file_text(r->dir, name, r->err, sizeof r->err);
    return WEXITSTATUS(status);
}

/* Both processes go on undisturbed for a second, and then end on request. */
static void check_they_go_on(const pid_t pids[2])
{
    int status;
    pause_ms(1000);
    for (int i = 0; i < 2; i++)
        if (waitpid(pids[i], &status, WNOHANG) != 0) TEST_FAIL("process %d of the run has ended", i);
    for (int i = 0; i < 2; i++) kill(pids[i], SIGTERM);
    for (int i = 0; i < 2; i++) CHECK(waitpid(pids[i], &status, 0) == pids[i]);
}

TEST(a_node_that_is_started_twice_disturbs_no_run)
{
    run r = {0};
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
    int port = free_port();
    pid_t nodes[2] = {start_node(&r, 0, 0, port, "meet"), start_node(&r, 1, 1, port, "meet")};
    wait_for(&r, "out-0", "rank 0 has met 2\n");
    for (int k = 2; k < 5; k++) {
        CHECK_EQ(end_of(&r, start_node(&r, 1, k, port, k == 3 ? "kill" : "meet"), k), 1);
        CHECK_CONTAINS(r.err, "refused node 1: rank 1 was already started by another launcher (host ");
    }
    check_they_go_on(nodes);
}

/* Its first rank has not joined yet: that rank is still the one that is waited for. */
TEST(a_node_is_started_twice_before_its_ranks_come)
{
    run r = {0};
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
    int port = free_port();
    pid_t nodes[2] = {start_node(&r, 0, 0, port, "meet"), 0};
    nodes[1] = start_node(&r, 1, 1, port, "dawdle");
    (void)report(&r, 1);
    CHECK_EQ(end_of(&r, start_node(&r, 1, 2, port, "exit"), 2), 1);
    CHECK_CONTAINS(r.err, "refused node 1: rank 1 was already started by another launcher (host ");
    wait_for(&r, "err-0", "was rejected: rank 1 was already started by another launcher");
    FILE *go = fopen(strcat(strcpy(r.out, r.dir), "/go"), "w");
    CHECK(go && fclose(go) == 0);
    wait_for(&r, "out-0", "rank 0 has met 2\n");
    check_they_go_on(nodes);
}

/* The ranks of a node that has ended may be claimed by the next. */
TEST(a_node_that_has_gone_may_be_started_again)
{
    run r = {0};
    int status;
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
    int port = free_port();
    pid_t nodes[2] = {start_node(&r, 0, 0, port, "meet"), 0}, first = start_node(&r, 1, 1, port, "dawdle");
    (void)report(&r, 1);
    CHECK(!kill(first, SIGKILL) && waitpid(first, &status, 0) == first);
    nodes[1] = start_node(&r, 1, 2, port, "meet");
    wait_for(&r, "out-0", "rank 0 has met 2\n");
    check_they_go_on(nodes);
}

TEST(a_rank_that_is_started_twice_disturbs_no_run)
{
    run r = {0};
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
    int port = free_port();
    pid_t ranks[2] = {start_rank(&r, 0, 0, port), start_rank(&r, 1, 1, port)};
    wait_for(&r, "out-0", "a step\n");
    for (int k = 2; k < 4; k++) {
        CHECK_EQ(end_of(&r, start_rank(&r, 1, k, port), k), 1);
        CHECK_CONTAINS(r.err, "refused rank 1: rank 1 has already joined (host ");
    }
    check_they_go_on(ranks);
}

/* ---- the channel ---- */

static lc__control_args options_of(int rank, int port, uint64_t identity)
{
    return (lc__control_args){
        .rank = rank, .size = 2, .address = "127.0.0.1", .port = port, .secret = SECRET, .identity = identity};
}

/* Until the coordinator has ended the run, or a second has passed. */
static bool ends(lc__coordinator *c)
{
    int silent;
    for (int i = 0; i < 100 && !lc__coordinator_ended(c, &silent); i++) pause_ms(10);
    return lc__coordinator_ended(c, &silent);
}

typedef struct rank_0 {
    int port;
    lc__control *control;
    pthread_t thread;
} rank_0;

static void *come(void *arg)
{
    rank_0 *r = arg;
    const lc__control_args o = options_of(0, r->port, 1);
    if (lc__control_open(&o, &r->control) < 0) r->control = NULL;
    return NULL;
}

static void start_rank_0(rank_0 *r, int port)
{
    *r = (rank_0){.port = port};
    CHECK(pthread_create(&r->thread, NULL, come, r) == 0);
}

static lc__control *rank_0_that_came(rank_0 *r)
{
    pthread_join(r->thread, NULL);
    CHECK(r->control);
    return r->control;
}

TEST(launchers_report_only_their_own_ranks)
{
    lc__coordinator *c = NULL;
    lc__watch *one = NULL, *other = NULL;
    int port = 0;
    CHECK_OK(lc__coordinator_start(NULL, &port, 2, SECRET, &(lc__control_times){.heartbeat = 0.1}, &c));
    const lc__control_args first = options_of(1, port, 21), second = options_of(1, port, 22),
                           both = options_of(0, port, 23), nobody = options_of(1, port, 0);
    CHECK_OK(lc__watch_open(&first, "node 1", 1, &one));
    CHECK_STATUS(lc__watch_open(&second, "node 1", 1, &other), LC_ERR_CONFIG);
    CHECK_STATUS(lc__watch_open(&both, "node 1", 2, &other), LC_ERR_CONFIG);
    CHECK_STATUS(lc__control_open(&nobody, &(lc__control *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "refused rank 1: rank 1 was already started by another launcher (host ");
    report_rank_ended(&second, "killed");
    lc__watch_report(one, 0, "killed"); /* a rank of another launcher */
    CHECK(!ends(c));
    rank_0 other_rank;
    lc__control *ranks[2];
    start_rank_0(&other_rank, port);
    CHECK_OK(lc__control_open(&first, &ranks[1]));
    ranks[0] = rank_0_that_came(&other_rank);
    /* its launcher has gone, but the rank remains */
    lc__watch_close(one);
    report_rank_ended(&second, "killed");
    CHECK(!ends(c));
    /* a rank that has left can come back only with its identity */
    lc__control_close(ranks[1]);
    CHECK_STATUS(lc__control_open(&second, &ranks[1]), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "refused rank 1: rank 1 has already joined (host ");
    lc__control_close(ranks[0]);
    lc__coordinator_stop(c);
}

/* A rank that has already joined does not count as missing because another one has wrong numbers. */
TEST(another_size_of_a_rank_that_is_there_ends_nothing)
{
    lc__coordinator *c = NULL;
    int port = 0;
    CHECK_OK(lc__coordinator_start(NULL, &port, 2, SECRET, &(lc__control_times){.heartbeat = 0.1}, &c));
    rank_0 rank;
    start_rank_0(&rank, port);
    while (!lc__coordinator_has_met(c, 0)) pause_ms(1);
    lc__control_args o = options_of(0, port, 9);
    for (int k = 0; k < 2; k++) {
        o.size = 3, o.rank = k ? 2 : 0; /* the number of another run */
        CHECK_STATUS(lc__control_open(&o, &(lc__control *){NULL}), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "the run has 2 ranks, but this is rank ");
        CHECK(!ends(c));
    }
    lc__control *other = NULL;
    const lc__control_args right = options_of(1, port, 2);
    CHECK_OK(lc__control_open(&right, &other));
    lc__control_close(rank_0_that_came(&rank)), lc__control_close(other);
    lc__coordinator_stop(c);
}

TEST_MAIN
