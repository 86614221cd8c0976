/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's own kernels against the operators' reference kernels: elementwise and fused operators, reductions,
 * softmax, batch normalization, pooling. To add a kernel: a TEST with its operator over odd sizes, size one, large
 * sizes, and both layouts. */
#include "kernel_check.h"

#include "ops/fused.h"

#include <float.h>

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* ---- elementwise ---- */
enum kind { FLOAT, ARITH, COMPARE, SELECT, FILL, CAST };

static const struct {
    const lc_op *op;
    int n_in, n_float;
    enum kind kind;
} elementwise[] = {
#define ROW(name, inputs, floats, kind, gradient, expression) {&lc__op_##name, inputs, floats, kind},
    LC_ELEMENTWISE_LIST(ROW)
#undef ROW
};
#define ELEMENTWISE_COUNT ((int)(sizeof elementwise / sizeof elementwise[0]))

static lc_dtype operand_dtype(enum kind kind, int i)
{
    return (kind == SELECT && i == 0) || (kind == FILL && i == 1) ? LC_BOOL : LC_F32;
}

static fill_fn *operand_fill(enum kind kind, int i)
{
    return operand_dtype(kind, i) == LC_BOOL ? fill_whole : kind == COMPARE ? fill_ties : fill_normal;
}

static void add_attributes(kernel_case *c, int op)
{
    if (elementwise[op].kind == CAST) {
        add_int(c, LC_BOOL);
    } else {
        const lc_op *o = elementwise[op].op;
        bool one = o == &lc__op_gelu || o == &lc__op_gelu_backward;
        bool two = o == &lc__op_clamp || o == &lc__op_clamp_backward;
        if (one || two) add_int(c, 1);
        if (two) add_int(c, 1);
    }
    for (int i = 0; i < elementwise[op].n_float; i++) add_float(c, i ? 1.25 : 0.75);
}

static double operand_scale(enum kind kind, int i)
{
    return operand_dtype(kind, i) == LC_BOOL ? 2 : kind == COMPARE ? 5 : 3;
}

/* Operand i of op as a dense tensor. */
static lc_view *add_operand(kernel_case *c, int op, int i, check_layout layout, int ndim, const int64_t *shape)
{
    enum kind kind = elementwise[op].kind;
    return add_input(c, operand_dtype(kind, i), layout, ndim, shape, operand_fill(kind, i), operand_scale(kind, i));
}

TEST(every_elementwise_operator)
{
    const int64_t sizes[] = {1, 2, 17, 1023, 1024, 1025, 40000};
    for (int op = 0; op < ELEMENTWISE_COUNT; op++) {
        for (int s = 0; s < 7; s++) {
            kernel_case c = case_of(elementwise[op].op);
            for (int i = 0; i < elementwise[op].n_in; i++) add_operand(&c, op, i, CHECK_ROW_MAJOR, SHAPE(sizes[s]));
            add_attributes(&c, op);
            check_case(&c);
        }
    }
}

/* The other form of operators with ints. */
TEST(other_forms)
{
    const lc_op *ops[] = {&lc__op_gelu, &lc__op_gelu_backward, &lc__op_clamp, &lc__op_clamp_backward};
    for (int o = 0; o < 4; o++) {
        for (int form = 0; form < 4; form++) {
            kernel_case c = case_of(ops[o]);
            for (int i = 0; i <= (o & 1); i++) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(3000), fill_normal, 3);
            add_int(&c, form & 1);
            if (o >= 2) {
                add_int(&c, form >> 1);
                add_float(&c, -0.5);
                add_float(&c, 1.5);
            }
            check_case(&c);
        }
    }
}

/* The output's dimensions that operands 0, 1 and 2 have; the others are 1 and broadcast. */
static void check_broadcast(int op, check_layout layout, int ndim, const int64_t *shape, const unsigned *has)
{
    kernel_case c = case_of(elementwise[op].op);
    c.out_layout = layout;
    for (int i = 0; i < elementwise[op].n_in; i++) {
        int64_t own[LC_MAX_DIMS] = {0};
        for (int d = 0; d < ndim; d++) own[d] = has[i] >> d & 1 ? shape[d] : 1;
        lc_view *v = add_operand(&c, op, i, layout, ndim, own);
        for (int d = 0; d < ndim; d++) {
            if (own[d] == shape[d]) continue;
            v->shape[d] = shape[d]; /* as the planner expands it */
            v->stride[d] = 0;
        }
    }
    add_attributes(&c, op);
    check_case(&c);
}

TEST(broadcast_operands)
{
    const int64_t shapes[][4] = {{2, 3, 4, 5},    {3, 37, 2, 9},  {2, 1, 3, 1},    {1, 5, 1, 1500},
                                 {130, 10, 1, 1}, {3, 2, 40, 33}, {2, 2, 1, 5000}, {7, 1, 1, 1}};
    const unsigned patterns[][3] = {{15, 2, 15}, {15, 0, 2}, {2, 15, 0},  {15, 8, 1},  {15, 12, 3},
                                    {5, 15, 10}, {15, 1, 8}, {14, 15, 9}, {15, 15, 15}};
    const lc_op *ops[] = {&lc__op_add, &lc__op_where, &lc__op_masked_fill, &lc__op_sub, &lc__op_lt};
    for (int o = 0; o < 5; o++) {
        int op = lc__elementwise_index(ops[o]);
        for (int s = 0; s < 8; s++) {
            for (int p = 0; p < 9; p++) {
                check_broadcast(op, CHECK_ROW_MAJOR, 4, shapes[s], patterns[p]);
                check_broadcast(op, CHECK_CHANNELS_LAST, 4, shapes[s], patterns[p]);
            }
        }
    }
    check_broadcast(lc__elementwise_index(&lc__op_mul), CHECK_ROW_MAJOR, 0, shapes[0], patterns[0]);
}

TEST(casts)
{
    const lc_dtype from[] = {LC_F32, LC_BOOL, LC_U8, LC_I32, LC_I64, LC_BF16, LC_F16};
    const lc_dtype to[] = {LC_F32, LC_BOOL, LC_BF16, LC_F16};
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < 4; k++) {
            kernel_case c = case_of(&lc__op_cast);
            double scale = from[i] == LC_BOOL ? 2 : from[i] == LC_U8 ? 256 : 3e9;
            add_input(&c, from[i], CHECK_CHANNELS_LAST, SHAPE(3, 5, 7, 31), fill_ties, from[i] == LC_F32 ? 100 : scale);
            if (from[i] == LC_BOOL || from[i] == LC_U8) {
                for (int64_t n = 0; n < 3 * 5 * 7 * 31; n++)
                    ((uint8_t *)c.in[0].data)[n] = (uint8_t)fill_whole(&c.seed, scale);
            }
            add_int(&c, to[k]);
            c.out_layout = CHECK_CHANNELS_LAST;
            c.relative = c.of_largest = 0;
            c.may_lack = (to[k] == LC_BF16 || to[k] == LC_F16) && (from[i] == LC_I32 || from[i] == LC_I64);
            check_case(&c);
        }
    }
}

/* Ties, subnormal numbers, infinities and numbers near them. */
TEST(casts_round_to_the_nearest)
{
    const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff, 0x7f800000, 0xff800000,
                             0x7fc00000, 0x00000001, 0x80000000, 0x00008000, 0x00018000, 0x3f801000, 0x3f803000,
                             0x3f800fff, 0x3f801001, 0x477fefff, 0x477ff000, 0xc77ff000, 0x387fc000, 0x38800000,
                             0x387fffff, 0x33000000, 0x33000001, 0xb3400000, 0x33c00000, 0x34200000};
    const lc_dtype low[] = {LC_BF16, LC_F16};
    enum { N = sizeof bits / sizeof bits[0] };
    for (int k = 0; k < 2; k++) {
        for (int at = 0; at < N; at++) { /* in all lanes of vectors, and after them */
            kernel_case c = case_of(&lc__op_cast);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(N), fill_normal, 1);
            for (int i = 0; i < N; i++) memcpy((float *)c.in[0].data + (at + i) % N, &bits[i], sizeof bits[i]);
            add_int(&c, low[k]);
            check_case(&c);
        }
        kernel_case back = case_of(&lc__op_cast);
        add_input(&back, low[k], CHECK_ROW_MAJOR, SHAPE(1 << 16), fill_normal, 1);
        for (int i = 0; i < 1 << 16; i++) ((uint16_t *)back.in[0].data)[i] = (uint16_t)i;
        add_int(&back, LC_F32);
        back.relative = back.of_largest = 0;
        check_case(&back);
    }
}

TEST(numbers_of_16_bits_are_selected)
{
    for (int k = 0; k < 2; k++) {
        kernel_case c = case_of(&lc__op_where);
        add_input(&c, LC_BOOL, CHECK_ROW_MAJOR, SHAPE(3, 700), fill_whole, 2);
        add_input(&c, k ? LC_F16 : LC_BF16, CHECK_ROW_MAJOR, SHAPE(3, 700), fill_normal, 3);
        add_input(&c, k ? LC_F16 : LC_BF16, CHECK_ROW_MAJOR, SHAPE(1, 700), fill_normal, 3);
        c.in[2].shape[0] = 3, c.in[2].stride[0] = 0;
        check_case(&c);
    }
}

TEST(special_values)
{
    const float special[] = {NAN,    INFINITY, -INFINITY, 0.f,    -0.f,   FLT_MIN, -FLT_MIN, 1e-45f,     -1e-45f,
                             1e-40f, FLT_MAX,  -FLT_MAX,  1.f,    -1.f,   88.7f,   89.f,     104.f,      -87.3f,
                             -88.f,  -103.f,   -104.f,    -200.f, 1e-20f, 20.f,    20.5f,    3.f,        -3.f,
                             6.f,    0.5f,     1.5f,      2.5f,   -0.5f,  1e30f,   -1e30f,   16777217.f, 0.99999994f};
    const int n = (int)(sizeof special / sizeof special[0]);
    for (int op = 0; op < ELEMENTWISE_COUNT; op++) {
        /* Results near the ends of the range, and where terms cancel out, depend on the order of operations. */
        const char *name = elementwise[op].op->name;
        bool delicate = strstr(name, "backward") || !strcmp(name, "smooth_l1") || !strcmp(name, "huber") ||
                        !strcmp(name, "bce_with_logits") || strstr(name, "kl_div");
        if (elementwise[op].n_in > 2 || elementwise[op].kind == FILL || (elementwise[op].n_in == 2 && delicate) ||
            !strcmp(name, "mish") || !strcmp(name, "hardswish"))
            continue;
        kernel_case c = case_of(elementwise[op].op);
        for (int i = 0; i < elementwise[op].n_in; i++) {
            add_operand(&c, op, i, CHECK_ROW_MAJOR, SHAPE(n * n));
            for (int k = 0; k < n * n; k++) ((float *)c.in[i].data)[k] = special[i ? k / n : k % n];
        }
        add_attributes(&c, op);
        c.of_largest = 0;
        c.relative = 3e-6;
        check_case(&c);
    }
}

/* A float with random sign, exponent and mantissa within the range. */
static double fill_any(uint64_t *seed, double scale)
{
    double exponent = next_uniform(seed) * 2 - 1; /* 2^-40 ... 2^40, cut at scale */
    double x = ldexp(1 + next_uniform(seed), (int)(exponent * 40));
    if (x > scale) x = next_uniform(seed) * scale;
    return next_uniform(seed) < 0.5 ? -x : x;
}

static double fill_any_positive(uint64_t *seed, double scale)
{
    return ldexp(1 + next_uniform(seed), (int)(next_uniform(seed) * 270 - 145)) * (scale > 0);
}

TEST(accuracy_of_the_functions)
{
    const struct {
        const lc_op *op;
        fill_fn *fill;
        double scale, relative;
    } functions[] = {
        {&lc__op_exp, fill_any, 104, 3e-7},     {&lc__op_log, fill_any_positive, 1, 2e-7},
        {&lc__op_tanh, fill_any, 12, 5e-7},     {&lc__op_sigmoid, fill_any, 100, 5e-7},
        {&lc__op_erf, fill_any, 5, 5e-7},       {&lc__op_expm1, fill_any, 88, 4e-7},
        {&lc__op_log1p, fill_any, 0.999, 4e-7}, {&lc__op_log1p, fill_any_positive, 1, 4e-7},
        {&lc__op_softplus, fill_any, 20, 5e-7}, {&lc__op_logsigmoid, fill_any, 80, 5e-7},
        {&lc__op_silu, fill_any, 80, 5e-7},     {&lc__op_rsqrt, fill_any_positive, 1, 2e-7},
    };
    for (int f = 0; f < (int)(sizeof functions / sizeof functions[0]); f++) {
        kernel_case c = case_of(functions[f].op);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(200000), functions[f].fill, functions[f].scale);
        c.relative = functions[f].relative;
        c.of_largest = 0;
        check_case(&c);
    }
    /* Absolute accuracy, near and far. */
    const double scales[] = {4, 1000, 9e4, 3e5, 1e30};
    for (int s = 0; s < 5; s++) {
        for (int k = 0; k < 2; k++) {
            kernel_case c = case_of(k ? &lc__op_cos : &lc__op_sin);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(50000), fill_normal, scales[s]);
            c.relative = 2e-7;
            c.of_largest = 1e-7;
            check_case(&c);
        }
    }
}

/* ---- fused programs ---- */
static int fused_instruction(kernel_case *c, const lc_op *op, int float_index, int n_in, int a, int b, int d)
{
    int64_t *at = c->ints + 1 + c->ints[0] * LC_FUSED_INSTRUCTION_INTS;
    at[0] = LC_FUSED_OP(lc__elementwise_index(op), 0, 0);
    at[1] = n_in;
    at[2] = a;
    at[3] = b;
    at[4] = d;
    at[5] = float_index;
    return (int)c->ints[0]++;
}

static void fused_outputs(kernel_case *c, int n, const int *registers, const lc_dtype *dtypes, int ndim,
                          const int64_t *shape)
{
    int64_t *at = c->ints + 1 + c->ints[0] * LC_FUSED_INSTRUCTION_INTS;
    for (int i = 0; i < n; i++) {
        at[i] = registers[i];
        c->out_type[i] = (lc_type){.dtype = dtypes[i], .ndim = ndim};
        for (int d = 0; d < ndim; d++) c->out_type[i].shape[d] = shape[d];
    }
    c->n_out = n;
    c->n_int = (int)(at - c->ints) + n;
}

TEST(fused_program)
{
    const int64_t shapes[][4] = {{2, 3, 4, 5}, {1, 1, 1, 1}, {4, 33, 15, 9}, {3, 7, 50, 60}, {100, 10, 1, 1}};
    for (int s = 0; s < 5; s++) {
        for (int layout = 0; layout < 2; layout++) {
            kernel_case c = case_of(&lc__op_fused);
            c.out_layout = layout ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR;
            add_input(&c, LC_F32, c.out_layout, 4, shapes[s], fill_normal, 1); /* 0: x */
            lc_view *bias = add_input(&c, LC_F32, c.out_layout, 4, (int64_t[]){1, shapes[s][1], 1, 1}, fill_normal, 1);
            for (int d = 0; d < 4; d++) { /* 1: a value per channel */
                bias->shape[d] = shapes[s][d];
                if (d != 1) bias->stride[d] = 0;
            }
            lc_view *scalar = add_input(&c, LC_F32, c.out_layout, 4, (int64_t[]){1, 1, 1, 1}, fill_normal, 1);
            for (int d = 0; d < 4; d++) { /* 2 */
                scalar->shape[d] = shapes[s][d];
                scalar->stride[d] = 0;
            }
            add_input(&c, LC_BOOL, c.out_layout, 4, shapes[s], fill_whole, 2); /* 3: a mask */
            add_input(&c, LC_F32, c.out_layout, 4, shapes[s], fill_normal, 1); /* 4 */
            add_float(&c, 9);
            add_float(&c, 0.25);
            int in = 5;
            int a = in + fused_instruction(&c, &lc__op_add, -1, 2, 0, 1, -1);
            int b = in + fused_instruction(&c, &lc__op_mul, -1, 2, a, 2, -1);
            int t = in + fused_instruction(&c, &lc__op_tanh, -1, 1, b, -1, -1);
            int m = in + fused_instruction(&c, &lc__op_where, -1, 3, 3, t, a);
            int n = in + fused_instruction(&c, &lc__op_mul_scalar, 1, 1, m, -1, -1);
            int g = in + fused_instruction(&c, &lc__op_gt, -1, 2, n, 4, -1);
            int w = in + fused_instruction(&c, &lc__op_where, -1, 3, g, n, 4);
            (void)w;
            fused_outputs(&c, 4, (int[]){w, t, g, n}, (lc_dtype[]){LC_F32, LC_F32, LC_BOOL, LC_F32}, 4, shapes[s]);
            /* A comparison of nearly equal numbers may go either way: make them differ. */
            for (int64_t i = 0; i < view_numel(&c.in[4]); i++) ((float *)c.in[4].data)[i] += i & 1 ? 5.f : -5.f;
            check_case(&c);
        }
    }
}

/* The result may be in the place of an input that is read later in the program. */
TEST(fused_in_place)
{
    enum { N = 5000 };
    static float x[N], y[N], z[N];
    for (int form = 0; form < 2; form++) {
        kernel_case c = case_of(&lc__op_fused);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(N), fill_normal, 1);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(N), fill_normal, 1);
        memcpy(x, c.in[0].data, sizeof x);
        memcpy(y, c.in[1].data, sizeof y);
        int a = 2 + fused_instruction(&c, &lc__op_add, -1, 2, 0, 1, -1);
        int b = 2 + fused_instruction(&c, &lc__op_mul, -1, 2, a, 0, -1);
        fused_outputs(&c, 2, form ? (int[]){a, b} : (int[]){b, a}, (lc_dtype[]){LC_F32, LC_F32}, SHAPE(N));
        c.out[0] = c.in[form]; /* out[0] is in[form] */
        c.out[1] = dense_view(LC_F32, CHECK_ROW_MAJOR, SHAPE(N));
        c.out[1].data = z;
        lc_call call = call_of(&c, NULL, 2);
        const lc__isa *isa;
        CHECK_OK(lc__isa_choose(&isa));
        run_kernel(&c, lc__isa_kernel(isa, &call), 2);
        const float *sum = form ? c.out[0].data : z, *product = form ? z : c.out[0].data;
        for (int i = 0; i < N; i++) {
            CHECK(sum[i] == x[i] + y[i]);
            CHECK(product[i] == (x[i] + y[i]) * x[i]);
        }
        free(c.storage[0]);
        free(c.storage[1]);
    }
}

/* ---- reductions ---- */
static void check_reduction(const lc_op *op, check_layout layout, int ndim, const int64_t *shape, unsigned mask,
                            bool keepdim, bool may_lack)
{
    kernel_case c = case_of(op);
    c.out_layout = layout;
    c.may_lack = may_lack;
    c.relative = 1e-6;
    c.of_largest = 2e-6;
    add_input(&c, LC_F32, layout, ndim, shape, fill_normal, 1);
    float *x = c.in[0].data;
    for (int64_t i = 0; i < view_numel(&c.in[0]); i++) x[i] += 0.5f;
    add_int(&c, keepdim);
    add_int(&c, 0);
    for (int d = 0; d < ndim; d++) {
        if (!(mask >> d & 1)) continue;
        c.ints[1]++;
        add_int(&c, d);
    }
    check_case(&c);
}

TEST(reductions)
{
    const lc_op *ops[] = {&lc__op_sum, &lc__op_mean, &lc__op_amax, &lc__op_amin};
    const int64_t shapes[][4] = {{2, 3, 4, 5},    {1, 1, 1, 1},   {5, 33, 3, 7},
                                 {2, 16, 30, 31}, {64, 10, 1, 1}, {3, 600, 2, 2}};
    for (int o = 0; o < 4; o++) {
        for (int s = 0; s < 6; s++) {
            for (unsigned mask = 1; mask < 16; mask++) {
                for (int k = 0; k < 4; k++)
                    check_reduction(ops[o], k & 1 ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR, 4, shapes[s], mask, k >> 1,
                                    true);
            }
        }
        /* The patterns of training must have fast kernels. */
        check_reduction(ops[o], CHECK_ROW_MAJOR, SHAPE(100000), 1, false, false);
        check_reduction(ops[o], CHECK_ROW_MAJOR, SHAPE(3000, 130), 1, false, false);
        check_reduction(ops[o], CHECK_ROW_MAJOR, SHAPE(7, 3001), 1, false, false);
        check_reduction(ops[o], CHECK_ROW_MAJOR, SHAPE(70, 1999), 2, true, false);
        check_reduction(ops[o], CHECK_ROW_MAJOR, SHAPE(6, 130, 70), 2, true, false);
        check_reduction(ops[o], CHECK_CHANNELS_LAST, SHAPE(8, 32, 28, 28), 13, false, false);
        check_reduction(ops[o], CHECK_ROW_MAJOR, SHAPE(8, 32, 28, 28), 13, true, false);
        check_reduction(ops[o], CHECK_CHANNELS_LAST, SHAPE(8, 32, 7, 7), 12, true, false);
    }
}

TEST(extremes_of_nan)
{
    for (int place = 0; place < 40; place += 13) {
        for (unsigned mask = 1; mask < 4; mask++) {
            kernel_case c = case_of(&lc__op_amax);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(8, 5), fill_normal, 1);
            ((float *)c.in[0].data)[place] = NAN;
            ((float *)c.in[0].data)[0] = -INFINITY;
            add_int(&c, 0);
            add_int(&c, mask == 3 ? 2 : 1);
            add_int(&c, mask == 2 ? 1 : 0);
            if (mask == 3) add_int(&c, 1);
            check_case(&c);
        }
    }
}

/* ---- rows ---- */
TEST(softmax_and_its_relatives)
{
    const lc_op *ops[] = {&lc__op_softmax, &lc__op_log_softmax, &lc__op_softmax_backward, &lc__op_log_softmax_backward};
    const int64_t shapes[][2] = {{1, 1}, {3, 10}, {100, 10}, {7, 33}, {5, 1024}, {3, 5000}, {2, 50257}};
    for (int o = 0; o < 4; o++) {
        for (int s = 0; s < 7; s++) {
            kernel_case c = case_of(ops[o]);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, shapes[s], fill_normal, 4);
            if (o >= 2) {
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, shapes[s], fill_positive, 0.9);
                for (int64_t i = 0; o == 3 && i < view_numel(&c.in[1]); i++) ((float *)c.in[1].data)[i] -= 3;
            }
            add_int(&c, 1);
            check_case(&c);
        }
    }
    kernel_case c = case_of(&lc__op_softmax);
    add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(4, 20), fill_normal, 4);
    float *x = c.in[0].data;
    x[3] = INFINITY;
    x[25] = NAN;
    x[45] = -INFINITY;
    x[65] = 1e30f;
    add_int(&c, 1);
    check_case(&c);
}

/* ---- batch normalization ---- */
static void add_channels(kernel_case *c, int64_t channels, bool present)
{
    if (present)
        add_input(c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill_normal, 1);
    else
        add_missing(c);
}

static void check_batch_norm(int ndim, const int64_t *shape, bool affine, int64_t relu, double offset)
{
    const int64_t channels = shape[1];
    const lc_op *const ops[] = {&lc__op_batch_norm, &lc__op_batch_norm_inference, &lc__op_batch_norm_backward,
                                &lc__op_batch_norm_relu_backward};
    for (int which = 0; which < (relu ? 4 : 3); which++) {
        kernel_case c = case_of(ops[which]);
        c.out_layout = CHECK_CHANNELS_LAST;
        c.of_largest = 4e-6;
        if (which >= 2) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        float *x = c.in[c.n_in - 1].data;
        for (int64_t i = 0; i < view_numel(&c.in[c.n_in - 1]); i++) x[i] += (float)offset;
        add_channels(&c, channels, affine);
        add_channels(&c, channels, affine);
        if (which) {
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill_normal, 0.1);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill_positive, 1);
            for (int64_t i = 0; i < channels; i++) ((float *)c.in[c.n_in - 2].data)[i] += (float)offset;
        }
        add_int(&c, relu);
        add_float(&c, 1e-5);
        check_case(&c);
    }
}

TEST(gelu_again_with_its_gradient)
{
    const int64_t sizes[][2] = {{1, 1}, {3, 17}, {9, 1536}};
    for (int s = 0; s < 3; s++) {
        for (int64_t tanh = 0; tanh < 2; tanh++) {
            kernel_case c = case_of(&lc__op_gelu_backward_gelu);
            c.of_largest = 2e-6;
            for (int i = 0; i < 2; i++) add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, sizes[s], fill_normal, 2);
            add_int(&c, tanh);
            check_case(&c);
        }
    }
}

TEST(batch_normalization)
{
    const int64_t shapes[][4] = {{2, 3, 4, 5},  {2, 1, 3, 3},     {5, 16, 7, 7},
                                 {3, 33, 5, 6}, {16, 32, 14, 14}, {2, 300, 3, 3}};
    for (int s = 0; s < 6; s++) {
        for (int form = 0; form < 4; form++) check_batch_norm(4, shapes[s], form & 1, form >> 1, form ? 0 : 20);
    }
    check_batch_norm(SHAPE(64, 10), true, 1, 0);
    check_batch_norm(SHAPE(300, 600), true, 0, 3);
    check_batch_norm(SHAPE(7, 9, 11), true, 1, 0);
}

TEST(batch_normalization_with_pooling)
{
    const int64_t shapes[][4] = {{2, 3, 4, 6},    {2, 16, 7, 7}, {3, 33, 5, 8},
                                 {9, 32, 14, 14}, {2, 64, 2, 2}, {1, 1, 3, 2}};
    for (int s = 0; s < 6; s++) {
        for (int affine = 0; affine < 2; affine++) {
            const int64_t *shape = shapes[s];
            int64_t pooled[4] = {shape[0], shape[1], shape[2] / 2, shape[3] / 2};
            const int64_t window[9] = {2, 2, 2, 2, 0, 0, 1, 1, 0};
            kernel_case c = case_of(&lc__op_batch_norm_relu_pool);
            c.out_layout = CHECK_CHANNELS_LAST;
            add_input(&c, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
            add_channels(&c, shape[1], affine);
            add_channels(&c, shape[1], affine);
            for (int i = 0; i < 9; i++) add_int(&c, window[i]);
            add_float(&c, 1e-5);
            check_case(&c);

            kernel_case b = case_of(&lc__op_batch_norm_relu_pool_backward);
            b.out_layout = CHECK_CHANNELS_LAST;
            b.of_largest = 4e-6;
            add_input(&b, LC_F32, CHECK_CHANNELS_LAST, 4, pooled, fill_normal, 1);
            add_input(&b, LC_U8, CHECK_CHANNELS_LAST, 4, pooled, fill_whole, 4);
            add_input(&b, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
            add_channels(&b, shape[1], affine);
            add_channels(&b, shape[1], affine);
            add_input(&b, LC_F32, CHECK_ROW_MAJOR, 1, &shape[1], fill_normal, 0.1);
            add_input(&b, LC_F32, CHECK_ROW_MAJOR, 1, &shape[1], fill_positive, 1);
            for (int i = 0; i < 9; i++) add_int(&b, window[i]);
            add_float(&b, 1e-5);
            check_case(&b);
        }
    }
}

/* ---- pooling ---- */
static void check_max_pool(lc_dtype dtype, const int64_t *shape, const int64_t *window, bool nan)
{
    kernel_case c = case_in(dtype, &lc__op_max_pool2d);
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, dtype, CHECK_CHANNELS_LAST, 4, shape, fill_ties, 5);
    if (nan) {
        for (int i = 0; i < 5; i++) put_value(dtype, c.in[0].data, i * 3, (double)NAN);
    }
    for (int i = 0; i < 9; i++) add_int(&c, window[i]);
    c.relative = c.of_largest = 0;
    check_case(&c);

    lc_type pooled[2], x = {.dtype = dtype, .ndim = 4};
    memcpy(x.shape, shape, 4 * sizeof *shape);
    const lc_type *in[] = {&x};
    lc_infer infer = {
        .op = &lc__op_max_pool2d, .n_in = 1, .in = in, .n_int = 9, .ints = window, .n_out = 2, .out = pooled};
    CHECK_OK(lc__op_max_pool2d.infer(&infer));
    kernel_case b = case_in(dtype, &lc__op_max_pool2d_backward);
    b.out_layout = CHECK_CHANNELS_LAST;
    add_input(&b, dtype, CHECK_CHANNELS_LAST, 4, pooled[0].shape, fill_normal, 1);
    add_input(&b, LC_U8, CHECK_CHANNELS_LAST, 4, pooled[0].shape, fill_whole, (double)(window[0] * window[1]));
    for (int i = 0; i < 9; i++) add_int(&b, window[i]);
    add_int(&b, shape[2]);
    add_int(&b, shape[3]);
    check_case(&b);
}

static void check_average_pool(lc_dtype dtype, const int64_t *shape, const int64_t *window)
{
    kernel_case c = case_in(dtype, &lc__op_avg_pool2d);
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, dtype, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
    for (int i = 0; i < 9; i++) add_int(&c, window[i]);
    infer_outputs(&c);
    lc_type pooled = c.out_type[0];
    free(c.out[0].data);
    check_case(&c);
    kernel_case b = case_in(dtype, &lc__op_avg_pool2d_backward);
    b.out_layout = CHECK_CHANNELS_LAST;
    add_input(&b, dtype, CHECK_CHANNELS_LAST, 4, pooled.shape, fill_normal, 1);
    for (int i = 0; i < 9; i++) add_int(&b, window[i]);
    add_int(&b, shape[2]);
    add_int(&b, shape[3]);
    check_case(&b);
}

static void check_pooling(lc_dtype dtype)
{
    const int64_t shapes[][4] = {{2, 3, 7, 9}, {1, 16, 8, 8}, {3, 33, 12, 5}, {5, 32, 28, 28}};
    const int64_t maxima[][9] = {{2, 2, 2, 2, 0, 0, 1, 1, 0},
                                 {3, 3, 2, 2, 1, 1, 1, 1, 0},
                                 {3, 2, 1, 3, 1, 0, 2, 1, 1},
                                 {2, 2, 2, 2, 0, 0, 1, 1, 1}};
    const int64_t averages[][9] = {{2, 2, 2, 2, 0, 0, 0, 1, 0},
                                   {3, 3, 2, 2, 1, 1, 1, 1, 0},
                                   {3, 2, 2, 3, 1, 1, 1, 0, 0},
                                   {3, 3, 3, 3, 1, 1, 0, 1, 5}};
    for (int s = 0; s < 4; s++) {
        for (int w = 0; w < 4; w++) {
            check_max_pool(dtype, shapes[s], maxima[w], s == 1);
            check_average_pool(dtype, shapes[s], averages[w]);
        }
        const int64_t grids[][2] = {{1, 1}, {2, 3}, {5, 4}};
        for (int g = 0; g < 3; g++) {
            kernel_case c = case_in(dtype, &lc__op_adaptive_avg_pool2d);
            c.out_layout = CHECK_CHANNELS_LAST;
            add_input(&c, dtype, CHECK_CHANNELS_LAST, 4, shapes[s], fill_normal, 1);
            add_int(&c, grids[g][0]);
            add_int(&c, grids[g][1]);
            check_case(&c);
            kernel_case b = case_in(dtype, &lc__op_adaptive_avg_pool2d_backward);
            b.out_layout = CHECK_CHANNELS_LAST;
            const int64_t pooled[] = {shapes[s][0], shapes[s][1], grids[g][0], grids[g][1]};
            add_input(&b, dtype, CHECK_CHANNELS_LAST, 4, pooled, fill_normal, 1);
            add_int(&b, shapes[s][2]);
            add_int(&b, shapes[s][3]);
            check_case(&b);
        }
    }
}

TEST(pooling)
{
    check_pooling(LC_F32);
    check_pooling(LC_F64);
}

/* ---- prepare ---- */
static void check_nothing_is_kept(kernel_case *c, const lc_kernel *kernel)
{
    lc_call call = call_of(c, kernel, 2);
    CHECK(kernel->prepare(&call) < 0);
    CHECK(!call.state);
    free(c->out[0].data);
    for (int i = 0; i < c->n_in; i++) free(c->storage[i]);
}

/* The planner releases only calls that were prepared. The calls become wrong after their kernels were chosen. */
TEST(a_failed_prepare_keeps_nothing)
{
    const lc__isa *isa = &lc__isa_base;
    kernel_case program = case_of(&lc__op_fused);
    add_input(&program, LC_F32, CHECK_ROW_MAJOR, SHAPE(8), fill_normal, 1);
    fused_instruction(&program, &lc__op_tanh, -1, 1, 0, -1, -1);
    fused_outputs(&program, 1, (int[]){1}, (lc_dtype[]){LC_F32}, SHAPE(8));
    infer_outputs(&program);
    program.ints[1] = LC_FUSED_OP(lc__elementwise_count, 0, 0);
    check_nothing_is_kept(&program, lc__op_fused.kernel);

    kernel_case sum = case_of(&lc__op_sum);
    add_input(&sum, LC_F32, CHECK_ROW_MAJOR, SHAPE(8, 8), fill_normal, 1);
    add_int(&sum, false);
    add_int(&sum, 1); /* one dimension, which is: */
    add_int(&sum, 1);
    infer_outputs(&sum);
    lc_call call = call_of(&sum, NULL, 2);
    const lc_kernel *kernel = lc__isa_kernel(isa, &call);
    CHECK(kernel);
    sum.in[0].stride[1] = 2;
    check_nothing_is_kept(&sum, kernel);

    kernel_case product = case_of(&lc__op_matmul);
    for (int i = 0; i < 2; i++) add_input(&product, LC_F32, CHECK_ROW_MAJOR, SHAPE(16, 16), fill_normal, 1);
    infer_outputs(&product);
    call = call_of(&product, NULL, 2);
    kernel = lc__isa_kernel(isa, &call);
    CHECK(kernel);
    product.in[1].dtype = LC_F64;
    check_nothing_is_kept(&product, kernel);
}

TEST_MAIN
