/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce of f32 sums in place between the processes of one host: lightc through shared memory, in memory of the
 * communicator (own: lc_comm_alloc_mem) and in any other (shm), lightc over MPI (mpi), and MPI_Allreduce. They
 * alternate within a run, the last three on the same memory, whose values each rank has just written; each time is that
 * of the slowest rank.
 *
 *     mpirun -n 2 lightc_bench_mpi [--rounds N] [--json FILE] */
#include <lightc/comm_mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN, SHM, MPI, PEER, WAYS, MAX_ROUNDS = 200 };
static const char *const ways[WAYS] = {"own", "shm", "mpi", "MPI_Allreduce"};

static lc_status meet(void *ctx, const void *mine, void *all, size_t bytes)
{
    (void)ctx;
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    return LC_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static lc_status reduce(lc_comm *comm, float *x, int64_t n)
{
    if (comm) return lc_comm_all_reduce(comm, x, x, n, LC_F32, LC_COMM_SUM, NULL);
    int code = MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return code == MPI_SUCCESS ? LC_OK : lc_fail(LC_ERR_PEER, "MPI_Allreduce failed");
}

/* Seconds of one call, averaged over `calls`, of the slowest rank. */
static lc_status measure(lc_comm *comm, float *x, int64_t n, int calls, double *out)
{
    double mine = 0;
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int k = 0; k < calls; k++) {
        for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 7);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        LC_TRY(reduce(comm, x, n));
        mine += (MPI_Wtime() - start) / calls;
        if (x[n - 1] != (float)((n - 1) % 7 * size))
            return lc_fail(LC_ERR_INTERNAL, "a sum is wrong: %g", (double)x[n - 1]);
    }
    MPI_Allreduce(&mine, out, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return LC_OK;
}

static lc_status compare_ways(lc_comm *const comms[WAYS], int rounds, int64_t largest, FILE *json)
{
    static double times[WAYS][MAX_ROUNDS];
    int rank = lc_comm_rank(comms[0]);
    void *own;
    float *x = malloc((size_t)largest);
    if (!x) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld bytes", (long long)largest);
    memset(x, 0, (size_t)largest);
    LC_TRY(lc_comm_alloc_mem(comms[OWN], (size_t)largest, &own));
    memset(own, 0, (size_t)largest);
    if (rank == 0)
        printf("%8s  %26s %26s %26s %26s   %s\n", "KiB", ways[OWN], ways[SHM], ways[MPI], ways[PEER],
               "MPI_Allreduce / own, / shm");
    for (int64_t bytes = 4 << 10; bytes <= largest; bytes *= bytes < 1 << 20 ? 4 : 2) {
        int calls = bytes < 1 << 20 ? 20 : bytes < 16 << 20 ? 4 : 1;
        double median[WAYS];
        for (int r = -1; r < rounds; r++) /* the first round is a warm-up */
            for (int w = 0; w < WAYS; w++)
                LC_TRY(
                    measure(comms[w], w == OWN ? own : x, bytes / (int64_t)sizeof *x, calls, &times[w][r < 0 ? 0 : r]));
        if (rank) continue;
        printf("%8lld ", (long long)(bytes >> 10));
        for (int w = 0; w < WAYS; w++) {
            double *t = times[w];
            qsort(t, (size_t)rounds, sizeof *t, compare);
            median[w] = t[rounds / 2];
            printf(" %8.1f us (%7.1f-%7.1f)", median[w] * 1e6, t[0] * 1e6, t[rounds - 1] * 1e6);
            if (json)
                fprintf(json,
                        "{\"way\": \"%s\", \"bytes\": %lld, \"median_s\": %.9g, \"min_s\": %.9g, \"max_s\": %.9g}\n",
                        ways[w], (long long)bytes, median[w], t[0], t[rounds - 1]);
        }
        printf("   %.2f, %.2f\n", median[PEER] / median[OWN], median[PEER] / median[SHM]);
    }
    lc_comm_free_mem(comms[OWN], own);
    free(x);
    return LC_OK;
}

int main(int argc, char **argv)
{
    lc_comm *comms[WAYS] = {NULL};
    int rank, size, rounds = 21;
    FILE *json = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--json") && rank == 0) json = fopen(argv[i + 1], "w");
    }
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 21;
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = meet};
    lc_status s = lc_comm_shm(rank, size, &meeting, &comms[SHM]);
    if (s >= 0) s = lc_comm_from_mpi(MPI_COMM_WORLD, &comms[MPI]);
    comms[OWN] = comms[SHM];
    if (s >= 0) s = compare_ways(comms, rounds, (int64_t)64 << 20, json);
    if (s < 0) {
        fprintf(stderr, "error: rank %d: %s\n", rank, lc_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    lc_comm_free(comms[SHM]);
    lc_comm_free(comms[MPI]);
    if (json) fclose(json);
    double load[3] = {0};
    if (rank == 0 && getloadavg(load, 3) > 0)
        printf("load of the machine: %.1f %.1f %.1f\n", load[0], load[1], load[2]);
    MPI_Finalize();
    return 0;
}
