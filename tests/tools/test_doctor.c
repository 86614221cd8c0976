/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc doctor comm` and `lightc bench comm`, run as ranks: their reports on simulated hosts. */
#include "test.h"

#include "said.h"
#include "scratch.h"

#include "tools/bench.h"
#include "tools/tools.h"

#include <time.h>

/* Runs a command in which LIGHTC stands for the program; returns its exit status. */
static int run(const char *command)
{
    return run_command("LIGHTC='%s/lightc'; export OMP_WAIT_POLICY=passive; %s 2>&1", programs(), command);
}

TEST(the_doctor_shows_the_machine)
{
    CHECK_EQ(run("$LIGHTC doctor"), 0);
    for (const char *line = said, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) CHECK(end - line <= 80);
    check_says("processor     ");
    check_says("\ninstructions  ");
    check_says("\nmatrix units  ");
    check_says(" GB/s when all threads copy\n");
    check_says("\nlibraries     ");
    check_says("cJSON 1.");
    check_says("\nother devices none: LIGHTC_BACKEND_PATH names no folder of backends\n");
    check_says("\nGPUs          ");
    check_says("\n32-true       ");
    check_says("\nbf16-mixed    ");
    check_says("\n16-mixed      ");
    check_says("\nfastest here: ");
    if (!takes_all()) return; /* it measures for seconds */
    CHECK_EQ(run("LIGHTC_BACKEND_PATH=\"$(dirname $LIGHTC)/../lib\" $LIGHTC doctor | grep '^other devices'"), 0);
    check_says("other devices sim: ");
}

/* Writes a file as the kernel has it below /sys and /proc. */
static void put(const char *root, const char *path, const char *text)
{
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname %s/%s)\" && echo %s >%s/%s", root, path, text, root, path);
    CHECK_EQ(system(command), 0);
}

TEST(gpus_are_counted)
{
    char text[128];
    const char *root = fresh_dir("gpus");
    gpus_list(root, text, sizeof text);
    CHECK(!strcmp(text, ""));
    put(root, "sys/bus/pci/devices/0000:00:01.0/class", "0x020000"); /* a network */
    put(root, "sys/bus/pci/devices/0000:00:01.0/vendor", "0x10de");
    gpus_list(root, text, sizeof text);
    CHECK(!strcmp(text, ""));
    put(root, "sys/bus/pci/devices/0000:00:02.0/class", "0x030000");
    put(root, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x1234");
    put(root, "sys/bus/pci/devices/0000:00:04.0/class", "0x030200");
    put(root, "sys/bus/pci/devices/0000:00:04.0/vendor", "0x10de");
    put(root, "sys/bus/pci/devices/0000:00:05.0/class", "0x120000");
    put(root, "sys/bus/pci/devices/0000:00:05.0/vendor", "0x1002");
    gpus_list(root, text, sizeof text);
    CHECK(!strcmp(text, "1 NVIDIA, 1 AMD, 1 of another vendor"));
    put(root, "proc/driver/nvidia/gpus/0000:00:04.0/information", "Model");
    put(root, "proc/driver/nvidia/gpus/0000:00:06.0/information", "Model");
    gpus_list(root, text, sizeof text);
    CHECK(!strcmp(text, "2 NVIDIA, 1 AMD, 1 of another vendor"));
    char cut[12];
    gpus_list(root, cut, sizeof cut);
    CHECK(!strcmp(cut, "2 NVIDIA, 1"));
}

TEST(the_doctor_examines_all_ranks)
{
    CHECK_EQ(run("$LIGHTC launch -H local:2,local:2 $LIGHTC doctor comm --seconds 0.0001"), 0);
    check_says("4 ranks on 2 hosts, over shm+tcp\n");
    check_says("all_reduce, reduce_scatter: each byte goes to another host once (f16");
    check_says("\n  one host                     shm ");
    check_says("\n  hosts of ranks 0 and 2       tcp ");
    for (int i = 0; i < 4; i++) {
        char rank[32];
        snprintf(rank, sizeof rank, "  rank %d: processors ", i);
        check_says(rank);
    }
}

TEST(the_doctor_reports_what_slows_links)
{
    CHECK_EQ(run("$LIGHTC launch -H local:2,local:1 $LIGHTC doctor comm --seconds 0"), 0);
    check_says("3 ranks on 2 hosts, over shm+tcp\n");
    check_says("all_reduce, reduce_scatter: each byte goes to another host once for each rank\n");
    check_says("  - hosts have different numbers of ranks");
    CHECK_EQ(run("$LIGHTC launch -H local:3,local:3 $LIGHTC doctor comm --seconds 0"), 0);
    check_says("all_gather, broadcast: each byte goes to another host once\n");
    check_says("  - 3 ranks per host is not a power of two: sums go to another host once for each rank; use 2 or 4");
    CHECK_EQ(run("OMP_NUM_THREADS=500 $LIGHTC launch -np 2 $LIGHTC doctor comm --seconds 0"), 0);
    check_says("all calls, between all ranks: shm");
    check_says(": 2 ranks ");
    CHECK_EQ(run("$LIGHTC doctor comm --seconds 0.0001"), 0);
    check_says("1 rank on 1 host\n");
    check_says("two processes on this host   tcp ");
}

TEST(each_class_of_link_is_measured)
{
    CHECK_EQ(run("$LIGHTC launch -np 2 $LIGHTC bench comm --seconds 0.0001 --max_bytes 4096 --collectives "
                 "all_reduce,send"),
             0);
    check_says("\nshm          2  all_reduce ");
    check_says("\nshm          2  all_reduce, own memory ");
    check_says("\nshm          2  send ");
    check_says("\n2 ranks over shm: --bucket_cap_mb ");
    CHECK_EQ(run("$LIGHTC bench comm --backends shm+tcp --ranks 4 --seconds 0.0001 --max_bytes 64 --collectives send"),
             0);
    check_says("\nshm+tcp      4  one host ");
    check_says("\nshm+tcp      4  hosts of ranks 0 and 2 ");
}

/* ---- calls that become slow ---- */

enum { FAST = 8, MOST_CALLS = 5000 };

/* Two ranks, of which only one exists. The first calls of each size take no time. */
typedef struct slowing {
    int64_t size;
    int calls, all;
} slowing;

static lc_status start_slowing(void *self, const lc_comm_call *call, void *state)
{
    slowing *s = self;
    (void)state;
    if (call->op == LC_COMM_ALL_REDUCE) memcpy(call->out, call->in, (size_t)call->count * lc_dtype_size(call->dtype));
    if (call->op != LC_COMM_SEND && call->op != LC_COMM_RECV) return LC_OK;
    if (call->count != s->size) s->calls = 0;
    s->size = call->count;
    if (++s->calls > FAST) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return ++s->all > MOST_CALLS ? lc_fail(LC_ERR_INTERNAL, "more than %d calls", MOST_CALLS) : LC_OK;
}

static lc_status end_slowing(void *self, void *state, bool *done)
{
    (void)self, (void)state;
    *done = true;
    return LC_OK;
}

static void nothing_to_free(void *self)
{
    (void)self;
}

TEST(a_measurement_ends_on_a_busy_machine)
{
    const lc_comm_ops ops = {LC_COMM_OPS_INIT("slowing"), .start = start_slowing, .poll = end_slowing,
                             .free = nothing_to_free};
    slowing s = {0};
    bench_line line;
    lc_comm *c;
    CHECK_OK(lc_comm_new(&ops, &s, 0, 2, &c));
    CHECK_OK(bench_link(c, 0, 1, 0.002, &line));
    CHECK(line.alpha >= 0.0005);
    lc_comm_free(c);
}

TEST_MAIN
