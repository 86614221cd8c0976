/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: memory, loops over threads, the choice of the instruction set. */
#include "test.h"

#include "builtin.h"
#include "backends/backends.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"
#include "record/graph_impl.h"

#include <lightc/ops_math.h>
#include <lightc/ops_nn.h>

#include <unistd.h>

TEST(cpu_is_the_default_backend)
{
    lc_tensor *t;
    lc_graph *g;
    CHECK(lc__host_device()->ops == &lc__cpu_backend);
    CHECK_STR(lc__cpu_backend.name, "cpu");
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t));
    CHECK(t->on->ops == &lc__cpu_backend);
    lc_tensor_unref(t);
    CHECK_OK(lc_graph_new(&g));
    CHECK(g->on->ops == &lc__cpu_backend);
    lc_graph_free(g);
}

TEST(arena_grows_in_place)
{
    const lc_backend_ops *b = &lc__cpu_backend;
    void *base = NULL;
    size_t reserved = 0;
    CHECK_OK(b->arena_reserve(NULL, &base, &reserved));
    CHECK(reserved >= (size_t)64 << 20);
    CHECK((uintptr_t)base % 256 == 0);
    CHECK_OK(b->arena_commit(NULL, base, reserved, 0));
    CHECK_OK(b->arena_commit(NULL, base, reserved, 1000));
    unsigned char *p = base;
    for (int i = 0; i < 1000; i++) CHECK_EQ(p[i], 0);
    memset(p, 7, 1000);
    CHECK_OK(b->arena_commit(NULL, base, reserved, (size_t)5 << 20));
    CHECK_EQ(p[999], 7);
    CHECK_EQ(p[((size_t)5 << 20) - 1], 0);
    p[((size_t)5 << 20) - 1] = 1;
    CHECK_OK(b->arena_commit(NULL, base, reserved, 1000));
    CHECK_EQ(p[999], 7);
    b->arena_drop(NULL, base, 1000); /* usable again, and empty */
    CHECK_EQ(p[999], 0);
    p[999] = 7;
    CHECK_EQ(p[((size_t)5 << 20) - 1], 1);
    CHECK_STATUS(b->arena_commit(NULL, base, reserved, reserved + 1), LC_ERR_MEMORY);
    b->arena_release(NULL, base, reserved);
}

/* A program with many graphs (an ensemble, one for each of many threads) keeps addresses for everything else. */
TEST(arenas_leave_addresses)
{
    const lc_backend_ops *b = &lc__cpu_backend;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    void *base = NULL;
    size_t reserved = 0;
    CHECK_OK(b->arena_reserve(NULL, &base, &reserved));
    CHECK(reserved < 4 * memory || reserved == (size_t)64 << 20);
    CHECK(reserved >= 2 * memory || reserved >= (size_t)32 << 30);
    b->arena_release(NULL, base, reserved);
}

TEST(alloc_is_zero_and_aligned)
{
    const lc_backend_ops *b = &lc__cpu_backend;
    const size_t sizes[] = {0, 1, 255, 257, 4096, (1 << 20) - 1, 1 << 20, (5 << 20) + 3};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++) {
            void *data = NULL;
            CHECK_OK(b->alloc(NULL, sizes[i], &data));
            CHECK(data && (uintptr_t)data % 256 == 0);
            const unsigned char *p = data;
            for (size_t k = 0; k < sizes[i]; k++) CHECK(p[k] == 0);
            if (sizes[i]) memset(data, 255, sizes[i]);
            b->free(NULL, data, sizes[i]);
        }
    }
    b->free(NULL, NULL, 5);
    void *data = &data;
    CHECK_STATUS(b->alloc(NULL, SIZE_MAX - 5, &data), LC_ERR_MEMORY);
    CHECK(data == NULL);
    CHECK(b->available(NULL) > (size_t)1 << 20);
}

typedef struct fill {
    int *hits;
    int64_t n, block;
    int *bad;
} fill;

static void fill_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const fill *f = context;
    if (begin % f->block || end - begin > f->block || (end != f->n && end - begin != f->block) || thread < 0 ||
        thread > 7)
        __atomic_fetch_add(f->bad, 1, __ATOMIC_RELAXED);
    for (int64_t i = begin; i < end; i++) f->hits[i]++;
}

TEST(parallel_for_covers_each_element_once)
{
    static int hits[10007];
    int bad = 0;
    const int64_t counts[] = {0, 1, 99, 100, 101, 10007};
    const int64_t blocks[] = {1, 7, 100, 20000};
    for (int threads = 1; threads <= 8; threads *= 2) {
        for (int c = 0; c < 6; c++) {
            for (int k = 0; k < 4; k++) {
                memset(hits, 0, sizeof hits);
                fill f = {hits, counts[c], blocks[k], &bad};
                lc__parallel_for(threads, counts[c], blocks[k], fill_block, &f);
                for (int i = 0; i < 10007; i++) CHECK_EQ(hits[i], i < counts[c]);
            }
        }
    }
    CHECK_EQ(bad, 0);
}

TEST(max_threads_follows_the_environment)
{
    CHECK(lc__cpu_backend.max_threads() >= 1);
    setenv("OMP_NUM_THREADS", "3,2", 1);
    int n = lc__cpu_backend.max_threads();
    unsetenv("OMP_NUM_THREADS");
    CHECK_EQ(n, 3);
}

TEST(isa_choice)
{
    CHECK(lc__isa_find("base") == &lc__isa_base);
    CHECK_STR(lc__isa_base.name, "base");
    CHECK(lc__isa_find("abacus") == NULL);
    const lc__isa *isa;
    CHECK_OK(lc__isa_choose(&isa));
    CHECK(isa && lc__isa_find(isa->name) == isa);
    setenv("LIGHTC_ISA", "base", 1);
    CHECK_OK(lc__isa_choose(&isa));
    CHECK(isa == &lc__isa_base);
    setenv("LIGHTC_ISA", "abacus", 1);
    CHECK(lc__isa_choose(&isa) == LC_ERR_CONFIG);
    CHECK(strstr(lc_error_message(), "abacus") && strstr(lc_error_message(), "this machine has base"));
    unsetenv("LIGHTC_ISA");
}

TEST(kernels_are_found)
{
    lc_view in[2] = {{.dtype = LC_F32, .ndim = 1, .shape = {8}, .stride = {1}}};
    in[1] = in[0];
    lc_view out = in[0];
    lc_call call = {.op = &lc__op_add, .n_in = 2, .n_out = 1, .in = in, .out = &out, .threads = 1};
    const lc_kernel *kernel = NULL;
    const void *set;
    int n;
    setenv("LIGHTC_ISA", "base", 1);
    CHECK_OK(lc__cpu_backend.kernel_set(NULL, &set));
    unsetenv("LIGHTC_ISA"); /* the variable has been read */
    CHECK_OK(lc__cpu_backend.find_kernels(set, &call, 1, &kernel, &n));
    CHECK(n == 1);
    CHECK_STR(kernel->name, "tiles_base");
    in[0].dtype = in[1].dtype = out.dtype = LC_F64;
    CHECK_OK(lc__cpu_backend.find_kernels(set, &call, 1, &kernel, &n));
    CHECK(n == 1);
    CHECK_STR(kernel->name, "tiles_f64_base");
    in[0].dtype = in[1].dtype = out.dtype = LC_I64; /* left to the reference kernel */
    CHECK_OK(lc__cpu_backend.find_kernels(set, &call, 1, &kernel, &n));
    CHECK(n == 0);
}

/* Whose last dimension is not dense: the planner copies them. */
TEST(transposed_operands_of_attention)
{
    static const lc_dtype types[] = {LC_F32, LC_F64};
    for (int k = 0; k < 2; k++) {
        lc_tensor *t[3];
        lc_graph *g;
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        for (int i = 0; i < 3; i++) {
            CHECK_OK(lc_tensor_new(types[k], 3, (int64_t[]){2, 8, 5}, &t[i]));
            lc_tensor_set_requires_grad(t[i], true);
        }
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *q = lc_transpose(t[0], 1, 2), *keys = lc_transpose(t[1], 1, 2), *v = lc_transpose(t[2], 1, 2);
        lc_backward(lc_sum(lc_square(lc_sdpa(q, keys, v))));
        CHECK_OK(lc_step_run(g));
        int n = 0;
        for (int p = 0; p < g->n_plans; p++)
            for (int i = 0; i < g->plans[p]->n_calls; i++) {
                const lc_call *c = &g->plans[p]->calls[i].call;
                if (c->op != &lc__op_sdpa && c->op != &lc__op_sdpa_backward) continue;
                if (c->kernel == c->op->kernel) TEST_FAIL("%s of %s is slow", c->op->name, lc_dtype_name(types[k]));
                n++;
            }
        CHECK_EQ(n, 2);
        CHECK_OK(lc_step_end(g));
        lc_graph_free(g);
        for (int i = 0; i < 3; i++) lc_tensor_unref(t[i]);
    }
}

TEST_MAIN
