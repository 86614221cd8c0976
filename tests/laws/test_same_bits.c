/* SPDX-License-Identifier: Apache-2.0 */
/* The law of test_deterministic.c with processes as ranks: N processes with batch B leave, byte for byte, the model,
 * optimizer and logged values of one process with batch N * B, whatever transport connects them. */
#include "test.h"
#include "scratch.h"

#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

enum { BATCH = 24, OUTPUT = 8192 };

/* Runs as root, with more ranks than cores, and without searching for networks. */
static const char under_mpi[] = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 "
                                "OMPI_MCA_btl=vader,self OMPI_MCA_btl_vader_single_copy_mechanism=none "
                                "OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS=detect_leaks=0";

static char bin[PATH_MAX], work[3][320]; /* work[1]: the run that is compared; work[2]: the run that it resumes */

__attribute__((constructor)) static void find_programs(void)
{
    const char *dir = getenv("LIGHTC_TEST_BIN");
    if (!realpath(dir ? dir : "build/bin", bin)) abort();
}

static void fresh(int i)
{
    static const char *const names[] = {"one", "ranks", "begin"};
    snprintf(work[i], sizeof work[i], "%s", fresh_dir(names[i]));
}

/* Trains over that transport ("": in this process only), into work[i]. */
static void train(int i, const char *over, int ranks, const char *format, ...) LC_PRINTF(4, 5);
static void train(int i, const char *over, int ranks, const char *format, ...)
{
    char options[1024], launcher[PATH_MAX + 64] = "", devices[32] = "", command[3 * PATH_MAX], output[OUTPUT];
    bool mpi = !strcmp(over, "mpi"), hosts = !strcmp(over, "shm+tcp");
    va_list args;
    va_start(args, format);
    vsnprintf(options, sizeof options, format, args);
    va_end(args);
    if (mpi)
        snprintf(launcher, sizeof launcher, "mpirun -n %d", ranks);
    else if (hosts) /* two ranks per host */
        snprintf(launcher, sizeof launcher, "'%s/lightc' launch -np %d -H local:2,local:2", bin, ranks);
    else if (*over)
        snprintf(devices, sizeof devices, "--devices %d", ranks);
    snprintf(command, sizeof command,
             "cd '%s' && %s %s%s timeout -k 5 600 %s '%s/bits_program' --dir '%s' --default_root_dir '%s' --batch %d "
             "%s %s 2>&1",
             work[i], mpi ? under_mpi : "", *over && !hosts ? "LIGHTC_COMM=" : "", hosts ? "" : over, launcher, bin,
             work[i], work[i], BATCH / ranks, devices, options);
    FILE *f = popen(command, "r");
    CHECK(f);
    output[fread(output, 1, OUTPUT - 1, f)] = 0;
    int status = pclose(f);
    if (status) TEST_FAIL("%s\n  ended with %#x: %s", command, status, output);
}

static char *read_file(const char *dir, const char *name, size_t *n)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f) TEST_FAIL("there is no %s", path);
    char *data = malloc(1 << 20);
    CHECK(data);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static void compare(const char *what)
{
    static const char *const files[] = {"end.ckpt/model.safetensors", "end.ckpt/optimizer.safetensors", "values"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        size_t n[2];
        char *data[2];
        for (int i = 0; i < 2; i++) data[i] = read_file(work[i], files[k], &n[i]);
        bool same = n[0] > 0 && n[0] == n[1] && !memcmp(data[0], data[1], n[0]);
        free(data[0]), free(data[1]);
        if (!same) TEST_FAIL("%s: %s differs", what, files[k]);
    }
}

static void check(const char *over, int ranks, const char *strategy, const char *options)
{
    char what[200];
    fresh(1);
    train(1, over, ranks, "--strategy %s --state_dict_type full %s", strategy, options);
    snprintf(what, sizeof what, "%d ranks over %s, %s %s", ranks, over, strategy, options);
    compare(what);
}

static void one_rank(const char *options)
{
    fresh(0);
    train(0, "", 1, "%s", options);
}

static void need_mpi(void)
{
    char plugin[PATH_MAX + 32];
    snprintf(plugin, sizeof plugin, "%s/../lib/liblightc_mpi.so", bin);
    if (access(plugin, R_OK) != 0) SKIP("lightc was built without MPI");
    if (system("command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'") != 0)
        SKIP("there is no mpirun of Open MPI (Debian: openmpi-bin)");
}

static const char window[] = "--accumulate_grad_batches 2", thirds[] = "--deterministic_chunk 8";

static void check_over(const char *transport)
{
    one_rank("");
    check(transport, 2, "ddp", "");
    check(transport, 4, "sharded_2", "");
    one_rank(window);
    check(transport, 2, "sharded_3", window);
    one_rank(thirds);
    check(transport, 3, "sharded_1", thirds);
}

TEST(over_shared_memory)
{
    check_over("shm");
}

TEST(over_tcp)
{
    check_over("tcp");
}

TEST(over_mpi)
{
    need_mpi();
    check_over("mpi");
}

TEST(over_memory_within_hosts_and_tcp_between_them)
{
    one_rank(window);
    check("shm+tcp", 4, "ddp", window);
    check("shm+tcp", 4, "sharded_3", window);
    check("shm+tcp", 4, "sharded_hybrid", window); /* a copy on each host */
}

/* Saved inside an epoch and a window. */
static void check_resumes(const char *from, int n, const char *strategy, const char *to, int m, const char *then)
{
    char options[700];
    fresh(2);
    train(2, from, n, "--strategy %s --save_after 0 %s", strategy, window);
    snprintf(options, sizeof options, "--ckpt_path '%s/inside.ckpt' %s", work[2], window);
    check(to, m, then, options);
}

TEST(a_run_resumes_over_another_transport)
{
    one_rank(window);
    check_resumes("tcp", 2, "sharded_3", "shm", 4, "ddp");
}

TEST(a_run_resumes_over_mpi)
{
    need_mpi();
    one_rank(window);
    check_resumes("shm", 4, "sharded_2", "mpi", 2, "sharded_3");
}

TEST_MAIN
