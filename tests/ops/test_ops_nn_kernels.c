/* SPDX-License-Identifier: Apache-2.0 */
/* The neural network operators beyond rows of numbers: reference kernels on any strides, random masks, running
 * statistics, NaN and values out of range, and messages for mismatched shapes. */
#include "test.h"

#include <lightc/lightc.h>
#include "base/philox.h"
#include "ops/ops_nn.h"
#include "tensor/tensor_impl.h"

/* ---- kernels called by hand ---- */
enum { MAX_OPERANDS = 12, MAX_BYTES = 1 << 16 };

typedef struct operand {
    lc_type type;
    bool given;
    double data[2048];
} operand;

/* Strides of a dense tensor with its dimensions in reverse order and with gaps: no part of it is contiguous. */
static void odd_strides(lc_view *v)
{
    int64_t step = 2;
    for (int d = 0; d < v->ndim; d++) {
        v->stride[d] = step;
        step *= v->shape[d] + 1;
    }
}

static void put(const lc_view *v, int64_t at, double value)
{
    switch (v->dtype) {
    case LC_F32:
        ((float *)v->data)[at] = (float)value;
        break;
    case LC_F64:
        ((double *)v->data)[at] = value;
        break;
    case LC_I64:
        ((int64_t *)v->data)[at] = (int64_t)value;
        break;
    case LC_I32:
        ((int32_t *)v->data)[at] = (int32_t)value;
        break;
    default:
        ((uint8_t *)v->data)[at] = (uint8_t)value;
    }
}

static double get(const lc_view *v, int64_t at)
{
    switch (v->dtype) {
    case LC_F32:
        return ((float *)v->data)[at];
    case LC_F64:
        return ((double *)v->data)[at];
    case LC_I64:
        return (double)((int64_t *)v->data)[at];
    case LC_I32:
        return ((int32_t *)v->data)[at];
    default:
        return ((uint8_t *)v->data)[at];
    }
}

static int64_t offset(const lc_view *v, int64_t i)
{
    int64_t at = 0;
    for (int d = v->ndim - 1; d >= 0; d--) at += i % v->shape[d] * v->stride[d], i /= v->shape[d];
    return at;
}

static int64_t count(const lc_type *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    return n;
}

/* Infers and runs the reference kernel; out[] receives types and values. */
static void call_kernel(const lc_op *op, int n_in, operand *in, int n_int, const int64_t *ints, int n_float,
                        const double *floats, bool odd, bool accumulate, operand *out)
{
    static unsigned char memory[MAX_OPERANDS + LC_MAX_OUTPUTS][MAX_BYTES] __attribute__((aligned(64)));
    static unsigned char scratch[MAX_BYTES] __attribute__((aligned(64)));
    static const lc_rng_key key = {.seed = 3, .step = 4, .micro_batch = 1};
    const lc_type *types[MAX_OPERANDS];
    lc_type results[LC_MAX_OUTPUTS];
    lc_view views[MAX_OPERANDS + LC_MAX_OUTPUTS];
    memset(views, 0, sizeof views);
    for (int i = 0; i < n_in; i++) types[i] = in[i].given ? &in[i].type : NULL;
    lc_infer infer = {op, n_in, types, n_int, ints, n_float, floats, op->n_out, results};
    CHECK_OK(op->infer(&infer));
    for (int i = 0; i < n_in + infer.n_out; i++) {
        lc_view *v = &views[i];
        const lc_type *t = i < n_in ? types[i] : &results[i - n_in];
        v->ndim = -1;
        if (!t) continue;
        lc__view_of(t, LC_ROW_MAJOR, memory[i], v);
        if (odd) odd_strides(v);
        int64_t n = count(t);
        CHECK((size_t)offset(v, n - 1) * 8 < MAX_BYTES && n <= 2048);
        /* Garbage in place of results: a kernel must not rely on zeros. */
        memset(memory[i], 0xA5, MAX_BYTES);
        for (int64_t e = 0; e < n; e++) {
            if (i < n_in)
                put(v, offset(v, e), in[i].data[e]);
            else if (accumulate)
                put(v, offset(v, e), 8);
        }
    }
    lc_call c = {.op = op,
                 .kernel = op->kernel,
                 .n_in = n_in,
                 .n_out = infer.n_out,
                 .n_int = n_int,
                 .n_float = n_float,
                 .in = views,
                 .out = views + n_in,
                 .ints = ints,
                 .floats = floats,
                 .rng = &key,
                 .threads = 1,
                 .accumulate = accumulate,
                 .scratch = scratch};
    if (op->kernel->prepare) CHECK_OK(op->kernel->prepare(&c));
    CHECK(c.scratch_bytes <= sizeof scratch);
    memset(scratch, 0x5A, sizeof scratch);
    op->kernel->run(&c);
    for (int i = 0; i < infer.n_out; i++) {
        out[i].type = results[i];
        out[i].given = true;
        for (int64_t e = 0; e < count(&results[i]); e++) out[i].data[e] = get(&c.out[i], offset(&c.out[i], e));
    }
}

/* "n2,3" as in test_ops_nn.c; "-" for an input that is not given; "x2" takes output 2 of the previous row. */
typedef struct kernel_row {
    const lc_op *op;
    const char *in;
    const char *ints;
    double floats[2];
    int n_float;
} kernel_row;

static operand inputs[MAX_OPERANDS], before[LC_MAX_OUTPUTS], dense[LC_MAX_OUTPUTS], odd_out[LC_MAX_OUTPUTS];

static int parse_inputs(const char *text, lc_dtype dtype)
{
    int n = 0;
    for (char *p; *text; n++) {
        operand *o = &inputs[n];
        int64_t below = 0;
        char kind = *text++;
        o->given = kind != '-';
        if (kind == 'x') {
            *o = before[strtol(text, &p, 10)];
            text = p;
        } else if (o->given) {
            if (kind == 'i' || kind == 'b') below = strtol(text, &p, 10), text = p + 1;
            memset(&o->type, 0, sizeof o->type);
            o->type.dtype = kind == 'i' ? LC_I64 : kind == 'b' ? LC_BOOL : dtype;
            for (; *text && *text != ' '; text = *p == ',' ? p + 1 : p)
                o->type.shape[o->type.ndim++] = strtol(text, &p, 10);
            for (int64_t e = 0; e < count(&o->type); e++)
                o->data[e] = below         ? (double)lc_random_below((uint64_t)n, (uint64_t)e, (uint64_t)below)
                             : kind == 'p' ? (float)(lc_random_uniform((uint64_t)n, (uint64_t)e) + 0.1)
                                           : (float)lc_random_normal((uint64_t)n, (uint64_t)e);
        }
        while (*text == ' ') text++;
    }
    return n;
}

static const kernel_row kernel_rows[] = {
    {&lc__op_matmul, "n2,1,3,4 n3,4,5", ""},
    {&lc__op_linear, "n2,3,4 n5,4 n5", "0"},
    {&lc__op_linear, "n2,3,4 n5,4 -", "1"},
    {&lc__op_linear_gelu, "n2,3,4 n5,4 n5", "0"},
    {&lc__op_linear_gelu, "n3,4 n5,4 -", "1"},
    {&lc__op_matmul_gelu_backward, "n2,1,3,4 n3,4,5 n2,3,3,5", "0"},
    {&lc__op_matmul_gelu_backward, "n3,4 n4,5 n3,5", "1"},
    {&lc__op_gelu_backward_gelu, "n2,3,4 n2,3,4", "0"},
    {&lc__op_gelu_backward_gelu, "n3,4 n3,4", "1"},
    {&lc__op_linear_weight_grad, "n7,5 n7,4", ""},
    {&lc__op_linear_weight_grad_finite, "n7,5 n7,4", ""},
    {&lc__op_conv, "n2,4,5,4 n6,2,3,2 n6", "2 2 1 1 1 1 2 2 1"},
    {&lc__op_conv, "n1,2,3,4,3 n2,2,2,2,2 -", "3 1 1 1 0 1 0 1 1 1 1 0"},
    {&lc__op_conv_input_grad, "n2,6,2,5 n6,2,3,2 -", "2 2 1 1 1 1 2 2 4 5"},
    {&lc__op_conv_weight_grad, "n2,6,3,4 n2,4,5,4", "2 2 1 1 1 1 2 2 3 2"},
    {&lc__op_max_pool2d, "n2,3,5,6", "3 2 2 1 1 1 1 2 1"},
    {&lc__op_max_pool2d_backward, "n2,3,3,6 x1", "3 2 2 1 1 1 1 2 1 5 6"},
    {&lc__op_max_pool2d, "n1,1,20,20", "17 17 1 1 0 0 1 1 0"},
    {&lc__op_max_pool2d_backward, "n1,1,4,4 x1", "17 17 1 1 0 0 1 1 0 20 20"},
    {&lc__op_avg_pool2d, "n2,3,5,6", "3 2 2 2 1 1 1 1 0"},
    {&lc__op_avg_pool2d_backward, "n2,3,3,4", "3 2 2 2 1 1 1 1 0 5 6"},
    {&lc__op_adaptive_avg_pool2d, "n2,3,5,6", "2 4"},
    {&lc__op_adaptive_avg_pool2d_backward, "n2,3,2,4", "5 6"},
    {&lc__op_interpolate, "n2,2,3,4", "1 0 5 7", {0, 0}, 2},
    {&lc__op_interpolate_backward, "n2,2,5,7", "1 0 3 4", {0, 0}, 2},
    {&lc__op_batch_norm, "n3,2,3,4 n2 n2", "1", {1e-5}, 1},
    {&lc__op_batch_norm_backward, "n3,2,3,4 n3,2,3,4 n2 n2 x1 x2", "1", {1e-5}, 1},
    {&lc__op_batch_norm, "n3,2,3,4 n2 n2", "1", {1e-5}, 1},
    {&lc__op_batch_norm_relu_backward, "n3,2,3,4 n3,2,3,4 n2 n2 x1 x2", "1", {1e-5}, 1},
    {&lc__op_batch_norm_inference, "n3,2,4 n2 - n2 p2", "0", {1e-5}, 1},
    {&lc__op_batch_norm_relu_pool, "n2,3,4,6 n3 n3", "2 2 2 2 0 0 1 1 0", {1e-5}, 1},
    {&lc__op_batch_norm_relu_pool_backward, "n2,3,2,3 x1 n2,3,4,6 n3 n3 x2 x3", "2 2 2 2 0 0 1 1 0", {1e-5}, 1},
    {&lc__op_layer_norm, "n2,3,4,5 n4,5 n4,5", "2", {1e-5}, 1},
    {&lc__op_layer_norm_backward, "n2,3,4,5 n2,3,4,5 n4,5 x1 x2", "2"},
    {&lc__op_rms_norm, "n2,3,4 n4", "1", {1e-6}, 1},
    {&lc__op_rms_norm_backward, "n2,3,4 n2,3,4 n4 x1", "1"},
    {&lc__op_group_norm, "n2,6,3,2 n6 n6", "3", {1e-5}, 1},
    {&lc__op_group_norm_backward, "n2,6,3,2 n2,6,3,2 n6 x1 x2", "3"},
    {&lc__op_embedding, "i5:2,3 n5,4", "-1"},
    {&lc__op_embedding_backward, "n2,3,4 i5:2,3", "5 2"},
    {&lc__op_cross_entropy, "n3,4,2,2 i4:3,2,2 p4", "1 0", {0.1}, 1},
    {&lc__op_cross_entropy_backward, "n n3,4,2,2 i4:3,2,2 p4 x1 x2", "1 0", {0.1}, 1},
    {&lc__op_cross_entropy, "n3,4,2 i4:3,2 -", "-100 2", {0}, 1},
    {&lc__op_cross_entropy_backward, "n3,2 n3,4,2 i4:3,2 - x1 x2", "-100 2", {0}, 1},
    {&lc__op_nll_loss, "n3,4,2 i4:3,2 p4", "-100 2"},
    {&lc__op_nll_loss_backward, "n3,2 i4:3,2 p4 x1", "-100 2 4"},
    {&lc__op_sdpa, "n2,3,4,5 n2,3,6,5 n2,3,6,3 b2:3,4,6", "0 0", {0}, 1},
    {&lc__op_sdpa_backward, "n2,3,4,3 n2,3,4,5 n2,3,6,5 n2,3,6,3 b2:3,4,6 x0 x1", "0 0", {0}, 1},
    {&lc__op_dropout, "n3,5,2", "7 1", {0.4}, 1},
    {&lc__op_bernoulli, "p3,5", "7 1"},
    {&lc__op_uniform, "", "7 1 1 3 5", {-1, 2}, 2},
    {&lc__op_normal, "", "7 1 2 3 5", {1, 2}, 2},
    {&lc__op_lstm, "n2,3,12 n12,3 n12 n2,3 n2,3", ""},
    {&lc__op_lstm_backward, "n2,3,3 n2,3 - n12,3 n2,3 n2,3 x0 x3 x4", ""},
    {&lc__op_gru, "n2,3,9 n9,3 n9 n2,3", ""},
    {&lc__op_gru_backward, "n2,3,3 - n9,3 n2,3 x0 x2", ""},
};

TEST(every_kernel_takes_any_strides)
{
    for (size_t r = 0; r < sizeof kernel_rows / sizeof *kernel_rows; r++)
        for (int d = 0; d < 2; d++) {
            const kernel_row *row = &kernel_rows[r];
            /* The previous row, in this data type. */
            if (r && strchr(row->in, 'x')) {
                const kernel_row *last = row - 1;
                int64_t ints[16];
                int n_int = 0, n = parse_inputs(last->in, d ? LC_F64 : LC_F32);
                for (char *p = (char *)(uintptr_t)last->ints; *p;) ints[n_int++] = strtol(p, &p, 10);
                call_kernel(last->op, n, inputs, n_int, ints, last->n_float, last->floats, false, false, before);
            }
            int64_t ints[16];
            int n_int = 0, n = parse_inputs(row->in, d ? LC_F64 : LC_F32);
            for (char *p = (char *)(uintptr_t)row->ints; *p;) ints[n_int++] = strtol(p, &p, 10);
            call_kernel(row->op, n, inputs, n_int, ints, row->n_float, row->floats, false, false, dense);
            call_kernel(row->op, n, inputs, n_int, ints, row->n_float, row->floats, true, false, odd_out);
            for (int i = 0; i < row->op->n_out; i++)
                for (int64_t e = 0; e < count(&dense[i].type); e++)
                    if (dense[i].data[e] != odd_out[i].data[e] || isnan(dense[i].data[e]))
                        TEST_FAIL("%s (row %d): output %d, element %d is %.9g dense, %.9g strided", row->op->name,
                                  (int)r, i, (int)e, dense[i].data[e], odd_out[i].data[e]);
            if (!(row->op->kernel->flags & LC_KERNEL_ACCUMULATES)) continue;
            call_kernel(row->op, n, inputs, n_int, ints, row->n_float, row->floats, true, true, odd_out);
            for (int64_t e = 0; e < count(&dense[0].type); e++)
                CHECK_NEAR(odd_out[0].data[e], dense[0].data[e] + 8, 1e-5);
        }
}

/* Runs one kernel on dense operands, given as input text. */
static void kernel(const lc_op *op, lc_dtype dtype, const char *in, int n_int, const int64_t *ints, double f,
                   int n_float)
{
    int n = parse_inputs(in, dtype);
    call_kernel(op, n, inputs, n_int, ints, n_float, &f, false, false, dense);
}

TEST(fused_pool_equals_its_parts)
{
    const int64_t pool[] = {3, 2, 2, 1, 1, 1, 1, 1, 1}, backward[] = {3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 6}, relu[] = {1};
    static operand x, dy, index, mean, var, y, dx[3], vectors[2];
    kernel(&lc__op_batch_norm, LC_F64, "n2,3,4,6 n3 n3", 1, relu, 1e-5, 1);
    x = inputs[0], vectors[0] = inputs[1], vectors[1] = inputs[2], mean = dense[1], var = dense[2];
    inputs[0] = dense[0];
    call_kernel(&lc__op_max_pool2d, 1, inputs, 9, pool, 0, NULL, false, false, dense);
    y = dense[0], index = dense[1];
    kernel(&lc__op_batch_norm_relu_pool, LC_F64, "n2,3,4,6 n3 n3", 9, pool, 1e-5, 1);
    for (int64_t e = 0; e < count(&y.type); e++) {
        CHECK(dense[0].data[e] == y.data[e]);
        CHECK(dense[1].data[e] == index.data[e]);
    }
    for (int64_t e = 0; e < 3; e++) CHECK(dense[2].data[e] == mean.data[e] && dense[3].data[e] == var.data[e]);
    /* Backward: through the pooling, then through the normalization. */
    dy = y;
    for (int64_t e = 0; e < count(&dy.type); e++) dy.data[e] = lc_random_normal(99, (uint64_t)e);
    inputs[0] = dy, inputs[1] = index;
    call_kernel(&lc__op_max_pool2d_backward, 2, inputs, 11, backward, 0, NULL, false, false, dense);
    inputs[0] = dense[0], inputs[1] = x, inputs[2] = vectors[0], inputs[3] = vectors[1], inputs[4] = mean,
    inputs[5] = var;
    const double eps = 1e-5;
    call_kernel(&lc__op_batch_norm_backward, 6, inputs, 1, relu, 1, &eps, false, false, dense);
    memcpy(dx, dense, sizeof dx);
    inputs[0] = dy, inputs[1] = index, inputs[2] = x, inputs[3] = vectors[0], inputs[4] = vectors[1], inputs[5] = mean,
    inputs[6] = var;
    call_kernel(&lc__op_batch_norm_relu_pool_backward, 7, inputs, 9, pool, 1, &eps, false, false, dense);
    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; e < count(&dx[i].type); e++) CHECK_NEAR(dense[i].data[e], dx[i].data[e], 1e-12);
}

/* With the same bits, also in f32. */
TEST(results_are_computed_again_by_their_gradients)
{
    const lc_dtype types[] = {LC_F32, LC_F64};
    const int64_t relu[] = {1};
    static operand y, x, dy, dx[3];
    for (int t = 0; t < 2; t++) {
        kernel(&lc__op_batch_norm, types[t], "n2,3,4,6 n3 n3", 1, relu, 1e-5, 1);
        y = dense[0], x = inputs[0];
        dy = x;
        for (int64_t e = 0; e < count(&dy.type); e++) dy.data[e] = (float)lc_random_normal(99, (uint64_t)e);
        inputs[3] = inputs[2], inputs[2] = inputs[1], inputs[1] = x, inputs[0] = dy;
        inputs[4] = dense[1], inputs[5] = dense[2];
        const double eps = 1e-5;
        call_kernel(&lc__op_batch_norm_backward, 6, inputs, 1, relu, 1, &eps, false, false, dense);
        memcpy(dx, dense, sizeof dx);
        call_kernel(&lc__op_batch_norm_relu_backward, 6, inputs, 1, relu, 1, &eps, false, false, dense);
        for (int i = 0; i < 3; i++)
            for (int64_t e = 0; e < count(&dx[i].type); e++) CHECK(dense[i].data[e] == dx[i].data[e]);
        for (int64_t e = 0; e < count(&y.type); e++) CHECK(dense[3].data[e] == y.data[e]);
    }
    for (int64_t tanh = 0; tanh < 2; tanh++) {
        kernel(&lc__op_linear_gelu, LC_F32, "n5,3 n4,3 n4", 1, &tanh, 0, 0);
        y = dense[0], x = dense[1];
        inputs[0] = x, inputs[1] = x;
        call_kernel(&lc__op_gelu_backward_gelu, 2, inputs, 1, &tanh, 0, NULL, false, false, dense);
        for (int64_t e = 0; e < count(&y.type); e++) CHECK(dense[1].data[e] == y.data[e]);
    }
}

TEST(max_pool_keeps_nan_and_the_first_maximum)
{
    const int64_t ints[] = {2, 2, 2, 2, 0, 0, 1, 1, 0};
    parse_inputs("n1,1,2,6", LC_F32);
    const double x[] = {1, NAN, 3, 3, -1, -2, 5, 2, 3, 3, -2, -1};
    memcpy(inputs[0].data, x, sizeof x);
    call_kernel(&lc__op_max_pool2d, 1, inputs, 9, ints, 0, NULL, false, false, dense);
    CHECK(isnan(dense[0].data[0]));
    CHECK_EQ(dense[1].data[0], 1);
    CHECK_EQ(dense[0].data[1], 3);
    CHECK_EQ(dense[1].data[1], 0);
    CHECK_EQ(dense[1].data[2], 0);
    CHECK_EQ(dense[1].type.dtype, LC_U8);
    const int64_t large[] = {16, 16, 1, 1, 0, 0, 1, 1, 0};
    kernel(&lc__op_max_pool2d, LC_F32, "n1,1,16,17", 9, large, 0, 0);
    CHECK_EQ(dense[1].type.dtype, LC_I32);
}

TEST(indices_out_of_range_give_nan)
{
    parse_inputs("i3:4 n3,2", LC_F32);
    const double ids[] = {2, -1, 3, 0};
    memcpy(inputs[0].data, ids, sizeof ids);
    call_kernel(&lc__op_embedding, 2, inputs, 1, (int64_t[]){-1}, 0, NULL, false, false, dense);
    CHECK(!isnan(dense[0].data[0]) && isnan(dense[0].data[2]) && isnan(dense[0].data[5]) && !isnan(dense[0].data[7]));
    parse_inputs("n4,3 i3:4 -", LC_F32);
    memcpy(inputs[1].data, ids, sizeof ids);
    const double none = 0;
    call_kernel(&lc__op_cross_entropy, 3, inputs, 2, (int64_t[]){-1, 2}, 1, &none, false, false, dense);
    CHECK(!isnan(dense[0].data[0]) && dense[0].data[1] == 0 && isnan(dense[0].data[2]) && !isnan(dense[0].data[3]));
}

TEST(a_query_that_sees_nothing_gives_zero)
{
    const double none = 0;
    parse_inputs("n1,2,3 n1,2,3 n1,2,3 b2:2,2", LC_F32);
    inputs[3].data[0] = inputs[3].data[1] = 0;
    inputs[3].data[2] = 0, inputs[3].data[3] = 1;
    call_kernel(&lc__op_sdpa, 4, inputs, 2, (int64_t[]){0, 0}, 1, &none, false, false, dense);
    for (int d = 0; d < 3; d++) {
        CHECK(dense[0].data[d] == 0);
        CHECK(dense[0].data[3 + d] == inputs[2].data[3 + d]);
    }
}

/* ---- through the recorder ---- */
static lc_graph *g;

static void open_step(uint64_t seed, uint64_t step, uint64_t micro_batch)
{
    if (!g) CHECK_OK(lc_graph_new(&g, .threads = 1, .seed = seed));
    CHECK_OK(lc_step_begin(g, step, micro_batch));
}

static void close_step(void)
{
    CHECK_OK(lc_step_end(g));
}

static void close_graph(void)
{
    lc_graph_free(g);
    g = NULL;
}

enum { N = 4096 };

static lc_tensor *ones(void)
{
    static float one[N];
    lc_tensor *t;
    for (int i = 0; i < N; i++) one[i] = 1;
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){N}, &t));
    CHECK_OK(lc_tensor_write(t, one, sizeof one));
    return t;
}

/* Two dropouts at one place in the program, in one step. */
static void masks(lc_tensor *x, uint64_t seed, uint64_t step, uint64_t micro_batch, float *a, float *b)
{
    open_step(seed, step, micro_batch);
    lc_tensor *y[2];
    for (int i = 0; i < 2; i++) y[i] = lc_keep(lc_dropout(x, 0.3));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(y[0], a, N * sizeof *a));
    CHECK_OK(lc_tensor_read(y[1], b, N * sizeof *b));
    close_step();
}

static int kept(const float *a)
{
    int n = 0;
    for (int i = 0; i < N; i++) n += a[i] != 0;
    return n;
}

/* How many elements both masks keep: 0.49 of them if the masks are independent. */
static int both(const float *a, const float *b)
{
    int n = 0;
    for (int i = 0; i < N; i++) n += a[i] != 0 && b[i] != 0;
    return n;
}

TEST(dropout_masks_depend_on_place_count_step_and_seed)
{
    static float a[8][N], again[N];
    lc_tensor *x = ones();
    masks(x, 1, 0, 0, a[0], a[1]);
    masks(x, 1, 1, 0, a[2], a[3]);
    masks(x, 1, 0, 1, a[4], a[5]);
    masks(x, 1, 0, 0, again, a[6]);
    CHECK(!memcmp(a[0], again, sizeof again));
    CHECK(!memcmp(a[1], a[6], sizeof again));
    close_graph();
    masks(x, 2, 0, 0, a[6], a[7]);
    close_graph();
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR(kept(a[i]) / (double)N, 0.7, 0.03);
        for (int j = 0; j < i; j++) CHECK_NEAR(both(a[i], a[j]) / (double)N, 0.49, 0.035);
        for (int e = 0; e < N; e++) CHECK(a[i][e] == 0 || fabsf(a[i][e] - 1 / 0.7f) < 1e-6f);
    }
    lc_tensor_unref(x);
}

TEST(dropout_passes_gradients_where_it_passed_values)
{
    static float y[N], dx[N];
    lc_tensor *x = ones();
    lc_tensor_set_requires_grad(x, true);
    for (uint64_t step = 0; step < 3; step++) {
        open_step(1, step, 0);
        lc_zero_grad(g);
        lc_tensor *out = lc_keep(lc_dropout(x, 0.5));
        lc_backward(lc_sum(out));
        lc_tensor *gradient = lc_keep(lc_gradient(x));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(out, y, sizeof y));
        CHECK_OK(lc_tensor_read(gradient, dx, sizeof dx));
        close_step();
        CHECK(kept(y) > N / 3 && kept(y) < N);
        CHECK(!memcmp(y, dx, sizeof y)); /* x is 1 everywhere */
    }
    close_graph();
    lc_tensor_unref(x);
}

TEST(dropout_follows_its_definition)
{
    static const lc_rng_key key = {.seed = 3, .step = 4, .micro_batch = 1};
    const int64_t ints[] = {7, 2};
    const double p = 0.25;
    kernel(&lc__op_dropout, LC_F32, "p9,5", 2, ints, p, 1);
    lc_call c = {.ints = ints, .rng = &key};
    lc__rng_stream stream = lc__rng_stream_of(&c);
    for (uint64_t e = 0; e < 45; e++) {
        uint32_t w[4];
        lc_philox4x32(stream.key, e / 4, stream.hi, w);
        bool keep = (w[e % 4] >> 8) * 0x1p-24 >= p;
        CHECK(dense[0].data[e] == (keep ? (double)((float)inputs[0].data[e] * (float)(1 / 0.75)) : 0));
    }
}

TEST(random_tensors_have_their_moments)
{
    static double u[N], z[N], v[N];
    static float b[N];
    lc_tensor *p = ones();
    for (int i = 0; i < N; i++) b[i] = 0.2f;
    CHECK_OK(lc_tensor_write(p, b, sizeof b));
    open_step(1, 0, 0);
    const int64_t shape[] = {64, 64};
    lc_tensor *t[4] = {lc_keep(lc_uniform(2, shape, .dtype = LC_F64, .low = -1, .high = 3)),
                       lc_keep(lc_normal(2, shape, .dtype = LC_F64, .mean = 2, .std = 0.5)),
                       lc_keep(lc_rand_like(lc_uniform(2, shape, .dtype = LC_F64))), lc_keep(lc_bernoulli(p))};
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(t[0], u, sizeof u));
    CHECK_OK(lc_tensor_read(t[1], z, sizeof z));
    CHECK_OK(lc_tensor_read(t[2], v, sizeof v));
    CHECK_OK(lc_tensor_read(t[3], b, sizeof b));
    close_step();
    close_graph();
    lc_tensor_unref(p);
    double mean[4] = {0}, square[3] = {0};
    for (int i = 0; i < N; i++) {
        CHECK(u[i] >= -1 && u[i] < 3 && v[i] >= 0 && v[i] < 1);
        mean[0] += u[i] / N, mean[1] += z[i] / N, mean[2] += v[i] / N, mean[3] += (double)b[i] / N;
        square[0] += u[i] * u[i] / N, square[1] += (z[i] - 2) * (z[i] - 2) / N;
    }
    CHECK_NEAR(mean[0], 1, 0.08);
    CHECK_NEAR(square[0], 7.0 / 3, 0.15);
    CHECK_NEAR(mean[1], 2, 0.03);
    CHECK_NEAR(square[1], 0.25, 0.02);
    CHECK_NEAR(mean[2], 0.5, 0.02);
    CHECK_NEAR(mean[3], 0.2, 0.025);
}

TEST(batch_norm_moves_its_running_statistics)
{
    const float data[] = {1, 2, 3, 10, 4, 5, 6, 20};
    float mean[2] = {0.5f, -1}, var[2] = {2, 1}, y[8];
    lc_tensor *x, *rm, *rv;
    CHECK_OK(lc_tensor_new(LC_F32, 3, (int64_t[]){2, 2, 2}, &x));
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &rm));
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &rv));
    CHECK_OK(lc_tensor_write(x, data, sizeof data));
    CHECK_OK(lc_tensor_write(rm, mean, sizeof mean));
    CHECK_OK(lc_tensor_write(rv, var, sizeof var));
    lc_tensor_set_requires_grad(x, true);
    open_step(1, 0, 0);
    lc_tensor *out = lc_keep(
        lc_batch_norm(x, NULL, NULL, .running_mean = rm, .running_var = rv, .training = true, .momentum = 0.25));
    lc_backward(lc_sum(lc_square(out)));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(out, y, sizeof y));
    close_step();
    CHECK_OK(lc_tensor_read(rm, mean, sizeof mean));
    CHECK_OK(lc_tensor_read(rv, var, sizeof var));
    /* Channel 0: 1 2 4 5, mean 3, variance 10/3 (unbiased); channel 1: 3 10 6 20, mean 9.75, variance 54.9167. */
    CHECK_NEAR(mean[0], 0.75 * 0.5 + 0.25 * 3, 1e-6);
    CHECK_NEAR(mean[1], 0.75 * -1 + 0.25 * 9.75, 1e-6);
    CHECK_NEAR(var[0], 0.75 * 2 + 0.25 * 10 / 3, 1e-6);
    CHECK_NEAR(var[1], 0.75 + 0.25 * 54.916667, 1e-5);
    CHECK_NEAR(y[0], (1 - 3) / sqrt(2.5 + 1e-5), 1e-6);
    /* Evaluation uses them and does not change them. */
    open_step(1, 1, 0);
    out = lc_keep(lc_batch_norm(x, NULL, NULL, .running_mean = rm, .running_var = rv));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(out, y, sizeof y));
    close_step();
    CHECK_NEAR(y[2], (3 - mean[1]) / sqrt(var[1] + 1e-5), 1e-6);
    float same[2];
    CHECK_OK(lc_tensor_read(rm, same, sizeof same));
    CHECK(!memcmp(same, mean, sizeof same));
    close_graph();
    lc_tensor_unref(x), lc_tensor_unref(rm), lc_tensor_unref(rv);
}

TEST(embedding_padding_gets_no_gradient)
{
    float dw[8];
    lc_tensor *ids, *w;
    CHECK_OK(lc_tensor_new(LC_I32, 1, (int64_t[]){4}, &ids));
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){4, 2}, &w));
    CHECK_OK(lc_tensor_write(ids, (int32_t[]){3, 0, 3, 1}, 16));
    lc_tensor_set_requires_grad(w, true);
    open_step(1, 0, 0);
    lc_backward(lc_sum(lc_embedding(ids, w, .padding_idx = 0)));
    lc_tensor *gradient = lc_keep(lc_gradient(w));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(gradient, dw, sizeof dw));
    close_step();
    close_graph();
    const float want[] = {0, 0, 1, 1, 0, 0, 2, 2};
    CHECK(!memcmp(dw, want, sizeof want));
    lc_tensor_unref(ids), lc_tensor_unref(w);
}

/* ---- messages ---- */
static lc_tensor *fixed[8];

#define MESSAGE(id, expression)                                                                                        \
    static lc_tensor *id(lc_tensor **t)                                                                                \
    {                                                                                                                  \
        (void)t;                                                                                                       \
        return expression;                                                                                             \
    }
/* t: 0 [2,1,5,5]  1 [4,3,3,3]  2 [3]  3 [2,6]  4 [5,6] f64  5 i64 [2]  6 [4,6]  7 [2,3,4] */
MESSAGE(m_conv, lc_conv2d(t[0], t[1], NULL))
MESSAGE(m_conv_groups, lc_conv2d(t[0], t[1], NULL, .groups = 2))
MESSAGE(m_conv_dims, lc_conv1d(t[0], t[1], NULL))
MESSAGE(m_conv_kernel, lc_conv2d(t[1], t[1], NULL, .dilation = LC_DIMS(9)))
MESSAGE(m_conv_bias, lc_conv2d(t[1], t[1], t[2], .padding = LC_DIMS(1, 1)))
MESSAGE(m_conv_negative, lc_conv2d(t[1], t[1], NULL, .padding = LC_DIMS(-1, 1)))
MESSAGE(m_transposed, lc_conv_transpose2d(t[0], t[1], NULL))
MESSAGE(m_output_padding, lc_conv_transpose2d(lc_reshape(t[1], 3, 4, 3, 3), t[1], NULL, .output_padding = LC_DIMS(1, 1),
                                              .stride = LC_DIMS(1)))
MESSAGE(m_linear, lc_linear(t[3], t[1], NULL))
MESSAGE(m_linear_in, lc_linear(t[2], t[3], NULL))
MESSAGE(m_linear_dtype, lc_linear(t[3], t[4], NULL))
MESSAGE(m_linear_null, lc_linear(t[3], NULL, NULL))
MESSAGE(m_linear_bias, lc_linear(t[3], t[6], t[2]))
MESSAGE(m_matmul, lc_matmul(t[3], t[6]))
MESSAGE(m_matmul_batch, lc_matmul(t[0], lc_reshape(t[1], 4, 3, 3, 3)))
MESSAGE(m_matmul_int, lc_matmul(t[5], t[5]))
MESSAGE(m_pool, lc_max_pool2d(t[3], 2))
MESSAGE(m_pool_large, lc_max_pool2d(t[0], 7))
MESSAGE(m_pool_pad, lc_avg_pool2d(t[0], 2, .padding = LC_DIMS(2, 2)))
MESSAGE(m_interpolate, lc_interpolate(t[0], LC_NEAREST))
MESSAGE(m_shuffle, lc_pixel_shuffle(t[1], 2))
MESSAGE(m_batch_norm, lc_batch_norm(t[0], t[2], NULL))
MESSAGE(m_batch_norm_one, lc_batch_norm(lc_reshape(t[2], 1, 3), NULL, NULL))
MESSAGE(m_layer_norm, lc_layer_norm(t[3], t[2], NULL))
MESSAGE(m_group_norm, lc_group_norm(t[3], 4, NULL, NULL))
MESSAGE(m_embedding, lc_embedding(t[3], t[6]))
MESSAGE(m_cross_entropy, lc_cross_entropy(t[6], t[5]))
MESSAGE(m_cross_entropy_float, lc_cross_entropy(t[6], t[2]))
MESSAGE(m_sdpa, lc_sdpa(t[3], t[2], t[2]))
MESSAGE(m_sdpa_features, lc_sdpa(t[3], lc_reshape(t[7], 6, 4), lc_reshape(t[7], 6, 4)))
MESSAGE(m_dropout, lc_dropout(t[3], 1.5))
MESSAGE(m_lstm, lc_lstm(t[7], lc_reshape(t[1], 27, 4), t[3]))

TEST(messages_name_mismatched_shapes)
{
    static const struct {
        lc_tensor *(*call)(lc_tensor **t);
        const char *want;
    } messages[] = {
        {m_conv, "conv2d: weight expects 3 input channels, but x has 1 (x [2,1,5,5], weight [4,3,3,3]) at "
                 "test_ops_nn_kernels.c:"},
        {m_conv_groups, "x has 1 channels, which do not divide into 2 groups"},
        {m_conv_dims, "x must have 3 dimensions for a 1-dimensional convolution, but has 4"},
        {m_conv_kernel, "the kernel spans 19 elements, but x has 3 with its padding"},
        {m_conv_bias, "bias has 3 elements, but there are 4 output channels"},
        {m_conv_negative, "padding must not be negative"},
        {m_transposed, "weight expects 4 input channels, but x has 1"},
        {m_output_padding, "output padding must be smaller than stride or dilation"},
        {m_linear, "weight must have 2 dimensions [out,in], has 4"},
        {m_linear_in, "weight expects 6 input features, but x has 3"},
        {m_linear_dtype, "weight is f64 but x is f32; cast one of them"},
        {m_linear_null, "weight is NULL"},
        {m_linear_bias, "bias has 3 elements, but there are 4 output features"},
        {m_matmul, "x has 6 columns but y has 4 rows"},
        {m_matmul_batch, "x has 5 columns but y has 3 rows"},
        {m_matmul_int, "x is i64, but must be f32, f64, f16 or bf16"},
        {m_pool, "x must have 4 dimensions [N,C,H,W], has 2"},
        {m_pool_large, "the kernel spans 7 elements, but x has 5 with its padding"},
        {m_pool_pad, "padding must be between 0 and half the kernel, is 2 for a kernel of 2"},
        {m_interpolate, "give .output_size or .scale"},
        {m_shuffle, "pixel_shuffle: x has 3 channels, which is not a multiple of 2 x 2"},
        {m_batch_norm, "weight has 3 elements, but there are 1 channels"},
        {m_batch_norm_one, "use a larger batch"},
        {m_layer_norm, "weight must be [6], is [3]"},
        {m_group_norm, "x has 6 channels, which do not divide into 4 groups"},
        {m_embedding, "ids must be i64 or i32, is f32"},
        {m_cross_entropy, "target must be [4], is [2]"},
        {m_cross_entropy_float, "target must be i64 or i32, is f32"},
        {m_sdpa, "query, key and value must have the same number of dimensions (2, 1, 1)"},
        {m_sdpa_features, "query has 6 features but key has 4"},
        {m_dropout, "p must be between 0 and 1, is 1.5"},
        {m_lstm, "w_hh must be [4*H,H]"},
    };
    static const struct {
        lc_dtype dtype;
        int ndim;
        int64_t shape[4];
    } types[8] = {{LC_F32, 4, {2, 1, 5, 5}}, {LC_F32, 4, {4, 3, 3, 3}}, {LC_F32, 1, {3}},    {LC_F32, 2, {2, 6}},
                  {LC_F64, 2, {5, 6}},       {LC_I64, 1, {2}},          {LC_F32, 2, {4, 6}}, {LC_F32, 3, {2, 3, 4}}};
    for (int i = 0; i < 8; i++) CHECK_OK(lc_tensor_new(types[i].dtype, types[i].ndim, types[i].shape, &fixed[i]));
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        open_step(1, i, 0);
        lc_tensor *y = messages[i].call(fixed);
        if (!lc_tensor_is_error(y)) TEST_FAIL("no error, but expected: %s", messages[i].want);
        CHECK(lc_step_status(g) < 0);
        CHECK_CONTAINS(lc_error_message(), messages[i].want);
        (void)!lc_step_end(g);
    }
    close_graph();
    for (int i = 0; i < 8; i++) lc_tensor_unref(fixed[i]);
}

TEST_MAIN
