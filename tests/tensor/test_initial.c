/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values that are made on first use (tensor/initial.h). */
#include "test.h"

#include <lightc/lightc.h>
#include "scratch.h"
#include "tensor/initial.h"
#include "tensor/slice.h"
#include "module/tensors.h"

#include <math.h>
#include <unistd.h>

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("values")};

static lc_tensor *parameter(lc_module *m, const char *name, lc_dtype dtype, lc_layout layout, lc_init init)
{
    lc_tensor *t = lc_module_add_parameter(m, name, dtype, layout, 4, (int64_t[]){5, 7, 3, 11}, init);
    CHECK_OK(lc_module_status(m));
    return t;
}

/* Wherever a range begins, it has the values of the whole tensor. */
TEST(a_range_has_the_values_of_the_whole)
{
    static const lc_init inits[] = {{LC_INIT_UNIFORM, -2, 3, 0},        {LC_INIT_NORMAL, 1, 2, 0},
                                    {LC_INIT_CONSTANT, 4, 0, 0},        {LC_INIT_ONES, 0, 0, 0},
                                    {LC_INIT_KAIMING_UNIFORM, 2, 0, 0}, {LC_INIT_KAIMING_NORMAL, 0, 0, 0},
                                    {LC_INIT_XAVIER_UNIFORM, 0, 0, 0},  {LC_INIT_XAVIER_NORMAL, 0, 0, 0}};
    static const int64_t ranges[][2] = {{0, 1155}, {0, 1},   {1, 3},     {2, 300},  {3, 1000},
                                        {255, 2},  {256, 4}, {511, 513}, {1153, 2}, {7, 0}};
    enum { N = 5 * 7 * 3 * 11 };
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++)
        for (int wide = 0; wide < 2; wide++) {
            lc_module m;
            double whole[N], part[N];
            size_t width = wide ? sizeof(double) : sizeof(float);
            lc_module_init(&m, &ops, 5);
            lc_tensor *t = parameter(&m, "t", wide ? LC_F64 : LC_F32, LC_ROW_MAJOR, inits[i]);
            CHECK(t->initial);
            lc__initial_range(t, 0, N, whole);
            for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
                lc__initial_range(t, ranges[k][0], ranges[k][1], part);
                CHECK(!memcmp(part, (char *)whole + (size_t)ranges[k][0] * width, (size_t)ranges[k][1] * width));
            }
            CHECK_OK(lc_tensor_read(t, part, N * width));
            CHECK(!t->initial && !memcmp(part, whole, N * width));
            lc_module_release(&m);
        }
}

/* A row of zeros, wherever a range cuts it. */
TEST(zeros_in_between)
{
    enum { ROWS = 5, COLUMNS = 7, N = ROWS * COLUMNS };
    lc_module m;
    lc_embedding l;
    float whole[N], part[N];
    lc_module_init(&m, &ops, 5);
    lc_embedding_init(&l, &m, "l", ROWS, COLUMNS, .padding_idx = 3);
    CHECK_OK(lc_module_status(&m));
    lc__initial_range(l.weight, 0, N, whole);
    for (int i = 0; i < N; i++) CHECK((whole[i] == 0) == (i / COLUMNS == 3));
    for (int from = 0; from < N; from++)
        for (int n = 0; from + n <= N; n++) {
            lc__initial_range(l.weight, from, n, part);
            CHECK(!memcmp(part, whole + from, (size_t)n * sizeof *part));
        }
    lc_module_release(&m);
}

/* The value does not depend on the layout of the tensor. */
TEST(any_layout_has_the_same_values)
{
    enum { N = 5 * 7 * 3 * 11 };
    const lc_init init = {LC_INIT_NORMAL, 0, 1, 0};
    float a[N], b[N];
    lc_module m, l;
    lc_module_init(&m, &ops, 5);
    lc_module_init(&l, &ops, 5);
    CHECK_OK(lc_tensor_read(parameter(&m, "t", LC_F32, LC_ROW_MAJOR, init), a, sizeof a));
    CHECK_OK(lc_tensor_read(parameter(&l, "t", LC_F32, LC_CHANNELS_LAST, init), b, sizeof b));
    CHECK(!memcmp(a, b, sizeof a));
    lc_module_release(&m);
    lc_module_release(&l);
}

static int64_t resident(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %lld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * 4096;
}

/* Neither a model that was just built, nor one whose parameters have moved into flat buffers. */
TEST(unused_values_take_no_memory)
{
    enum { SIDE = 4096 };
    const int64_t bytes = (int64_t)SIDE * SIDE * (int64_t)sizeof(float);
    lc_module m;
    lc_linear l;
    float bias[SIDE];
    int64_t before = resident();
    if (!before) SKIP("this system has no /proc/self/statm");
    lc_module_init(&m, &ops, 5);
    lc_linear_init(&l, &m, "l", SIDE, SIDE);
    CHECK_OK(lc_module_status(&m));
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-3);
    CHECK(opt && l.weight->initial && l.weight->flat);
    CHECK_OK(lc_tensor_read(l.bias, bias, sizeof bias));
    CHECK(!l.bias->initial && l.weight->initial);
    CHECK(resident() - before < bytes / 4);
    CHECK_OK(lc__module_fill(&m));
    CHECK(!l.weight->initial && resident() - before >= bytes);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* A model too large for any machine can be built and sliced; reading a value of it is an error. */
TEST(a_model_larger_than_the_machine)
{
    lc_module m;
    float bias;
    int64_t side = (int64_t)sqrt((double)sysconf(_SC_PHYS_PAGES) * 4096 / 2);
#ifdef SANITIZED
    SKIP("a sanitizer counts addresses");
#endif
    lc_module_init(&m, &ops, 5);
    lc_tensor *large = lc_module_add_parameter(&m, "large", LC_F32, LC_ROW_MAJOR, 2, (int64_t[]){side, side},
                                               (lc_init){LC_INIT_NORMAL, 0, 1, 0});
    lc_tensor *small =
        lc_module_add_parameter(&m, "small", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){LC_INIT_ONES, 0, 0, 0});
    if (lc_module_status(&m) == LC_ERR_MEMORY) SKIP("this system counts addresses (vm.overcommit_memory, ulimit -v)");
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-3);
    CHECK(opt && large->flat == small->flat);
    CHECK_OK(lc_tensor_read(small, &bias, sizeof bias));
    CHECK(bias == 1);
    CHECK_STATUS(lc__module_fill(&m), LC_ERR_MEMORY);
    CHECK_CONTAINS(lc_error_message(), "large: a tensor of f32 [");
    CHECK_CONTAINS(lc_error_message(), " are available");
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* Values that are written first are not made, and values that are reset are made again, even if a step has used the
 * tensor. */
TEST(written_and_reset_values)
{
    float data[6] = {1, 2, 3, 4, 5, 6}, back[6];
    char path[400];
    lc_module m, other;
    lc_graph *g;
    lc_module_init(&m, &ops, 5);
    lc_module_init(&other, &ops, 6);
    const lc_init init = {LC_INIT_NORMAL, 0, 1, 0};
    lc_tensor *t = lc_module_add_parameter(&m, "t", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){6}, init);
    lc_tensor *u = lc_module_add_parameter(&other, "t", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){6}, init);
    CHECK_OK(lc_tensor_write(t, data, sizeof data));
    CHECK(!t->initial);
    CHECK_OK(lc_tensor_read(t, back, sizeof back));
    CHECK(!memcmp(data, back, sizeof data));
    snprintf(path, sizeof path, "%s/t.safetensors", fresh_dir("values"));
    CHECK_OK(lc_safetensors_save(path, 1, &(lc_named_tensor){.name = "t", .tensor = t}, 0, NULL));
    CHECK_OK(lc_module_load_checkpoint(&other, path, true));
    CHECK(!u->initial);
    CHECK_OK(lc_tensor_read(u, back, sizeof back));
    CHECK(!memcmp(data, back, sizeof data));
    /* Within a step: recorded operators read the old value. */
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *sum = lc_sum(t);
    lc_keep(sum);
    lc_module_reset_parameter(&m, "t", (lc_init){LC_INIT_ONES, 0, 0, 0});
    lc_tensor *ones = lc_sum(t);
    lc_keep(ones);
    CHECK_OK(lc_step_run(g));
    double a, b;
    CHECK_OK(lc_item(sum, &a));
    CHECK_OK(lc_item(ones, &b));
    CHECK(a == 21 && b == 6);
    CHECK_OK(lc_step_end(g));
    /* Between steps it takes effect at once: a tensor in use is not checked again. */
    lc_module_reset_parameter(&m, "t", (lc_init){LC_INIT_CONSTANT, 2, 0, 0});
    CHECK(!t->initial);
    CHECK_OK(lc_step_begin(g, 1, 0));
    lc_tensor *twos = lc_sum(t);
    lc_keep(twos);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_item(twos, &a));
    CHECK(a == 12);
    CHECK_OK(lc_step_end(g));
    CHECK_OK(lc_module_status(&m));
    lc_graph_free(g);
    lc_module_release(&m);
    lc_module_release(&other);
}

TEST_MAIN
