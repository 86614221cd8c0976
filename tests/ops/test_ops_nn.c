/* SPDX-License-Identifier: Apache-2.0 */
/* The neural network operators, one row each: forward against naive code if that is short, backward against
 * central differences in f64, f32 against f64.
 *
 * The rows are those of check/rows_nn.h. */
#include "test.h"

#include <lightc/lightc.h>
#include "check/rows_nn.h"

enum { MAX_ELEMENTS = 4096 };

typedef struct value {
    int ndim;
    int64_t shape[LC_MAX_DIMS];
    int64_t n;
    int64_t below; /* integers */
    bool grad;
    double data[MAX_ELEMENTS];
} value;

/* Naive result from the inputs, any number of elements up to MAX_ELEMENTS. */
typedef void naive_fn(const value *in, double *y);

static value inputs[MAX_IN];

static void parse(const char *text, uint64_t key, value *v)
{
    char *p;
    memset(v, 0, sizeof *v);
    v->grad = !strchr(text, '!') && *text != 'i';
    char kind = *text++;
    if (kind == 'i') v->below = strtol(text, &p, 10), text = p + 1;
    v->n = 1;
    for (; *text && *text != '!'; text = *p == ',' ? p + 1 : p) {
        v->shape[v->ndim] = strtol(text, &p, 10);
        v->n *= v->shape[v->ndim++];
    }
    CHECK(v->n <= MAX_ELEMENTS);
    for (int64_t i = 0; i < v->n; i++) {
        double u = lc_random_uniform(key, (uint64_t)i);
        /* Rounded to f32, so that both data types start from the same numbers. */
        v->data[i] = kind == 'i'   ? (double)lc_random_below(key, (uint64_t)i, (uint64_t)v->below)
                     : kind == 'p' ? (float)(2 * u + 0.1)
                     : kind == 'u' ? (float)u
                                   : (float)lc_random_normal(key, (uint64_t)i);
    }
}

static void store(lc_tensor *t, const double *data, int64_t n)
{
    static float f[MAX_ELEMENTS];
    static int64_t l[MAX_ELEMENTS];
    for (int64_t i = 0; i < n; i++) f[i] = (float)data[i], l[i] = (int64_t)data[i];
    if (lc_tensor_dtype(t) == LC_F64)
        CHECK_OK(lc_tensor_write(t, data, (size_t)n * sizeof *data));
    else if (lc_tensor_dtype(t) == LC_F32)
        CHECK_OK(lc_tensor_write(t, f, (size_t)n * sizeof *f));
    else
        CHECK_OK(lc_tensor_write(t, l, (size_t)n * sizeof *l));
}

static void load(lc_tensor *t, double *data, int64_t n)
{
    static float f[MAX_ELEMENTS];
    CHECK_EQ(lc_tensor_numel(t), n);
    CHECK(n <= MAX_ELEMENTS);
    if (lc_tensor_dtype(t) == LC_F64) {
        CHECK_OK(lc_tensor_read(t, data, (size_t)n * sizeof *data));
        return;
    }
    CHECK_OK(lc_tensor_read(t, f, (size_t)n * sizeof *f));
    for (int64_t i = 0; i < n; i++) data[i] = f[i];
}

/* One set-up of a row in one data type. */
typedef struct bench {
    const row *r;
    lc_graph *g;
    int n_in;
    lc_tensor *in[MAX_IN], *cotangent;
    lc_dtype dtype;
    int64_t n_out;
} bench;

static void open_bench(bench *b, const row *r, lc_dtype dtype)
{
    memset(b, 0, sizeof *b);
    b->r = r;
    b->dtype = dtype;
    memset(inputs, 0, sizeof inputs);
    CHECK_OK(lc_graph_new(&b->g, .threads = 1, .seed = 5));
    for (; b->n_in < MAX_IN && r->in[b->n_in]; b->n_in++) {
        value *v = &inputs[b->n_in];
        parse(r->in[b->n_in], lc_random_key_name((uint64_t)b->n_in, r->name), v);
        CHECK_OK(lc_tensor_new(v->below ? LC_I64 : dtype, v->ndim, v->shape, &b->in[b->n_in]));
        store(b->in[b->n_in], v->data, v->n);
        lc_tensor_set_requires_grad(b->in[b->n_in], v->grad);
    }
}

static void close_bench(bench *b)
{
    for (int i = 0; i < b->n_in; i++) lc_tensor_unref(b->in[i]);
    lc_tensor_unref(b->cotangent);
    lc_graph_free(b->g);
}

/* The weighted sum of the result; also y and the gradients if requested. */
static double run(bench *b, double *y, double (*grad)[MAX_ELEMENTS])
{
    double loss_value;
    CHECK_OK(lc_step_begin(b->g, 1, 0));
    lc_tensor *out = b->r->build(b->in);
    CHECK_OK(lc_step_status(b->g));
    if (!b->cotangent) {
        static double c[MAX_ELEMENTS];
        b->n_out = lc_tensor_numel(out);
        CHECK(b->n_out <= MAX_ELEMENTS);
        for (int64_t i = 0; i < b->n_out; i++) c[i] = (float)lc_random_normal(77, (uint64_t)i);
        CHECK_OK(lc_tensor_new(b->dtype, lc_tensor_ndim(out), lc_tensor_shape(out), &b->cotangent));
        store(b->cotangent, c, b->n_out);
    }
    lc_tensor *loss = lc_sum(lc_mul(out, b->cotangent));
    lc_keep(loss);
    lc_tensor *gradients[MAX_IN] = {NULL};
    if (y) lc_keep(out);
    if (grad) {
        lc_zero_grad(b->g);
        lc_backward(loss);
        for (int i = 0; i < b->n_in; i++)
            if (inputs[i].grad) gradients[i] = lc_keep(lc_gradient(b->in[i]));
    }
    CHECK_OK(lc_step_run(b->g));
    CHECK_OK(lc_item(loss, &loss_value));
    if (y) load(out, y, b->n_out);
    for (int i = 0; i < b->n_in && grad; i++)
        if (gradients[i]) load(gradients[i], grad[i], inputs[i].n);
    CHECK_OK(lc_step_end(b->g));
    return loss_value;
}

static double largest(const double *x, int64_t n)
{
    double m = 1;
    for (int64_t i = 0; i < n; i++)
        if (fabs(x[i]) > m) m = fabs(x[i]);
    return m;
}

static naive_fn *naive_of(const row *r);

static void check_row(const row *r)
{
    static double y[MAX_ELEMENTS], y32[MAX_ELEMENTS], want[MAX_ELEMENTS];
    static double grad[MAX_IN][MAX_ELEMENTS], grad32[MAX_IN][MAX_ELEMENTS];
    bench b, s;
    open_bench(&b, r, LC_F64);
    run(&b, y, grad);
    naive_fn *naive = naive_of(r);
    if (naive) {
        naive(inputs, want);
        double scale = largest(want, b.n_out);
        for (int64_t i = 0; i < b.n_out; i++)
            if (!(fabs(y[i] - want[i]) <= 1e-12 * scale))
                TEST_FAIL("%s: element %d is %.15g, naive code gives %.15g", r->name, (int)i, y[i], want[i]);
    }
    for (int i = 0; i < b.n_in; i++) {
        if (!inputs[i].grad) continue;
        double tolerance = 1e-7 * largest(grad[i], inputs[i].n);
        const double h = 1e-5;
        /* For large inputs a sample of elements is enough. */
        for (int64_t e = 0; e<inputs[i].n; e += inputs[i].n> 60 ? inputs[i].n / 37 : 1) {
            double before = inputs[i].data[e];
            inputs[i].data[e] = before + h;
            store(b.in[i], inputs[i].data, inputs[i].n);
            double up = run(&b, NULL, NULL);
            inputs[i].data[e] = before - h;
            store(b.in[i], inputs[i].data, inputs[i].n);
            double down = run(&b, NULL, NULL);
            inputs[i].data[e] = before;
            store(b.in[i], inputs[i].data, inputs[i].n);
            double d = (up - down) / (2 * h);
            if (!(fabs(d - grad[i][e]) <= tolerance))
                TEST_FAIL("%s: gradient of input %d, element %d is %.12g, differences give %.12g", r->name, i, (int)e,
                          grad[i][e], d);
        }
    }
    open_bench(&s, r, LC_F32);
    run(&s, y32, grad32);
    CHECK_EQ(s.n_out, b.n_out);
    for (int64_t i = 0; i < b.n_out; i++)
        if (!(fabs(y32[i] - y[i]) <= 2e-6 * largest(y, b.n_out)))
            TEST_FAIL("%s: element %d is %.9g in f32, %.15g in f64", r->name, (int)i, y32[i], y[i]);
    for (int i = 0; i < b.n_in; i++)
        for (int64_t e = 0; e < inputs[i].n && inputs[i].grad; e++)
            if (!(fabs(grad32[i][e] - grad[i][e]) <= 3e-6 * largest(grad[i], inputs[i].n)))
                TEST_FAIL("%s: gradient of input %d, element %d is %.9g in f32, %.15g in f64", r->name, i, (int)e,
                          grad32[i][e], grad[i][e]);
    close_bench(&s);
    close_bench(&b);
}

/* ---- naive code ---- */
static void naive_matmul(const value *in, double *y)
{
    const value *a = &in[0], *b = &in[1];
    int64_t M = a->shape[a->ndim - 2], K = a->shape[a->ndim - 1], N = b->shape[b->ndim - 1];
    int64_t batch = a->n / M / K > b->n / K / N ? a->n / M / K : b->n / K / N;
    for (int64_t i = 0; i < batch * M * N; i++) {
        int64_t n = i % N, m = i / N % M, s = i / N / M;
        const double *x = a->data + (a->n == M * K ? 0 : s * M * K), *w = b->data + (b->n == K * N ? 0 : s * K * N);
        y[i] = 0;
        for (int64_t k = 0; k < K; k++) y[i] += x[m * K + k] * w[k * N + n];
    }
}

static void naive_linear(const value *in, double *y)
{
    int64_t I = in[1].shape[1], O = in[1].shape[0];
    for (int64_t i = 0; i < in[0].n / I * O; i++) {
        y[i] = in[2].data[i % O];
        for (int64_t k = 0; k < I; k++) y[i] += in[0].data[i / O * I + k] * in[1].data[i % O * I + k];
    }
}

/* x[N,C,H,W], w[O,C/g,kh,kw], b[O], all with the numbers of `conv_case`. */
static struct {
    int64_t stride, padding, dilation, groups;
} conv_case;

static void naive_conv(const value *in, double *y)
{
    const value *x = &in[0], *w = &in[1];
    int64_t C = x->shape[1], H = x->shape[2], W = x->shape[3], O = w->shape[0], cg = w->shape[1];
    int64_t kh = w->shape[2], kw = w->shape[3], s = conv_case.stride, p = conv_case.padding, d = conv_case.dilation;
    int64_t OH = (H + 2 * p - d * (kh - 1) - 1) / s + 1, OW = (W + 2 * p - d * (kw - 1) - 1) / s + 1, at = 0;
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t o = 0; o < O; o++)
            for (int64_t oh = 0; oh < OH; oh++)
                for (int64_t ow = 0; ow < OW; ow++, at++) {
                    y[at] = in[2].n ? in[2].data[o] : 0;
                    for (int64_t k = 0; k < cg * kh * kw; k++) {
                        int64_t c = k / kh / kw, h = oh * s - p + k / kw % kh * d, v = ow * s - p + k % kw * d;
                        if (h < 0 || h >= H || v < 0 || v >= W) continue;
                        int64_t from = o / (O / conv_case.groups) * cg + c;
                        y[at] += x->data[((n * C + from) * H + h) * W + v] * w->data[o * cg * kh * kw + k];
                    }
                }
}

/* Scatters x over the result: the definition of a transposed convolution. output_padding 1 with stride 2, padding 1. */
static void naive_transposed(const value *in, double *y)
{
    const value *x = &in[0], *w = &in[1];
    int64_t C = x->shape[1], H = x->shape[2], W = x->shape[3], O = w->shape[1], kh = w->shape[2], kw = w->shape[3];
    int64_t OH = (H - 1) * 2 - 2 + kh + 1, OW = (W - 1) * 2 - 2 + kw + 1;
    for (int64_t i = 0; i < x->shape[0] * O * OH * OW; i++) y[i] = in[2].data[i / OH / OW % O];
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t k = 0; k < O * kh * kw; k++) {
            int64_t c = i / H / W % C, n = i / H / W / C, o = k / kh / kw;
            int64_t h = i / W % H * 2 - 1 + k / kw % kh, v = i % W * 2 - 1 + k % kw;
            if (h < 0 || h >= OH || v < 0 || v >= OW) continue;
            y[((n * O + o) * OH + h) * OW + v] += x->data[i] * w->data[c * O * kh * kw + k];
        }
}

/* Windows of 3, stride 2, padding 1. */
static void naive_pool(const value *in, double *y, bool maximum)
{
    int64_t H = in->shape[2], W = in->shape[3], OH = (H - 1) / 2 + 1, OW = (W - 1) / 2 + 1;
    for (int64_t i = 0; i < in->n / H / W * OH * OW; i++) {
        double best = -INFINITY, sum = 0;
        for (int64_t k = 0; k < 9; k++) {
            int64_t h = i / OW % OH * 2 - 1 + k / 3, w = i % OW * 2 - 1 + k % 3;
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            double v = in->data[i / OH / OW * H * W + h * W + w];
            best = v > best ? v : best;
            sum += v;
        }
        y[i] = maximum ? best : sum / 9;
    }
}

static void naive_max_pool(const value *in, double *y)
{
    naive_pool(in, y, true);
}

static void naive_avg_pool(const value *in, double *y)
{
    naive_pool(in, y, false);
}

static void naive_layer_norm(const value *in, double *y)
{
    int64_t n = in[1].n;
    for (int64_t r = 0; r < in[0].n / n; r++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < n; i++) mean += in[0].data[r * n + i] / (double)n;
        for (int64_t i = 0; i < n; i++) var += pow(in[0].data[r * n + i] - mean, 2) / (double)n;
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = (in[0].data[r * n + i] - mean) / sqrt(var + 1e-5) * in[1].data[i] + in[2].data[i];
    }
}

static void naive_rms_norm(const value *in, double *y)
{
    int64_t n = in[1].n;
    for (int64_t r = 0; r < in[0].n / n; r++) {
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += pow(in[0].data[r * n + i], 2) / (double)n;
        for (int64_t i = 0; i < n; i++) y[r * n + i] = in[0].data[r * n + i] / sqrt(squares + 1e-6) * in[1].data[i];
    }
}

static void naive_group_norm(const value *in, double *y)
{
    int64_t C = in[0].shape[1], S = in[0].n / C / in[0].shape[0], n = C / 2 * S;
    for (int64_t r = 0; r < in[0].n / n; r++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < n; i++) mean += in[0].data[r * n + i] / (double)n;
        for (int64_t i = 0; i < n; i++) var += pow(in[0].data[r * n + i] - mean, 2) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            int64_t c = (r * n + i) / S % C;
            y[r * n + i] = (in[0].data[r * n + i] - mean) / sqrt(var + 1e-5) * in[1].data[c] + in[2].data[c];
        }
    }
}

static void naive_batch_norm(const value *in, double *y)
{
    int64_t C = in[0].shape[1], S = in[0].n / C / in[0].shape[0];
    for (int64_t c = 0; c < C; c++) {
        double mean = 0, var = 0, count = (double)(in[0].n / C);
        for (int64_t i = 0; i < in[0].n; i++) mean += i / S % C == c ? in[0].data[i] / count : 0;
        for (int64_t i = 0; i < in[0].n; i++) var += i / S % C == c ? pow(in[0].data[i] - mean, 2) / count : 0;
        for (int64_t i = 0; i < in[0].n; i++)
            if (i / S % C == c) y[i] = (in[0].data[i] - mean) / sqrt(var + 1e-5) * in[1].data[c] + in[2].data[c];
    }
}

static void naive_batch_norm_eval(const value *in, double *y)
{
    int64_t C = in[0].shape[1], S = in[0].n / C / in[0].shape[0];
    for (int64_t i = 0; i < in[0].n; i++) {
        int64_t c = i / S % C;
        y[i] = (in[0].data[i] - in[3].data[c]) / sqrt(in[4].data[c] + 1e-5) * in[1].data[c] + in[2].data[c];
    }
}

static void naive_embedding(const value *in, double *y)
{
    int64_t D = in[1].shape[1];
    for (int64_t i = 0; i < in[0].n * D; i++) y[i] = in[1].data[(int64_t)in[0].data[i / D] * D + i % D];
}

/* x[N,C,S], smoothing 0.1, class weights, class 2 ignored. */
static void naive_cross_entropy(const value *in, double *y)
{
    int64_t C = in[0].shape[1], S = in[0].shape[2];
    double sum = 0, total = 0;
    for (int64_t i = 0; i < in[1].n; i++) {
        int64_t label = (int64_t)in[1].data[i];
        const double *x = in[0].data + i / S * C * S + i % S;
        double norm = 0;
        if (label == 2) continue;
        for (int64_t c = 0; c < C; c++) norm += exp(x[c * S]);
        for (int64_t c = 0; c < C; c++)
            sum += (0.1 / (double)C + (c == label ? 0.9 : 0)) * in[2].data[c] * (log(norm) - x[c * S]);
        total += in[2].data[label];
    }
    y[0] = sum / total;
}

/* Causal, [B,S,D], as many keys as queries. */
static void naive_sdpa(const value *in, double *y)
{
    int64_t S = in[0].shape[1], D = in[0].shape[2], Dv = in[2].shape[2];
    for (int64_t r = 0; r < in[0].n / D; r++) {
        double p[64], sum = 0;
        int64_t b = r / S, s = r % S;
        for (int64_t j = 0; j <= s; j++) {
            p[j] = 0;
            for (int64_t d = 0; d < D; d++) p[j] += in[0].data[r * D + d] * in[1].data[(b * S + j) * D + d];
            sum += p[j] = exp(p[j] / sqrt((double)D));
        }
        for (int64_t d = 0; d < Dv; d++) {
            y[r * Dv + d] = 0;
            for (int64_t j = 0; j <= s; j++) y[r * Dv + d] += p[j] / sum * in[2].data[(b * S + j) * Dv + d];
        }
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* x, w_ih, w_hh, b_ih, b_hh */
static void naive_rnn(const value *in, double *y, bool lstm)
{
    int64_t B = in[0].shape[0], steps = in[0].shape[1], I = in[0].shape[2], H = in[2].shape[1], G = in[2].shape[0];
    for (int64_t b = 0; b < B; b++) {
        double h[16] = {0}, c[16] = {0};
        for (int64_t t = 0; t < steps; t++) {
            double zx[64], zh[64];
            for (int64_t g = 0; g < G; g++) {
                zx[g] = in[3].data[g], zh[g] = in[4].data[g];
                for (int64_t i = 0; i < I; i++) zx[g] += in[0].data[(b * steps + t) * I + i] * in[1].data[g * I + i];
                for (int64_t i = 0; i < H; i++) zh[g] += h[i] * in[2].data[g * H + i];
            }
            for (int64_t j = 0; j < H; j++) {
                if (lstm) {
                    c[j] = sigmoid(zx[H + j] + zh[H + j]) * c[j] +
                           sigmoid(zx[j] + zh[j]) * tanh(zx[2 * H + j] + zh[2 * H + j]);
                    h[j] = sigmoid(zx[3 * H + j] + zh[3 * H + j]) * tanh(c[j]);
                } else {
                    double r = sigmoid(zx[j] + zh[j]), z = sigmoid(zx[H + j] + zh[H + j]);
                    h[j] = (1 - z) * tanh(zx[2 * H + j] + r * zh[2 * H + j]) + z * h[j];
                }
                y[(b * steps + t) * H + j] = h[j];
            }
        }
    }
}

static void naive_lstm(const value *in, double *y)
{
    naive_rnn(in, y, true);
}

static void naive_gru(const value *in, double *y)
{
    naive_rnn(in, y, false);
}

static void naive_pixel_shuffle(const value *in, double *y)
{
    int64_t C = in->shape[1] / 4, H = in->shape[2], W = in->shape[3];
    for (int64_t i = 0; i < in->n; i++) {
        int64_t w = i % (2 * W), h = i / (2 * W) % (2 * H), c = i / (4 * W * H) % C, n = i / (4 * W * H) / C;
        y[i] = in->data[((n * 4 * C + c * 4 + h % 2 * 2 + w % 2) * H + h / 2) * W + w / 2];
    }
}

/* ---- rows that have naive code ---- */

static const struct {
    const char *name;
    naive_fn *naive;
} naives[] = {
    {"matmul", naive_matmul},
    {"matmul_batch", naive_matmul},
    {"matmul_folded", naive_matmul},
    {"matmul_broadcast", naive_matmul},
    {"matmul_blocks", naive_matmul},
    {"linear", naive_linear},
    {"linear_batch", naive_linear},
    {"linear_vector", naive_linear},
    {"conv2d", naive_conv},
    {"conv2d_stride", naive_conv},
    {"conv2d_groups", naive_conv},
    {"conv2d_dilation", naive_conv},
    {"conv2d_wide", naive_conv},
    {"conv_transpose2d", naive_transposed},
    {"max_pool2d", naive_max_pool},
    {"avg_pool2d", naive_avg_pool},
    {"pixel_shuffle", naive_pixel_shuffle},
    {"batch_norm", naive_batch_norm},
    {"batch_norm_1d", naive_batch_norm},
    {"batch_norm_3d", naive_batch_norm},
    {"batch_norm_5d", naive_batch_norm},
    {"batch_norm_eval", naive_batch_norm_eval},
    {"layer_norm", naive_layer_norm},
    {"layer_norm_2", naive_layer_norm},
    {"rms_norm", naive_rms_norm},
    {"group_norm", naive_group_norm},
    {"embedding", naive_embedding},
    {"cross_entropy", naive_cross_entropy},
    {"sdpa_causal", naive_sdpa},
    {"lstm", naive_lstm},
    {"gru", naive_gru},
};

static naive_fn *naive_of(const row *r)
{
    for (size_t i = 0; i < sizeof naives / sizeof *naives; i++)
        if (!strcmp(naives[i].name, r->name)) return naives[i].naive;
    return NULL;
}

static void check_family(const char *part)
{
    int seen = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i].name;
        if (strncmp(name, part, strlen(part))) continue;
        conv_case.stride = strstr(name, "stride") ? 2 : 1;
        conv_case.padding = strstr(name, "stride") ? 0 : 1;
        conv_case.dilation = strstr(name, "dilation") ? 2 : 1;
        conv_case.groups = strstr(name, "groups") ? 2 : 1;
        check_row(&rows[i]);
        seen++;
    }
    CHECK(seen > 0);
}

#define FAMILY(name)                                                                                                   \
    TEST(name)                                                                                                         \
    {                                                                                                                  \
        check_family(#name);                                                                                           \
    }
FAMILY(matmul)
FAMILY(linear)
FAMILY(conv2d)
FAMILY(conv1d)
FAMILY(conv3d)
FAMILY(conv_transpose)
FAMILY(conv_weight_grad)
FAMILY(max_pool)
FAMILY(avg_pool)
FAMILY(adaptive_avg_pool2d)
FAMILY(interpolate)
FAMILY(pixel)
FAMILY(batch_norm)
FAMILY(layer_norm)
FAMILY(rms_norm)
FAMILY(group_norm)
FAMILY(embedding)
FAMILY(cross_entropy)
FAMILY(nll_loss)
FAMILY(sdpa)
FAMILY(dropout)
FAMILY(lstm)
FAMILY(gru)

TEST_MAIN
