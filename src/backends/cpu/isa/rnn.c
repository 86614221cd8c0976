/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU, forward and backward, f32.
 *
 * Sequences of a batch do not depend on each other: a thread takes some of them through all steps, and no step waits
 * for another thread. The weights of the recurrent product are packed once per call into panels of PANEL columns, so
 * that the innermost loop reads them in order and keeps four rows of sums in registers. */
#include <string.h>

#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vec.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#if VW == 16
#define PANEL_VECTORS 4
#else
#define PANEL_VECTORS 2
#endif
#define PANEL (PANEL_VECTORS * VW)
#define ROWS  4

/* ---- the recurrent product ---- */
static int64_t padded(int64_t n)
{
    return (n + PANEL - 1) / PANEL * PANEL;
}

/* Panel p holds columns p*PANEL.. of a [K,N] matrix whose element (k, n) is w[k * wk + n * wn]; zeros at the end. */
static void pack(const float *w, int64_t wk, int64_t wn, int64_t K, int64_t N, float *to)
{
    for (int64_t n0 = 0; n0 < N; n0 += PANEL)
        for (int64_t k = 0; k < K; k++, to += PANEL)
            for (int64_t n = 0; n < PANEL; n++) to[n] = n0 + n < N ? w[k * wk + (n0 + n) * wn] : 0;
}

LC_INLINE void product_tile(int rows, const float *a, int64_t stride, int64_t K, const float *panel, float *z,
                            int64_t zs)
{
    vf sum[ROWS][PANEL_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PANEL_VECTORS; v++) sum[r][v] = vload(z + r * zs + v * VW);
    for (int64_t k = 0; k < K; k++) {
        vf w[PANEL_VECTORS];
        for (int v = 0; v < PANEL_VECTORS; v++) w[v] = vload(panel + k * PANEL + v * VW);
        for (int r = 0; r < rows; r++) {
            vf x = vsplat(a[r * stride + k]);
            for (int v = 0; v < PANEL_VECTORS; v++) sum[r][v] += x * w[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PANEL_VECTORS; v++) vstore(z + r * zs + v * VW, sum[r][v]);
}

/* z[rows, padded(N)] += a[rows, K] times the packed matrix. */
static void product(int64_t rows, const float *a, int64_t stride, int64_t K, int64_t N, const float *packed, float *z,
                    int64_t zs)
{
    for (int64_t n = 0; n < N; n += PANEL, packed += K * PANEL)
        for (int64_t r = 0; r < rows; r += ROWS) {
            const float *from = a + r * stride;
            float *to = z + r * zs + n;
            switch (rows - r) {
            case 1:
                product_tile(1, from, stride, K, packed, to, zs);
                break;
            case 2:
                product_tile(2, from, stride, K, packed, to, zs);
                break;
            case 3:
                product_tile(3, from, stride, K, packed, to, zs);
                break;
            default:
                product_tile(ROWS, from, stride, K, packed, to, zs);
            }
        }
}

/* Sequences that are computed together: enough to use the weights several times, few enough to occupy all threads. */
static int64_t block_of(int64_t batch)
{
    return batch >= 64 ? 16 : batch >= 16 ? 8 : 4;
}

typedef struct job {
    const lc_call *call;
    int64_t steps, H, G; /* G: gates times H */
    const float *packed;
    float *own; /* scratch of every thread, `each` floats */
    int64_t each;
} job;

static float *data_of(const lc_view *v)
{
    return given(v) ? v->data : NULL;
}

/* z[rows, G] = the bias of the hidden gates + h_prev w_hh^T at step t, for sequences from b on. */
static void hidden_part(const job *j, int64_t b, int64_t rows, int64_t t, float *z, int64_t zs)
{
    const lc_call *c = j->call;
    const float *bias = data_of(&c->in[2]), *h0 = data_of(&c->in[3]), *y = c->out[0].data;
    for (int64_t r = 0; r < rows; r++) {
        if (bias)
            memcpy(z + r * zs, bias, (size_t)j->G * sizeof *z);
        else
            memset(z + r * zs, 0, (size_t)j->G * sizeof *z);
        memset(z + r * zs + j->G, 0, (size_t)(zs - j->G) * sizeof *z);
    }
    if (t)
        product(rows, y + (b * j->steps + t - 1) * j->H, j->steps * j->H, j->H, j->G, j->packed, z, zs);
    else if (h0)
        product(rows, h0 + b * j->H, j->H, j->H, j->G, j->packed, z, zs);
}

/* ---- forward ---- */
static void lstm_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_call *c = j->call;
    const int64_t H = j->H, zs = padded(j->G);
    const float *c0 = data_of(&c->in[4]);
    float *z = j->own + thread * j->each, *zero = z + block_of(c->out[0].shape[0]) * zs;
    memset(zero, 0, (size_t)H * sizeof *zero);
    for (int64_t t = 0; t < j->steps; t++) {
        hidden_part(j, begin, end - begin, t, z, zs);
        for (int64_t b = begin; b < end; b++) {
            const int64_t at = b * j->steps + t;
            const float *gx = (const float *)c->in[0].data + at * j->G, *hidden = z + (b - begin) * zs;
            float *gates = (float *)c->out[3].data + at * j->G, *cells = (float *)c->out[4].data + at * H;
            float *y = (float *)c->out[0].data + at * H;
            const float *before = t ? cells - H : c0 ? c0 + b * H : zero;
            LC_IVDEP
            for (int64_t i = 0; i < H; i++) {
                float in = vm_sigmoid(gx[i] + hidden[i]), forget = vm_sigmoid(gx[H + i] + hidden[H + i]);
                float fresh = vm_tanh(gx[2 * H + i] + hidden[2 * H + i]);
                float out = vm_sigmoid(gx[3 * H + i] + hidden[3 * H + i]);
                float cell = forget * before[i] + in * fresh;
                gates[i] = in;
                gates[H + i] = forget;
                gates[2 * H + i] = fresh;
                gates[3 * H + i] = out;
                cells[i] = cell;
                y[i] = out * vm_tanh(cell);
            }
        }
    }
    for (int64_t b = begin; b < end; b++) {
        const int64_t last = (b * j->steps + j->steps - 1) * H;
        memcpy((float *)c->out[1].data + b * H, (float *)c->out[0].data + last, (size_t)H * sizeof(float));
        memcpy((float *)c->out[2].data + b * H, (float *)c->out[4].data + last, (size_t)H * sizeof(float));
    }
}

static void gru_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_call *c = j->call;
    const int64_t H = j->H, zs = padded(j->G);
    const float *h0 = data_of(&c->in[3]);
    float *z = j->own + thread * j->each, *zero = z + block_of(c->out[0].shape[0]) * zs;
    memset(zero, 0, (size_t)H * sizeof *zero);
    for (int64_t t = 0; t < j->steps; t++) {
        hidden_part(j, begin, end - begin, t, z, zs);
        for (int64_t b = begin; b < end; b++) {
            const int64_t at = b * j->steps + t;
            const float *gx = (const float *)c->in[0].data + at * j->G, *hidden = z + (b - begin) * zs;
            float *gates = (float *)c->out[2].data + at * 4 * H, *y = (float *)c->out[0].data + at * H;
            const float *before = t ? y - H : h0 ? h0 + b * H : zero;
            LC_IVDEP
            for (int64_t i = 0; i < H; i++) {
                float reset = vm_sigmoid(gx[i] + hidden[i]), update = vm_sigmoid(gx[H + i] + hidden[H + i]);
                float fresh = vm_tanh(gx[2 * H + i] + reset * hidden[2 * H + i]);
                gates[i] = reset;
                gates[H + i] = update;
                gates[2 * H + i] = fresh;
                gates[3 * H + i] = hidden[2 * H + i];
                y[i] = (1 - update) * fresh + update * before[i];
            }
        }
    }
    for (int64_t b = begin; b < end; b++)
        memcpy((float *)c->out[1].data + b * H, (float *)c->out[0].data + (b * j->steps + j->steps - 1) * H,
               (size_t)H * sizeof(float));
}

/* ---- backward ---- */
/* The state before every step of one sequence. */
static void store_previous(const job *j, int64_t b, const float *y, const float *h0, float *to)
{
    const size_t row = (size_t)j->H * sizeof(float);
    float *first = to + b * j->steps * j->H;
    if (h0)
        memcpy(first, h0 + b * j->H, row);
    else
        memset(first, 0, row);
    memcpy(first + j->H, y + b * j->steps * j->H, (size_t)(j->steps - 1) * row);
}

/* The gradient of a state as given, or zeros. */
static void start_state(const float *from, int64_t b, int64_t H, float *to)
{
    if (from)
        memcpy(to, from + b * H, (size_t)H * sizeof *to);
    else
        memset(to, 0, (size_t)H * sizeof *to);
}

static void lstm_backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_call *c = j->call;
    const int64_t H = j->H, hs = padded(H), rows = block_of(c->in[6].shape[0]);
    const float *dy = data_of(&c->in[0]), *h0 = data_of(&c->in[4]), *c0 = data_of(&c->in[5]);
    float *dh = j->own + thread * j->each, *dc = dh + rows * hs, *zero = dc + rows * H, *dgx = c->out[0].data;
    memset(zero, 0, (size_t)H * sizeof *zero);
    for (int64_t b = begin; b < end; b++) {
        start_state(data_of(&c->in[1]), b, H, dh + (b - begin) * hs);
        start_state(data_of(&c->in[2]), b, H, dc + (b - begin) * H);
        store_previous(j, b, c->in[6].data, h0, c->out[1].data);
    }
    for (int64_t t = j->steps - 1; t >= 0; t--) {
        for (int64_t b = begin; b < end; b++) {
            const int64_t at = b * j->steps + t;
            const float *g = (const float *)c->in[7].data + at * j->G, *cells = (const float *)c->in[8].data + at * H;
            const float *before = t ? cells - H : c0 ? c0 + b * H : zero, *in = dy ? dy + at * H : zero;
            float *d = dgx + at * j->G, *state = dc + (b - begin) * H, *hidden = dh + (b - begin) * hs;
            LC_IVDEP
            for (int64_t i = 0; i < H; i++) {
                float tc = vm_tanh(cells[i]), sum = hidden[i] + in[i], out = g[3 * H + i];
                float cell = state[i] + sum * out * (1 - tc * tc);
                float enter = g[i], forget = g[H + i], fresh = g[2 * H + i];
                d[i] = cell * fresh * enter * (1 - enter);
                d[H + i] = cell * before[i] * forget * (1 - forget);
                d[2 * H + i] = cell * enter * (1 - fresh * fresh);
                d[3 * H + i] = sum * tc * out * (1 - out);
                state[i] = cell * forget;
            }
        }
        memset(dh, 0, (size_t)((end - begin) * hs) * sizeof *dh);
        product(end - begin, dgx + (begin * j->steps + t) * j->G, j->steps * j->G, j->G, H, j->packed, dh, hs);
    }
    for (int64_t b = begin; b < end; b++) {
        memcpy((float *)c->out[2].data + b * H, dh + (b - begin) * hs, (size_t)H * sizeof(float));
        memcpy((float *)c->out[3].data + b * H, dc + (b - begin) * H, (size_t)H * sizeof(float));
    }
}

static void gru_backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_call *c = j->call;
    const int64_t H = j->H, hs = padded(H), rows = block_of(c->in[4].shape[0]);
    const float *dy = data_of(&c->in[0]), *h0 = data_of(&c->in[3]);
    float *dh = j->own + thread * j->each, *zero = dh + rows * hs, *dgx = c->out[0].data, *dgh = c->out[1].data;
    memset(zero, 0, (size_t)H * sizeof *zero);
    for (int64_t b = begin; b < end; b++) {
        memset(dh + (b - begin) * hs, 0, (size_t)hs * sizeof *dh);
        start_state(data_of(&c->in[1]), b, H, dh + (b - begin) * hs);
        store_previous(j, b, c->in[4].data, h0, c->out[2].data);
    }
    for (int64_t t = j->steps - 1; t >= 0; t--) {
        for (int64_t b = begin; b < end; b++) {
            const int64_t at = b * j->steps + t;
            const float *g = (const float *)c->in[5].data + at * 4 * H, *y = (const float *)c->in[4].data + at * H;
            const float *before = t ? y - H : h0 ? h0 + b * H : zero, *in = dy ? dy + at * H : zero;
            float *dx = dgx + at * j->G, *dz = dgh + at * j->G, *hidden = dh + (b - begin) * hs;
            LC_IVDEP
            for (int64_t i = 0; i < H; i++) {
                float reset = g[i], update = g[H + i], fresh = g[2 * H + i], sum = hidden[i] + in[i];
                float dn = sum * (1 - update) * (1 - fresh * fresh);
                float dr = dn * g[3 * H + i] * reset * (1 - reset);
                float du = sum * (before[i] - fresh) * update * (1 - update);
                dx[i] = dr;
                dx[H + i] = du;
                dx[2 * H + i] = dn;
                dz[i] = dr;
                dz[H + i] = du;
                dz[2 * H + i] = dn * reset;
                hidden[i] = sum * update;
            }
        }
        product(end - begin, dgh + (begin * j->steps + t) * j->G, j->steps * j->G, j->G, H, j->packed, dh, hs);
    }
    for (int64_t b = begin; b < end; b++)
        memcpy((float *)c->out[3].data + b * H, dh + (b - begin) * hs, (size_t)H * sizeof(float));
}

/* ---- calls ---- */
/* The scratch holds the packed weights, then `each` floats for every thread. Forward: the gates of some sequences and a
 * row of zeros; backward: the gradients of the states and a row of zeros. */
static int64_t packed_floats(const lc_view *w, bool backward)
{
    const int64_t H = w->shape[1], G = w->shape[0];
    return backward ? padded(H) * G : padded(G) * H;
}

static int64_t each_floats(const lc_view *w, const lc_view *y, bool backward)
{
    const int64_t H = w->shape[1], G = w->shape[0], rows = block_of(y->shape[0]);
    return ((backward ? rows * (padded(H) + H) : rows * padded(G)) + H + 15) / 16 * 16;
}

static lc_status prepare(lc_call *c, const lc_view *w, const lc_view *y, bool backward)
{
    int64_t threads = c->threads > 0 ? c->threads : 1;
    c->scratch_bytes = (size_t)(packed_floats(w, backward) + threads * each_floats(w, y, backward)) * sizeof(float);
    return LC_OK;
}

static void run(const lc_call *c, const lc_view *w, const lc_view *y, bool backward, lc__block_fn *rows)
{
    job j = {.call = c,
             .steps = y->shape[1],
             .H = w->shape[1],
             .G = w->shape[0],
             .packed = c->scratch,
             .own = (float *)c->scratch + packed_floats(w, backward),
             .each = each_floats(w, y, backward)};
    if (backward)
        pack(w->data, j.H, 1, j.G, j.H, c->scratch);
    else
        pack(w->data, 1, j.H, j.H, j.G, c->scratch);
    lc__parallel_for(c->threads, y->shape[0], block_of(y->shape[0]), rows, &j);
}

/* w, y: indices of the weights and the hidden states among the operands. */
#define RNN_KERNEL(op, w, y, backward)                                                                                 \
    static lc_status op##_prepare(lc_call *call)                                                                       \
    {                                                                                                                  \
        return prepare(call, &call->w, &call->y, backward);                                                            \
    }                                                                                                                  \
    static void op##_run(const lc_call *call)                                                                          \
    {                                                                                                                  \
        run(call, &call->w, &call->y, backward, op##_rows);                                                            \
    }                                                                                                                  \
    static const lc_kernel op##_kernel = {                                                                             \
        .name = #op "_" LC_ISA_STRING,                                                                                 \
        .layout = LC_WANT_ROW_MAJOR,                                                                                   \
        .supports = f32_call,                                                                                          \
        .prepare = op##_prepare,                                                                                       \
        .run = op##_run,                                                                                               \
    };
RNN_KERNEL(lstm, in[1], out[0], false)
RNN_KERNEL(lstm_backward, in[3], in[6], true)
RNN_KERNEL(gru, in[1], out[0], false)
RNN_KERNEL(gru_backward, in[2], in[4], true)

const lc__kernel_entry LC_ISA_NAME(lc__rnn_kernels)[] = {
    {&lc__op_lstm, &lstm_kernel},
    {&lc__op_lstm_backward, &lstm_backward_kernel},
    {&lc__op_gru, &gru_kernel},
    {&lc__op_gru_backward, &gru_backward_kernel},
    {NULL, NULL},
};
