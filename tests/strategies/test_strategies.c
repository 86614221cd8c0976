/* SPDX-License-Identifier: Apache-2.0 */
/* Every strategy, on 1 to 4 ranks (8 that are threads), started by the program itself, by lightc launch and by mpirun,
 * over every transport: the training of strategy_program.c ends with the same numbers.
 *
 * - Ranks that are processes have the bits of ranks that are threads, however they are started and whatever their
 * transport: every strategy with 1, 2, 3, 4 ranks over shm, tcp and mpi; the other ways with each strategy once.
 * - N ranks, and N devices of one process, equal one within rounding: every strategy and every number of ranks as
 * threads, and by turns as processes.
 *
 * For the bits of one rank, which `deterministic` promises, see test_deterministic.c and test_same_bits.c.
 *
 * To add a strategy: a line in `strategies`. */
#include "file_text.h"
#include "scratch.h"
#include "sim_device.h"

#include <limits.h>
#include <stdarg.h>

/* Several units of gradients; a window that ends with the epoch, with one batch of three; a smaller last batch. */
#define COMMON                                                                                                         \
    "--accumulate_grad_batches 3 --gradient_clip_val 0.5 --max_epochs 3 --threads 1 --bucket_cap_mb 0.0002 "           \
    "--silence_timeout 60"

enum { SAMPLES = 89, MOST_SAMPLES = 128, MOST_EPOCHS = 16, TEXT = 1 << 16 };

static const struct {
    const char *name;
    bool sums_windows; /* sums every batch of a window over ranks: other bits than ddp's */
} strategies[] = {
    {"ddp", false}, {"sharded_1", false}, {"sharded_2", true}, {"sharded_3", true}, {"sharded_hybrid", true}};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static char bin[PATH_MAX];
static bool have_mpi;

__attribute__((constructor)) static void find_programs(void)
{
    char plugin[PATH_MAX + 64];
    const char *given = getenv("LIGHTC_TEST_BIN");
    if (!realpath(given ? given : "build/bin", bin)) abort();
    snprintf(plugin, sizeof plugin, "%s/../lib/liblightc_mpi.so", bin);
    have_mpi = system("command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'") == 0 &&
               access(plugin, R_OK) == 0;
    /* Run as root, with more ranks than cores, without searching for networks. */
    static const char *const variables[][2] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                               {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                               {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                               {"OMPI_MCA_pml", "ob1"},
                                               {"OMPI_MCA_btl", "vader,self"},
                                               {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                                               {"OMP_WAIT_POLICY", "passive"},
                                               {"OMP_NUM_THREADS", "1"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) setenv(variables[i][0], variables[i][1], 1);
}

/* ---- a run ---- */

typedef enum way { THREADS, SELF, LAUNCH, MPIRUN } way;
static const char *const way_names[] = {"threads", "itself", "lightc launch", "mpirun"};

typedef struct run {
    char dir[300], what[400];
} run;

/* For sharded_hybrid: two copies if the number of ranks allows it. */
static int shard_size(const char *strategy, int n)
{
    return strcmp(strategy, "sharded_hybrid") != 0 ? 0 : n % 2 ? n : n / 2;
}

/* Runs without ranks if strategy is NULL. Returns the exit status. */
static int try(run *r, const char *dir, way how, const char *comm, const char *strategy, int n, const char *options)
{
    char start[PATH_MAX + 200] = "", tail[100] = "", command[3 * PATH_MAX];
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir(dir));
    snprintf(r->what, sizeof r->what, "%s, %d ranks started by %s over %s: %s", strategy ? strategy : "one process", n,
             way_names[how], comm, options);
    if (!strategy)
        n = 1;
    else if (how == THREADS)
        snprintf(tail, sizeof tail, "--threads_of %d --under %s", n, strategy);
    else if (how == SELF)
        snprintf(tail, sizeof tail, "--devices %d --strategy %s", n, strategy);
    else
        snprintf(tail, sizeof tail, "--strategy %s", strategy);
    if (strategy && shard_size(strategy, n))
        snprintf(tail + strlen(tail), sizeof tail - strlen(tail), " --shard_size %d", shard_size(strategy, n));
    if (how == LAUNCH) snprintf(start, sizeof start, "%s/lightc launch -np %d -H local:2,local:2 ", bin, n);
    if (how == MPIRUN) snprintf(start, sizeof start, "mpirun -np %d ", n);
    snprintf(
        command, sizeof command,
        "cd %s && LIGHTC_COMM=%s %s timeout -k 5 600 %s%s/strategy_program --dir %s --default_root_dir %s/run " COMMON
        " %s %s >%s/out 2>&1",
        r->dir, how == THREADS || !strategy ? "auto" : comm, how == MPIRUN ? "ASAN_OPTIONS=detect_leaks=0" : "", start,
        bin, r->dir, r->dir, options, tail, r->dir);
    return system(command);
}

static void do_run(run *r, const char *dir, way how, const char *comm, const char *strategy, int n, const char *options)
{
    static char out[TEXT];
    int status = try(r, dir, how, comm, strategy, n, options);
    file_text(r->dir, "out", out, TEXT);
    if (status) TEST_FAIL("%s: status %#x: %s", r->what, status, out);
}

/* ---- comparing results ---- */

/* Compares word by word; numbers may differ by `tolerance`. */
static bool are_near(const char *a, const char *b, double tolerance)
{
    while (*a && *b) {
        char *a_end, *b_end;
        double x = strtod(a, &a_end), y = strtod(b, &b_end);
        if (a_end == a || b_end == b) {
            if (*a++ != *b++) return false;
            continue;
        }
        if (!(fabs(x - y) <= tolerance)) return false;
        a = a_end, b = b_end;
    }
    return *a == *b;
}

static void compare_texts(const run *a, const run *b, const char *name_a, const char *name_b, double tolerance)
{
    static char texts[2][TEXT];
    char *x = texts[0], *y = texts[1], *rest_x, *rest_y;
    file_text(a->dir, name_a, x, TEXT);
    file_text(b->dir, name_b, y, TEXT);
    if (!*x || !*y) TEST_FAIL("%s: %s is empty", *x ? b->what : a->what, *x ? name_b : name_a);
    for (;;) {
        char *p = strtok_r(x, "\n", &rest_x), *q = strtok_r(y, "\n", &rest_y);
        x = y = NULL;
        if (!p && !q) return;
        if (!p || !q || (tolerance > 0 ? !are_near(p, q, tolerance) : strcmp(p, q) != 0))
            TEST_FAIL("%s of %s is not that of %s: %.200s\n    %.200s", name_b, b->what, a->what, q ? q : "(nothing)",
                      p ? p : "(nothing)");
    }
}

/* All n ranks of `b` must end like rank 0 of `a`. */
static void compare(const run *a, const run *b, int n, double tolerance)
{
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%d", i);
        compare_texts(a, b, "rank-0", name, tolerance);
    }
    compare_texts(a, b, "run/lightning_logs/version_0/metrics.csv", "run/lightning_logs/version_0/metrics.csv",
                  tolerance);
}

/* Each rank of `b` must end like that of `a`, in every bit. */
static void compare_ranks(const run *a, const run *b, int n)
{
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%d", i);
        compare_texts(a, b, name, name, 0);
        snprintf(name, sizeof name, "seen-%d", i);
        compare_texts(a, b, name, name, 0);
    }
    compare_texts(a, b, "run/lightning_logs/version_0/metrics.csv", "run/lightning_logs/version_0/metrics.csv", 0);
}

static int seen[MOST_EPOCHS][MOST_SAMPLES];

/* Counts the samples of all ranks of a run; returns the number of epochs it has begun. */
static int count_seen(const run *r, int n, int samples)
{
    int epochs = 0;
    for (int i = 0; i < n; i++) {
        char path[400];
        int epoch, sample;
        snprintf(path, sizeof path, "%s/seen-%d", r->dir, i);
        FILE *f = fopen(path, "r");
        CHECK(f);
        while (fscanf(f, "%d %d", &epoch, &sample) == 2) {
            CHECK(epoch >= 0 && epoch < MOST_EPOCHS && sample >= 0 && sample < samples);
            seen[epoch][sample]++;
            if (epoch >= epochs) epochs = epoch + 1;
        }
        fclose(f);
    }
    return epochs;
}

/* Every sample once per epoch, over all ranks; a stopped run may lack some in its last epoch. */
static void check_once(const run *r, int epochs, int samples, bool stopped)
{
    CHECK(epochs > 0);
    for (int e = 0; e < epochs; e++)
        for (int i = 0; i < samples; i++)
            if (seen[e][i] != 1 && !(stopped && e == epochs - 1 && seen[e][i] == 0))
                TEST_FAIL("%s: sample %d was seen %d times in epoch %d", r->what, i, seen[e][i], e);
}

static void check_seen(const run *r, int n, int samples, bool stopped)
{
    memset(seen, 0, sizeof seen);
    check_once(r, count_seen(r, n, samples), samples, stopped);
}

static void check_refused(const char *strategy, int n, const char *options, const char *why)
{
    static char out[TEXT];
    run r;
    CHECK(try(&r, "refused", THREADS, "memory", strategy, n, options) != 0);
    file_text(r.dir, "out", out, TEXT);
    CHECK_CONTAINS(out, why);
}

/* ---- the same bits, however ranks are started ---- */

/* Dropout and batch norm, which each rank computes for itself. */
static const char own_randomness[] = "--dropout 0.3";

static run as_threads[STRATEGIES][9];

/* Runs the n ranks of strategy s as threads, which must end like ddp's. */
static const run *ranks_as_threads(int s, int n)
{
    run *r = &as_threads[s][n];
    if (*r->dir) return r;
    char dir[64];
    snprintf(dir, sizeof dir, "threads-%s-%d", strategies[s].name, n);
    do_run(r, dir, THREADS, "memory", strategies[s].name, n, own_randomness);
    check_seen(r, n, SAMPLES, false);
    for (int i = 0; i < n && s > 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%d", i);
        compare_texts(ranks_as_threads(0, n), r, name, name, strategies[s].sums_windows ? 1e-5 : 0);
    }
    return r;
}

TEST(strategies_are_ddp)
{
    for (int s = 1; s < STRATEGIES; s++)
        for (int n = 1; n <= 8; n += n < 4 ? 1 : 4)
            if (takes_all() || n == 8) (void)ranks_as_threads(s, n); /* otherwise those requested below */
}

static void check_way(way how, const char *comm, int s, int n)
{
    run r;
    const run *threads = ranks_as_threads(s, n);
    do_run(&r, "processes", how, comm, strategies[s].name, n, own_randomness);
    compare_ranks(threads, &r, n);
}

/* Under a sanitizer strategies alternate between even and odd numbers of ranks, and between transports. */
TEST(a_program_that_starts_itself)
{
    for (int s = 0; s < STRATEGIES; s++)
        for (int n = 1; n <= 4; n++) {
            bool by_turns = (s + n) % 2;
            if (takes_all() || by_turns) check_way(SELF, (s + n / 2) % 2 || takes_all() ? "shm" : "tcp", s, n);
            if (takes_all()) check_way(SELF, "tcp", s, n);
        }
}

TEST(a_program_under_mpirun)
{
    if (!have_mpi) SKIP("there is no Open MPI, or lightc was built without it");
    for (int s = 0; s < STRATEGIES; s++)
        for (int n = 1; n <= 4; n++)
            if (takes_all() || n == 1 + (s + 2) % 4) check_way(MPIRUN, "mpi", s, n);
    check_way(MPIRUN, "shm", 0, 4);
    check_way(MPIRUN, "tcp", 1, 3);
    if (!takes_all()) return;
    check_way(MPIRUN, "shm", 2, 2);
    check_way(MPIRUN, "tcp", 3, 2);
}

/* Two hosts: shared memory within them, TCP between them. */
TEST(a_program_under_lightc_launch)
{
    for (int s = 0; s < STRATEGIES; s++)
        for (int n = 3; n <= 4; n++) {
            if (n == 3 && !strcmp(strategies[s].name, "sharded_hybrid"))
                continue; /* a copy on two ranks, and a copy on one */
            if (!takes_all() && n != 4 - s % 2) continue;
            check_way(LAUNCH, "shm+tcp", s, n);
        }
    check_way(LAUNCH, "tcp", 0, 2);
    check_way(LAUNCH, "shm+tcp", 3, 1);
}

/* Compression rounds in the same places over every transport. */
TEST(compressed_gradients_over_every_transport)
{
    static const char *const types[] = {"bf16", "fp16"};
    static const struct {
        way how;
        const char *comm;
    } ways[] = {{SELF, "shm"}, {SELF, "tcp"}, {MPIRUN, "mpi"}};
    for (int k = 0; k < 2; k++) {
        run threads, r;
        char options[100];
        int n = 3 - k;
        snprintf(options, sizeof options, "--norm false --gradient_compression %s", types[k]);
        do_run(&threads, "threads", THREADS, "memory", "ddp", n, options);
        for (int i = 0; i < (have_mpi ? 3 : 2); i++) {
            do_run(&r, "processes", ways[i].how, ways[i].comm, "ddp", n, options);
            compare_ranks(&threads, &r, n);
        }
    }
}

/* ---- N ranks equal one ---- */

typedef struct config {
    const char *options;
    int samples;
    bool stopped;
} config;

static const config configs[] = {
    {"--sync_batchnorm true", SAMPLES, false},
    {"--sync_batchnorm true --early true --max_epochs 12", SAMPLES, false},
    {"--sync_batchnorm true --stop_at 3", SAMPLES, true},
    {"--norm false --samples 74", 74, false}, /* a last batch of 2 */
};
enum { CONFIGS = sizeof configs / sizeof *configs };

TEST(ranks_are_one_rank)
{
    for (int c = 0; c < CONFIGS; c++) {
        run one, r;
        do_run(&one, "one", SELF, "memory", NULL, 1, configs[c].options);
        check_seen(&one, 1, configs[c].samples, configs[c].stopped);
        for (int s = 0; s < STRATEGIES; s++)
            for (int n = 1; n <= 8; n += n < 4 ? 1 : 4) {
                bool by_turns = n == 2 + (s + c) % 3;
                if (c % 3 && n < 8 && !by_turns) continue;
                if (!takes_all() && !by_turns && (n < 8 || c != s % CONFIGS)) continue;
                do_run(&r, "ranks", THREADS, "memory", strategies[s].name, n, configs[c].options);
                compare(&one, &r, n, 1e-5);
                check_seen(&r, n, configs[c].samples, configs[c].stopped);
                if (!by_turns || (!takes_all() && c % 2)) continue;
                do_run(&r, "ranks", SELF, (s + c) % 2 ? "shm" : "tcp", strategies[s].name, n, configs[c].options);
                compare(&one, &r, n, 1e-5);
            }
    }
}

/* There batch norm has the statistics of device 0's part. */
TEST(devices_are_one_device)
{
    static const char *const kinds[] = {"data_parallel", "central_storage"};
    static const config some[] = {{"--norm false --samples 74", 74, false},
                                  {"--norm false --early true --max_epochs 12", SAMPLES, false},
                                  {"--norm false --stop_at 3", SAMPLES, true}};
    for (size_t c = 0; c < sizeof some / sizeof *some; c++) {
        run one, r;
        do_run(&one, "one", SELF, "memory", NULL, 1, some[c].options);
        for (int k = 0; k < 2; k++)
            for (int n = 1; n <= 8; n += n < 4 ? 1 : 4) {
                if (!takes_all() && n % 2 == (int)(c + (size_t)k) % 2) continue;
                do_run(&r, "devices", SELF, "memory", kinds[k], n, some[c].options);
                compare(&one, &r, 1, 1e-5);
                check_seen(&r, 1, some[c].samples, some[c].stopped);
            }
    }
}

/* ---- resuming (all pairs, on threads: test_resume_ranks.c) ---- */

typedef struct place {
    way how;
    const char *comm, *strategy; /* NULL: one process */
    int ranks;
} place;

TEST(processes_resume_under_another_strategy_started_differently)
{
    static const place pairs[][2] = {
        {{SELF, "shm", "ddp", 2}, {SELF, "tcp", "sharded_3", 3}},
        {{SELF, "tcp", "sharded_3", 3}, {SELF, "memory", NULL, 1}},
        {{SELF, "memory", NULL, 1}, {MPIRUN, "mpi", "sharded_1", 2}},
        {{MPIRUN, "mpi", "sharded_2", 2}, {SELF, "shm", "ddp", 4}},
        {{LAUNCH, "shm+tcp", "sharded_1", 4}, {MPIRUN, "shm", "sharded_2", 3}},
    };
    static const char options[] = "--sync_batchnorm true";
    run one;
    do_run(&one, "one", SELF, "memory", NULL, 1, options);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const place *a = &pairs[i][0], *b = &pairs[i][1];
        run from, to;
        char die[100], go_on[500];
        if (!have_mpi && (a->how == MPIRUN || b->how == MPIRUN)) continue;
        snprintf(die, sizeof die, "%s --die_at %d", options,
                 (int)i % 3); /* the third one ends at the end of a window */
        CHECK(try(&from, "from", a->how, a->comm, a->strategy, a->ranks, die) != 0);
        snprintf(go_on, sizeof go_on, "%s --ckpt_path %s/inside.ckpt", options, from.dir);
        do_run(&to, "to", b->how, b->comm, b->strategy, b->ranks, go_on);
        for (int k = 0; k < b->ranks; k++) {
            char name[32];
            snprintf(name, sizeof name, "rank-%d", k);
            compare_texts(&one, &to, "rank-0", name, 1e-5);
        }
        memset(seen, 0, sizeof seen);
        count_seen(&from, a->ranks, SAMPLES);
        check_once(&to, count_seen(&to, b->ranks, SAMPLES), SAMPLES, false);
    }
}

/* A batch with fewer samples than ranks. */
TEST(errors_say_what_is_possible)
{
    for (int s = 0; s < STRATEGIES; s++) {
        if (strategies[s].sums_windows)
            check_refused(strategies[s].name, 3, "--sync_batchnorm true --samples 74",
                          "needs a sample of every batch on every rank, but this one has 2 for 3 ranks; skip it "
                          "(drop_last), or use --strategy ddp or sharded_1");
    }
}

/* ---- devices ---- */

static void check_devices(const run *r, int n, const char *const *want)
{
    for (int i = 0; i < n; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "device-%d", i);
        file_text(r->dir, name, text, sizeof text);
        if (strcmp(text, want[i]) != 0) TEST_FAIL("%s: rank %d was on %s, not %s", r->what, i, text, want[i]);
    }
}

/* With the bits of the CPU. */
TEST(each_process_has_a_device)
{
    static const char *const each[] = {"sim:0", "sim:1", "sim:0", "sim:1"}, *const one[] = {"sim:2", "sim:2"};
    static char out[TEXT];
    run cpu, sim;
    find_plugin();
    for (int k = 0; k < STRATEGIES; k += 3) {
        const char *name = strategies[k].name;
        do_run(&cpu, "cpu", SELF, "auto", name, 2, own_randomness);
        do_run(&sim, "each", SELF, "auto", name, 2, "--accelerator sim --dropout 0.3");
        compare_ranks(&cpu, &sim, 2);
        check_devices(&sim, 2, each);
    }
    do_run(&sim, "nodes", LAUNCH, "auto", "ddp", 4, "--accelerator sim"); /* two on each of two nodes */
    check_devices(&sim, 4, each);
    do_run(&sim, "one", SELF, "auto", "ddp", 2, "--accelerator sim:2");
    check_devices(&sim, 2, one);
    setenv("LIGHTC_SIM_DEVICES", "1", 1);
    CHECK(try(&sim, "few", SELF, "auto", "ddp", 2, "--accelerator sim") != 0);
    unsetenv("LIGHTC_SIM_DEVICES");
    unsetenv("LIGHTC_KERNELS");
    file_text(sim.dir, "out", out, TEXT);
    CHECK_CONTAINS(out,
                   "accelerator=sim: 2 ranks are on this machine, which has 1 of these devices; start one rank for "
                   "each (--devices 1), or name the device that all of them share (--accelerator sim:0)");
}

TEST_MAIN
