/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank this process is, from the variables of each launcher; values that make no sense; and joining, by processes
 * with the variables that a launcher would set. */
#define _GNU_SOURCE
#include "free_port.h"
#include "test.h"

#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"
#include "comm/world/world.h"

#include <lightc/lightc.h>

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- finding ---- */

extern char **environ;

/* Sets these variables, "NAME=value NAME=value", and unsets all others that concern ranks. */
static void surroundings(const char *text)
{
    static const char *const ours[] = {"LIGHTC_", "OMPI_", "PMI",       "MPI_",   "SLURM_",        "RANK",   "WORLD_",
                                       "LOCAL_",  "NODE_", "NUM_NODES", "GROUP_", "TORCHELASTIC_", "MASTER_"};
    char copy[2000], *rest = copy;
    for (bool again = true; again;) {
        again = false;
        for (char **e = environ; *e && !again; e++)
            for (size_t i = 0; i < sizeof ours / sizeof *ours && !again; i++)
                if (!strncmp(*e, ours[i], strlen(ours[i])) && strncmp(*e, "LIGHTC_TEST", 11) != 0) {
                    char name[200];
                    snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
                    unsetenv(name);
                    again = true;
                }
    }
    snprintf(copy, sizeof copy, "%s", text);
    for (char *one; (one = strsep(&rest, " ")) != NULL;) {
        char *equals = strchr(one, '=');
        if (!equals) continue;
        *equals = 0;
        setenv(one, equals + 1, 1);
    }
}

typedef struct expectation {
    const char *variables, *launcher;
    int rank, size, local_rank, local_size, node_rank, num_nodes;
    const char *address;
    int port;           /* 0: any */
    const char *secret; /* NULL: any */
} expectation;

#define KEY "0123456789abcdef"

static const expectation found[] = {
    {"", "none", 0, 1, 0, 1, 0, 1, "", 0, ""},
    /* lightc's own */
    {"LIGHTC_RANK=3 LIGHTC_WORLD_SIZE=4 LIGHTC_LOCAL_RANK=1 LIGHTC_LOCAL_SIZE=2 LIGHTC_NODE_RANK=1 LIGHTC_NUM_NODES=2 "
     "MASTER_ADDR=10.0.0.1 MASTER_PORT=4711 LIGHTC_SECRET=" KEY,
     "lightc", 3, 4, 1, 2, 1, 2, "10.0.0.1", 4711, KEY},
    /* which takes precedence */
    {"LIGHTC_RANK=1 LIGHTC_WORLD_SIZE=2 LIGHTC_NUM_NODES=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=4711 LIGHTC_SECRET=" KEY
     " OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=8 SLURM_PROCID=5 SLURM_NTASKS=6 RANK=3 WORLD_SIZE=4",
     "lightc", 1, 2, 1, 2, 0, 1, "127.0.0.1", 4711, KEY},
    /* Open MPI 4, on one host and on two */
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "OMPI_COMM_WORLD_NODE_RANK=1 OMPI_MCA_ess_base_jobid=2040659969 "
     "OMPI_MCA_orte_precondition_transports=c62b77d6f3fbd7fa-1a5ab09e0982db5a",
     "mpirun", 1, 2, 1, 2, 0, 1, "127.0.0.1", 0, "c62b77d6f3fbd7fa-1a5ab09e0982db5a"},
    {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "MASTER_ADDR=a MASTER_PORT=29500",
     "mpirun", 2, 4, 0, 2, -1, 0, "a", 29500, NULL},
    /* Open MPI 5 */
    {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=3 "
     "PMIX_NAMESPACE=prterun-a-1234@1 PMIX_RANK=0",
     "mpirun", 0, 3, 0, 3, 0, 1, "127.0.0.1", 0, NULL},
    /* PMI */
    {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 PMI_JOBID=77", "mpirun", 1, 4, 1, 4, 0, 1, "127.0.0.1",
     0, NULL},
    {"PMI_RANK=1 PMI_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=1 MASTER_ADDR=b MASTER_PORT=5", "mpirun", 1, 4, -1, 0, -1, 0,
     "b", 5, NULL},
    /* Slurm */
    {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_NNODES=4 SLURM_JOB_ID=123456 SLURM_STEP_ID=0 "
     "SLURM_NODELIST=node[02-04,07] SLURM_JOB_NAME=train",
     "slurm", 5, 8, 1, 0, 2, 4, "node02", 0, NULL},
    {"SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_LOCALID=1 SLURM_NODEID=0 "
     "SLURM_NNODES=4 SLURM_JOB_ID=9 SLURM_JOB_NODELIST=a,b SLURM_STEP_NODELIST=b PMI_RANK=1 PMI_SIZE=2",
     "slurm", 1, 2, 1, 2, 0, 1, "127.0.0.1", 0, NULL},
    /* srun inside of salloc, whose job is called "interactive" */
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_JOB_NAME=interactive SLURM_JOB_ID=9 SLURM_STEP_ID=0",
     "slurm", 1, 2, 1, 2, 0, 1, "127.0.0.1", 0, NULL},
    {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=9 SLURM_NODELIST=a SLURM_JOB_NAME=train", "none", 0, 1, 0, 1, 0, 1, "",
     0, ""}, /* a batch script */
    {"SLURM_NTASKS=8 SLURM_JOB_ID=9 SLURM_NODELIST=a", "none", 0, 1, 0, 1, 0, 1, "", 0, ""},
    /* torchrun, in a Slurm job that started it once per host */
    {"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 MASTER_ADDR=10.1.1.1 "
     "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=8",
     "torchrun", 3, 4, 1, 2, 1, 2, "10.1.1.1", 29500, NULL},
    /* torchrun itself listens on that port */
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
     "TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True",
     "torchrun", 0, 2, 0, 2, 0, 1, "127.0.0.1", 29501, NULL},
    /* by hand */
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 LIGHTC_SECRET=" KEY, "environment", 1, 2, -1, 0, -1, 0, "a", 1,
     KEY},
    {"RANK=0 WORLD_SIZE=1", "environment", 0, 1, 0, 1, 0, 1, "", 0, ""},
    {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "mpirun", 0, 1, 0, 1, 0, 1, "", 0, ""},
};

TEST(every_launcher_is_understood)
{
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        const expectation *e = &found[i];
        lc__world w;
        surroundings(e->variables);
        if (lc__world_find(&w) < 0) TEST_FAIL("%s: %s", e->variables, lc_error_message());
        bool good = !strcmp(w.launcher, e->launcher) && w.rank == e->rank && w.size == e->size &&
                    w.local_rank == e->local_rank && w.local_size == e->local_size && w.node_rank == e->node_rank &&
                    w.num_nodes == e->num_nodes && !strcmp(w.address, e->address) &&
                    (e->port ? w.port == e->port : w.size == 1 || (w.port >= 15000 && w.port < 30000)) &&
                    (e->secret ? !strcmp(w.secret, e->secret) : strlen(w.secret) == 32);
        if (!good)
            TEST_FAIL("%s: %s %d/%d %d/%d %d/%d \"%s\" %d \"%s\"", e->variables, w.launcher, w.rank, w.size,
                      w.local_rank, w.local_size, w.node_rank, w.num_nodes, w.address, w.port, w.secret);
        CHECK_EQ(w.hosted, !strcmp(e->launcher, "lightc"));
    }
}

/* A program typed into a shell that srun --pty started, with a terminal, is not a rank; what srun itself starts is. */
TEST(a_shell_of_slurm_is_no_rank)
{
    char variables[300];
    int user, terminal = posix_openpt(O_RDWR | O_NOCTTY), before = dup(0);
    lc__world w;
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) SKIP("there are no pseudo-terminals");
    user = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    CHECK(user >= 0 && dup2(user, 0) == 0);
    for (int direct = 0; direct < 2; direct++) {
        snprintf(variables, sizeof variables,
                 "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_JOB_ID=9 SLURM_STEP_ID=0 "
                 "SLURM_TASK_PID=%d",
                 (int)(direct ? getpid() : getppid()));
        surroundings(variables);
        CHECK_OK(lc__world_find(&w));
        CHECK_STR(w.launcher, direct ? "slurm" : "none");
    }
    dup2(before, 0);
    close(before);
    close(user);
    close(terminal);
}

TEST(ranks_of_a_job_agree_and_jobs_differ)
{
    lc__world a, b, c;
    surroundings("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_NNODES=2 SLURM_JOB_ID=9 SLURM_NODELIST=a,b");
    CHECK_OK(lc__world_find(&a));
    surroundings("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=2 SLURM_JOB_ID=9 SLURM_NODELIST=a,b");
    CHECK_OK(lc__world_find(&b));
    surroundings("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=2 SLURM_JOB_ID=10 SLURM_NODELIST=a,b");
    CHECK_OK(lc__world_find(&c));
    CHECK(a.port == b.port && !strcmp(a.secret, b.secret) && !strcmp(a.address, "a"));
    CHECK(c.port != b.port && strcmp(c.secret, b.secret) != 0);
}

TEST(invalid_values_are_refused_by_name)
{
    static const char *const cases[][2] = {
        {"LIGHTC_RANK=1 LIGHTC_WORLD_SIZE=2", "not all of MASTER_ADDR, MASTER_PORT and LIGHTC_SECRET"},
        {"RANK=1", "RANK is 1 but WORLD_SIZE is not set"},
        {"RANK=0", "RANK is 0 but WORLD_SIZE is not set"},
        {"WORLD_SIZE=2", "WORLD_SIZE is 2 but RANK is not set"},
        {"LIGHTC_RANK=1", "LIGHTC_RANK is set but LIGHTC_WORLD_SIZE is not"},
        {"OMPI_COMM_WORLD_RANK=two OMPI_COMM_WORLD_SIZE=3",
         "OMPI_COMM_WORLD_RANK is \"two\"; it must be a whole number"},
        {"OMPI_COMM_WORLD_RANK=-1 OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK is \"-1\""},
        {"OMPI_COMM_WORLD_RANK=1x OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK is \"1x\""},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK is 3, and OMPI_COMM_WORLD_SIZE is 3"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\""},
        {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is \"99999999999999999999\""},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is 2, and LOCAL_WORLD_SIZE is 2"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE is 3, which is more than WORLD_SIZE, 2"},
        {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=2 SLURM_NNODES=2",
         "SLURM_NODEID is 2, and SLURM_NNODES is 2"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", "MASTER_PORT is \"70000\""},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=http", "MASTER_PORT is \"http\""},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "set MASTER_PORT"},
        {"RANK=0 WORLD_SIZE=2 MASTER_PORT=7", "the address where the ranks meet is unknown. Set MASTER_ADDR"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=7 LIGHTC_SECRET=short", "the run's secret has 5 characters"},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "mpirun -x MASTER_ADDR=..."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lc__world w;
        surroundings(cases[i][0]);
        if (lc__world_find(&w) != LC_ERR_CONFIG) TEST_FAIL("\"%s\" is taken", cases[i][0]);
        CHECK_CONTAINS(lc_error_message(), cases[i][1]);
    }
}

TEST(the_first_host_of_a_list_is_found)
{
    static const char *const cases[][2] = {{"a", "a"},
                                           {"a,b", "a"},
                                           {"node[01-04,07],gpu", "node01"},
                                           {"node[7,9-11]", "node7"},
                                           {"r[1-2]n[003-004]", "r1n003"},
                                           {"n[5]-ib", "n5-ib"},
                                           {"n[1-", "n1"}};
    char host[64], small[4];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(lc__first_host(cases[i][0], host, sizeof host));
        CHECK_STR(host, cases[i][1]);
    }
    CHECK(!lc__first_host("", host, sizeof host));
    CHECK(lc__first_host("node[01-04]", small, sizeof small));
    CHECK_STR(small, "nod");
}

/* ---- joining ---- */

enum { RANKS = 4 };

typedef struct run {
    int size, port, per_node; /* ranks of simulated hosts; 0: one host */
    atomic_int known;         /* rank 0 knows rank 1's step */
    const char *backend[RANKS];
    struct {
        lc_status status;
        char message[1024], name[16];
        int local_rank, local_size, node_rank, num_nodes;
    } ranks[RANKS];
} run;

typedef lc_status world_fn(run *r, lc__world *w, const lc__world_args *o);

static lc_status be_rank(run *r, int rank, world_fn *fn)
{
    char variables[400], node[40] = "";
    lc__world *w = NULL;
    if (r->per_node) snprintf(node, sizeof node, " NODE_RANK=%d", rank / r->per_node);
    snprintf(variables, sizeof variables,
             "RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d LIGHTC_SECRET=" KEY "%s", rank, r->size,
             r->port, node);
    surroundings(variables);
    lc__world_args o = {.backend = r->backend[rank], .times = {.start = 20, .heartbeat = 0.1}};
    LC_TRY(lc__world_join(&o, &w));
    snprintf(r->ranks[rank].name, sizeof r->ranks[rank].name, "%s", lc_comm_name(w->comm));
    r->ranks[rank].local_rank = w->local_rank;
    r->ranks[rank].local_size = w->local_size;
    r->ranks[rank].node_rank = w->node_rank;
    r->ranks[rank].num_nodes = w->num_nodes;
    lc_status s = fn(r, w, &o);
    char why[1024];
    snprintf(why, sizeof why, "%s", s < 0 ? lc_error_message() : "");
    lc__world_leave(w);
    return s < 0 ? lc_fail(s, "%s", why) : LC_OK;
}

static run *run_on_nodes(int size, int per_node, const char *backend, const char *backend_of_1, world_fn *fn)
{
    run *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[RANKS];
    *r = (run){.size = size,
               .port = free_port(),
               .per_node = per_node,
               .backend = {backend, backend_of_1 ? backend_of_1 : backend, backend, backend}};
    fflush(NULL);
    for (int i = 0; i < size; i++) {
        r->ranks[i].status = LC_ERR_INTERNAL;
        pids[i] = fork();
        if (pids[i]) continue;
        lc_status s = be_rank(r, i, fn);
        snprintf(r->ranks[i].message, sizeof r->ranks[i].message, "%s", s < 0 ? lc_error_message() : "");
        r->ranks[i].status = s;
        _exit(0);
    }
    for (int i = 0; i < size; i++) waitpid(pids[i], NULL, 0);
    return r;
}

static run *run_all(int size, const char *backend, const char *backend_of_1, world_fn *fn)
{
    return run_on_nodes(size, 0, backend, backend_of_1, fn);
}

static lc_status add(lc_comm *c)
{
    int64_t x = lc_comm_rank(c) + 1, n = lc_comm_size(c);
    LC_TRY(lc_comm_all_reduce(c, &x, &x, 1, LC_I64, LC_COMM_SUM, NULL));
    return x == n * (n + 1) / 2 ? LC_OK : lc_fail(LC_ERR_INTERNAL, "the sum is %lld", (long long)x);
}

/* Joins twice at the same time, and again after all have left. */
static lc_status work(run *r, lc__world *w, const lc__world_args *o)
{
    lc__world *same = NULL;
    (void)r;
    LC_TRY(add(w->comm));
    LC_TRY(lc__world_join(NULL, &same));
    if (same != w) return lc_fail(LC_ERR_INTERNAL, "there are two worlds");
    if (lc__world_join(&(lc__world_args){.backend = "carrier pigeon"}, &same) != LC_ERR_CONFIG)
        return lc_fail(LC_ERR_INTERNAL, "any backend is taken");
    const char *other = !strcmp(lc_comm_name(w->comm), "tcp") ? "shm" : "tcp";
    if (w->size > 1 && lc__world_join(&(lc__world_args){.backend = other}, &same) != LC_ERR_CONFIG)
        return lc_fail(LC_ERR_INTERNAL, "another backend is taken");
    lc__world_leave(w);
    LC_TRY(add(w->comm));
    for (int k = 0; k < 3; k++) {
        lc__world_leave(w);
        LC_TRY(lc__world_join(o, &w));
        LC_TRY(add(w->comm));
    }
    return LC_OK;
}

/* Checks all ranks: a rank that waits in vain does not know why another one does not come. */
static void all_did_well(const run *r, const char *what)
{
    char why[RANKS * 1100] = "";
    for (int i = 0; i < r->size; i++)
        if (r->ranks[i].status < 0)
            snprintf(why + strlen(why), sizeof why - strlen(why), "\n    rank %d: %s", i, r->ranks[i].message);
    if (*why) TEST_FAIL("%s, %d ranks:%s", what, r->size, why);
}

TEST(ranks_join_leave_and_join_again)
{
    static const char *const backends[][2] = {{"auto", "shm"}, {"shm", "shm"}, {"tcp", "tcp"}};
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++)
        for (int n = 1; n <= RANKS; n++) {
            run *r = run_all(n, backends[b][0], NULL, work);
            all_did_well(r, backends[b][0]);
            for (int i = 0; i < n; i++) {
                CHECK_STR(r->ranks[i].name, n == 1 ? "self" : backends[b][1]);
                CHECK(r->ranks[i].local_rank == i && r->ranks[i].local_size == n);
                CHECK(r->ranks[i].node_rank == 0 && r->ranks[i].num_nodes == 1);
            }
            munmap(r, sizeof *r);
        }
}

TEST(ranks_on_several_hosts_share_memory_where_they_can)
{
    static const struct {
        int size, per_node;
        const char *backend, *name;
    } worlds[] = {{4, 2, "auto", "shm+tcp"},    {3, 2, "auto", "shm+tcp"}, {2, 1, "auto", "tcp"},
                  {4, 2, "shm+tcp", "shm+tcp"}, {4, 2, "tcp", "tcp"},      {2, 2, "auto", "shm"}};
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
        int n = worlds[k].size, each = worlds[k].per_node;
        run *r = run_on_nodes(n, each, worlds[k].backend, NULL, work);
        all_did_well(r, worlds[k].name);
        for (int i = 0; i < n; i++) {
            CHECK_STR(r->ranks[i].name, worlds[k].name);
            CHECK(r->ranks[i].node_rank == i / each && r->ranks[i].local_rank == i % each);
        }
        munmap(r, sizeof *r);
    }
    run *r = run_on_nodes(4, 2, "shm", NULL, work);
    CHECK_CONTAINS(r->ranks[0].message, "ranks 0 and 2 are on different hosts");
    munmap(r, sizeof *r);
}

TEST(ranks_that_want_different_things_get_an_error)
{
    run *r = run_all(2, "tcp", "shm", work);
    CHECK_CONTAINS(r->ranks[0].message, "rank 0 wants to communicate over tcp, but rank 1 over shm");
    CHECK_CONTAINS(r->ranks[1].message, "rank 1 wants to communicate over shm, but rank 0 over tcp");
    munmap(r, sizeof *r);
}

static bool is_in_step(lc__coordinator *c, int rank, int64_t step)
{
    pthread_mutex_lock(&c->lock);
    bool is = c->members[rank].step == step;
    pthread_mutex_unlock(&c->lock);
    return is;
}

/* Rank 1 dies between two calls, while the others wait in one. */
static lc_status lose(run *r, lc__world *w, const lc__world_args *o)
{
    (void)o;
    LC_TRY(add(w->comm));
    lc__control_progress(w->control, 5, "training");
    while (w->rank < 2 && !atomic_load(&r->known)) {
        usleep(1000);
        if (w->rank == 0) atomic_store(&r->known, is_in_step(w->coordinator, 1, 5));
    }
    if (w->rank == 1) {
        usleep(300000); /* until the others wait */
        kill(getpid(), SIGKILL);
    }
    double start = lc__seconds(), took;
    lc_status s = lc__world_explain(w, add(w->comm));
    took = lc__seconds() - start;
    return took < patience(3) ? s : lc_fail(LC_ERR_INTERNAL, "that took %.3g s", took);
}

TEST(a_rank_that_dies_ends_the_calls_of_the_others)
{
    static const char *const backends[] = {"shm", "tcp", "shm+tcp"};
    for (int b = 0; b < 3; b++) {
        int mixed = b == 2;
        run *r = run_on_nodes(3 + mixed, 2 * mixed, backends[b], NULL, lose);
        for (int i = 0; i < 3 + mixed; i++) {
            if (i == 1) continue;
            CHECK_EQ(r->ranks[i].status, LC_ERR_PEER);
            CHECK_CONTAINS(r->ranks[i].message, "rank 1 (host ");
            CHECK_CONTAINS(r->ranks[i].message, "step 5, training: its process ended");
        }
        munmap(r, sizeof *r);
    }
}

/* A program without a trainer calls lc_comm_world twice; the world has been joined before. */
static lc_status share(run *r, lc__world *w, const lc__world_args *o)
{
    lc_comm *one, *two, *part;
    (void)r, (void)o;
    LC_TRY(lc_comm_world(&one));
    LC_TRY(lc_comm_world(&two));
    if (one != two || one != w->comm) return lc_fail(LC_ERR_INTERNAL, "there are several communicators");
    LC_TRY(lc_comm_split(one, 0, 0, &part));
    lc_comm_free(one);
    LC_TRY(add(two));
    LC_TRY(add(part));
    lc_comm_free(part);
    lc_comm_free(two);
    LC_TRY(add(w->comm));
    lc__world_leave(w); /* the last one: the world is gone */
    LC_TRY(lc_comm_world(&one));
    LC_TRY(add(one));
    return LC_OK; /* the caller leaves it */
}

/* A program without a trainer has the options that it parsed, also if something else has started its ranks. */
TEST(start_timeout_is_that_of_the_options)
{
    char variables[200];
    int output[2];
    double start = lc__seconds();
    snprintf(variables, sizeof variables, "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d LIGHTC_SECRET=" KEY,
             free_port());
    CHECK(pipe(output) == 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {"program", "--start_timeout", "0.3", NULL};
        lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
        lc_comm *c;
        surroundings(variables);
        alarm(60);
        lc_status s = lc_trainer_options_parse_used(&o, NULL, NULL, 0, NULL, 3, argv);
        if (s >= 0) s = lc_comm_world(&c);
        dprintf(output[1], "%s", lc_error_message());
        _exit(s < 0 ? 0 : 1);
    }
    char text[1024] = "";
    int status;
    close(output[1]);
    CHECK(read(output[0], text, sizeof text - 1) >= 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_CONTAINS(text, "within 0.3 s");
    CHECK(lc__seconds() - start < patience(10));
    close(output[0]);
}

TEST(the_communicator_is_shared_and_freed_by_the_last)
{
    for (int n = 1; n <= RANKS; n++) {
        run *r = run_all(n, NULL, NULL, share);
        all_did_well(r, "any");
        munmap(r, sizeof *r);
    }
}

TEST_MAIN
