/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients at the edges of operators' domains, and refused arguments: as in PyTorch 2.15. */
#include "test.h"

#include <lightc/lightc.h>

static lc_tensor *tensor(int ndim, const int64_t *shape, const float *values, bool grad)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    CHECK_OK(lc_tensor_write(t, values, (size_t)lc_tensor_numel(t) * sizeof *values));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

#define V(grad, ...)                                                                                                   \
    tensor(1, (int64_t[]){sizeof((float[]){__VA_ARGS__}) / sizeof(float)}, (float[]){__VA_ARGS__}, grad)

/* ---- gradients ---- */

typedef lc_tensor *function(lc_tensor *x);

/* The gradient of sum(f(x)), planned and unplanned, by the fast and the reference kernels. */
static void check_gradient(const char *name, function *f, int n, const float *x, const float *want)
{
    for (int way = 0; way < 4; way++) {
        lc_graph *g;
        float got[64];
        setenv("LIGHTC_PLAN", way % 2 ? "off" : "on", 1);
        setenv("LIGHTC_KERNELS", way / 2 ? "reference" : "fast", 1);
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        lc_tensor *t = tensor(1, (int64_t[]){n}, x, true);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_backward(lc_sum(f(t)));
        lc_tensor *d = lc_keep(lc_gradient(t));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(d, got, (size_t)n * sizeof *got));
        for (int i = 0; i < n; i++)
            if (!(fabsf(got[i] - want[i]) < 1e-4f) && !(isnan(got[i]) && isnan(want[i])))
                TEST_FAIL("%s, way %d: gradient %d is %g, not %g", name, way, i, (double)got[i], (double)want[i]);
        lc_tensor_unref(t);
        lc_graph_free(g);
    }
    unsetenv("LIGHTC_PLAN");
    unsetenv("LIGHTC_KERNELS");
}

static lc_tensor *std_of(lc_tensor *x)
{
    return lc_std(x);
}
static lc_tensor *std_half(lc_tensor *x)
{
    return lc_std(x, .correction = 0.5);
}
static lc_tensor *std_population(lc_tensor *x)
{
    return lc_std(x, .correction = 0);
}
static lc_tensor *norm_half(lc_tensor *x)
{
    return lc_norm(x, .p = 0.5);
}
static lc_tensor *norm_one_and_half(lc_tensor *x)
{
    return lc_norm(x, .p = 1.5);
}
static lc_tensor *norm_minus_one(lc_tensor *x)
{
    return lc_norm(x, .p = -1);
}
static lc_tensor *xlogy_other(lc_tensor *y)
{
    lc_tensor *used = lc_gt(y, lc_scalar(0.5, LC_F32));
    return lc_where(used, lc_xlogy(lc_full(2, LC_F32, 3), y), lc_full(0, LC_F32, 3));
}
/* Norms below eps, and one vector that is repeated along the dimension. */
static lc_tensor *cosine_of_short(lc_tensor *x)
{
    return lc_cosine_similarity(x, lc_full(0.5, LC_F32, 3), 0, .eps = 2);
}
static lc_tensor *cosine_of_repeated(lc_tensor *x)
{
    return lc_cosine_similarity(x, lc_arange(1, 1, 3, LC_F32), 0, .eps = 5);
}
/* The incoming gradient is zero, and ln(y) is not a number. */
static lc_tensor *xlogy_first(lc_tensor *x)
{
    lc_tensor *y = lc_mul_scalar(lc_arange(0, 1, 3, LC_F32), 0);
    return lc_mul_scalar(lc_xlogy(lc_add_scalar(x, 1), y), 0);
}
static lc_tensor *clamped(lc_tensor *x)
{
    return lc_clamp(x, .min = -0.5, .max = 0.5);
}
static lc_tensor *clamped_below(lc_tensor *x)
{
    return lc_clamp(x, .min = -0.5);
}
static lc_tensor *smooth_l1(lc_tensor *x)
{
    return lc_smooth_l1_loss(x, lc_scalar(0, LC_F32), .reduction = LC_REDUCE_NONE);
}
static lc_tensor *rounded(lc_tensor *x)
{
    return lc_add(lc_add(lc_floor(x), lc_ceil(x)), lc_add(lc_round(x), lc_sign(x)));
}
static lc_tensor *not_recorded(lc_tensor *x)
{
    lc_no_grad_begin();
    lc_tensor *y = lc_squeeze(x, 0), *z = lc_expand(x, 3), *c = lc_cast(x, LC_F32), *d = lc_dropout(x, 0);
    lc_no_grad_end();
    return lc_add(lc_mul(x, y), lc_add(lc_mul(x, z), lc_add(lc_mul(x, c), lc_mul(x, d))));
}

TEST(gradients)
{
    check_gradient("std", std_of, 4, (float[]){2, 2, 2, 2}, (float[]){0, 0, 0, 0});
    check_gradient("std", std_of, 2, (float[]){1, 3}, (float[]){-0.70711f, 0.70711f});
    check_gradient("std, correction 0.5", std_half, 2, (float[]){1, 3}, (float[]){-0.57735f, 0.57735f});
    check_gradient("std of one", std_of, 1, (float[]){2}, (float[]){NAN});
    check_gradient("std of one, correction 0", std_population, 1, (float[]){2}, (float[]){0});
    check_gradient("norm 0.5", norm_half, 3, (float[]){0, 1, -2}, (float[]){0, 2.41421f, -1.70711f});
    check_gradient("norm 0.5", norm_half, 2, (float[]){0, 0}, (float[]){0, 0});
    check_gradient("norm 1.5", norm_one_and_half, 3, (float[]){0, 1, -2}, (float[]){0, 0.63922f, -0.904f});
    check_gradient("norm -1", norm_minus_one, 3, (float[]){0, 1, -2}, (float[]){0, 0, 0});
    check_gradient("xlogy", xlogy_other, 3, (float[]){0, 1, 4}, (float[]){0, 2, 0.5f});
    check_gradient("xlogy, first", xlogy_first, 3, (float[]){0, 1, 4}, (float[]){0, 0, 0});
    check_gradient("clamp", clamped, 5, (float[]){-1, -0.5f, 0, 0.5f, NAN}, (float[]){0, 0, 1, 0, 0});
    check_gradient("clamp below", clamped_below, 4, (float[]){-1, -0.5f, 0, 9}, (float[]){0, 0, 1, 1});
    check_gradient("smooth_l1", smooth_l1, 3, (float[]){NAN, 0.5f, -3}, (float[]){NAN, 0.5f, -1});
    check_gradient("cosine, below eps", cosine_of_short, 3, (float[]){0.3f, -0.4f, 1},
                   (float[]){0.1099f, 0.1451f, 0.0747f});
    check_gradient("cosine, repeated", cosine_of_repeated, 1, (float[]){-2}, (float[]){0.0737f});
    check_gradient("rounded", rounded, 3, (float[]){0.3f, -1.7f, 0}, (float[]){0, 0, 0});
    check_gradient("not recorded", not_recorded, 3, (float[]){1, 2, 3}, (float[]){4, 8, 12});
}

/* A mask that is added to the scores: compared with the same computation from simpler operators. */
TEST(gradient_of_an_attention_mask)
{
    enum { B = 2, S = 3, SK = 5, D = 4 };
    float q[B * S * D], k[B * SK * D], v[B * SK * D], m[S * SK], got[2][S * SK];
    for (int i = 0; i < B * S * D; i++) q[i] = (float)lc_random_normal(1, (uint64_t)i);
    for (int i = 0; i < B * SK * D; i++) k[i] = (float)lc_random_normal(2, (uint64_t)i);
    for (int i = 0; i < B * SK * D; i++) v[i] = (float)lc_random_normal(3, (uint64_t)i);
    for (int i = 0; i < S * SK; i++) m[i] = (float)lc_random_normal(4, (uint64_t)i);
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc_tensor *Q = tensor(3, (int64_t[]){B, S, D}, q, false), *K = tensor(3, (int64_t[]){B, SK, D}, k, false);
    lc_tensor *W = tensor(3, (int64_t[]){B, SK, D}, v, false), *M = tensor(2, (int64_t[]){S, SK}, m, true);
    for (int causal = 0; causal < 2; causal++)
        for (int scaled = 0; scaled < 2; scaled++) {
            double scale = scaled ? 0.3 : LC_NOT_GIVEN;
            for (int way = 0; way < 2; way++) {
                CHECK_OK(lc_step_begin(g, 0, 0));
                lc_zero_grad(g);
                lc_tensor *y;
                if (way == 0) {
                    y = lc_sdpa(Q, K, W, .mask = M, .causal = causal, .scale = scale);
                } else {
                    lc_tensor *s = lc_mul_scalar(lc_matmul(Q, lc_transpose(K, 1, 2)), scaled ? scale : 0.5);
                    lc_tensor *hidden = lc_eq(lc_tril(lc_full(1, LC_F32, S, SK), 0), lc_scalar(0, LC_F32));
                    s = lc_add(s, M);
                    if (causal) s = lc_masked_fill(s, hidden, -INFINITY);
                    y = lc_matmul(lc_softmax(s, 2), W);
                }
                lc_backward(lc_sum(lc_square(y)));
                lc_tensor *d = lc_keep(lc_gradient(M));
                CHECK_OK(lc_step_run(g));
                CHECK_OK(lc_step_end(g));
                CHECK_OK(lc_tensor_read(d, got[way], sizeof got[way]));
            }
            float largest = 0;
            for (int i = 0; i < S * SK; i++) largest = fmaxf(largest, fabsf(got[1][i]));
            CHECK(largest > 0.1f);
            for (int i = 0; i < S * SK; i++) CHECK_NEAR(got[0][i], got[1][i], 1e-5);
        }
    /* A query that sees nothing has weights of 0, and its mask a gradient of 0. */
    for (int i = 0; i < SK; i++) m[i] = -INFINITY;
    CHECK_OK(lc_tensor_write(M, m, sizeof m));
    CHECK_OK(lc_step_begin(g, 1, 0));
    lc_zero_grad(g);
    lc_backward(lc_sum(lc_square(lc_sdpa(Q, K, W, .mask = M))));
    lc_tensor *d = lc_keep(lc_gradient(M));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    CHECK_OK(lc_tensor_read(d, got[0], sizeof got[0]));
    for (int i = 0; i < S * SK; i++) CHECK(i < SK ? got[0][i] == 0 : isfinite(got[0][i]));
    lc_tensor_unref(Q), lc_tensor_unref(K), lc_tensor_unref(W), lc_tensor_unref(M);
    lc_graph_free(g);
}

/* ---- interpolation by a factor that does not give the size exactly ---- */

TEST(interpolation_by_factors)
{
    static const struct {
        double scale;
        lc_interpolate_mode mode;
        int n;
        float want[12];
    } cases[] = {
        {1.1, LC_NEAREST, 5, {0, 1, 2, 3, 4}},
        {1.1, LC_BILINEAR, 5, {0, 1, 2, 3, 4}},
        {2.1, LC_NEAREST, 10, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4}},
        {2.1,
         LC_BILINEAR,
         10,
         {0, 0.2142857f, 0.6904762f, 1.1666666f, 1.642857f, 2.1190476f, 2.5952382f, 3.0714285f, 3.547619f, 4}},
        {1.3, LC_NEAREST, 6, {0, 0, 1, 2, 3, 3}},
        {2.3, LC_NEAREST, 11, {0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4}},
        {0.9, LC_BILINEAR, 4, {0.0555556f, 1.1666666f, 2.2777779f, 3.388889f}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lc_graph *g;
        float got[12], dx[5], want_dx[5] = {0};
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        lc_tensor *x = tensor(4, (int64_t[]){1, 1, 1, 5}, (float[]){0, 1, 2, 3, 4}, true);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = lc_keep(lc_interpolate(x, cases[i].mode, .scale = 1, .scale_w = cases[i].scale));
        CHECK_EQ(lc_tensor_dim(y, 3), cases[i].n);
        lc_backward(lc_sum(y));
        lc_tensor *d = lc_keep(lc_gradient(x));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(y, got, (size_t)cases[i].n * sizeof *got));
        CHECK_OK(lc_tensor_read(d, dx, sizeof dx));
        float total = 0;
        for (int k = 0; k < cases[i].n; k++) CHECK_NEAR(got[k], cases[i].want[k], 1e-5);
        for (int k = 0; k < cases[i].n && cases[i].mode == LC_NEAREST; k++) want_dx[(int)cases[i].want[k]]++;
        for (int k = 0; k < 5 && cases[i].mode == LC_NEAREST; k++) CHECK_NEAR(dx[k], want_dx[k], 1e-5);
        for (int k = 0; k < 5; k++) total += dx[k];
        CHECK_NEAR(total, cases[i].n, 1e-4);
        lc_tensor_unref(x);
        lc_graph_free(g);
    }
}

/* ---- refused arguments ---- */

static lc_tensor *of(int ndim, const int64_t *shape)
{
    return lc_full_at(0.5, LC_F32, ndim, shape, LC_HERE);
}
#define X(...) of(LC_COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__})

/* Case i of those that must fail, and what the error says; NULL after the last. */
static lc_tensor *refused(int i, const char **says)
{
    lc_tensor *ids = lc_full(0, LC_I64, 1), *ids2 = lc_full(0, LC_I64, 1, 3), *parts[4];
    *says = "";
    switch (i) {
    case 0:
        *says = "index_add: src is [1,3,1]";
        return lc_index_add(X(4, 3), 0, ids, X(1, 3, 1));
    case 1:
        *says = "index_add: src is [1,1]";
        return lc_index_add(X(4, 3), 0, ids, X(1, 1));
    case 2:
        *says = "index_add: src is [1]";
        return lc_index_add(X(4, 3), 0, ids, X(1));
    case 3:
        *says = "scatter_add: src has 3 dimensions, but the target has 2";
        return lc_scatter_add(X(4, 3), 0, ids2, X(1, 3, 1));
    case 4:
        *says = "scatter_add: src has 1 dimensions, but the target has 2";
        return lc_scatter_add(X(4, 3), 0, ids, X(3));
    case 5:
        *says = "cross_entropy: probabilities must have x's type and shape";
        return lc_cross_entropy(X(4, 3), X(1, 3));
    case 6:
        *says = "cross_entropy: target must be i64 or i32";
        return lc_cross_entropy(X(4, 3), X(4, 3, 1));
    case 7:
        *says = "cross_entropy: weight is [1], but there are 3 classes";
        return lc_cross_entropy(X(4, 3), X(4, 3), .weight = X(1));
    case 8:
        *says = "cross_entropy: label_smoothing must be between 0 and 1";
        return lc_cross_entropy(X(4, 3), X(4, 3), .label_smoothing = 1.5);
    case 9:
        *says = "cross_entropy: reduction must be";
        return lc_cross_entropy(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN);
    case 10:
        *says = "cross_entropy: ignore_index needs";
        return lc_cross_entropy(X(4, 3), X(4, 3), .ignore_index = 1);
    case 11:
        *says = "bce_with_logits: the target is [3] but x is [4,3]";
        return lc_bce_with_logits(X(4, 3), X(3));
    case 12:
        *says = "bce_with_logits: the target is [4,3] but x is [3]";
        return lc_bce_with_logits(X(3), X(4, 3));
    case 13:
        *says = "bce_with_logits: the weight is [2,4,3]";
        return lc_bce_with_logits(X(4, 3), X(4, 3), .weight = X(2, 4, 3));
    case 14:
        *says = "bce_with_logits: the pos_weight is [2,4,3]";
        return lc_bce_with_logits(X(4, 3), X(4, 3), .pos_weight = X(2, 4, 3));
    case 15:
        *says = "bce_with_logits: LC_REDUCE_BATCHMEAN is only for lc_kl_div";
        return lc_bce_with_logits(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN);
    case 16:
        *says = "mse_loss: LC_REDUCE_BATCHMEAN";
        return lc_mse_loss(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN);
    case 17:
        *says = "l1_loss: LC_REDUCE_BATCHMEAN";
        return lc_l1_loss(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN);
    case 18:
        *says = "huber_loss: LC_REDUCE_BATCHMEAN";
        return lc_huber_loss(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN);
    case 19:
        *says = "smooth_l1_loss: LC_REDUCE_BATCHMEAN";
        return lc_smooth_l1_loss(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN);
    case 20:
        *says = "kl_div: 9 is not a reduction";
        return lc_kl_div(X(4, 3), X(4, 3), .reduction = (lc_reduction)9);
    case 21:
        *says = "huber_loss: delta must be positive";
        return lc_huber_loss(X(4, 3), X(4, 3), .delta = 0);
    case 22:
        *says = "smooth_l1_loss: beta must not be negative";
        return lc_smooth_l1_loss(X(4, 3), X(4, 3), .beta = -1);
    case 23:
        *says = "prelu: there are 2 weights for 3 channels";
        return lc_prelu(X(4, 3), X(2));
    case 24:
        *says = "prelu: there are 3 weights for 1 channels";
        return lc_prelu(X(3), X(3));
    case 25:
        *says = "prelu: the weight must have one dimension, not 2";
        return lc_prelu(X(4, 3), X(4, 3));
    case 26:
        *says = "prelu: there are 4 weights for 3 channels";
        return lc_prelu(X(2, 3, 4), X(4));
    case 27:
        *says = "max_pool1d: x must have 2 or 3 dimensions";
        return lc_max_pool1d(X(2, 3, 4, 5), 2);
    case 28:
        *says = "avg_pool1d: x must have 2 or 3 dimensions";
        return lc_avg_pool1d(X(2, 3, 4, 5), 2);
    case 29:
        *says = "max_pool1d: x must have 2 or 3 dimensions";
        return lc_max_pool1d(X(5), 2);
    case 30:
        *says = "conv_transpose1d: output padding must not be negative";
        return lc_conv_transpose1d(X(1, 2, 5), X(2, 3, 3), NULL, .output_padding = LC_DIMS(-1));
    case 31:
        *says = "conv_transpose2d: output padding must not be negative";
        return lc_conv_transpose2d(X(1, 2, 5, 5), X(2, 3, 3, 3), NULL, .stride = LC_DIMS(2, 2),
                                   .output_padding = LC_DIMS(1, -1));
    case 32:
        parts[0] = NULL;
        CHECK(lc_chunk_at(X(4), -2, 0, parts, LC_HERE) == 0 && !parts[0]);
        *says = "chunk: -2 parts were requested; there must be at least 1";
        return lc_zeros(LC_F32, 1);
    case 33:
        parts[0] = NULL;
        CHECK(lc_chunk_at(X(4), 0, 0, parts, LC_HERE) == 0 && !parts[0]);
        *says = "chunk: 0 parts were requested; there must be at least 1";
        return lc_zeros(LC_F32, 1);
    case 34:
        *says = "pad: dimension 1 of 5 elements cannot be padded by -6 and 2";
        return lc_pad(X(2, 5), -6, 2);
    case 35:
        *says = "pad: dimension 1 of 5 elements cannot be padded by -3 and -3";
        return lc_pad(X(2, 5), -3, -3);
    case 36:
        *says = "pad: dimension 1 of 5 elements cannot be padded by 9 and -7";
        return lc_pad(X(2, 5), 9, -7);
    case 37:
        *says = "clamp: neither";
        return lc_clamp(X(3));
    case 38:
        *says = "group_norm: statistics need more than one value per group";
        return lc_group_norm(X(1, 2), 2, NULL, NULL);
    case 39:
        *says = "embedding: padding_idx is -4";
        return lc_embedding(ids, X(3, 2), .padding_idx = -4);
    case 40:
        *says = "interpolate: give .output_size or .scale, not both";
        return lc_interpolate(X(1, 1, 3, 4), LC_NEAREST, .output_size = LC_DIMS(3, 4), .scale = 2);
    case 41:
        *says = "conv1d: output padding needs a transposed convolution";
        return lc_conv1d(X(1, 2, 5), X(2, 2, 3), NULL, .output_padding = LC_DIMS(1));
    case 42:
        parts[2] = NULL;
        CHECK(lc_split(X(2, 9), 2, 1, 2, parts) == 2 && !parts[2]);
        *says = "split: dimension 1 of 9 elements has 5 parts of 2, and there is room for 2";
        return parts[1];
    case 43:
        parts[0] = NULL;
        CHECK(lc_split(X(9), 2, 0, 0, parts) == 0 && !parts[0]);
        *says = "split: dimension 0 of 9 elements has 5 parts of 2, and there is room for 0";
        return lc_zeros(LC_F32, 1);
    case 44:
        CHECK_EQ(lc_split(X(2, 9), 0, 1, 4, parts), 4);
        *says = "split: parts cannot have 0 elements";
        return parts[3];
    case 46:
        *says = "squeeze: dimension -3 is out of range for shape [4,3]";
        return lc_squeeze(X(4, 3), -3);
    case 47:
        *says = "unsqueeze: dimension 3 is out of range for shape [4,3]";
        return lc_unsqueeze(X(4, 3), 3);
    case 48:
        *says = "argmax: dimension -3 is out of range for shape [4,3]";
        return lc_argmax(X(4, 3), .dim = -3);
    case 49:
        *says = "div_scalar: x is i64, but floating-point numbers are needed";
        return lc_div_scalar(ids, 2);
    case 45:
        CHECK_EQ(lc_split(X(2, 9), 2, 2, 4, parts), 4);
        *says = "split: dimension 2 is out of range for a tensor of 2 dimensions";
        return parts[0];
    case 50:
        *says = "mse_loss: the target is [4] but x is [4,1]: they must be equal, or one must broadcast to the other; "
                "lc_squeeze or lc_unsqueeze one of them";
        return lc_mse_loss(X(4, 1), X(4));
    case 51:
        *says = "l1_loss: the target is [4,1] but x is [4]";
        return lc_l1_loss(X(4), X(4, 1));
    case 52:
        *says = "smooth_l1_loss: the target is [4] but x is [4,1]";
        return lc_smooth_l1_loss(X(4, 1), X(4));
    case 53:
        *says = "huber_loss: the target is [4] but x is [4,1]";
        return lc_huber_loss(X(4, 1), X(4));
    case 54:
        *says = "full: 300 does not fit u8";
        return lc_full(300, LC_U8, 2);
    case 55:
        *says = "full: -1 does not fit u8";
        return lc_full(-1, LC_U8, 2);
    case 56:
        *says = "full: nan does not fit i64";
        return lc_full(NAN, LC_I64, 2);
    case 57:
        *says = "full: 9.3e+18 does not fit i64";
        return lc_full(9.3e18, LC_I64, 2);
    case 58:
        *says = "full: 1e+300 does not fit f32";
        return lc_full(1e300, LC_F32, 2);
    case 59:
        *says = "full_like: inf does not fit i64";
        return lc_full_like(ids, INFINITY);
    case 60:
        *says = "scalar: 2.14748e+09 does not fit i32";
        return lc_scalar(2147483648.0, LC_I32);
    case 61:
        *says = "arange: 256 does not fit u8";
        return lc_arange(250, 1, 7, LC_U8);
    case 62:
        *says = "masked_fill: -1e+09 does not fit f16";
        return lc_masked_fill(lc_cast(X(2), LC_F16), lc_gt(X(2), X(2)), -1e9);
    case 63:
        *says = "masked_fill: inf does not fit i64";
        return lc_masked_fill(ids2, lc_gt(X(3), X(3)), INFINITY);
    case 64:
        *says = "pad: 300 does not fit u8";
        return lc_pad_value(lc_cast(X(2), LC_U8), 300, 1, 1);
    case 65:
        *says = "sub_scalar: inf is not an integer, but x is i64";
        return lc_sub_scalar(ids, INFINITY);
    case 66:
        *says = "rsub_scalar: 0.5 is not an integer, but x is i64";
        return lc_rsub_scalar(ids, 0.5);
    case 67:
        *says = "mul_scalar: 1e+20 is not an integer of 64 bits, but x is i64";
        return lc_mul_scalar(ids, 1e20);
    case 68:
        *says = "clamp: inf is not an integer, but x is i64";
        return lc_clamp(ids, .min = 0, .max = INFINITY);
    case 69:
        *says = "hardtanh: min is 1, which is above max, -1";
        return lc_hardtanh(X(2), 1, -1);
    case 70:
        *says = "sort: dimension 2 is out of range for shape [4,3]";
        return lc_sort(X(4, 3), NULL, 2, false);
    case 71:
        *says = "sort: x is NULL";
        return lc_sort(NULL, NULL, 0, false);
    case 72:
        *says = "transpose: dimension -3 is out of range for shape [4,3]";
        return lc_transpose(X(4, 3), 0, -3);
    case 73:
        *says = "flatten: dimension 2 is out of range for shape [4,3]";
        return lc_flatten(X(4, 3), 2);
    case 74:
        *says = "unflatten: dimension 1 has 3 elements, which 2 does not divide";
        return lc_unflatten(X(4, 3), 1, 2);
    case 75:
        *says = "select: index -4 is out of range for dimension -1 of 3 elements";
        return lc_select(X(4, 3), -1, -4);
    case 76:
        *says = "select: dimension 0 is out of range for shape []";
        return lc_select(lc_scalar(1, LC_F32), 0, 0);
    case 77:
        *says = "glu: dimension 1 has 3 elements, which is not an even number";
        return lc_glu(X(4, 3), -1);
    case 78:
        *says = "norm: dimension 2 is out of range for shape [4,3]";
        return lc_norm(X(4, 3), .p = 1, .dims = LC_DIMS(2));
    case 79:
        *says = "cosine_similarity: dimension -3 is out of range for shape [4,3]";
        return lc_cosine_similarity(X(4, 3), X(3), -3);
    case 80:
        *says = "cosine_similarity: x is f32 and y is i64";
        return lc_cosine_similarity(X(3), ids2, 0);
    case 81:
        *says = "stack: tensor 1 is f32[3], but the first is f32[4]";
        return lc_stack(0, X(4), X(3));
    case 82:
        *says = "stack: dimension 2 is out of range for shape [4]";
        return lc_stack(2, X(4), X(4));
    case 83:
        CHECK_EQ(lc_chunk(X(4), 2, 1, parts), 2);
        *says = "chunk: dimension 1 is out of range for a tensor of 1 dimensions";
        return parts[1];
    case 84:
        CHECK_EQ(lc_chunk(NULL, 2, 1, parts), 2);
        *says = "chunk: x is NULL";
        return parts[1];
    case 85:
        *says = "index_select: x has no dimensions: there must be 1 index, not 3";
        return lc_index_select(lc_scalar(1, LC_F32), 0, lc_full(0, LC_I64, 3));
    case 86:
        *says = "length_mask: lengths is NULL";
        return lc_length_mask(NULL, 4);
    case 87:
        *says = "softmax: dimension 1 is out of range for shape []";
        return lc_softmax(lc_scalar(1, LC_F32), 1);
    case 88:
        *says = "batch_norm: momentum must be a number";
        return lc_batch_norm(X(4, 3), NULL, NULL, .running_mean = X(3), .running_var = X(3), .training = true,
                             .momentum = LC_NOT_GIVEN);
    case 89:
        *says = "uniform: there are no numbers from 2 to 1 to draw";
        return lc_uniform(1, (int64_t[]){3}, .low = 2);
    case 90:
        *says = "uniform: there are no numbers from 0 to inf to draw";
        return lc_uniform(1, (int64_t[]){3}, .high = INFINITY);
    case 91:
        *says = "normal: std must not be negative, is -1";
        return lc_normal(1, (int64_t[]){3}, .std = -1);
    case 92:
        *says = "length_mask: size must not be negative, is -1";
        return lc_length_mask(ids2, -1);
    case 93:
        *says =
            "bce_with_logits: the target is [4] but x is [4,1]: they must be equal; lc_squeeze or lc_unsqueeze one of "
            "them (x";
        return lc_bce_with_logits(X(4, 1), X(4));
    case 94:
        *says = "bce_with_logits: the target is [3] but x is [4,1]: they must be equal (x";
        return lc_bce_with_logits(X(4, 1), X(3));
    default:
        *says = NULL;
        return NULL;
    }
}

static void check_accepted(void)
{
    lc_tensor *parts[4], *ids = lc_full(0, LC_I64, 1);
    CHECK_EQ(lc_tensor_dim(lc_pad(X(2, 5), -5, 2), 1), 2);
    CHECK_EQ(lc_tensor_dim(lc_pad(X(2, 5), -2, -3), 1), 0);
    CHECK_EQ(lc_chunk(X(5), 2, 0, parts), 2);
    CHECK_EQ(lc_tensor_ndim(lc_mse_loss(X(4, 3), X(3), .reduction = LC_REDUCE_NONE)), 2);
    CHECK_EQ(lc_tensor_ndim(lc_mse_loss(X(3), X(4, 3), .reduction = LC_REDUCE_NONE)), 2);
    CHECK_EQ(lc_tensor_ndim(lc_prelu(X(4, 3), X(1))), 2);
    CHECK_EQ(lc_tensor_ndim(lc_prelu(X(4, 3), X(3))), 2);
    CHECK_EQ(lc_tensor_ndim(lc_prelu(X(2, 3, 4), X(3))), 3);
    CHECK_EQ(lc_tensor_ndim(lc_prelu(X(3), X(1))), 1);
    CHECK_EQ(lc_tensor_ndim(lc_prelu(lc_scalar(1, LC_F32), X(1))), 0);
    CHECK_EQ(lc_tensor_ndim(lc_max_pool1d(X(3, 4), 2)), 2);
    CHECK_EQ(lc_tensor_ndim(lc_index_add(X(4, 3), 0, ids, X(1, 3))), 2);
    CHECK_EQ(lc_tensor_ndim(lc_scatter_add(X(4), 0, ids, X(1))), 1);
    CHECK_EQ(lc_tensor_ndim(lc_bce_with_logits(X(4, 3), X(4, 3), .weight = X(3), .pos_weight = X(3))), 0);
    CHECK_EQ(lc_tensor_ndim(lc_kl_div(X(4, 3), X(4, 3), .reduction = LC_REDUCE_BATCHMEAN)), 0);
    CHECK_EQ(lc_tensor_ndim(lc_cross_entropy(X(4, 3), X(4, 3), .weight = X(3), .label_smoothing = 0.1)), 0);
    CHECK_EQ(lc_tensor_ndim(lc_cross_entropy(X(3), X(3))), 0);
    CHECK_EQ(lc_tensor_ndim(lc_smooth_l1_loss(X(4, 3), X(4, 3), .beta = 0)), 0);
    CHECK_EQ(lc_tensor_ndim(lc_squeeze(lc_scalar(1, LC_F32), -1)), 0);
    CHECK_EQ(lc_tensor_ndim(lc_argmax(lc_scalar(1, LC_F32), .dim = 0)), 0);
    CHECK_EQ(lc_tensor_numel(lc_arange(-3, 1, 0, LC_U8)), 0);
}

TEST(refusals)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    for (int i = 0;; i++) {
        const char *says;
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = refused(i, &says);
        if (!says) break;
        if (!lc_tensor_is_error(y)) TEST_FAIL("case %d is accepted, but should say \"%s\"", i, says);
        CHECK(lc_step_status(g) < 0);
        CHECK_CONTAINS(lc_error_message(), says);
        CHECK_CONTAINS(lc_error_message(), "test_ops_edges.c:");
        CHECK(lc_step_end(g) < 0);
    }
    check_accepted();
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

/* Functions along a dimension of a tensor without dimensions, for its dimension 0 or -1. */
#define POINT_LIST(F)                                                                                                  \
    F(lc_softmax(x, dim), 1)                                                                                           \
    F(lc_log_softmax(x, dim), 0)                                                                                       \
    F(lc_cumsum(x, dim), 3)                                                                                            \
    F(lc_sort(x, &at, dim, true), 3)                                                                                   \
    F(lc_topk(x, &at, 1, dim), 3)                                                                                      \
    F(lc_topk(x, &at, 0, dim), 3)                                                                                      \
    F(lc_gather(x, dim, id), 3)                                                                                        \
    F(lc_gather(lc_reshape(x, 1), dim, id), 3)                                                                         \
    F(lc_index_select(x, dim, id), 3)                                                                                  \
    F(lc_index_select(x, dim, lc_reshape(id, 1)), 3)                                                                   \
    F(lc_scatter_add(x, dim, id, x), 6)                                                                                \
    F(lc_scatter_add(x, dim, lc_full(0, LC_I64, 2), lc_full(2, LC_F32, 2)), 7)                                         \
    F(lc_index_add(x, dim, id, x), 6)                                                                                  \
    F(lc_transpose(x, dim, -1), 3)                                                                                     \
    F(lc_flip(x, dim), 3)                                                                                              \
    F(lc_sum(x, .dims = LC_DIMS(dim)), 3)                                                                              \
    F(lc_mean(x, .dims = LC_DIMS(dim), .keepdim = true), 3)                                                            \
    F(lc_amax(x, .dims = LC_DIMS(dim)), 3)                                                                             \
    F(lc_norm(x, .dims = LC_DIMS(dim)), 3)                                                                             \
    F(lc_norm(x, .dims = LC_DIMS(dim), .p = 1), 3)                                                                     \
    F(lc_var(x, .dims = LC_DIMS(dim), .correction = 0), 0)                                                             \
    F(lc_logsumexp(x, .dims = LC_DIMS(dim)), 3)                                                                        \
    F(lc_cosine_similarity(x, lc_neg(x), dim), -1)

TEST(tensors_without_dimensions)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    for (int dim = -1; dim <= 0; dim++) {
        lc_tensor *p = tensor(0, NULL, (float[]){3}, true);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *x = lc_mul_scalar(p, 1), *id = lc_scalar(0, LC_I64), *at = id, *total = lc_scalar(0, LC_F32);
        double got;
#define POINT(call, want)                                                                                              \
    {                                                                                                                  \
        lc_tensor *y = call;                                                                                           \
        CHECK_EQ(lc_tensor_ndim(y), 0);                                                                                \
        CHECK_EQ(lc_tensor_ndim(at), 0);                                                                               \
        CHECK_OK(lc_item(y, &got));                                                                                    \
        if (!(fabs(got - want) < 1e-5)) TEST_FAIL("%s is %g, not %g", #call, got, (double)want);                       \
        total = lc_add(total, y);                                                                                      \
    }
        POINT_LIST(POINT)
        lc_backward(total);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_EQ(lc_tensor_ndim(x), 0);
        lc_tensor_unref(p);
    }
    lc_graph_free(g);
}

/* As many parts as asked for, of none. */
TEST(chunks_of_an_empty_dimension)
{
    lc_graph *g;
    lc_tensor *parts[4];
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_step_begin(g, 0, 0));
    CHECK_EQ(lc_chunk(lc_full(0, LC_F32, 2, 0), 4, 1, parts), 4);
    for (int i = 0; i < 4; i++) CHECK_EQ(lc_tensor_numel(parts[i]), 0);
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

/* Numbers are not in a plan: each step brings its own. */
TEST(numbers_that_do_not_fit_in_a_later_step)
{
    static const double good[] = {3, 200, 2}, bad[] = {0.5, 256, -INFINITY};
    for (int i = 0; i < 3; i++) {
        lc_graph *g;
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        for (int step = 0; step < 3; step++) {
            double s = step < 2 ? good[i] : bad[i];
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_tensor *x = lc_full(1, i == 1 ? LC_U8 : LC_I32, 2);
            lc_keep(i == 0 ? lc_add_scalar(x, s) : i == 1 ? lc_masked_fill(x, lc_eq(x, x), s) : lc_clamp(x, .min = s));
            CHECK_EQ(lc_step_run(g), step < 2 ? LC_OK : i == 1 ? LC_ERR_ARGUMENT : LC_ERR_DTYPE);
            CHECK_EQ(lc_step_end(g) < 0, step == 2);
        }
        lc_graph_free(g);
    }
}

/* Fractions are dropped; a bool is true for any number except 0. */
TEST(values_of_integers_and_bools)
{
    static const double values[] = {0.5, -1e10, NAN, INFINITY, 1e-50, 0};
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    for (int i = 0; i < 6; i++) {
        double got;
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *x = lc_full(i % 2, LC_BOOL, 1);
        CHECK_OK(lc_item(lc_masked_fill(x, lc_eq(x, x), values[i]), &got));
        CHECK_EQ(got, i < 5 ? 1 : 0);
        CHECK_OK(lc_item(lc_full(values[i], LC_BOOL, 1), &got));
        CHECK_EQ(got, i < 5 ? 1 : 0);
        CHECK_OK(lc_item(lc_full(-2.7, LC_I64, 1), &got));
        CHECK_EQ(got, -2);
        CHECK_OK(lc_item(lc_full(255.5, LC_U8, 1), &got));
        CHECK_EQ(got, 255);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_free(g);
}

TEST_MAIN
