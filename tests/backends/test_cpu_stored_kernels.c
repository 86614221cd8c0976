/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's kernels with operands that are stored in 16 bits. */
#include "stored_check.h"

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
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
    const lc_op *const ops[] = {&lc__op_batch_norm, &lc__op_batch_norm_inference, &lc__op_batch_norm_backward};
    for (int which = 0; which < 3; which++) {
        kernel_case c = case_of(ops[which]);
        c.out_layout = CHECK_CHANNELS_LAST;
        if (which == 2) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_channels(&c, shape[1], fill_normal, affine);
        add_channels(&c, shape[1], fill_normal, affine);
        if (which) add_channels(&c, shape[1], fill_normal, true);
        if (which) add_channels(&c, shape[1], fill_positive, true);
        add_int(&c, relu);
        add_float(&c, 1e-5);
        check_stored(&c, which == 2 ? 3 : 1, 1);
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

TEST(batch_normalization_with_pooling)
{
    const int64_t shapes[][4] = {{2, 3, 4, 6}, {2, 16, 7, 7}, {3, 33, 5, 8}, {9, 32, 14, 14}, {1, 1, 3, 2}};
    const int64_t window[9] = {2, 2, 2, 2, 0, 0, 1, 1, 0};
    for (int form = 0; form < 10; form++) {
        const int64_t *shape = shapes[form / 2], pooled[4] = {shape[0], shape[1], shape[2] / 2, shape[3] / 2};
        for (int backward = 0; backward < 2; backward++) {
            kernel_case c = case_of(backward ? &lc__op_batch_norm_relu_pool_backward : &lc__op_batch_norm_relu_pool);
            c.out_layout = CHECK_CHANNELS_LAST;
            if (backward) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, 4, pooled, fill_normal, 1);
            if (backward) add_input(&c, LC_U8, CHECK_CHANNELS_LAST, 4, pooled, fill_whole, 4);
            add_input(&c, LC_F32, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
            add_channels(&c, shape[1], fill_normal, form & 1);
            add_channels(&c, shape[1], fill_normal, form & 1);
            if (backward) add_channels(&c, shape[1], fill_normal, true);
            if (backward) add_channels(&c, shape[1], fill_positive, true);
            for (int i = 0; i < 9; i++) add_int(&c, window[i]);
            add_float(&c, 1e-5);
            check_stored(&c, backward ? 5 : 1, 1);
        }
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

TEST_MAIN
