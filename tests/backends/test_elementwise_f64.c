/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators in f64, single and fused, against the reference kernels: every operator, layout and size,
 * broadcast operands, special values, and the accuracy of the functions. */
#include "kernel_check.h"

#include "ops/fused.h"

#include <float.h>

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

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

static void add_operand(kernel_case *c, int op, int i, check_layout layout, int ndim, const int64_t *shape)
{
    enum kind kind = elementwise[op].kind;
    bool truth = (kind == SELECT && i == 0) || (kind == FILL && i == 1);
    add_input(c, truth ? LC_BOOL : LC_F64, layout, ndim, shape,
              truth             ? fill_whole
              : kind == COMPARE ? fill_ties
                                : fill_normal,
              truth             ? 2
              : kind == COMPARE ? 5
                                : 3);
}

static void add_attributes(kernel_case *c, int op, int form)
{
    const lc_op *o = elementwise[op].op;
    if (elementwise[op].kind == CAST) add_int(c, form ? LC_F32 : LC_BOOL);
    bool one = o == &lc__op_gelu || o == &lc__op_gelu_backward;
    bool two = o == &lc__op_clamp || o == &lc__op_clamp_backward;
    if (one || two) add_int(c, form & 1);
    if (two) add_int(c, 1);
    for (int i = 0; i < elementwise[op].n_float; i++) add_float(c, i ? 1.25 : 0.75);
}

TEST(every_operator)
{
    const int64_t sizes[] = {1, 2, 17, 511, 512, 513, 40000};
    for (int op = 0; op < ELEMENTWISE_COUNT; op++) {
        for (int s = 0; s < 7; s++) {
            kernel_case c = case_f64(elementwise[op].op, 4e-15);
            for (int i = 0; i < elementwise[op].n_in; i++) add_operand(&c, op, i, CHECK_ROW_MAJOR, SHAPE(sizes[s]));
            add_attributes(&c, op, s);
            c.of_largest = 1;
            check_case(&c);
        }
    }
}

/* The output's dimensions that operands 0, 1 and 2 have; the others are 1 and broadcast. */
static void check_broadcast(const lc_op *o, check_layout layout, const int64_t *shape, const unsigned *has)
{
    kernel_case c = case_f64(o, 4e-15);
    int op = lc__elementwise_index(o);
    c.out_layout = layout;
    for (int i = 0; i < elementwise[op].n_in; i++) {
        int64_t own[4];
        for (int d = 0; d < 4; d++) own[d] = has[i] >> d & 1 ? shape[d] : 1;
        add_operand(&c, op, i, layout, 4, own);
        for (int d = 0; d < 4; d++) {
            if (own[d] == shape[d]) continue;
            c.in[i].shape[d] = shape[d]; /* as the planner expands it */
            c.in[i].stride[d] = 0;
        }
    }
    add_attributes(&c, op, 1);
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
        for (int s = 0; s < 8; s++) {
            for (int p = 0; p < 9; p++) {
                check_broadcast(ops[o], CHECK_ROW_MAJOR, shapes[s], patterns[p]);
                check_broadcast(ops[o], CHECK_CHANNELS_LAST, shapes[s], patterns[p]);
            }
        }
    }
}

TEST(casts)
{
    const lc_dtype from[] = {LC_F64, LC_F32, LC_BOOL, LC_U8, LC_I32, LC_I64};
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 3; k++) {
            kernel_case c = case_of(&lc__op_cast);
            lc_dtype to = k == 0 ? LC_F64 : k == 1 ? LC_F32 : LC_BOOL;
            if (to != LC_F64 && from[i] != LC_F64) continue;
            add_input(&c, from[i], CHECK_CHANNELS_LAST, SHAPE(3, 5, 7, 31), fill_whole,
                      from[i] == LC_BOOL ? 2
                      : from[i] == LC_U8 ? 256
                                         : 2e9);
            add_int(&c, to);
            c.out_layout = CHECK_CHANNELS_LAST;
            c.relative = c.of_largest = 0;
            check_case(&c);
        }
    }
}

TEST(special_values)
{
    const double special[] = {NAN,    INFINITY, -INFINITY, 0.,       -0.,    DBL_MIN, -DBL_MIN, 5e-324, -5e-324,
                              1e-310, 1e-17,    DBL_MAX,   -DBL_MAX, 1.,     -1.,     709.7,    709.8,  745.,
                              -708.3, -709.,    -744.,     -745.,    -745.2, -2000.,  1e-20,    20.,    20.5,
                              3.,     -3.,      6.,        0.5,      1.5,    2.5,     -0.5,     1e200,  -1e200,
                              1e17,   22.,      -36.,      -41.,     5.9999, 6.0001,  -27.};
    const int n = (int)(sizeof special / sizeof special[0]);
    for (int op = 0; op < ELEMENTWISE_COUNT; op++) {
        /* Results near the ends of the range, and where terms cancel out, depend on the order of operations. */
        const char *name = elementwise[op].op->name;
        bool delicate = strstr(name, "backward") || !strcmp(name, "smooth_l1") || !strcmp(name, "huber") ||
                        !strcmp(name, "bce_with_logits") || strstr(name, "kl_div");
        if (elementwise[op].n_in > 2 || elementwise[op].kind == FILL || (elementwise[op].n_in == 2 && delicate) ||
            !strcmp(name, "mish") || !strcmp(name, "hardswish") || !strcmp(name, "gelu"))
            continue;
        kernel_case c = case_f64(elementwise[op].op, 4e-15);
        for (int i = 0; i < elementwise[op].n_in; i++) {
            add_operand(&c, op, i, CHECK_ROW_MAJOR, SHAPE(n * n));
            for (int k = 0; k < n * n; k++) ((double *)c.in[i].data)[k] = special[i ? k / n : k % n];
        }
        add_attributes(&c, op, 1);
        c.of_largest = c.relative = 0;
        check_case(&c);
    }
}

/* A number with random sign, exponent and mantissa within the range. */
static double fill_any(uint64_t *seed, double scale)
{
    double exponent = next_uniform(seed) * 2 - 1; /* 2^-60 ... 2^60, cut at scale */
    double x = ldexp(1 + next_uniform(seed), (int)(exponent * 60));
    if (x > scale) x = next_uniform(seed) * scale;
    return next_uniform(seed) < 0.5 ? -x : x;
}

static double fill_any_positive(uint64_t *seed, double scale)
{
    return ldexp(1 + next_uniform(seed), (int)(next_uniform(seed) * 2090 - 1070)) * (scale > 0);
}

TEST(accuracy_of_the_functions)
{
    const struct {
        const lc_op *op;
        fill_fn *fill;
        double scale, relative;
    } functions[] = {
        {&lc__op_exp, fill_any, 745, 4e-16},     {&lc__op_log, fill_any_positive, 1, 4e-16},
        {&lc__op_tanh, fill_any, 24, 1e-15},     {&lc__op_sigmoid, fill_any, 700, 1e-15},
        {&lc__op_erf, fill_any, 7, 6e-16},       {&lc__op_expm1, fill_any, 700, 8e-16},
        {&lc__op_log1p, fill_any, 0.999, 8e-16}, {&lc__op_log1p, fill_any_positive, 1, 8e-16},
        {&lc__op_softplus, fill_any, 20, 1e-15}, {&lc__op_logsigmoid, fill_any, 700, 1e-15},
        {&lc__op_silu, fill_any, 700, 1e-15},    {&lc__op_rsqrt, fill_any_positive, 1, 4e-16},
    };
    for (int f = 0; f < (int)(sizeof functions / sizeof functions[0]); f++) {
        kernel_case c = case_of(functions[f].op);
        add_input(&c, LC_F64, CHECK_ROW_MAJOR, SHAPE(200000), functions[f].fill, functions[f].scale);
        c.f64 = functions[f].relative;
        c.of_largest = 0;
        check_case(&c);
    }
    for (int form = 0; form < 4; form++) {
        kernel_case c = case_of(form & 2 ? &lc__op_gelu_backward : &lc__op_gelu);
        for (int i = 0; i <= form / 2; i++) add_input(&c, LC_F64, CHECK_ROW_MAJOR, SHAPE(200000), fill_normal, 3);
        add_int(&c, form & 1);
        c.f64 = form & 2 ? 1e-14 : 1e-15; /* the reference subtracts numbers near 1 */
        c.of_largest = 1;
        check_case(&c);
    }
}

/* ---- fused programs ---- */
static int instruction(kernel_case *c, const lc_op *op, int float_index, int n_in, int a, int b, int d)
{
    int64_t *at = c->ints + 1 + c->ints[0] * LC_FUSED_INSTRUCTION_INTS;
    const int64_t code[] = {
        LC_FUSED_OP(lc__elementwise_index(op), op == &lc__op_cast ? LC_F32 : 0, 0), n_in, a, b, d, float_index};
    memcpy(at, code, sizeof code);
    return (int)c->ints[0]++;
}

/* Results in the middle of the program, of other types, and only the last one. */
TEST(fused_program)
{
    for (int way = 0; way < 4; way++) {
        kernel_case c = case_f64(&lc__op_fused, 4e-15);
        const int64_t shape[] = {5, 6, 7, 9}, vector[] = {1, 6, 1, 1};
        c.out_layout = way & 1 ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR;
        add_input(&c, LC_F64, c.out_layout, 4, shape, fill_normal, 1);
        lc_view *v = add_input(&c, LC_F64, CHECK_ROW_MAJOR, 4, vector, fill_normal, 1);
        for (int d = 0; d < 4; d++) v->stride[d] = d == 1, v->shape[d] = shape[d];
        add_float(&c, 0.5);
        add_float(&c, 2.0);
        instruction(&c, &lc__op_mul, -1, 2, 0, 1, -1);        /* 2 */
        instruction(&c, &lc__op_add_scalar, 1, 1, 2, -1, -1); /* 3 */
        instruction(&c, &lc__op_gt, -1, 2, 3, 0, -1);         /* 4 */
        instruction(&c, &lc__op_where, -1, 3, 4, 3, 0);       /* 5 */
        instruction(&c, &lc__op_cast, -1, 1, 5, -1, -1);      /* 6 */
        instruction(&c, &lc__op_gelu, -1, 1, 5, -1, -1);      /* 7 */
        const int out[] = {7, 3, 6, 4};
        const lc_dtype dtypes[] = {LC_F64, LC_F64, LC_F32, LC_BOOL};
        c.n_out = way & 2 ? 4 : 1;
        c.n_int = 1 + 6 * LC_FUSED_INSTRUCTION_INTS;
        for (int i = 0; i < c.n_out; i++) {
            c.ints[c.n_int++] = out[i];
            c.out_type[i] = (lc_type){.dtype = dtypes[i], .ndim = 4, .shape = {5, 6, 7, 9}};
        }
        check_case(&c);
    }
}

TEST_MAIN
