/* SPDX-License-Identifier: Apache-2.0 */
/* Layers: names, shapes and initial values as in PyTorch; results; training and evaluation mode. */
#include "test.h"

#include <lightc/lightc.h>

/* ---- helpers ---- */

static lc_status join(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    char *text = ctx;
    size_t at = strlen(text);
    at += (size_t)snprintf(text + at, 2000 - at, "%s%s", path, t->is_parameter ? "[" : "*[");
    for (int i = 0; i < lc_tensor_ndim(t->tensor); i++) {
        at += (size_t)snprintf(text + at, 2000 - at, "%s%d", i ? "," : "", (int)lc_tensor_dim(t->tensor, i));
    }
    snprintf(text + at, 2000 - at, "] ");
    return LC_OK;
}

static const char *names(lc_module *m, char text[2000])
{
    text[0] = '\0';
    CHECK_OK(lc_module_status(m));
    CHECK_OK(lc_module_visit(m, join, text));
    return text;
}

static float *read_new(lc_tensor *t)
{
    size_t bytes = (size_t)lc_tensor_numel(t) * sizeof(float);
    float *x = malloc(bytes + 1);
    CHECK_OK(lc_tensor_read(t, x, bytes));
    return x;
}

/* All values are within +-bound, and some come close to it. */
static void check_uniform(lc_tensor *t, double bound)
{
    float *x = read_new(t);
    double top = 0, sum = 0;
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        top = fmax(top, fabs((double)x[i]));
        sum += (double)x[i];
    }
    free(x);
    if (top > bound * (1 + 1e-6) || top < 0.8 * bound) TEST_FAIL("values reach %g instead of %g", top, bound);
    if (!(fabs(sum / (double)n) <= 4 * bound / sqrt(3 * (double)n))) TEST_FAIL("mean %g", sum / (double)n);
}

static void check_constant(lc_tensor *t, float value)
{
    float *x = read_new(t);
    for (int64_t i = 0; i < lc_tensor_numel(t); i++) CHECK(x[i] == value);
    free(x);
}

static lc_tensor *input(uint64_t key, int ndim, const int64_t *shape)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    size_t n = (size_t)lc_tensor_numel(t);
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)lc_random_normal(key, i);
    CHECK_OK(lc_tensor_write(t, x, n * sizeof *x));
    free(x);
    return t;
}
#define X(key, ...) input(key, LC_COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__})

static lc_graph *begin(uint64_t step)
{
    lc_graph *g = lc_current_graph();
    if (g) { /* left by a test that failed */
        lc_status ended = lc_step_end(g);
        (void)ended;
    }
    CHECK_OK(lc_graph_new(&g, .threads = 2, .seed = 5));
    CHECK_OK(lc_step_begin(g, step, 0));
    return g;
}

static void end(lc_graph *g)
{
    CHECK_OK(lc_step_status(g));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

static void check_close(const float *got, const float *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance)) {
            TEST_FAIL("element %d is %.9g instead of %.9g", (int)i, (double)got[i], (double)want[i]);
        }
    }
}

static void check_shape(lc_tensor *t, int n, const int64_t *shape)
{
    CHECK(!lc_tensor_is_error(t));
    CHECK_EQ(lc_tensor_ndim(t), n);
    for (int i = 0; i < n; i++) CHECK_EQ(lc_tensor_dim(t, i), shape[i]);
}
#define CHECK_SHAPE(t, ...) check_shape(t, LC_COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__})

/* ---- names, shapes, initial values ---- */

TEST(linear_and_convolutions)
{
    lc_module m;
    lc_linear fc, bare;
    lc_conv1d c1;
    lc_conv2d c2, wide;
    lc_conv3d c3;
    lc_conv_transpose2d up;
    char text[2000];
    lc_module_init(&m, NULL, 11);
    lc_linear_init(&fc, &m, "fc", 100, 64);
    lc_linear_init(&bare, &m, "bare", 3, 4, .no_bias = true);
    lc_conv1d_init(&c1, &m, "c1", 4, 6, 5, .groups = 2);
    lc_conv2d_init(&c2, &m, "c2", 16, 32, 3, .padding = 1);
    lc_conv2d_init(&wide, &m, "wide", 1, 2, 0, .kernel_sizes = LC_DIMS(1, 7), .no_bias = true);
    lc_conv3d_init(&c3, &m, "c3", 2, 3, 2);
    lc_conv_transpose2d_init(&up, &m, "up", 8, 6, 4, .groups = 2, .stride = 2);
    CHECK_STR(names(&m, text), "fc.weight[64,100] fc.bias[64] bare.weight[4,3] c1.weight[6,2,5] c1.bias[6] "
                               "c2.weight[32,16,3,3] c2.bias[32] wide.weight[2,1,1,7] c3.weight[3,2,2,2,2] c3.bias[3] "
                               "up.weight[8,3,4,4] up.bias[6] ");
    check_uniform(fc.weight, 0.1);
    check_uniform(fc.bias, 0.1);
    check_uniform(c2.weight, 1 / sqrt(16 * 9));
    check_uniform(c2.bias, 1 / sqrt(16 * 9));
    check_uniform(up.weight, 1 / sqrt(3 * 16));
    CHECK(lc_tensor_requires_grad(fc.weight) && lc_tensor_requires_grad(c2.bias));
    lc_module_release(&m);
}

TEST(norms_and_embedding)
{
    lc_module m;
    lc_batch_norm2d bn;
    lc_batch_norm1d plain;
    lc_layer_norm ln, ln2;
    lc_rms_norm rms;
    lc_group_norm gn;
    lc_embedding e;
    char text[2000];
    lc_module_init(&m, NULL, 11);
    lc_batch_norm2d_init(&bn, &m, "bn", 8);
    lc_batch_norm1d_init(&plain, &m, "plain", 8, .no_affine = true, .no_track_running_stats = true);
    lc_layer_norm_init(&ln, &m, "ln", 5);
    lc_layer_norm_init(&ln2, &m, "ln2", 0, .shape = LC_DIMS(2, 3), .no_bias = true);
    lc_rms_norm_init(&rms, &m, "rms", 6);
    lc_group_norm_init(&gn, &m, "gn", 2, 8);
    lc_embedding_init(&e, &m, "e", 1000, 16, .padding_idx = -1);
    CHECK_STR(names(&m, text),
              "bn.weight[8] bn.bias[8] bn.running_mean*[8] bn.running_var*[8] bn.num_batches_tracked*[] ln.weight[5] "
              "ln.bias[5] ln2.weight[2,3] rms.weight[6] gn.weight[8] gn.bias[8] e.weight[1000,16] ");
    check_constant(bn.weight, 1);
    check_constant(bn.bias, 0);
    check_constant(bn.running_mean, 0);
    check_constant(bn.running_var, 1);
    CHECK_EQ(lc_tensor_dtype(bn.num_batches_tracked), LC_I64);
    CHECK(!lc_tensor_requires_grad(bn.running_var));
    float *w = read_new(e.weight);
    double sum = 0, square = 0;
    for (int i = 0; i < 999 * 16; i++) {
        sum += (double)w[i];
        square += (double)(w[i] * w[i]);
    }
    CHECK_NEAR(sum / (999 * 16), 0, 0.04);
    CHECK_NEAR(square / (999 * 16), 1, 0.05);
    for (int i = 0; i < 16; i++) CHECK(w[999 * 16 + i] == 0);
    free(w);
    lc_module_release(&m);
}

TEST(attention_and_recurrence)
{
    lc_module m;
    lc_multihead_attention a;
    lc_lstm lstm;
    lc_gru gru;
    char text[2000];
    lc_module_init(&m, NULL, 11);
    lc_multihead_attention_init(&a, &m, "a", 16, 4);
    lc_lstm_init(&lstm, &m, "lstm", 3, 5, .num_layers = 2, .bidirectional = true);
    lc_gru_init(&gru, &m, "gru", 3, 64, .no_bias = true);
    CHECK_STR(names(&m, text),
              "a.in_proj_weight[48,16] a.in_proj_bias[48] a.out_proj.weight[16,16] a.out_proj.bias[16] "
              "lstm.weight_ih_l0[20,3] lstm.weight_hh_l0[20,5] lstm.bias_ih_l0[20] lstm.bias_hh_l0[20] "
              "lstm.weight_ih_l0_reverse[20,3] lstm.weight_hh_l0_reverse[20,5] lstm.bias_ih_l0_reverse[20] "
              "lstm.bias_hh_l0_reverse[20] lstm.weight_ih_l1[20,10] lstm.weight_hh_l1[20,5] lstm.bias_ih_l1[20] "
              "lstm.bias_hh_l1[20] lstm.weight_ih_l1_reverse[20,10] lstm.weight_hh_l1_reverse[20,5] "
              "lstm.bias_ih_l1_reverse[20] lstm.bias_hh_l1_reverse[20] gru.weight_ih_l0[192,3] "
              "gru.weight_hh_l0[192,64] ");
    check_uniform(a.in_proj_weight, sqrt(6.0 / (48 + 16)));
    check_uniform(a.out_proj.weight, 0.25);
    check_constant(a.in_proj_bias, 0);
    check_constant(a.out_proj.bias, 0);
    check_uniform(gru.weight_hh[0], 0.125);
    lc_module_release(&m);
}

TEST(wrong_sizes_are_refused)
{
    lc_module m;
    lc_conv2d c;
    lc_multihead_attention a;
    lc_module_init(&m, NULL, 1);
    lc_conv2d_init(&c, &m, "conv", 3, 4, 3, .groups = 2);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "conv (Conv2d): in_channels 3");
    lc_module_release(&m);
    lc_module_init(&m, NULL, 1);
    lc_conv2d_init(&c, &m, "conv", 3, 4, 0, .padding = 1);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "kernel_size");
    lc_module_release(&m);
    lc_module_init(&m, NULL, 1);
    lc_multihead_attention_init(&a, &m, "attn", 10, 4);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "multiple of num_heads");
    lc_module_release(&m);
    lc_batch_norm1d bn;
    lc_module_init(&m, NULL, 1);
    lc_batch_norm1d_init(&bn, &m, "bn", 3, .momentum = LC_NOT_GIVEN);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "bn (BatchNorm1d): momentum must be a number");
    lc_module_release(&m);
}

/* ---- results ---- */

TEST(linear_forward_and_message)
{
    lc_module m;
    lc_linear fc;
    lc_module_init(&m, NULL, 1);
    lc_linear_init(&fc, &m, "fc", 3, 2);
    lc_tensor *x = X(1, 4, 3), *bad = X(1, 4, 5);
    float *xs = read_new(x), *w = read_new(fc.weight), *b = read_new(fc.bias), want[8], got[8];
    for (int i = 0; i < 8; i++) {
        want[i] = b[i % 2];
        for (int k = 0; k < 3; k++) want[i] += xs[i / 2 * 3 + k] * w[i % 2 * 3 + k];
    }
    lc_graph *g = begin(0);
    lc_tensor *y = lc_linear_forward(&fc, x);
    CHECK_SHAPE(y, 4, 2);
    CHECK_OK(lc_tensor_read(y, got, sizeof got));
    check_close(got, want, 8, 1e-6);
    end(g);
    g = begin(0);
    lc_forward(&fc, bad);
    CHECK_STATUS(lc_step_status(g), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "test_nn.c:");
    lc_status ended = lc_step_end(g);
    (void)ended;
    lc_graph_free(g);
    free(xs), free(w), free(b);
    lc_tensor_unref(x), lc_tensor_unref(bad);
    lc_module_release(&m);
}

/* A layer that is used before its init or after its release: the error names it, its init and the line. */
static void check_no_layer(lc_graph *g, lc_tensor *y, const char *forward, const char *init)
{
    CHECK(lc_tensor_is_error(y));
    CHECK_STATUS(lc_step_status(g), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), forward);
    CHECK_CONTAINS(lc_error_message(), "this layer was not initialized, or was released; call ");
    CHECK_CONTAINS(lc_error_message(), init);
    CHECK_CONTAINS(lc_error_message(), "test_nn.c:");
    CHECK_STATUS(lc_step_end(g), LC_ERR_ARGUMENT);
}

TEST(layers_that_are_not_initialized)
{
    lc_module m;
    lc_linear fc = {0};
    lc_conv2d conv = {0};
    lc_lstm lstm = {0};
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    for (int released = 0; released < 2; released++) {
        CHECK_OK(lc_step_begin(g, 0, 0));
        check_no_layer(g, lc_linear_forward(&fc, lc_zeros(LC_F32, 4, 3)), "lc_linear_forward", "lc_linear_init(");
        CHECK_OK(lc_step_begin(g, 0, 0));
        check_no_layer(g, lc_conv2d_forward(&conv, lc_zeros(LC_F32, 1, 3, 4, 4)), "lc_conv_forward",
                       "lc_convNd_init or");
        CHECK_OK(lc_step_begin(g, 0, 0));
        check_no_layer(g, lc_lstm_forward(&lstm, lc_zeros(LC_F32, 2, 1, 3)), "lc_rnn_forward",
                       "lc_lstm_init or lc_gru_init(");
        if (released) break;
        lc_module_init(&m, NULL, 0);
        lc_linear_init(&fc, &m, "fc", 3, 2);
        lc_conv2d_init(&conv, &m, "conv", 3, 2, 3);
        lc_lstm_init(&lstm, &m, "lstm", 3, 2);
        CHECK_OK(lc_module_status(&m));
        lc_module_release(&m);
    }
    lc_graph_free(g);
}

TEST(convolution_options_reach_the_operator)
{
    lc_module m;
    lc_conv2d c, wide;
    lc_conv1d line;
    lc_conv3d cube;
    lc_conv_transpose2d up;
    lc_max_pool2d pool;
    lc_avg_pool2d average;
    lc_adaptive_avg_pool2d one;
    lc_module_init(&m, NULL, 1);
    lc_conv2d_init(&c, &m, "c", 4, 6, 3, .padding = 1, .stride = 2, .groups = 2);
    lc_conv2d_init(&wide, &m, "wide", 4, 1, 0, .kernel_sizes = LC_DIMS(1, 5), .paddings = LC_DIMS(0, 2),
                   .dilations = LC_DIMS(1, 2));
    lc_conv1d_init(&line, &m, "line", 4, 2, 3);
    lc_conv3d_init(&cube, &m, "cube", 2, 2, 2);
    lc_conv_transpose2d_init(&up, &m, "up", 4, 3, 3, .stride = 2, .padding = 1, .output_padding = 1);
    lc_max_pool2d_init(&pool, &m, "pool", 3, .stride = 2, .padding = 1);
    lc_avg_pool2d_init(&average, &m, "average", 2);
    lc_adaptive_avg_pool2d_init(&one, &m, "one", 1);
    CHECK_OK(lc_module_status(&m));
    lc_tensor *x = X(1, 2, 4, 9, 12), *x1 = X(2, 2, 4, 8), *x3 = X(3, 2, 2, 4, 5, 6);
    lc_graph *g = begin(0);
    CHECK_SHAPE(lc_conv2d_forward(&c, x), 2, 6, 5, 6);
    CHECK_SHAPE(lc_conv2d_forward(&wide, x), 2, 1, 9, 8);
    CHECK_SHAPE(lc_conv1d_forward(&line, x1), 2, 2, 6);
    CHECK_SHAPE(lc_conv3d_forward(&cube, x3), 2, 2, 3, 4, 5);
    CHECK_SHAPE(lc_conv_transpose2d_forward(&up, x), 2, 3, 18, 24);
    CHECK_SHAPE(lc_max_pool2d_forward(&pool, x), 2, 4, 5, 6);
    CHECK_SHAPE(lc_avg_pool2d_forward(&average, x), 2, 4, 4, 6);
    CHECK_SHAPE(lc_adaptive_avg_pool2d_forward(&one, x), 2, 4, 1, 1);
    CHECK_OK(lc_step_run(g));
    end(g);
    lc_tensor_unref(x), lc_tensor_unref(x1), lc_tensor_unref(x3);
    lc_module_release(&m);
}

TEST(only_max_pooling_has_a_dilation)
{
    lc_module m;
    lc_max_pool2d pool;
    lc_avg_pool2d average;
    lc_adaptive_avg_pool2d adaptive;
    lc_module_init(&m, NULL, 1);
    lc_max_pool2d_init(&pool, &m, "pool", 3, .dilation = 2);
    CHECK_OK(lc_module_status(&m));
    lc_avg_pool2d_init(&average, &m, "average", 2, .dilation = 2);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "only MaxPool2d has a dilation");
    lc_module_release(&m);
    lc_module_init(&m, NULL, 1);
    lc_adaptive_avg_pool2d_init(&adaptive, &m, "adaptive", 1, .dilations = LC_DIMS(1, 2));
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    lc_module_release(&m);
}

TEST(batch_norm_tracks_in_training_only)
{
    lc_module m;
    lc_batch_norm1d bn;
    lc_module_init(&m, NULL, 1);
    lc_batch_norm1d_init(&bn, &m, "bn", 2);
    lc_tensor *x = X(1, 6, 2);
    float *xs = read_new(x), got[12], mean[2], var[2];
    double mu[2] = {0}, v[2] = {0};
    for (int i = 0; i < 12; i++) mu[i % 2] += (double)xs[i] / 6;
    for (int i = 0; i < 12; i++) v[i % 2] += pow((double)xs[i] - mu[i % 2], 2) / 6;
    lc_graph *g = begin(0);
    CHECK_OK(lc_tensor_read(lc_batch_norm1d_forward(&bn, x), got, sizeof got));
    end(g);
    for (int i = 0; i < 12; i++) CHECK_NEAR(got[i], ((double)xs[i] - mu[i % 2]) / sqrt(v[i % 2] + 1e-5), 1e-5);
    int64_t tracked;
    CHECK_OK(lc_tensor_read(bn.num_batches_tracked, &tracked, sizeof tracked));
    CHECK_EQ(tracked, 1);
    CHECK_OK(lc_tensor_read(bn.running_mean, mean, sizeof mean));
    CHECK_OK(lc_tensor_read(bn.running_var, var, sizeof var));
    for (int c = 0; c < 2; c++) {
        CHECK_NEAR(mean[c], 0.1 * mu[c], 1e-6);
        CHECK_NEAR(var[c], 0.9 + 0.1 * v[c] * 6 / 5, 1e-6);
    }
    lc_module_train(&m, false);
    g = begin(1);
    CHECK_OK(lc_tensor_read(lc_batch_norm1d_forward(&bn, x), got, sizeof got));
    end(g);
    for (int i = 0; i < 12; i++) {
        CHECK_NEAR(got[i], ((double)xs[i] - (double)mean[i % 2]) / sqrt((double)var[i % 2] + 1e-5), 1e-5);
    }
    CHECK_OK(lc_tensor_read(bn.num_batches_tracked, &tracked, sizeof tracked));
    CHECK_EQ(tracked, 1);
    float again[2];
    CHECK_OK(lc_tensor_read(bn.running_mean, again, sizeof again));
    CHECK(!memcmp(again, mean, sizeof mean));
    free(xs);
    lc_tensor_unref(x);
    lc_module_release(&m);
}

TEST(norms_normalize)
{
    lc_module m;
    lc_layer_norm ln;
    lc_group_norm gn;
    lc_rms_norm rms;
    lc_module_init(&m, NULL, 1);
    lc_layer_norm_init(&ln, &m, "ln", 0, .shape = LC_DIMS(4, 5));
    lc_group_norm_init(&gn, &m, "gn", 2, 4);
    lc_rms_norm_init(&rms, &m, "rms", 5);
    lc_tensor *x = X(1, 3, 4, 5);
    float y[60], z[60], r[60];
    lc_graph *g = begin(0);
    CHECK_OK(lc_tensor_read(lc_layer_norm_forward(&ln, x), y, sizeof y));
    CHECK_OK(lc_tensor_read(lc_forward(&gn, x), z, sizeof z));
    CHECK_OK(lc_tensor_read(lc_rms_norm_forward(&rms, x), r, sizeof r));
    end(g);
    for (int row = 0; row < 3; row++) {
        double sum = 0, square = 0;
        for (int i = 0; i < 20; i++) sum += (double)y[row * 20 + i], square += pow((double)y[row * 20 + i], 2);
        CHECK_NEAR(sum / 20, 0, 1e-5);
        CHECK_NEAR(square / 20, 1, 1e-3);
    }
    for (int group = 0; group < 6; group++) {
        double sum = 0;
        for (int i = 0; i < 10; i++) sum += (double)z[group * 10 + i];
        CHECK_NEAR(sum / 10, 0, 1e-5);
    }
    for (int row = 0; row < 12; row++) {
        double square = 0;
        for (int i = 0; i < 5; i++) square += pow((double)r[row * 5 + i], 2);
        CHECK_NEAR(square / 5, 1, 1e-4);
    }
    lc_tensor_unref(x);
    lc_module_release(&m);
}

TEST(embedding_rows_and_padding)
{
    lc_module m;
    lc_embedding e;
    lc_tensor *ids;
    float y[9], dw[12];
    lc_module_init(&m, NULL, 1);
    lc_embedding_init(&e, &m, "e", 4, 3, .padding_idx = 1);
    CHECK_OK(lc_tensor_new(LC_I64, 1, (int64_t[]){3}, &ids));
    CHECK_OK(lc_tensor_write(ids, (int64_t[]){2, 1, 2}, 24));
    float *w = read_new(e.weight);
    lc_graph *g = begin(0);
    lc_zero_grad(g);
    lc_tensor *out = lc_keep(lc_embedding_forward(&e, ids));
    lc_backward(lc_sum(out));
    lc_tensor *gradient = lc_keep(lc_gradient(e.weight));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(out, y, sizeof y));
    CHECK_OK(lc_tensor_read(gradient, dw, sizeof dw));
    end(g);
    for (int i = 0; i < 3; i++) {
        CHECK(y[i] == w[6 + i] && y[6 + i] == w[6 + i] && y[3 + i] == 0);
        CHECK(dw[i] == 0 && dw[3 + i] == 0 && dw[6 + i] == 2 && dw[9 + i] == 0);
    }
    free(w);
    lc_tensor_unref(ids);
    lc_module_release(&m);
}

TEST(dropout_in_training_only)
{
    lc_module m;
    lc_dropout d;
    lc_module_init(&m, NULL, 1);
    lc_dropout_init(&d, &m, "d", 0.25);
    lc_tensor *x = X(1, 4000);
    lc_graph *g = begin(0);
    float *xs = read_new(x), *y = read_new(lc_dropout_forward(&d, x));
    end(g);
    int dropped = 0;
    for (int i = 0; i < 4000; i++) {
        if (y[i] == 0)
            dropped++;
        else
            CHECK_NEAR(y[i], (double)xs[i] / 0.75, 1e-5);
    }
    CHECK(dropped > 850 && dropped < 1150);
    lc_module_train(&m, false);
    g = begin(0);
    CHECK(lc_dropout_forward(&d, x) == x);
    end(g);
    free(xs), free(y);
    lc_tensor_unref(x);
    lc_module_release(&m);
}

/* Attention written out for x [B,S,E], causal. */
static void attention(const float *x, const float *w, const float *b, const float *wo, const float *bo, int B, int S,
                      int E, int heads, float *y)
{
    int D = E / heads;
    float *qkv = calloc((size_t)(B * S * 3 * E), sizeof *qkv), *o = calloc((size_t)(B * S * E), sizeof *o);
    for (int r = 0; r < B * S; r++) {
        for (int k = 0; k < 3 * E; k++) {
            qkv[r * 3 * E + k] = b[k];
            for (int e = 0; e < E; e++) qkv[r * 3 * E + k] += x[r * E + e] * w[k * E + e];
        }
    }
    for (int i = 0; i < B * S * heads; i++) {
        int n = i / (S * heads), s = i / heads % S, h = i % heads;
        double p[64], total = 0;
        const float *q = qkv + (n * S + s) * 3 * E + h * D;
        for (int t = 0; t <= s; t++) {
            const float *k = qkv + (n * S + t) * 3 * E + E + h * D;
            double dot = 0;
            for (int d = 0; d < D; d++) dot += (double)(q[d] * k[d]);
            total += p[t] = exp(dot / sqrt(D));
        }
        for (int t = 0; t <= s; t++) {
            const float *v = qkv + (n * S + t) * 3 * E + 2 * E + h * D;
            for (int d = 0; d < D; d++) o[(n * S + s) * E + h * D + d] += (float)(p[t] / total) * v[d];
        }
    }
    for (int r = 0; r < B * S; r++) {
        for (int k = 0; k < E; k++) {
            y[r * E + k] = bo[k];
            for (int e = 0; e < E; e++) y[r * E + k] += o[r * E + e] * wo[k * E + e];
        }
    }
    free(qkv), free(o);
}

TEST(multihead_attention_forward)
{
    enum { B = 2, S = 5, E = 8 };
    lc_module m;
    lc_multihead_attention a, turned, dropped;
    lc_module_init(&m, NULL, 1);
    lc_multihead_attention_init(&a, &m, "a", E, 2);
    lc_multihead_attention_init(&turned, &m, "turned", E, 2, .seq_first = true);
    lc_multihead_attention_init(&dropped, &m, "dropped", E, 2, .dropout = 1e-12);
    lc_tensor *x = X(1, B, S, E), *other = X(2, B, 7, E), *mask = X(4, S, S);
    float *xs = read_new(x), *w = read_new(a.in_proj_weight), *b = read_new(a.in_proj_bias),
          *wo = read_new(a.out_proj.weight), *bo = read_new(a.out_proj.bias), want[B * S * E], got[B * S * E];
    lc_multihead_attention *copies[] = {&turned, &dropped};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lc_tensor_write(copies[i]->in_proj_weight, w, sizeof(float) * 3 * E * E));
        CHECK_OK(lc_tensor_write(copies[i]->out_proj.weight, wo, sizeof(float) * E * E));
    }
    attention(xs, w, b, wo, bo, B, S, E, 2, want);
    lc_graph *g = begin(0);
    CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&a, x, .causal = true), got, sizeof got));
    check_close(got, want, B * S * E, 1e-5);
    lc_tensor *y = lc_multihead_attention_forward(&turned, lc_transpose(x, 0, 1), .causal = true);
    CHECK_SHAPE(y, S, B, E);
    CHECK_OK(lc_tensor_read(lc_transpose(y, 0, 1), got, sizeof got));
    check_close(got, want, B * S * E, 1e-5);
    /* Dropout of weights in training, with a probability that drops none, and takes the other path. */
    CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&dropped, x, .causal = true), got, sizeof got));
    check_close(got, want, B * S * E, 1e-5);
    CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&dropped, x, .attn_mask = mask), got, sizeof got));
    CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&a, x, .attn_mask = mask), want, sizeof want));
    check_close(got, want, B * S * E, 1e-5);
    /* The first query sees nothing. */
    lc_tensor *seen = lc_gt(lc_reshape(lc_arange(0, 1, S * S, LC_F32), S, S), lc_scalar(S, LC_F32));
    lc_tensor *added = lc_masked_fill(mask, lc_logical_not(seen), -INFINITY);
    for (int i = 0; i < 2; i++) {
        lc_tensor *by = i ? added : seen;
        CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&dropped, x, .attn_mask = by), got, sizeof got));
        CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&a, x, .attn_mask = by), want, sizeof want));
        check_close(got, want, B * S * E, 1e-5);
        for (int e = 0; e < E; e++) CHECK_NEAR(got[e], bo[e], 1e-6);
    }
    /* Packed or projected separately: the same result. */
    lc_tensor *copy = lc_mul_scalar(x, 1);
    CHECK_OK(lc_tensor_read(lc_multihead_attention_forward(&a, x, .key = copy, .value = copy), got, sizeof got));
    CHECK_OK(lc_tensor_read(lc_forward(&a, x), want, sizeof want));
    check_close(got, want, B * S * E, 1e-5);
    CHECK_SHAPE(lc_multihead_attention_forward(&a, x, .key = other), B, S, E);
    lc_backward(lc_sum(lc_square(lc_multihead_attention_forward(&dropped, x, .attn_mask = added))));
    double total;
    CHECK_OK(lc_item(lc_sum(lc_gradient(dropped.in_proj_weight)), &total));
    CHECK(isfinite(total));
    end(g);
    free(xs), free(w), free(b), free(wo), free(bo);
    lc_tensor_unref(x), lc_tensor_unref(other), lc_tensor_unref(mask);
    lc_module_release(&m);
}

/* Layers and directions composed by hand from the operator for one of them. */
TEST(lstm_layers_and_directions)
{
    enum { B = 2, S = 4, H = 3 };
    lc_module m;
    lc_lstm l, turned;
    lc_module_init(&m, NULL, 1);
    lc_lstm_init(&l, &m, "l", 5, H, .num_layers = 2, .bidirectional = true);
    lc_lstm_init(&turned, &m, "t", 5, H, .num_layers = 2, .bidirectional = true, .seq_first = true);
    CHECK_OK(lc_module_status(&m));
    for (int i = 0; i < l.base.n_tensors; i++) {
        float *v = read_new(l.base.tensors[i].tensor);
        lc_tensor *to = turned.base.tensors[i].tensor;
        CHECK_OK(lc_tensor_write(to, v, (size_t)lc_tensor_numel(to) * sizeof *v));
        free(v);
    }
    lc_tensor *x = X(1, B, S, 5), *h0 = X(2, 4, B, H), *c0 = X(3, 4, B, H), *hn, *cn, *last;
    float got[B * S * 2 * H], want[B * S * 2 * H], h[4 * B * H], end_state[B * H];
    lc_graph *g = begin(0);
    lc_tensor *y = lc_lstm_forward(&l, x, .h0 = h0, .c0 = c0, .hn = &hn, .cn = &cn);
    CHECK_SHAPE(y, B, S, 2 * H);
    CHECK_SHAPE(hn, 4, B, H);
    CHECK_SHAPE(cn, 4, B, H);
    lc_tensor *z = x;
    for (int layer = 0; layer < 2; layer++) {
        lc_tensor *d[2];
        for (int k = 0; k < 2; k++) {
            int i = 2 * layer + k;
            lc_tensor *in = k ? lc_flip(z, 1) : z;
            d[k] = lc_lstm(in, l.weight_ih[i], l.weight_hh[i], .b_ih = l.bias_ih[i], .b_hh = l.bias_hh[i],
                           .h0 = lc_select(h0, 0, i), .c0 = lc_select(c0, 0, i), .h_n = &last);
            if (k) d[k] = lc_flip(d[k], 1);
        }
        z = lc_cat(2, d[0], d[1]);
    }
    CHECK_OK(lc_tensor_read(z, want, sizeof want));
    CHECK_OK(lc_tensor_read(y, got, sizeof got));
    check_close(got, want, B * S * 2 * H, 1e-6);
    CHECK_OK(lc_tensor_read(hn, h, sizeof h));
    CHECK_OK(lc_tensor_read(last, end_state, sizeof end_state));
    check_close(h + 3 * B * H, end_state, B * H, 1e-6);
    for (int n = 0; n < B; n++) { /* the forward direction ends at the last time step */
        for (int k = 0; k < H; k++) CHECK_NEAR(h[2 * B * H + n * H + k], got[(n * S + S - 1) * 2 * H + k], 1e-6);
    }
    y = lc_lstm_forward(&turned, lc_transpose(x, 0, 1), .h0 = h0, .c0 = c0);
    CHECK_OK(lc_tensor_read(lc_transpose(y, 0, 1), got, sizeof got));
    check_close(got, want, B * S * 2 * H, 1e-6);
    end(g);
    lc_tensor_unref(x), lc_tensor_unref(h0), lc_tensor_unref(c0);
    lc_module_release(&m);
}

TEST(sequential)
{
    lc_module m;
    lc_sequential net;
    char text[2000];
    lc_module_init(&m, NULL, 1);
    lc_sequential_init(&net, &m, "net");
    lc_sequential_add(&net, lc_conv2d, 1, 4, 3, .padding = 1);
    lc_sequential_add(&net, lc_batch_norm2d, 4);
    lc_sequential_add(&net, lc_activation, LC_ACT_RELU);
    lc_sequential_add(&net, lc_max_pool2d, 2);
    lc_sequential_add(&net, lc_flatten, 1);
    lc_sequential_add(&net, lc_dropout, 0.5);
    lc_sequential_add(&net, lc_linear, 64, 10, .no_bias = true);
    CHECK_STR(names(&m, text),
              "net.0.weight[4,1,3,3] net.0.bias[4] net.1.weight[4] net.1.bias[4] net.1.running_mean*[4] "
              "net.1.running_var*[4] net.1.num_batches_tracked*[] net.6.weight[10,64] ");
    CHECK_EQ(net.base.n_children, 7);
    CHECK_STR(net.base.children[2]->type, "ReLU");
    lc_tensor *x = X(1, 3, 1, 8, 8);
    float got[30], want[30];
    lc_module_train(&m, false);
    lc_graph *g = begin(0);
    lc_tensor *y = lc_forward(&net, x);
    CHECK_SHAPE(y, 3, 10);
    lc_conv2d *c = net.layers[0];
    lc_batch_norm2d *bn = net.layers[1];
    lc_linear *fc = net.layers[6];
    lc_tensor *z = lc_relu(lc_batch_norm2d_forward(bn, lc_conv2d_forward(c, x)));
    z = lc_linear_forward(fc, lc_flatten(lc_max_pool2d(z, 2), 1));
    CHECK_OK(lc_tensor_read(y, got, sizeof got));
    CHECK_OK(lc_tensor_read(z, want, sizeof want));
    check_close(got, want, 30, 1e-6);
    end(g);
    lc_tensor_unref(x);
    lc_module_release(&m);
}

TEST(every_activation)
{
    static const struct {
        lc_activation_kind kind;
        double a, want; /* at x = -0.5 */
    } cases[] = {
        {LC_ACT_RELU, 0, 0},
        {LC_ACT_TANH, 0, -0.46211715726},
        {LC_ACT_SIGMOID, 0, 0.37754066880},
        {LC_ACT_GELU, 0, -0.15426876936},
        {LC_ACT_GELU_TANH, 0, -0.15428599018},
        {LC_ACT_SILU, 0, -0.18877033440},
        {LC_ACT_LEAKY_RELU, LC_NOT_GIVEN, -0.005},
        {LC_ACT_LEAKY_RELU, 0, 0},
        {LC_ACT_LEAKY_RELU, 0.2, -0.1},
        {LC_ACT_ELU, LC_NOT_GIVEN, -0.39346934029},
        {LC_ACT_ELU, 2, -0.78693868057},
        {LC_ACT_RELU6, 0, 0},
        {LC_ACT_HARDSWISH, 0, -0.20833333333},
        {LC_ACT_HARDSIGMOID, 0, 0.41666666667},
        {LC_ACT_SOFTPLUS, 0, 0.47407698418},
        {LC_ACT_SOFTSIGN, 0, -0.33333333333},
        {LC_ACT_MISH, 0, -0.22074377},
        {LC_ACT_LOGSIGMOID, 0, -0.97407698418},
        {LC_ACT_SOFTMAX, 0, 1},
        {LC_ACT_LOG_SOFTMAX, 0, 0},
    };
    lc_module m;
    lc_tensor *x;
    lc_module_init(&m, NULL, 1);
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){2, 1}, &x));
    CHECK_OK(lc_tensor_write(x, (float[]){-0.5f, -0.5f}, 8));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lc_activation act;
        float y[2];
        lc_activation_init(&act, &m, "act", cases[i].kind, .a = cases[i].a);
        CHECK_OK(lc_module_status(&m));
        lc_graph *g = begin(0);
        CHECK_OK(lc_tensor_read(lc_forward(&act, x), y, sizeof y));
        if (!(fabs((double)y[1] - cases[i].want) <= 1e-6)) TEST_FAIL("%s: %.9g", act.base.type, (double)y[1]);
        end(g);
        lc_module_release(&act.base);
    }
    lc_tensor_unref(x);
    lc_module_release(&m);
}

/* An error of the parent, right away and not in the first step, which names the defaults that options start from. */
TEST(options_without_their_defaults)
{
    lc_module m;
    lc_linear l = {0};
    lc_module_init(&m, NULL, 3);
    lc_linear_init_with(&l, &m, "l", 8, &(lc_linear_init_args){.out_features = 2});
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "start from lc_linear_init_defaults()");
    lc_module_release(&m);
}

TEST(lists_of_the_wrong_length)
{
    lc_module m;
    lc_conv c;
    lc_pool p;
    lc_module_init(&m, NULL, 3);
    lc_conv2d_init(&c, &m, "c", 2, 4, 3, .strides = LC_DIMS(1, 2, 3));
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "c (Conv2d): strides has 3 numbers; give 1 or 2");
    lc_module_release(&m);
    lc_module_init(&m, NULL, 3);
    lc_max_pool2d_init(&p, &m, "p", 2, .kernel_sizes = LC_DIMS(1, 2, 3));
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "kernel_sizes has 3 numbers; give 1 or 2");
    lc_module_release(&m);
}

/* Some steps of training reduce the loss of a small network. */
TEST(a_network_learns)
{
    lc_module m;
    lc_sequential net;
    lc_module_init(&m, NULL, 3);
    lc_sequential_init(&net, &m, "net");
    lc_sequential_add(&net, lc_linear, 8, 16);
    lc_sequential_add(&net, lc_activation, LC_ACT_TANH);
    lc_sequential_add(&net, lc_linear, 16, 2);
    lc_optimizer *opt = lc_adam(&m, .lr = 0.02);
    lc_tensor *x = X(1, 32, 8), *y = X(2, 32, 2);
    lc_graph *g;
    double first = 0, last = 0;
    CHECK_OK(lc_graph_new(&g));
    for (uint64_t step = 0; step < 200; step++) {
        CHECK_OK(lc_step_begin(g, step, 0));
        lc_zero_grad(g);
        lc_tensor *loss = lc_keep(lc_mse_loss(lc_forward(&net, x), y));
        lc_backward(loss);
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_item(loss, &last));
        if (!step) first = last;
        CHECK_OK(lc_step_end(g));
    }
    if (!(last < 0.1 * first)) TEST_FAIL("loss %g -> %g", first, last);
    lc_graph_free(g);
    lc_optimizer_free(opt);
    lc_tensor_unref(x), lc_tensor_unref(y);
    lc_module_release(&m);
}

TEST_MAIN
