/* SPDX-License-Identifier: Apache-2.0 */
/* Two machines (machines.h), on each of which the same program is started by hand: the training of fault_program.c. */
#include "machines.h"

#include "comm_world.h"
#include "scratch.h"

#include <arpa/inet.h>
#include <limits.h>
#include <sys/stat.h>

#define SILENCE patience(2) /* seconds */

static machines two;
static const char *why_not = "";
static char program[PATH_MAX + 32];

__attribute__((constructor)) static void make(void)
{
    char dir[PATH_MAX];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    if (!realpath(bin ? bin : "build/bin", dir)) abort();
    snprintf(program, sizeof program, "%s/fault_program", dir);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    why_not = machines_own_mounts() ? machines_make(&two) : "the kernel allows no namespaces of its own here";
}

__attribute__((destructor)) static void end(void)
{
    machines_end(&two);
}

/* ---- a run on both ---- */

typedef struct run {
    char dir[300], err[2][8192];
    pid_t pid[2];
    int status[2];
    double ended[2];
} run;

/* The options of the training, in addition to those that each machine needs. */
static void start(run *r, const char *options)
{
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir("run"));
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        char command[PATH_MAX + 4096];
        snprintf(command, sizeof command,
                 "exec %s --dir %s --default_root_dir %s/run --num_nodes 2 --node_rank %d --devices 1 --threads 1 "
                 "--silence_timeout %g --grace_period 1 %s >%s/out-%d 2>%s/err-%d",
                 program, r->dir, r->dir, i, SILENCE, options, r->dir, i, r->dir, i);
        r->pid[i] = fork();
        if (r->pid[i]) continue;
        setenv("MASTER_ADDR", machines_address[0], 1);
        setenv("MASTER_PORT", "29500", 1);
        setenv("LIGHTC_SECRET", "known on both machines", 1);
        if (!machines_enter(&two, i)) _exit(125);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(126);
    }
}

static void finish(run *r)
{
    double until = seconds() + patience(30);
    for (int left = (r->pid[0] > 0) + (r->pid[1] > 0); left > 0; pause_ms(2)) {
        if (seconds() > until) {
            for (int i = 0; i < 2; i++)
                if (r->pid[i]) kill(r->pid[i], SIGKILL), waitpid(r->pid[i], NULL, 0);
            TEST_FAIL("it does not end");
        }
        for (int i = 0; i < 2; i++) {
            int status;
            if (!r->pid[i] || waitpid(r->pid[i], &status, WNOHANG) != r->pid[i]) continue;
            r->status[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            r->ended[i] = seconds();
            r->pid[i] = 0;
            left--;
        }
    }
    for (int i = 0; i < 2; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/err-%d", r->dir, i);
        FILE *f = fopen(path, "r");
        size_t n = f ? fread(r->err[i], 1, sizeof r->err[i] - 1, f) : 0;
        r->err[i][n] = 0;
        if (f) fclose(f);
    }
}

static void await_file(const char *path)
{
    for (double until = seconds() + patience(20); access(path, F_OK) != 0; pause_ms(5))
        if (seconds() > until) TEST_FAIL("%s never appeared", path);
}

static void result_of(const char *dir, char text[128])
{
    char path[400];
    snprintf(path, sizeof path, "%s/result", dir);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, 127, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* The result of a run of two ranks on one machine. */
static void one_machine(const char *options, char result[128])
{
    char command[PATH_MAX + 4096], dir[300];
    snprintf(dir, sizeof dir, "%s", fresh_dir("one"));
    snprintf(command, sizeof command, "%s --dir %s --default_root_dir %s/run --devices 2 --threads 1 %s >%s/out 2>&1",
             program, dir, dir, options, dir);
    CHECK_EQ(system(command), 0);
    result_of(dir, result);
    CHECK_CONTAINS(result, "hash=");
}

static void succeed(run *r, const char *options)
{
    start(r, options);
    finish(r);
    for (int i = 0; i < 2; i++)
        if (r->status[i]) TEST_FAIL("machine %d: status %d: %s", i, r->status[i], r->err[i]);
}

/* ---- bytes on the wire ---- */

/* Bytes of data that machine i has sent, without the headers of Ethernet, IPv4 and TCP with its timestamps. */
static int64_t sent(int i)
{
    char path[300], command[400];
    long long bytes = -1, packets = -1;
    snprintf(path, sizeof path, "%s/counters", scratch_root);
    snprintf(command, sizeof command, "awk '$1 == \"eth0:\" {print $10, $11}' /proc/net/dev >%s", path);
    CHECK_EQ(machines_do(&two, i, command), 0);
    FILE *f = fopen(path, "r");
    bool ok = f && fscanf(f, "%lld %lld", &bytes, &packets) == 2;
    if (f) fclose(f);
    CHECK(ok);
    return bytes - packets * (14 + 20 + 32);
}

/* Parameters of the training's network. */
enum { PARAMETERS = 32 * 256 + 256 + 256 * 256 + 256 + 256 * 8 + 8, STEPS_AN_EPOCH = 12 };

/* Bytes that each machine sends in a step, from two trainings that differ only in their number of steps. */
static void bytes_of_a_step(double out[2])
{
    static const int epochs[2] = {1, 7};
    int64_t n[2][2];
    for (int k = 0; k < 2; k++) {
        run r = {0};
        char options[200];
        int64_t before[2] = {sent(0), sent(1)};
        snprintf(options, sizeof options, "--max_epochs %d --limit_val_batches 0 --enable_checkpointing false",
                 epochs[k]);
        succeed(&r, options);
        for (int i = 0; i < 2; i++) n[k][i] = sent(i) - before[i];
    }
    for (int i = 0; i < 2; i++) out[i] = (double)(n[1][i] - n[0][i]) / ((epochs[1] - epochs[0]) * STEPS_AN_EPOCH);
}

static void check_bytes(void)
{
    double got[2], want = 2.0 * PARAMETERS * sizeof(float) * (2 - 1) / 2;
    bytes_of_a_step(got);
    for (int i = 0; i < 2; i++)
        if (fabs(got[i] - want) > 0.02 * want)
            TEST_FAIL("machine %d sends %.0f bytes a step, 2P(N-1)/N is %.0f", i, got[i], want);
}

/* ---- tests ---- */

TEST(two_machines_train_as_one)
{
    run r = {0};
    char one[128], both[128];
    if (why_not) SKIP(why_not);
    one_machine("", one);
    succeed(&r, "");
    result_of(r.dir, both);
    CHECK_STR(both, one);
}

TEST(a_step_sends_the_bytes_of_the_formula)
{
    if (why_not) SKIP(why_not);
    check_bytes();
}

/* A link of 200 Mbit/s. */
TEST(a_slow_link_carries_the_same)
{
    static const char shape[] = "tc qdisc add dev eth0 root tbf rate 200mbit burst 64kb latency 100ms 2>/dev/null";
    run r = {0};
    char one[128], both[128];
    double begun;
    if (why_not) SKIP(why_not);
    if (machines_do(&two, 0, shape) != 0 || machines_do(&two, 1, shape) != 0) SKIP("tc shapes no links here");
    one_machine("--max_epochs 2", one);
    begun = seconds();
    succeed(&r, "--max_epochs 2");
    CHECK(seconds() - begun > 2 * STEPS_AN_EPOCH * PARAMETERS * sizeof(float) * 8 / 200e6); /* it is slow */
    result_of(r.dir, both);
    CHECK_STR(both, one);
    check_bytes();
    for (int i = 0; i < 2; i++) CHECK_EQ(machines_do(&two, i, "tc qdisc del dev eth0 root"), 0);
}

/* Neither side is informed of an end: the connections just fall silent. */
TEST(a_cut_link_ends_both_sides)
{
    for (int side = 0; side < 2; side++) {
        run r = {0};
        char path[400];
        if (why_not) SKIP(why_not);
        start(&r, "--max_epochs 1000 --every_n_train_steps 2");
        snprintf(path, sizeof path, "%s/run/lightning_logs/version_0/checkpoints", r.dir);
        await_file(path);
        pause_ms(200);
        double cut = seconds();
        int down = machines_do(&two, side, "ip link set eth0 down");
        finish(&r);
        CHECK_EQ(machines_do(&two, side, "ip link set eth0 up"), 0);
        CHECK_EQ(down, 0);
        for (int i = 0; i < 2; i++) {
            CHECK(r.status[i] != 0);
            if (r.ended[i] - cut > SILENCE + patience(1))
                TEST_FAIL("machine %d ended %.2f s after the cut", i, r.ended[i] - cut);
        }
        CHECK_CONTAINS(r.err[0], "error: rank 1 (host machine1), step ");
        CHECK_CONTAINS(r.err[0], "its process is stopped, or its host or network is down");
        CHECK_CONTAINS(r.err[1], "the coordinator of the run (host machine0) is gone: no heartbeat");
    }
}

/* Only a communicator, whose ranks have met in another way: there is no coordinator. */
static lc_status open_on_machines(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    lc__tcp_place here;
    if (!machines_enter(&two, rank)) return lc_fail(LC_ERR_IO, "cannot enter machine %d", rank);
    LC_TRY(lc__tcp_place_set(&here, machines_address[rank], "", 1));
    return lc__comm_tcp(&here, rank, size, meeting, out);
}

/* Machine 0 no longer receives anything on the first of rank 1's connections, the lane of collectives. */
static lc_status cut_lane(void)
{
    char command[256];
    struct sockaddr_in local = {.sin_family = AF_UNSPEC};
    for (int fd = 3; fd < 256 && local.sin_family != AF_INET; fd++) {
        socklen_t n = sizeof local;
        (void)getsockname(fd, (struct sockaddr *)&local, &n);
    }
    snprintf(command, sizeof command,
             "ip rule add prio 2 lookup local && ip rule add prio 1 iif eth0 ipproto tcp sport %d blackhole && "
             "ip rule del prio 0",
             ntohs(local.sin_port));
    return machines_do(&two, 0, command) ? lc_fail(LC_ERR_UNSUPPORTED, "%s", command) : LC_OK;
}

static lc_status cut_link(void)
{
    return machines_do(&two, 1, "ip link set eth0 down") ? lc_fail(LC_ERR_UNSUPPORTED, "the link stays") : LC_OK;
}

typedef struct cut {
    lc_status (*make)(void);
    bool idle; /* nothing is in flight after the cut */
    int machine;
    const char *mend; /* on the machine that is cut off */
} cut;

static lc_status wait_behind_a_cut(lc_comm *c, void *ctx)
{
    const cut *k = ctx;
    lc_status s = lc_comm_barrier(c, NULL);
    int me = lc_comm_rank(c);
    char x;
    LC_TRY(s);
    pause_ms(50); /* until the other rank has finished it as well */
    if (me == 1) LC_TRY(k->make());
    pause_ms(500); /* what begins now is after the cut */
    for (double until = seconds() + patience(8); s >= 0 && seconds() < until;) {
        lc_request *r;
        bool done = false;
        s = k->idle ? lc_comm_recv(c, &x, 1, LC_U8, 1 - me, &r) : lc_comm_barrier(c, &r);
        while (s >= 0 && !done && seconds() < until) s = lc_comm_poll(r, &done);
    }
    const char *why = s < 0 ? lc_error_message() : "";
    if (s == LC_ERR_PEER && strstr(why, " is lost: ") && strstr(why, machines_address[0]) &&
        strstr(why, machines_address[1]))
        return LC_OK;
    return lc_fail(LC_ERR_INTERNAL, "the cut ends it with \"%s\"", why);
}

static void check_cut(cut k)
{
    if (why_not) SKIP(why_not);
    world *w = world_new(2);
    world_run_processes(w, open_on_machines, wait_behind_a_cut, &k);
    lc_status s = w->ranks[1].status;
    CHECK(machines_do(&two, k.machine, k.mend) == 0 || s == LC_ERR_UNSUPPORTED);
    if (s == LC_ERR_UNSUPPORTED) SKIP("links cannot be cut here");
    for (int i = 0; i < 2; i++)
        if (w->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    world_free(w);
}

TEST(ranks_notice_a_cut_link_by_themselves)
{
    for (int idle = 0; idle < 2; idle++) check_cut((cut){cut_link, idle, 1, "ip link set eth0 up"});
}

TEST(ranks_notice_that_one_connection_is_cut)
{
    check_cut((cut){cut_lane, false, 0, "ip rule add prio 0 lookup local && ip rule del prio 1 && ip rule del prio 2"});
}

/* ---- ranks that mpirun starts ---- */

/* Two ranks on each machine, started from machine 0: by `lightc launch`, or by the program itself with a file of
 * hosts. */
static void start_by_mpirun(run *r, bool by_file, const char *options)
{
    char command[2 * PATH_MAX + 4096], agent[400], launch[PATH_MAX + 100];
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir("mpirun"));
    snprintf(agent, sizeof agent, "%s/agent", scratch_root);
    CHECK(machines_write_agent(&two, agent));
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    snprintf(launch, sizeof launch, "%.*s/lightc launch -H %s:2,%s:2", (int)(strrchr(program, '/') - program), program,
             machines_address[0], machines_address[1]);
    snprintf(command, sizeof command,
             "cd %s; printf '# two of three\n%s slots=9\n\n%s\n10.77.0.3\n' >hosts; exec %s%s --max_restarts 2 "
             "--silence_timeout %g --grace_period 1 %s --dir %s --default_root_dir %s/run --batch 3 --strategy ddp "
             "--threads 1 --max_epochs 6 --every_n_train_steps 2 %s >out-0 2>err-0",
             r->dir, machines_address[0], machines_address[1], by_file ? program : launch,
             by_file ? " --num_nodes 2 --devices 2 --nodes_file hosts" : "", SILENCE, by_file ? "" : program, r->dir,
             r->dir, options);
    fflush(stdout);
    r->pid[0] = fork();
    if (r->pid[0]) return;
    if (!machines_enter(&two, 0)) _exit(125);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(126);
}

/* The result of one undisturbed process, within the rounding of sums of another number of ranks. */
static void check_continued(run *r, const char *said, const char *place)
{
    char text[128], one[128], options[200];
    double sum, want;
    if (r->status[0]) TEST_FAIL("status %d: %s", r->status[0], r->err[0]);
    CHECK_CONTAINS(r->err[0], said);
    char path[400];
    snprintf(path, sizeof path, "%s/place-0", r->dir);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(text, sizeof text, f));
    fclose(f);
    CHECK_CONTAINS(text, place);
    snprintf(options, sizeof options, "--batch 6 --max_epochs 6");
    one_machine(options, one);
    result_of(r->dir, text);
    CHECK_CONTAINS(text, "steps=48 ");
    CHECK(sscanf(strstr(text, "sum="), "sum=%lf", &sum) == 1 && sscanf(strstr(one, "sum="), "sum=%lf", &want) == 1);
    if (!(fabs(sum - want) < 1e-3)) TEST_FAIL("%.9g, undisturbed %.9g", sum, want);
}

TEST(three_of_four_go_on_through_mpirun)
{
    for (int by_file = 0; by_file < 2; by_file++) {
        run r = {0};
        if (why_not) SKIP(why_not);
        if (!machines_have_mpirun()) SKIP("no Open MPI");
        start_by_mpirun(&r, by_file, "--fault kill --phase forward --on 2 --at 11");
        finish(&r);
        CHECK_CONTAINS(r.err[0], "rank 2 (host machine1), step ");
        check_continued(&r, "with 3 of 4 ranks (1 of 2)", "size=3 ");
    }
}

TEST(a_machine_with_ranks_of_mpirun_is_lost)
{
    run r = {0};
    char path[400];
    if (why_not) SKIP(why_not);
    if (!machines_have_mpirun()) SKIP("no Open MPI");
    start_by_mpirun(&r, false, "");
    snprintf(path, sizeof path, "%s/run/lightning_logs/version_0/checkpoints/epoch=0-step=4.ckpt", r.dir);
    await_file(path);
    CHECK_EQ(machines_do(&two, 1, "ip link set eth0 down"), 0);
    finish(&r);
    CHECK_EQ(machines_do(&two, 1, "ip link set eth0 up"), 0);
    machines_clear(&two, 1); /* Open MPI's daemon does not notice the loss */
    check_continued(&r, "with 2 of 4 ranks (1 of 2)", "size=2 ");
}

TEST_MAIN
