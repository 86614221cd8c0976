/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's kernels with operands that are stored in 16 bits. */
#include "stored_check.h"

#include "ops/elementwise_table.h"
#include "optim/optim_internal.h"

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

TEST(every_elementwise_operator)
{
    const int64_t sizes[] = {1, 17, 1024, 5001};
    for (size_t op = 0; op < sizeof elementwise / sizeof elementwise[0]; op++) {
        const enum kind kind = elementwise[op].kind;
        if (kind == CAST) continue;
        for (int s = 0; s < 4; s++) {
            kernel_case c = case_of(elementwise[op].op);
            unsigned low = 0;
            for (int i = 0; i < elementwise[op].n_in; i++) {
                const bool condition = (kind == SELECT && i == 0) || (kind == FILL && i == 1);
                if (condition)
                    add_input(&c, LC_BOOL, CHECK_ROW_MAJOR, SHAPE(sizes[s]), fill_whole, 2);
                else
                    add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(sizes[s]), kind == COMPARE ? fill_ties : fill_normal,
                              3);
                low |= condition ? 0 : 1u << i;
            }
            const lc_op *o = elementwise[op].op;
            bool two = o == &lc__op_clamp || o == &lc__op_clamp_backward;
            if (two || o == &lc__op_gelu || o == &lc__op_gelu_backward) add_int(&c, 1);
            if (two) add_int(&c, 1);
            for (int i = 0; i < elementwise[op].n_float; i++) add_float(&c, i ? 1.27 : 0.77);
            check_stored(&c, low, kind != COMPARE);
        }
    }
}

TEST(gelu_again_with_its_gradient)
{
    for (int64_t form = 0; form < 2; form++) {
        kernel_case c = case_of(&lc__op_gelu_backward_gelu);
        for (int i = 0; i < 2; i++) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(9, 1537), fill_normal, 2);
        add_int(&c, form);
        check_stored(&c, 3, 3);
    }
}

/* ---- attention ---- */
typedef struct attention_case {
    int64_t batch, heads, s, sk, d, dv;
    bool causal, packed, masked;
    unsigned low; /* bits: q k v mask y or dy, dq dk dv */
} attention_case;

enum { Q = 1, K = 2, V = 4, MASK = 8, Y = 16, DQ = 32, DK = 64, DV = 128, ALL = 255 };

/* packed: the heads of a row are adjacent, as a single linear layer gives them. */
static void add_heads(kernel_case *c, const attention_case *a, int64_t rows, int64_t size)
{
    if (!a->packed) {
        add_input(c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a->batch, a->heads, rows, size), fill_normal, 1);
        return;
    }
    lc_view *v = add_input(c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a->batch, rows, a->heads, size + 5), fill_normal, 1);
    int64_t of_head = v->stride[2];
    v->stride[2] = v->stride[1];
    v->stride[1] = of_head;
    v->shape[1] = a->heads;
    v->shape[2] = rows;
    v->shape[3] = size;
}

static void check_attention(attention_case a)
{
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? &lc__op_sdpa_backward : &lc__op_sdpa);
        if (backward) add_heads(&c, &a, a.s, a.dv);
        add_heads(&c, &a, a.s, a.d);
        add_heads(&c, &a, a.sk, a.d);
        add_heads(&c, &a, a.sk, a.dv);
        if (a.masked)
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a.batch, 1, a.s, a.sk), fill_normal, 1);
        else
            add_missing(&c);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a.batch, a.heads, a.s, a.dv), fill_normal, 1);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a.batch, a.heads, a.s), fill_normal, 1);
        add_int(&c, a.causal);
        add_int(&c, 1);
        add_float(&c, 0.3);
        if (backward)
            check_stored(&c, (a.low & 15) << 1 | (a.low & Y ? 1 : 0), a.low / DQ);
        else
            check_stored(&c, a.low & 15, a.low & Y ? 1 : 0);
    }
}

TEST(attention)
{
    for (int form = 0; form < 8; form++) {
        bool causal = form & 1, packed = form & 2, masked = form & 4;
        check_attention((attention_case){1, 1, 1, 1, 1, 1, causal, packed, masked, ALL});
        check_attention((attention_case){2, 3, 5, 5, 8, 8, causal, packed, masked, ALL});
        check_attention((attention_case){1, 2, 70, 70, 64, 64, causal, packed, masked, ALL});
        check_attention((attention_case){1, 2, 130, 75, 20, 33, causal, packed, masked, ALL});
        check_attention((attention_case){2, 1, 37, 200, 128, 16, causal, packed, masked, ALL});
    }
    /* Some operands of 16 bits. */
    const unsigned low[] = {Q, K, V, MASK, Y, DQ, DK, DV, Q | K | V, ALL - MASK, Y | DQ | DK | DV};
    for (int i = 0; i < 11; i++) check_attention((attention_case){2, 2, 67, 80, 24, 17, true, true, true, low[i]});
}

/* ---- dropout and padding ---- */
TEST(dropout)
{
    const int64_t sizes[] = {1, 3, 255, 256, 257, 100003};
    for (int s = 0; s < 6; s++) {
        kernel_case c = case_of(&lc__op_dropout);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(sizes[s]), fill_normal, 1);
        add_int(&c, 12345);
        add_int(&c, 2);
        add_float(&c, 0.3);
        check_stored(&c, 1, 1);
    }
}

TEST(padding)
{
    const int64_t pads[][6] = {
        {0, 0, 0, 0, 3, 50}, {0, 0, 0, 0, 0, 7}, {1, 2, 0, 3, 4, 0}, {0, -1, -2, 3, -5, -6}, {0, 0, -9, -11, 0, 0}};
    for (int p = 0; p < 5; p++) {
        kernel_case c = case_of(&lc__op_pad);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(40, 20, 33), fill_normal, 1);
        for (int i = 0; i < 6; i++) add_int(&c, pads[p][i]);
        add_float(&c, 1.7);
        check_stored(&c, 1, 1);
    }
}

/* ---- batch normalization ---- */
static void add_channels(kernel_case *c, int64_t channels, fill_fn *fill, bool present)
{
    if (present)
        add_input(c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill, 1);
    else
        add_missing(c);
}

static void check_batch_norm(int ndim, const int64_t *shape, bool affine, int64_t relu)
{
    const lc_op *const ops[] = {&lc__op_batch_norm, &lc__op_batch_norm_inference, &lc__op_batch_norm_backward,
                                &lc__op_batch_norm_relu_backward};
    for (int which = 0; which < (relu ? 4 : 3); which++) {
        kernel_case c = case_of(ops[which]);
        c.out_layout = CHECK_CHANNELS_LAST;
        if (which >= 2) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_channels(&c, shape[1], fill_normal, affine);
        add_channels(&c, shape[1], fill_normal, affine);
        if (which) add_channels(&c, shape[1], fill_normal, true);
        if (which) add_channels(&c, shape[1], fill_positive, true);
        add_int(&c, relu);
        add_float(&c, 1e-5);
        check_stored(&c, which >= 2 ? 3 : 1, which == 3 ? 1 | 8 : 1);
    }
}

TEST(batch_normalization)
{
    const int64_t shapes[][4] = {{2, 3, 4, 5},  {2, 1, 3, 3},     {5, 16, 7, 7},
                                 {3, 33, 5, 6}, {16, 32, 14, 14}, {2, 300, 3, 3}};
    for (int s = 0; s < 6; s++)
        for (int form = 0; form < 4; form++) check_batch_norm(4, shapes[s], form & 1, form >> 1);
    check_batch_norm(SHAPE(64, 10), true, 1);
    check_batch_norm(SHAPE(300, 600), true, 0);
    check_batch_norm(SHAPE(7, 9, 11), true, 1);
}

static const int64_t pooled_shapes[][4] = {{2, 3, 4, 6},    {2, 16, 7, 7}, {3, 33, 5, 8},
                                           {9, 32, 14, 14}, {1, 1, 3, 2},  {2, 288, 13, 13}};
#define POOLED_FORMS ((int)(4 * sizeof pooled_shapes / sizeof *pooled_shapes))
static const int64_t by_two[9] = {2, 2, 2, 2, 0, 0, 1, 1, 0};

/* The same bits as a batch norm and a pooling of what it stores, ties among it too. */
static void check_normal_maxima(const int64_t *shape, bool affine, lc_dtype low, const lc__isa *isa)
{
    kernel_case both = case_of(&lc__op_batch_norm_relu_pool), norm, pool = case_of(&lc__op_max_pool2d);
    both.out_layout = pool.out_layout = CHECK_CHANNELS_LAST;
    add_input(&both, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
    add_channels(&both, shape[1], fill_normal, affine);
    add_channels(&both, shape[1], fill_normal, affine);
    add_float(&both, 1e-5);
    norm = both;
    norm.op = &lc__op_batch_norm;
    add_int(&norm, 1);
    for (int i = 0; i < 9; i++) add_int(&both, by_two[i]), add_int(&pool, by_two[i]);
    infer_outputs(&norm);
    pool.in[pool.n_in++] = norm.out[0];
    infer_outputs(&both);
    infer_outputs(&pool);
    lower_operand(&both.in[0], low);
    norm.in[0] = both.in[0];
    norm.out[0].dtype = pool.in[0].dtype = pool.out[0].dtype = both.out[0].dtype = low;
    run_kernel(&norm, kernel_for(&norm, isa), 1);
    run_kernel(&pool, kernel_for(&pool, isa), 1);
    for (int threads = 1; threads <= 2; threads++) {
        run_kernel(&both, kernel_for(&both, isa), threads);
        for (int k = 0; k < 2; k++)
            CHECK(!memcmp(both.out[k].data, pool.out[k].data,
                          (size_t)view_numel(&pool.out[k]) * lc_dtype_size(pool.out[k].dtype)));
    }
    for (int k = 0; k < both.n_out; k++) free(both.out[k].data);
    for (int k = 0; k < norm.n_out; k++) free(norm.out[k].data);
    for (int k = 0; k < pool.n_out; k++) free(pool.out[k].data);
    for (int i = 0; i < both.n_in; i++) free(both.storage[i]);
    free(both.in[0].data);
}

TEST(batch_normalization_with_pooling)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    for (int s = 0; s < 4; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        for (int form = 0; form < POOLED_FORMS && isa; form++)
            check_normal_maxima(pooled_shapes[form / 4], form & 1, form & 2 ? LC_F16 : LC_BF16, isa);
    }
}

/* The same bits as the gradients of a pooling and a batch norm with relu by themselves, also where dy is -0 for all of
 * a channel, and where a bias is NaN, so that no result is known to be 0. */
static void check_gradient_of_maxima(const int64_t *shape, bool affine, lc_dtype low, const lc__isa *isa)
{
    const int64_t pooled[4] = {shape[0], shape[1], shape[2] / 2, shape[3] / 2};
    kernel_case both = case_of(&lc__op_batch_norm_relu_pool_backward), pool = case_of(&lc__op_max_pool2d_backward);
    kernel_case norm = case_of(&lc__op_batch_norm_backward);
    both.out_layout = pool.out_layout = norm.out_layout = CHECK_CHANNELS_LAST;
    float *dy = add_input(&both, LC_F32, CHECK_CHANNELS_LAST, 4, pooled, fill_normal, 1)->data;
    for (int64_t i = 0; i < view_numel(&both.in[0]); i += shape[1]) dy[i] = -0.f;
    add_input(&both, LC_U8, CHECK_CHANNELS_LAST, 4, pooled, fill_whole, 4);
    add_input(&both, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
    add_channels(&both, shape[1], fill_normal, affine);
    add_channels(&both, shape[1], fill_normal, affine);
    if (affine) ((float *)both.in[4].data)[shape[1] - 1] = NAN;
    add_channels(&both, shape[1], fill_normal, true);
    add_channels(&both, shape[1], fill_positive, true);
    for (int i = 0; i < 9; i++) add_int(&both, by_two[i]), add_int(&pool, by_two[i]);
    for (int d = 2; d < 4; d++) add_int(&pool, shape[d]);
    add_int(&norm, 1);
    add_float(&both, 1e-5);
    add_float(&norm, 1e-5);
    memcpy(pool.in, both.in, 2 * sizeof *pool.in);
    memcpy(norm.in + 1, both.in + 2, 5 * sizeof *norm.in);
    pool.n_in = 2;
    norm.n_in = 6;
    infer_outputs(&both);
    infer_outputs(&pool);
    norm.in[0] = pool.out[0];
    infer_outputs(&norm);
    lower_operand(&both.in[0], low);
    lower_operand(&both.in[2], low);
    pool.in[0] = both.in[0];
    norm.in[1] = both.in[2];
    both.out[0].dtype = pool.out[0].dtype = norm.in[0].dtype = norm.out[0].dtype = low;
    run_kernel(&pool, kernel_for(&pool, isa), 1);
    run_kernel(&norm, kernel_for(&norm, isa), 1);
    for (int threads = 1; threads <= 3; threads++) {
        run_kernel(&both, kernel_for(&both, isa), threads);
        for (int k = 0; k < 3; k++)
            if (memcmp(both.out[k].data, norm.out[k].data,
                       (size_t)view_numel(&norm.out[k]) * lc_dtype_size(norm.out[k].dtype)))
                TEST_FAIL("%s of %s, %lld channels: result %d differs", isa->name, lc_dtype_name(low),
                          (long long)shape[1], k);
    }
    for (int k = 0; k < 3; k++) free(both.out[k].data), free(norm.out[k].data);
    free(pool.out[0].data);
    for (int i = 0; i < both.n_in; i++) free(both.storage[i]);
    free(both.in[0].data), free(both.in[2].data);
}

TEST(batch_normalization_with_pooling_backward)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    for (int s = 0; s < 4; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        for (int form = 0; form < POOLED_FORMS && isa; form++)
            check_gradient_of_maxima(pooled_shapes[form / 4], form & 1, form & 2 ? LC_F16 : LC_BF16, isa);
    }
}

/* A gradient does not pass where a result is so small that it is stored as 0. */
TEST(relu_after_batch_normalization_masks_what_was_rounded_to_0)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    const int64_t shape[4] = {2, 35, 2, 2}, channels = 35;
    for (int s = 0; s < 4; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        if (!isa) continue;
        kernel_case c = case_of(&lc__op_batch_norm_backward);
        c.out_layout = CHECK_CHANNELS_LAST;
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
        float *x = add_input(&c, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1)->data;
        add_missing(&c);
        float *bias = add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill_normal, 1)->data;
        float *mean = add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill_normal, 1)->data;
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &channels, fill_positive, 1);
        add_int(&c, 1);
        add_float(&c, 1e-5);
        for (int64_t i = 0; i < view_numel(&c.in[1]); i++) x[i] = 1;
        for (int64_t i = 0; i < channels; i++) mean[i] = 1, bias[i] = i % 2 ? 0x1p-25f : 0x1.8p-25f;
        infer_outputs(&c);
        lower_operand(&c.in[0], LC_F16);
        lower_operand(&c.in[1], LC_F16);
        c.out[0].dtype = LC_F16;
        run_kernel(&c, kernel_for(&c, isa), 1);
        const float *db = c.out[2].data;
        for (int64_t i = 0; i < channels; i++) CHECK((db[i] == 0) == (i % 2 == 1));
        for (int k = 0; k < 3; k++) free(c.out[k].data);
        for (int i = 0; i < c.n_in; i++) free(c.storage[i]);
        free(c.in[0].data), free(c.in[1].data);
    }
}

/* ---- pooling ---- */
/* An operator and its gradient. */
static void check_pool(const lc_op *op, const lc_op *gradient, const int64_t *shape, int n_int, const int64_t *ints,
                       bool indices)
{
    kernel_case c = case_of(op), b = case_of(gradient);
    c.out_layout = b.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_ties, 5);
    for (int i = 0; i < n_int; i++) add_int(&c, ints[i]), add_int(&b, ints[i]);
    if (op == &lc__op_adaptive_avg_pool2d) b.n_int = 0;
    infer_outputs(&c);
    add_input(&b, LC_F32, CHECK_CHANNELS_LAST, 4, c.out[0].shape, fill_normal, 1);
    if (indices) add_input(&b, LC_U8, CHECK_CHANNELS_LAST, 4, c.out[0].shape, fill_whole, (double)(ints[0] * ints[1]));
    for (int d = 2; d < 4; d++) add_int(&b, shape[d]);
    for (int k = 0; k < c.n_out; k++) free(c.out[k].data); /* made again */
    check_stored(&c, 1, 1);
    check_stored(&b, 1, 1);
}

TEST(pooling)
{
    const int64_t shapes[][4] = {{2, 3, 8, 9}, {3, 16, 7, 7}, {2, 37, 5, 12}};
    const int64_t maxima[][9] = {{2, 2, 2, 2, 0, 0, 1, 1, 0}, {3, 3, 2, 2, 1, 1, 1, 1, 0}, {3, 2, 1, 1, 1, 0, 1, 2, 0}};
    const int64_t means[][9] = {{2, 2, 2, 2, 0, 0, 0, 1, 0}, {3, 3, 1, 1, 1, 1, 0, 0, 0}, {3, 2, 2, 1, 1, 1, 1, 1, 5}};
    for (int s = 0; s < 3; s++) {
        for (int w = 0; w < 3; w++) {
            check_pool(&lc__op_max_pool2d, &lc__op_max_pool2d_backward, shapes[s], 9, maxima[w], true);
            check_pool(&lc__op_avg_pool2d, &lc__op_avg_pool2d_backward, shapes[s], 9, means[w], false);
        }
        const int64_t sizes[][2] = {{1, 1}, {3, 2}};
        for (int w = 0; w < 2; w++)
            check_pool(&lc__op_adaptive_avg_pool2d, &lc__op_adaptive_avg_pool2d_backward, shapes[s], 2, sizes[w],
                       false);
    }
}

/* ---- rows ---- */
static void check_row_norm(int ndim, const int64_t *shape, int dims, bool affine, bool rms)
{
    const int first = ndim - dims;
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? (rms ? &lc__op_rms_norm_backward : &lc__op_layer_norm_backward)
                                         : (rms ? &lc__op_rms_norm : &lc__op_layer_norm));
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim, shape, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim, shape, fill_normal, 1);
        for (int k = 0; k < (backward || rms ? 1 : 2); k++) {
            if (affine)
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, dims, shape + first, fill_normal, 1);
            else
                add_missing(&c);
        }
        if (backward && !rms) add_input(&c, LC_F32, CHECK_ROW_MAJOR, first, shape, fill_normal, 0.1);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, first, shape, fill_positive, 1);
        add_int(&c, dims);
        if (!backward) add_float(&c, 1e-5);
        check_stored(&c, backward ? 3 : 1, 1);
    }
}

TEST(row_normalization)
{
    for (int form = 0; form < 4; form++) {
        bool affine = form & 1, rms = form >> 1;
        check_row_norm(SHAPE(3, 10), 1, affine, rms);
        check_row_norm(SHAPE(5, 1), 1, affine, rms);
        check_row_norm(SHAPE(4, 31, 129), 1, affine, rms);
        check_row_norm(SHAPE(2, 3, 20, 70), 2, affine, rms);
        check_row_norm(SHAPE(300, 64), 1, affine, rms);
        check_row_norm(SHAPE(2, 5000), 1, affine, rms);
    }
}

static void check_group_norm(int ndim, const int64_t *shape, int64_t groups, bool affine)
{
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? &lc__op_group_norm_backward : &lc__op_group_norm);
        c.out_layout = CHECK_CHANNELS_LAST;
        if (backward) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        for (int k = 0; k < (backward ? 1 : 2); k++) add_channels(&c, shape[1], fill_normal, affine);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(shape[0], groups), fill_normal, 0.1);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(shape[0], groups), fill_positive, 1);
        add_int(&c, groups);
        if (!backward) add_float(&c, 1e-5);
        check_stored(&c, backward ? 3 : 1, 1);
    }
}

TEST(group_normalization)
{
    for (int affine = 0; affine < 2; affine++) {
        check_group_norm(SHAPE(2, 6, 5, 7), 3, affine);
        check_group_norm(SHAPE(3, 64, 9, 9), 8, affine);
        check_group_norm(SHAPE(1, 33, 40, 3), 1, affine);
        check_group_norm(SHAPE(5, 24), 4, affine);
    }
}

TEST(softmax)
{
    const lc_op *const ops[] = {&lc__op_softmax, &lc__op_log_softmax, &lc__op_softmax_backward,
                                &lc__op_log_softmax_backward};
    const int64_t shapes[][2] = {{1, 1}, {5, 10}, {7, 1000}, {3, 2500}, {100, 33}};
    for (int o = 0; o < 4; o++) {
        for (int s = 0; s < 5; s++) {
            for (unsigned low = 1; low < 8; low++) {
                kernel_case c = case_of(ops[o]);
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, shapes[s], fill_normal, 4);
                if (o > 1) add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, shapes[s], fill_normal, 1);
                add_int(&c, 1);
                check_stored(&c, low >> 1, low & 1);
            }
        }
    }
}

static void check_cross_entropy(int ndim, const int64_t *shape, int reduction, double smoothing, bool weighted)
{
    const int64_t places[] = {shape[0], ndim > 2 ? shape[2] : 0};
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? &lc__op_cross_entropy_backward : &lc__op_cross_entropy);
        c.out_layout = CHECK_CHANNELS_LAST;
        if (backward && reduction == LC_REDUCE_NONE)
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim - 1, places, fill_normal, 1);
        else if (backward)
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, 0, NULL, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 3);
        add_input(&c, LC_I64, CHECK_ROW_MAJOR, ndim - 1, places, fill_whole, (double)shape[1]);
        add_channels(&c, shape[1], fill_positive, weighted);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim - 1, places, fill_positive, 9);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, 0, NULL, fill_positive, 9);
        add_int(&c, 2);
        add_int(&c, reduction);
        add_float(&c, smoothing);
        check_stored(&c, backward ? 2 : 1, backward);
    }
}

TEST(cross_entropy)
{
    for (int form = 0; form < 12; form++) {
        check_cross_entropy(SHAPE(1, 3), form % 3, form & 2 ? 0.1 : 0, form >= 6);
        check_cross_entropy(SHAPE(9, 1001), form % 3, form & 2 ? 0.1 : 0, form >= 6);
        check_cross_entropy(SHAPE(3, 20, 9), form % 3, form & 2 ? 0.1 : 0, form >= 6);
    }
}

/* ---- tables ---- */
TEST(embedding)
{
    const int64_t sizes[] = {1, 16, 100, 768};
    for (int s = 0; s < 4; s++) {
        for (unsigned low = 1; low < 4; low++) {
            kernel_case c = case_of(&lc__op_embedding);
            add_input(&c, LC_I64, CHECK_ROW_MAJOR, SHAPE(4, 60), fill_whole, 31);
            put_value(LC_I64, c.in[0].data, 3, 500);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(31, sizes[s]), fill_normal, 1);
            add_int(&c, -1);
            check_stored(&c, low & 2, low & 1);
        }
        kernel_case b = case_of(&lc__op_embedding_backward);
        add_input(&b, LC_F32, CHECK_ROW_MAJOR, SHAPE(4, 60, sizes[s]), fill_normal, 1);
        add_input(&b, LC_I64, CHECK_ROW_MAJOR, SHAPE(4, 60), fill_whole, 31);
        add_int(&b, 31);
        add_int(&b, 7);
        check_stored(&b, 1, 0);
    }
}

/* ---- reductions ---- */
static void check_reduction(const lc_op *op, int ndim, const int64_t *shape, unsigned mask, unsigned low)
{
    kernel_case c = case_of(op);
    add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim, shape, fill_normal, 1);
    add_int(&c, 1);
    add_int(&c, 0);
    for (int d = 0; d < ndim; d++) {
        if (!(mask >> d & 1)) continue;
        c.ints[1]++;
        add_int(&c, d);
    }
    check_stored(&c, low >> 1, low & 1);
}

TEST(reductions)
{
    const lc_op *const ops[] = {&lc__op_sum, &lc__op_mean, &lc__op_amax, &lc__op_amin};
    for (int o = 0; o < 4; o++) {
        for (unsigned low = 1; low < 4; low++) {
            check_reduction(ops[o], SHAPE(1), 1, low);
            check_reduction(ops[o], SHAPE(100000), 1, low);
            check_reduction(ops[o], SHAPE(3000, 130), 1, low);
            check_reduction(ops[o], SHAPE(7, 3001), 1, low);
            check_reduction(ops[o], SHAPE(70, 1999), 2, low);
            check_reduction(ops[o], SHAPE(6, 131, 70), 2, low);
            check_reduction(ops[o], SHAPE(8, 32, 28, 28), 13, low);
        }
    }
}

/* ---- updates ---- */
static const struct {
    const lc_op *op;
    int n_state;
} updates[] = {
#define ROW(name, n) {&lc__op_update_##name, n},
    LC_UPDATE_LIST(ROW)
#undef ROW
};

enum { UPDATE_SIZE = 12000, SEGMENTS = 3, UPDATES = sizeof updates / sizeof updates[0] };

/* Master weights of which some have not been made, or are of parameters that something else has written. */
static void fill_master(const lc_view *parameters, lc_view *master)
{
    for (int64_t i = 0; i < UPDATE_SIZE; i++) {
        double near = lc__number_at(parameters->data, parameters->dtype, i) * (1 + 1e-4 * (double)(i % 5 - 2));
        ((float *)master->data)[i] = i % 7 ? (float)near : 0;
    }
}

/* A case whose operands are those of every other of this form: f16 or bf16, master weights, other flags. */
static kernel_case update_case(int k, int form)
{
    const double hyper[LC_MAX_HYPER] = {0.01, 0.02, 0.9, 0.99, 1e-8, 0.004, 1e-6, 50};
    const int64_t flags = form & 4 ? LC_OPT_MAXIMIZE | LC_OPT_NESTEROV | LC_OPT_DECOUPLED_WEIGHT_DECAY : 0;
    const int64_t scalar_state = updates[k].op == &lc__op_update_nadam ? 1 << 2 : 0;
    const int64_t ints[] = {SEGMENTS, 0, flags, scalar_state, 0, 0, 1000, 0, 0, 0, 1024, 9001,
                            1,        0, 0,     10500,        7, 2, 0,    0};
    kernel_case c = case_of(updates[k].op);
    for (int i = 0; i < 2; i++)
        add_input(&c, form & 1 ? LC_F16 : LC_BF16, CHECK_ROW_MAJOR, SHAPE(UPDATE_SIZE), fill_normal, 1);
    for (int i = 0; i < updates[k].n_state; i++)
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(UPDATE_SIZE), fill_positive, 0.5);
    add_input(&c, LC_F64, CHECK_ROW_MAJOR, SHAPE(SEGMENTS), fill_whole, form & 4 ? 1 : 9);
    add_input(&c, LC_F32, CHECK_ROW_MAJOR, 0, NULL, fill_positive, 1);
    if (form & 2)
        fill_master(&c.in[0], add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(UPDATE_SIZE), fill_normal, 1));
    else
        add_missing(&c);
    add_missing(&c); /* low copies */
    memcpy(c.ints, ints, sizeof ints);
    c.n_int = sizeof ints / sizeof ints[0];
    memcpy(c.floats, hyper, sizeof hyper);
    c.n_float = LC_MAX_HYPER;
    return c;
}

/* Within `rounding` for numbers of 16 bits; else within the f32 kernels' tolerance. */
static void compare_updates(const kernel_case *got, const kernel_case *want, double rounding, const char *who)
{
    for (int k = 0; k < got->n_in; k++) {
        const lc_view *a = &got->in[k], *b = &want->in[k];
        const double tolerance = lc_dtype_size(a->dtype) == 2 ? rounding : 2e-6;
        for (int64_t i = 0; i < (a->ndim < 0 ? 0 : view_numel(a)); i++) {
            double x = lc__number_at(a->data, a->dtype, i), y = lc__number_at(b->data, b->dtype, i);
            if (!(isnan(x) && isnan(y)) && !(fabs(x - y) <= tolerance * (1 + fabs(y))))
                TEST_FAIL("%s of %s: input %d at %lld is %.9g, wanted %.9g", who, got->op->name, k, (long long)i, x, y);
        }
    }
}

static void free_case(kernel_case *c)
{
    for (int i = 0; i < c->n_in; i++) free(c->storage[i]);
}

static void check_update(int k, int form)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    kernel_case want = update_case(k, form);
    run_kernel(&want, want.op->kernel, 1);
    for (int s = 0; s < 3; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        if (!isa) continue;
        kernel_case one = update_case(k, form), two = update_case(k, form);
        const lc_kernel *kernel = kernel_for(&one, isa);
        run_kernel(&one, kernel, 1);
        run_kernel(&two, kernel, 2);
        compare_updates(&one, &want, form & 1 ? 1e-3 : 8e-3, kernel->name);
        for (int i = 0; i < one.n_in; i++)
            if (one.in[i].ndim >= 0)
                CHECK(!memcmp(one.in[i].data, two.in[i].data,
                              (size_t)view_numel(&one.in[i]) * lc_dtype_size(one.in[i].dtype)));
        free_case(&one), free_case(&two);
    }
    free_case(&want);
}

TEST(updates)
{
    for (int k = 0; k < UPDATES; k++)
        for (int form = 0; form < 8; form++) check_update(k, form);
}

TEST_MAIN
