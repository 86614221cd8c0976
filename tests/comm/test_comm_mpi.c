/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives over MPI: this program starts itself under mpirun and does there what test_comm.c does over other
 * backends. `test_comm_mpi --rank NAME` is one of those ranks. */
#define _GNU_SOURCE
#include "collective_rows.h"
#include "comm_ranks.h"
#include "wire_bytes.h"

#include <lightc/comm_mpi.h>
#include <unistd.h>

/* ---- a rank ---- */

/* A group of the program's own communicator, interleaved with a message of the program. */
static lc_status host_program(lc_comm *all, void *ctx)
{
    int me = lc_comm_rank(all), n = lc_comm_size(all), sent = 7 * me, got = -1;
    lc_comm *reversed = NULL;
    MPI_Comm parent;
    MPI_Request request;
    float x[100];
    (void)ctx;
    RANK_CHECK(!strcmp(lc_comm_name(all), "mpi"));
    MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &parent);
    LC_TRY(lc_comm_from_mpi(parent, &reversed));
    RANK_CHECK(lc_comm_rank(reversed) == n - 1 - me && lc_comm_size(reversed) == n);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, parent, &request);
    for (int i = 0; i < 100; i++) x[i] = (float)(me + i);
    LC_TRY(lc_comm_all_reduce(reversed, x, x, 100, LC_F32, LC_COMM_SUM, NULL));
    for (int i = 0; i < 100; i++) RANK_CHECK(x[i] == (float)(n * (n - 1) / 2 + n * i));
    RANK_CHECK(got == -1);
    MPI_Send(&sent, 1, MPI_INT, lc_comm_rank(reversed), 1, parent);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    RANK_CHECK(got == sent);
    lc_comm_free(reversed);
    MPI_Comm_free(&parent);
    RANK_CHECK(lc_comm_from_mpi(MPI_COMM_NULL, &reversed) == LC_ERR_ARGUMENT && !reversed);
    return LC_OK;
}

/* The library as used by a program that does not know MPI. */
static lc_status by_plugin(lc_comm *all, void *ctx)
{
    lc_comm *c = NULL;
    int64_t one = 1;
    (void)ctx;
    setenv("LIGHTC_MPI_PLUGIN", "/nowhere/liblightc_mpi.so", 1);
    RANK_CHECK(lc_comm_mpi(&c) == LC_ERR_UNSUPPORTED && !c);
    RANK_CHECK(strstr(lc_error_message(), "built without MPI") && strstr(lc_error_message(), "/nowhere/"));
    unsetenv("LIGHTC_MPI_PLUGIN");
    LC_TRY(lc_comm_mpi(&c));
    LC_TRY(lc_comm_all_reduce(c, &one, &one, 1, LC_I64, LC_COMM_SUM, NULL));
    RANK_CHECK(one == lc_comm_size(all));
    lc_comm_free(c);
    return LC_OK;
}

/* Two ranks a host, MPI between hosts. */
typedef struct hosts_meeting {
    lc_comm *all;
} hosts_meeting;

static lc_status meet_over_mpi(void *ctx, const void *mine, void *all, size_t bytes)
{
    return lc_comm_all_gather(((hosts_meeting *)ctx)->all, mine, all, (int64_t)bytes, LC_U8, NULL);
}

static lc_status on_hosts(lc_comm *all, void *ctx)
{
    hosts_meeting m = {all};
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = meet_over_mpi, .ctx = &m};
    lc_comm *far = NULL, *c = NULL;
    lc_comm_stats stats;
    int n = lc_comm_size(all);
    LC_TRY(lc_comm_from_mpi(MPI_COMM_WORLD, &far));
    LC_TRY(lc_comm_shm_over(far, lc_comm_rank(all) / 2, &meeting, &c));
    RANK_CHECK(!strcmp(lc_comm_name(c), "shm+mpi"));
    LC_TRY(all_reductions(c, ctx));
    LC_TRY(moves(c, ctx));
    LC_TRY(tree_bits(c, ctx));
    LC_TRY(many_at_once(c, ctx));
    LC_TRY(groups(c, ctx));
    lc_comm_get_stats(c, &stats);
    RANK_CHECK((stats.sent_across > 0) == (n > 2));                     /* two of the ranks share a host */
    RANK_CHECK(lc_comm_rank(c) == 2 || stats.sent_across < stats.sent); /* rank 2 of 3 has a host of its own */
    LC_TRY(lc_comm_barrier(c, NULL));
    lc_comm_free(c);
    return LC_OK;
}

static lc_status wire_bytes_on_hosts(lc_comm *all, void *ctx)
{
    hosts_meeting m = {all};
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = meet_over_mpi, .ctx = &m};
    lc_comm *far = NULL, *c = NULL;
    LC_TRY(lc_comm_from_mpi(MPI_COMM_WORLD, &far));
    LC_TRY(lc_comm_shm_over(far, lc_comm_rank(all) / 2, &meeting, &c));
    LC_TRY(wire_bytes(c, ctx));
    LC_TRY(lc_comm_barrier(c, NULL));
    lc_comm_free(c);
    return LC_OK;
}

static lc_status everything(lc_comm *c, void *ctx)
{
    LC_TRY(all_reductions(c, ctx));
    LC_TRY(moves(c, ctx));
    LC_TRY(tree_bits(c, ctx));
    LC_TRY(many_at_once(c, ctx));
    LC_TRY(groups(c, ctx));
    LC_TRY(host_program(c, ctx));
    LC_TRY(by_plugin(c, ctx));
    return LC_OK;
}

/* Errors that end a communicator: the ranks print them. */
static lc_status say(lc_comm *c, lc_status s)
{
    printf("rank %d: %s\n", lc_comm_rank(c), s < 0 ? lc_error_message() : "no error");
    return s < 0 ? LC_OK : lc_fail(LC_ERR_INTERNAL, "there was no error");
}

static lc_status say_disagree(lc_comm *c, void *ctx)
{
    return say(c, disagree(c, ctx));
}

static lc_status hosts_disagree(lc_comm *all, void *ctx)
{
    hosts_meeting m = {all};
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = meet_over_mpi, .ctx = &m};
    lc_comm *far = NULL, *c = NULL;
    LC_TRY(lc_comm_from_mpi(MPI_COMM_WORLD, &far));
    LC_TRY(lc_comm_shm_over(far, lc_comm_rank(all) / 2, &meeting, &c));
    lc_status s = say(c, disagree(c, ctx));
    LC_TRY(lc_comm_barrier(all, NULL));
    lc_comm_free(c);
    return s;
}

static lc_status say_wrong_count(lc_comm *c, void *ctx)
{
    lc_status s = wrong_count(c, ctx);
    if (lc_comm_rank(c) == 0 && s == LC_OK) s = lc_comm_barrier(c, NULL); /* a send may complete before it is refused */
    return say(c, s);
}

static lc_status aborted(lc_comm *c, void *ctx)
{
    lc_status s = gives_up(c, ctx);
    if (lc_comm_rank(c) != 2) return s;
    lc_comm_abort(c, lc_error_message());
    return LC_OK;
}

static void *abort_from_thread(void *comm)
{
    lc_comm_abort(comm, "another thread has seen enough");
    return NULL;
}

/* lc_comm_abort of one rank, by a thread that may not call MPI. */
static lc_status aborted_by_thread(lc_comm *c, void *ctx)
{
    float x = 0;
    pthread_t thread;
    (void)ctx;
    if (lc_comm_rank(c) == 1) {
        pthread_create(&thread, NULL, abort_from_thread, c);
        pthread_join(thread, NULL);
    }
    lc_status s = lc_comm_all_reduce(c, &x, &x, 1, LC_F32, LC_COMM_SUM, NULL);
    RANK_CHECK(s == LC_ERR_PEER && strstr(lc_error_message(), "another thread has seen enough"));
    return LC_OK;
}

static const struct {
    const char *name;
    rank_fn *fn;
} parts[] = {
    {"everything", everything},
    {"operators", check_rows},
    {"on_hosts", on_hosts},
    {"wire_bytes", wire_bytes},
    {"wire_bytes_on_hosts", wire_bytes_on_hosts},
    {"hosts_disagree", hosts_disagree},
    {"disagree", say_disagree},
    {"wrong_count", say_wrong_count},
    {"aborted", aborted},
    {"aborted_by_thread", aborted_by_thread},
};

/* This program initializes MPI itself, so it exits cleanly even after a communicator has failed. */
static int rank_main(const char *name)
{
    int level, failed = 1;
    lc_comm *c = NULL;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, name) != 0) continue;
        failed = lc_comm_mpi_world(&c) < 0 || parts[i].fn(c, NULL) < 0;
        if (failed) printf("rank %d: %s\n", c ? lc_comm_rank(c) : -1, lc_error_message());
        lc_comm_free(c);
    }
    fflush(stdout);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}

/* ---- the test ---- */

enum { OUTPUT = 16384 };

/* Runs n ranks; returns mpirun's exit status, and the output. */
static int run(int n, const char *name, char *output)
{
    char self[4096], command[8192];
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    if (system("command -v mpirun >/dev/null") != 0) SKIP("there is no mpirun (Debian: openmpi-bin)");
    CHECK(k > 0);
    self[k] = 0;
    /* Allow root and more ranks than cores, and do not look for networks. */
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,self "
             "OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1 "
             "ASAN_OPTIONS=detect_leaks=0 timeout -k 5 600 mpirun -n %d '%s' --rank %s 2>&1",
             n, self, name);
    FILE *f = popen(command, "r");
    CHECK(f);
    size_t got = fread(output, 1, OUTPUT - 1, f);
    output[got] = 0;
    return pclose(f);
}

#define CHECK_RUN(n, name, output)                                                                                     \
    do {                                                                                                               \
        int status_ = run(n, name, output);                                                                            \
        if (status_) TEST_FAIL("%s with %d ranks ended with %#x: %s", name, n, status_, output);                       \
    } while (0)

/* With a sanitizer, one of the two programs tests odd numbers of ranks, and the other even ones. */
#ifdef LC_MPI_LARGE
enum { LARGE = 1 };
#else
enum { LARGE = 0 };
#endif

static bool takes(int n)
{
    return takes_all() || n % 2 != LARGE;
}

TEST(collectives_over_mpi_give_the_usual_results)
{
    char output[OUTPUT];
    for (int n = 1; n <= 4; n++)
        if (takes(n)) CHECK_RUN(n, "everything", output);
}

TEST(operators_over_mpi_give_the_usual_results)
{
    char output[OUTPUT];
    for (int n = 1; n <= 4; n++)
        if (takes(n)) CHECK_RUN(n, "operators", output);
}

TEST(ranks_of_a_host_share_memory_next_to_mpi)
{
    char output[OUTPUT];
    for (int n = 2; n <= 4; n++)
        if (takes(n)) CHECK_RUN(n, "on_hosts", output);
    CHECK_RUN(4, "hosts_disagree", output);
    for (int r = 0; r < 4; r++) {
        char line[64];
        snprintf(line, sizeof line, "rank %d: the ranks make different calls", r);
        CHECK_CONTAINS(output, line);
    }
}

TEST(bytes_on_the_wire_are_those_of_the_formula)
{
    char output[OUTPUT];
    for (int n = 2; n <= 4; n++)
        if (takes(n)) CHECK_RUN(n, "wire_bytes", output);
    CHECK_RUN(4, "wire_bytes_on_hosts", output);
}

TEST(different_calls_are_named_with_both_ranks)
{
    char output[OUTPUT], line[64];
    CHECK_RUN(3, "disagree", output);
    for (int r = 0; r < 3; r++) {
        snprintf(line, sizeof line, "rank %d: the ranks make different calls", r);
        CHECK_CONTAINS(output, line);
    }
    /* Two ranks make that call; the message names the one that notices first. */
    CHECK(strstr(output, "call 2 is all_reduce of 8 f32, sum on rank 0") ||
          strstr(output, "call 2 is all_reduce of 8 f32, sum on rank 2"));
    CHECK_CONTAINS(output, "call 2 is broadcast of 5 f32 from rank 0 on rank 1");
}

TEST(a_receive_of_another_size_is_an_error)
{
    char output[OUTPUT];
    CHECK_RUN(2, "wrong_count", output);
    CHECK_CONTAINS(output, "rank 1: the ranks make different calls: call 1 is recv of 7 f32 from rank 0 on rank 1, and "
                           "call 1 is send of 8 f32 to rank 1 on rank 0");
}

TEST(an_abort_ends_all_ranks_with_its_reason)
{
    char output[OUTPUT];
    CHECK_RUN(3, "aborted", output);
    CHECK_RUN(3, "aborted_by_thread", output);
}

/* A rank does not run the tests. */
__attribute__((constructor)) static void start_rank(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--rank")) exit(rank_main(argv[2]));
}

TEST_MAIN
